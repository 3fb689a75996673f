package hitmap

import "cmp"

// Change says that a block became reusable, or stopped being so.
type Change struct {
	Hash    uint64
	Evicted bool
}

// JournalMax is how many changes a Journal keeps where nothing else is said.
const JournalMax = 8192

// Journal is the newest changes to a set of blocks. Its zero value is the
// journal of a set that is empty and has never changed.
//
//	changes  0 ······ Before ····················· End
//	         forgotten      | Changes, oldest first |
//
// It is copied by value: a copy stays as it is when the original goes on.
// Only the newest copy may go on.
type Journal struct {
	// Before counts the changes that are not in Changes any more.
	Before  uint64
	Changes []Change
	// Max bounds Changes; 0 means JournalMax.
	Max int
}

// End counts all changes so far.
func (j *Journal) End() uint64 { return j.Before + uint64(len(j.Changes)) }

// Add appends a change. A full journal forgets its older half first.
func (j *Journal) Add(c Change) {
	limit := cmp.Or(j.Max, JournalMax)
	if over := len(j.Changes) - limit/2; len(j.Changes) >= limit {
		// Copies still read the old memory, so the newer half moves to new memory.
		kept := make([]Change, limit/2, limit)
		copy(kept, j.Changes[over:])
		j.Before += uint64(over)
		j.Changes = kept
	}
	j.Changes = append(j.Changes, c)
}

// Extend is the journal of a reader that had j and was sent next: both where
// next begins at the end of j, else next alone.
func (j Journal) Extend(next Journal) Journal {
	if next.Before != j.End() {
		return next
	}
	for _, c := range next.Changes {
		j.Add(c)
	}
	return j
}

// News is what a Reader had not heard before.
type News struct {
	// Missed says that the reader has not heard all changes before these: what
	// it knew is void.
	Missed  bool
	Changes []Change // oldest first
}

// Reader reads the copies of one journal in their order. Its zero value has
// heard nothing; it is also the reader to begin with when the engine was lost.
type Reader struct{ heard uint64 }

// Read returns the changes of j that this reader has not heard. They are
// shared with j and must not be changed. A copy older than the last one read
// has no news.
func (r *Reader) Read(j *Journal) News {
	from, end := r.heard, j.End()
	if from > end {
		return News{}
	}
	r.heard = end
	if from < j.Before {
		return News{Missed: true, Changes: j.Changes}
	}
	return News{Changes: j.Changes[from-j.Before:]}
}
