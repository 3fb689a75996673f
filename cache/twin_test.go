package cache

import (
	"fmt"
	"slices"
)

// twin is the pool written the obvious way: a block is the string of all
// tokens up to its end, references are counted by looking, and the eviction
// order is a slice. It knows no page ids, only how many pages there must be.
type twin struct {
	total, pageTokens int
	open              []*twinSeq
	cached            []string // in eviction order
	partials          int      // ids given to incomplete pages
}

type twinSeq struct {
	salt     string
	tokens   []int32 // computed
	partial  int     // id of the incomplete page; 0 when there is none
	reserved int     // pages beyond the last token's
	claim    string  // prefix of the claimed block
}

func prefix(salt string, tokens []int32) string { return fmt.Sprint(salt, tokens) }

// blocks are the prefixes of the whole blocks of s.
func (w *twin) blocks(s *twinSeq) (list []string) {
	for n := w.pageTokens; n <= len(s.tokens); n += w.pageTokens {
		list = append(list, prefix(s.salt, s.tokens[:n]))
	}
	return list
}

func (w *twin) held(block string) bool {
	return slices.ContainsFunc(w.open, func(s *twinSeq) bool { return slices.Contains(w.blocks(s), block) })
}

func (w *twin) counts() Counts {
	used := make(map[any]bool)
	reserved := 0
	for _, s := range w.open {
		for _, b := range w.blocks(s) {
			used[b] = true
		}
		if s.partial != 0 {
			used[s.partial] = true
		}
		reserved += s.reserved
	}
	c := Counts{Total: w.total, Used: len(used) + reserved, Cached: len(w.cached)}
	c.Free = c.Total - c.Used - c.Cached
	return c
}

func (w *twin) attach(s *twinSeq, tokens []int32) {
	if len(s.tokens)%w.pageTokens != 0 {
		return
	}
	for n := len(s.tokens) + w.pageTokens; n < len(tokens); n += w.pageTokens {
		b := prefix(s.salt, tokens[:n])
		i := slices.Index(w.cached, b)
		if i < 0 && !w.held(b) {
			return
		}
		if i >= 0 {
			w.cached = slices.Delete(w.cached, i, i+1)
		}
		s.tokens, s.reserved = slices.Clone(tokens[:n]), 0
	}
}

func (w *twin) claim(s *twinSeq, tokens []int32) bool {
	if s.claim != "" {
		return true
	}
	w.attach(s, tokens)
	end := (len(s.tokens)/w.pageTokens + 1) * w.pageTokens
	if end > len(tokens) {
		return true
	}
	b := prefix(s.salt, tokens[:end])
	if slices.ContainsFunc(w.open, func(o *twinSeq) bool { return o.claim == b }) {
		return len(s.tokens)%w.pageTokens != 0 || end == len(tokens)
	}
	s.claim = b
	return true
}

func (w *twin) shared(s *twinSeq) bool {
	return s.partial != 0 && slices.ContainsFunc(w.open, func(o *twinSeq) bool { return o != s && o.partial == s.partial })
}

func (w *twin) reserve(s *twinSeq, n int) bool {
	if n == 0 {
		return true
	}
	up := func(tokens int) int { return (tokens + w.pageTokens - 1) / w.pageTokens }
	more := max(0, up(len(s.tokens)+n)-up(len(s.tokens))-s.reserved)
	need := more
	if w.shared(s) {
		need++
	}
	c := w.counts()
	if need > c.Free+c.Cached {
		return false
	}
	w.cached = w.cached[max(0, need-c.Free):]
	if w.shared(s) {
		w.partials++
		s.partial = w.partials
	}
	s.reserved += more
	return true
}

func (w *twin) commit(s *twinSeq, tokens []int32) {
	for _, t := range tokens {
		if s.partial == 0 {
			w.partials++
			s.partial, s.reserved = w.partials, s.reserved-1
		}
		s.tokens = append(slices.Clip(s.tokens), t)
		if len(s.tokens)%w.pageTokens == 0 {
			s.partial, s.claim = 0, ""
			b := prefix(s.salt, s.tokens)
			if i := slices.Index(w.cached, b); i >= 0 { // s moves to the older one
				w.cached = slices.Delete(w.cached, i, i+1)
			}
		}
	}
}

func (w *twin) fork(s *twinSeq) *twinSeq {
	f := &twinSeq{salt: s.salt, tokens: slices.Clone(s.tokens), partial: s.partial}
	w.open = append(w.open, f)
	return f
}

func (w *twin) close(s *twinSeq) {
	w.open = slices.DeleteFunc(w.open, func(o *twinSeq) bool { return o == s })
	blocks := w.blocks(s)
	slices.Reverse(blocks)
	for _, b := range blocks {
		if !w.held(b) {
			w.cached = append(w.cached, b)
		}
	}
}
