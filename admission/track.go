package admission

import (
	"slices"
	"time"
)

// track holds the waiting requests of a level that have a goal, in the order of
// service. It is a list of blocks with sums, so that a forecast can skip a block
// without looking at each of its requests.
//
// Invariants: entries ascend over all blocks; a block has at least one entry and
// less than blockMax; its sums are those of its entries.
type track struct {
	blocks []*block
	spare  []*block
}

type block struct {
	entries []*Entry
	sums
	earliest   time.Duration // smallest due
	prefillMax time.Duration // largest prefill
}

// sums are what several requests need together.
type sums struct {
	short, long time.Duration // prefill by lane
	sequences   int
	kv          int // memory, in tokens
}

// add counts e in; a sign of -1 counts it out.
func (s *sums) add(e *Entry, sign int) {
	if e.long {
		s.long += time.Duration(sign) * e.prefill
	} else {
		s.short += time.Duration(sign) * e.prefill
	}
	s.sequences += sign * e.demand.Sequences
	s.kv += sign * e.kv
}

// addUnderWay counts in what is left of a prefill under way.
func (s *sums) addUnderWay(u underWay) {
	if u.long {
		s.long += u.rest
	} else {
		s.short += u.rest
	}
}

func (s *sums) addAll(o *sums) {
	s.short += o.short
	s.long += o.long
	s.sequences += o.sequences
	s.kv += o.kv
}

// addPart adds a part of the short o, from 0 to 1.
func (s *sums) addPart(o *sums, part float64) {
	s.short += time.Duration(part * float64(o.short))
	s.sequences += int(part * float64(o.sequences))
	s.kv += int(part * float64(o.kv))
}

const blockMax = 256

// find is the block in which e is or belongs, and its place there.
func (t *track) find(e *Entry) (i, j int) {
	i, _ = slices.BinarySearchFunc(t.blocks, e, func(b *block, e *Entry) int {
		return compareEntries(b.entries[len(b.entries)-1], e)
	})
	if i == len(t.blocks) {
		i = max(0, i-1)
	}
	if i < len(t.blocks) {
		j, _ = slices.BinarySearchFunc(t.blocks[i].entries, e, compareEntries)
	}
	return i, j
}

func (t *track) insert(e *Entry) {
	i, j := t.find(e)
	if len(t.blocks) == 0 {
		t.blocks = append(t.blocks, t.fresh())
	}
	b := t.blocks[i]
	b.entries = slices.Insert(b.entries, j, e)
	b.add(e, 1)
	b.note(e, len(b.entries) == 1)
	e.onTrack = true
	if len(b.entries) == blockMax {
		half := t.fresh()
		half.entries = append(half.entries, b.entries[blockMax/2:]...)
		clear(b.entries[blockMax/2:])
		b.entries = b.entries[:blockMax/2]
		b.recount()
		half.recount()
		t.blocks = slices.Insert(t.blocks, i+1, half)
	}
}

// remove takes e off the track; it does nothing for an e that is not on it.
func (t *track) remove(e *Entry) {
	if !e.onTrack {
		return
	}
	e.onTrack = false
	i, j := t.find(e)
	b := t.blocks[i]
	b.entries = slices.Delete(b.entries, j, j+1)
	b.add(e, -1)
	switch {
	case len(b.entries) == 0:
		t.blocks = slices.Delete(t.blocks, i, i+1)
		t.spare = append(t.spare, b)
	case e.due == b.earliest || e.prefill == b.prefillMax:
		b.recount()
	}
}

func (t *track) fresh() *block {
	if n := len(t.spare); n > 0 {
		b := t.spare[n-1]
		t.spare = t.spare[:n-1]
		b.recount()
		return b
	}
	return &block{entries: make([]*Entry, 0, blockMax)}
}

func (b *block) recount() {
	b.sums, b.prefillMax = sums{}, 0
	for i, e := range b.entries {
		b.add(e, 1)
		b.note(e, i == 0)
	}
}

// note keeps the extremes; first says that e is the only entry.
func (b *block) note(e *Entry, first bool) {
	b.prefillMax = max(b.prefillMax, e.prefill)
	if first || e.due < b.earliest {
		b.earliest = e.due
	}
}

// total is what all requests on the track need.
func (t *track) total() (s sums) {
	for _, b := range t.blocks {
		s.addAll(&b.sums)
	}
	return s
}

func (t *track) empty() bool { return len(t.blocks) == 0 }
