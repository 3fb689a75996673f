package tokenizer

import (
	"container/list"
	"context"
	"slices"
	"sync"
)

// journal records the places of a text where encoding restarts: after special
// tokens.
type journal struct{ cuts []place }

// place is an offset in a text, and the number of ids up to it.
type place struct{ text, ids int }

func (j *journal) note(text, ids int) {
	if j != nil {
		j.cuts = append(j.cuts, place{text, ids})
	}
}

// Cache encodes texts and reuses the ids of earlier texts with the same beginning,
// such as the turns of a chat. Its results equal Encode's: a text is continued
// only after a special token, and only if both texts agree after it for the length
// of the longest special token, so that the same tokens are found. Ids depend only
// on the text, so users who share a Cache learn nothing about each other.
//
// It is safe for concurrent use.
type Cache struct {
	tokenizer *Tokenizer
	bytesMax  int

	mu      sync.Mutex
	bytes   int
	entries list.List // of *entry, most recently used first
}

// entry is a text that was encoded with ParseSpecial.
type entry struct {
	text string
	ids  []int32 // without what AddSpecial adds
	cuts []place
}

// bytes returns the approximate memory of an entry.
func (e *entry) bytes() int { return len(e.text) + 4*len(e.ids) + 16*len(e.cuts) + 128 }

// NewCache makes a Cache that keeps up to about bytesMax bytes; 0 keeps nothing.
func NewCache(t *Tokenizer, bytesMax int) *Cache { return &Cache{tokenizer: t, bytesMax: bytesMax} }

// Encode is Tokenizer.EncodeContext with reuse. The caller owns the ids.
func (c *Cache) Encode(ctx context.Context, text string, o EncodeOptions) ([]int32, error) {
	t := c.tokenizer
	if !o.ParseSpecial || c.bytesMax == 0 {
		return t.EncodeContext(ctx, nil, text, o)
	}
	known, at := c.longest(text)
	e := &entry{text: text}
	j := &journal{}
	if known != nil {
		e.ids = slices.Clone(known.ids[:at.ids])
		j.cuts = slices.Clone(known.cuts[:slices.Index(known.cuts, at)+1])
	}
	s := t.scratch.Get().(*scratch)
	s.ctx, s.work = ctx, 0
	from := len(j.cuts)
	e.ids = t.pieces(e.ids, text[at.text:], at.text == 0, o, s, j)
	for i := range j.cuts[from:] {
		j.cuts[from+i].text += at.text
	}
	s.ctx = nil
	if cap(s.symbols) <= scratchSymbolsMax {
		t.scratch.Put(s)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.cuts = j.cuts
	c.keep(e)
	if !o.AddSpecial {
		return slices.Clone(e.ids), nil
	}
	return slices.Concat(t.before, e.ids, t.after), nil
}

// longest finds the entry that shares the longest prefix with text, and the last
// place where encoding can continue.
func (c *Cache) longest(text string) (best *entry, at place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var node *list.Element
	for n := c.entries.Front(); n != nil; n = n.Next() {
		e := n.Value.(*entry)
		if at.text > 0 && (len(e.text) < at.text || e.text[:at.text] != text[:at.text]) {
			continue
		}
		shared := sharedPrefix(e.text, text)
		if cut, ok := e.lastCut(shared, c.tokenizer.specials.longest); ok && cut.text > at.text {
			best, at, node = e, cut, n
		}
	}
	if node != nil {
		c.entries.MoveToFront(node)
	}
	return best, at
}

// lastCut returns the last place that is followed by at least reach bytes of shared
// text.
func (e *entry) lastCut(shared, reach int) (place, bool) {
	for i := len(e.cuts) - 1; i >= 0; i-- {
		if e.cuts[i].text+reach <= shared {
			return e.cuts[i], true
		}
	}
	return place{}, false
}

func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	const step = 64
	at := 0
	for at+step <= n && a[at:at+step] == b[at:at+step] {
		at += step
	}
	for at < n && a[at] == b[at] {
		at++
	}
	return at
}

// keep adds an entry and evicts the least recently used ones to make room.
func (c *Cache) keep(e *entry) {
	if e.bytes() > c.bytesMax {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if front := c.entries.Front(); front != nil && front.Value.(*entry).text == e.text {
		return
	}
	c.entries.PushFront(e)
	c.bytes += e.bytes()
	for c.bytes > c.bytesMax {
		last := c.entries.Back()
		c.bytes -= c.entries.Remove(last).(*entry).bytes()
	}
}
