package tokenizer

import (
	"container/list"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"unicode/utf8"
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
// only after a special token, and only if both texts agree behind it for as long as a
// special token can be, so that the same tokens are found. Ids depend only on the text,
// so users who share a Cache learn nothing about each other.
//
// It is safe for concurrent use. The time of a look-up does not grow with the number
// of texts, since a busy server keeps many thousands of short ones.
type Cache struct {
	tokenizer *Tokenizer
	bytesMax  int
	seed      maphash.Seed

	mu      sync.Mutex
	bytes   int
	entries list.List // of *entry, most recently used first
	// index has the starts of all entries by their keys. Where entries share one, it
	// names the newest of them.
	index map[uint64]*list.Element
}

// entry is a text that was encoded with ParseSpecial.
type entry struct {
	text   string
	ids    []int32 // without what AddSpecial adds
	cuts   []place
	starts []start // of the first cuts: the last ones may be too near to the text's end
}

// bytes returns the approximate memory of an entry.
func (e *entry) bytes() int {
	return len(e.text) + 4*len(e.ids) + 16*len(e.cuts) + 56*len(e.starts) + 160
}

// start is a beginning of a text that another text may share: it goes on behind a cut for
// as many bytes as decide about the cut.
type start struct {
	cut, end int
	key      uint64 // hash of the text up to end
}

// NewCache makes a Cache that keeps up to about bytesMax bytes; 0 keeps nothing.
func NewCache(t *Tokenizer, bytesMax int) *Cache {
	return &Cache{tokenizer: t, bytesMax: bytesMax, seed: maphash.MakeSeed(), index: map[uint64]*list.Element{}}
}

// Encode is Tokenizer.EncodeContext with reuse. The caller owns the ids.
func (c *Cache) Encode(ctx context.Context, text string, o EncodeOptions) ([]int32, error) {
	t := c.tokenizer
	if !o.ParseSpecial || c.bytesMax == 0 {
		return t.EncodeContext(ctx, nil, text, o)
	}
	e := &entry{text: text, starts: c.starts(ctx, text)}
	known, cuts := c.longest(e)
	j := &journal{}
	at := place{}
	if cuts > 0 {
		at = known.cuts[cuts-1]
		e.ids = slices.Clone(known.ids[:at.ids])
		j.cuts = slices.Clone(known.cuts[:cuts])
	}
	s := t.scratch.Get().(*scratch)
	s.ctx, s.work = ctx, 0
	e.ids = t.pieces(e.ids, text[at.text:], at.text == 0, o, s, j)
	for i := cuts; i < len(j.cuts); i++ {
		j.cuts[i].text += at.text
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

// starts returns the starts of text, shortest first.
func (c *Cache) starts(ctx context.Context, text string) (starts []start) {
	specials := &c.tokenizer.specials
	reach := max(specials.longest, utf8.UTFMax) // a token that must be a word depends on the next character
	var h maphash.Hash
	h.SetSeed(c.seed)
	hashed := 0
	for rest := text; ctx.Err() == nil; {
		_, token, after, cut := specials.split(rest, true)
		rest = after
		at := len(text) - len(rest)
		end := at + reach
		if token.id == none || end > len(text) {
			break
		}
		if cut {
			h.WriteString(text[hashed:end])
			hashed = end
			starts = append(starts, start{cut: at, end: end, key: h.Sum64()})
		}
	}
	return starts
}

// longest finds the entry that shares the longest start with e, and how many of its
// cuts they share.
func (c *Cache) longest(e *entry) (known *entry, cuts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range slices.Backward(e.starts) {
		node, ok := c.index[s.key]
		if !ok {
			continue
		}
		known = node.Value.(*entry)
		if i < len(known.starts) && known.starts[i].end == s.end && known.text[:s.end] == e.text[:s.end] { // not just the same hash
			c.entries.MoveToFront(node)
			return known, i + 1
		}
	}
	return nil, 0
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
	node := c.entries.PushFront(e)
	for _, s := range e.starts {
		c.index[s.key] = node
	}
	c.bytes += e.bytes()
	for c.bytes > c.bytesMax {
		c.evict(c.entries.Back())
	}
}

// evict forgets an entry. What of it others share, a newer one has in the index.
func (c *Cache) evict(node *list.Element) {
	e := c.entries.Remove(node).(*entry)
	c.bytes -= e.bytes()
	for _, s := range e.starts {
		if c.index[s.key] == node {
			delete(c.index, s.key)
		}
	}
}
