package tokenizer

import "context"

// scratch is the working memory of one Encode, kept between calls.
type scratch struct {
	symbols []symbol
	heap    []candidate
	text    []byte
	words   wordCache
	merges  int // candidates examined; tests bound it

	steps []step // of a unigram model's word

	ctx  context.Context // nil if the work cannot be cancelled
	work int             // since the last check of ctx
}

// stopEvery is the work, in bytes of text or merges, between two checks of ctx.
const stopEvery = 1 << 14

// stopped reports whether the work was cancelled. The encoded ids are then invalid.
func (s *scratch) stopped(work int) bool {
	if s.ctx == nil {
		return false
	}
	if s.work += work; s.work < stopEvery {
		return false
	}
	s.work = 0
	return s.ctx.Err() != nil
}

// merger encodes a piece by merging.
type merger interface {
	merged(dst []int32, piece string, s *scratch) []int32
}

// cached encodes a piece, or returns its cached ids.
func (s *scratch) cached(dst []int32, piece string, m merger) []int32 {
	if len(piece) > wordBytesMax {
		return m.merged(dst, piece, s)
	}
	e, known := s.words.slot(piece)
	if known {
		return append(dst, e.ids[:e.n]...)
	}
	n := len(dst)
	dst = m.merged(dst, piece, s)
	e.put(piece, dst[n:])
	return dst
}

// scratchSymbolsMax is the longest word whose working memory, about 4 MB, is kept.
const scratchSymbolsMax = 1 << 16

// symbol is a part of the text being merged; symbols form a linked list.
type symbol struct {
	id         int32
	start, end int32
	prev, next int32 // indexes of symbols, -1 at the ends
}

// candidate is a possible merge of symbol left and its successor. Symbols only
// grow, so it is stale exactly if left was merged away or its successor ends
// elsewhere.
type candidate struct {
	key  uint64 // smallest first: the merge's priority, then its position
	id   int32
	end  int32 // of the second symbol
	left int32
}

// push and pop keep heap ordered by key.
func (s *scratch) push(c candidate) {
	h := append(s.heap, c)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h[up].key <= c.key {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = c
	s.heap = h
}

func (s *scratch) pop() candidate {
	h := s.heap
	top, c := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	s.heap = h
	for i := 0; len(h) > 0; {
		down := 2*i + 1
		if down+1 < len(h) && h[down+1].key < h[down].key {
			down++
		}
		if down >= len(h) || c.key <= h[down].key {
			h[i] = c
			break
		}
		h[i] = h[down]
		i = down
	}
	return top
}

// pairs finds the merge of two neighbouring symbols and its priority (smallest
// first); ok is false if they do not merge.
type pairs interface {
	pair(s *scratch, left, right *symbol) (id int32, priority uint32, ok bool)
}

// shortMax is the largest number of symbols that are merged by quadratic search.
const shortMax = 48

// mergeShort is merge for few symbols.
func (s *scratch) mergeShort(p pairs) {
	list := s.symbols
	var known [shortMax]candidate
	look := func(i int) {
		if i < 0 || i+1 >= len(list) {
			return
		}
		id, priority, ok := p.pair(s, &list[i], &list[i+1])
		if known[i] = (candidate{key: noMerge}); ok {
			known[i] = candidate{key: uint64(priority), id: id}
		}
	}
	for i := range list {
		look(i)
	}
	for {
		best := 0
		for i := 1; i < len(list)-1; i++ {
			if known[i].key < known[best].key {
				best = i
			}
		}
		if len(list) < 2 || known[best].key == noMerge {
			break
		}
		list[best].id, list[best].end = known[best].id, list[best+1].end
		copy(known[best+1:], known[best+2:len(list)])
		list = append(list[:best+1], list[best+2:]...)
		look(best - 1)
		look(best)
	}
	for i := range list {
		list[i].next = int32(i + 1)
	}
	list[len(list)-1].next = -1
}

const noMerge = 1 << 63

// merge merges symbols until no pair is left: the pair with the best priority
// first, and the leftmost of equal ones. n symbols cost n log n. The result is the
// linked list that begins with symbol 0.
func (s *scratch) merge(p pairs) {
	if len(s.symbols) <= shortMax {
		s.mergeShort(p)
		return
	}
	s.heap = s.heap[:0]
	add := func(left int32) {
		if left < 0 || s.symbols[left].next < 0 {
			return
		}
		s.merges++
		l := &s.symbols[left]
		r := &s.symbols[l.next]
		if id, priority, ok := p.pair(s, l, r); ok {
			s.push(candidate{uint64(priority)<<32 | uint64(left), id, r.end, left})
		}
	}
	for i := 0; i < len(s.symbols) && !s.stopped(1); i++ {
		add(int32(i))
	}
	for len(s.heap) > 0 && !s.stopped(1) {
		c := s.pop()
		l := &s.symbols[c.left]
		if l.end < 0 || l.next < 0 || s.symbols[l.next].end != c.end {
			continue
		}
		r := &s.symbols[l.next]
		l.id, l.end, l.next = c.id, r.end, r.next
		r.end = -1
		if l.next >= 0 {
			s.symbols[l.next].prev = c.left
		}
		add(l.prev)
		add(c.left)
	}
}

// wordCache caches the ids of short words, because most words of a text repeat. It
// is direct-mapped; a collision replaces the entry.
type wordCache struct{ entries []wordEntry }

const (
	wordBytesMax = 15
	wordIDsMax   = 4
	wordSlots    = 16384
)

type wordEntry struct {
	word [wordBytesMax]byte
	size uint8 // 0 in an empty slot
	n    int32
	ids  [wordIDsMax]int32
}

// slot returns the entry for a word of at most wordBytesMax bytes, and whether it
// holds that word.
func (c *wordCache) slot(word string) (*wordEntry, bool) {
	if c.entries == nil {
		c.entries = make([]wordEntry, wordSlots)
	}
	h := uint32(2166136261)
	for i := range len(word) {
		h = (h ^ uint32(word[i])) * 16777619
	}
	e := &c.entries[(h^h>>15)%wordSlots]
	return e, int(e.size) == len(word) && string(e.word[:e.size]) == word
}

func (e *wordEntry) put(word string, ids []int32) {
	if len(ids) <= wordIDsMax {
		e.size = uint8(copy(e.word[:], word))
		e.n = int32(copy(e.ids[:], ids))
	}
}
