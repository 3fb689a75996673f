package cache

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// Check verifies every invariant and names the first that is broken. It looks at
// all pages and sequences, so it is for tests.
func (p *Pool) Check() error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	order, err := p.checkPages()
	if err != nil {
		return err
	}
	for _, check := range []func() error{
		p.checkSeqs,
		func() error { return p.checkBlocks(order) },
		p.checkShared,
		p.checkClaims,
		p.checkStates,
		p.checkWindows,
		p.checkPins,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if limit := cmp.Or(p.journal.Max, hitmap.JournalMax); len(p.journal.Changes) > limit {
		return broken(8, "the journal has %d changes, limit %d", len(p.journal.Changes), limit)
	}
	return nil
}

func broken(invariant int, format string, args ...any) error {
	return fmt.Errorf("cache: invariant %d: %s", invariant, fmt.Sprintf(format, args...))
}

// checkPages checks invariants 1 and 2. It returns each cached page's place in the
// eviction order, from 1.
func (p *Pool) checkPages() (order []int, err error) {
	held := make([]int32, len(p.pages))
	for _, s := range p.open {
		for i, id := range s.pages {
			if slices.Contains(s.pages[:i], id) {
				return nil, broken(2, "sequence %d holds page %d twice", s.slot, id)
			}
			held[id]++
		}
	}
	p.countWindows(held)
	free := make([]int, len(p.pages))
	for _, id := range p.free {
		free[id]++
	}
	order = make([]int, len(p.pages))
	n, prev := 0, int32(none)
	for id := p.oldest; id != none; prev, id = id, p.pages[id].next {
		if n++; order[id] != 0 || p.pages[id].prev != prev {
			return nil, broken(1, "the eviction list is tangled at page %d", id)
		}
		order[id] = n
	}
	if p.newest != prev || n != p.cached {
		return nil, broken(1, "the eviction list has %d pages, %d counted, ends at %d not %d", n, p.cached, prev, p.newest)
	}
	for id := range p.pages {
		g := &p.pages[id]
		if g.refs != held[id] {
			return nil, broken(2, "page %d counts %d references, %d sequences hold it", id, g.refs, held[id])
		}
		states := free[id]
		if held[id] > 0 {
			states++
		}
		if order[id] > 0 {
			states++
		}
		if states != 1 || (order[id] > 0 && !g.whole) || (free[id] > 0 && g.whole) {
			return nil, broken(1, "page %d: free %d times, held %d times, cached at %d, whole %v", id, free[id], held[id], order[id], g.whole)
		}
	}
	return order, nil
}

// checkSeqs checks invariant 3.
func (p *Pool) checkSeqs() error {
	for i, s := range p.open {
		if s.slot != i {
			return broken(3, "open sequence %d has slot %d", i, s.slot)
		}
		if s.len > len(s.pages)*p.pageTokens {
			return broken(3, "sequence %d has %d tokens in %d pages", i, s.len, len(s.pages))
		}
		at, hash := cursor{page: none, salt: s.salt}, p.hasher.root(s.salt)
		for j, id := range s.pages {
			b := &p.pages[id].block
			if whole := j < s.len/p.pageTokens; b.whole != whole {
				return broken(3, "sequence %d of %d tokens: page %d is whole: %v", i, s.len, j, b.whole)
			} else if !whole {
				continue
			}
			if b.parent != at.page || (at.page == none && b.salt != s.salt) {
				return broken(3, "sequence %d: page %d is not the child of the one before", i, j)
			}
			at.page, hash = id, b.hash
		}
		if s.hash != hash {
			return broken(3, "sequence %d carries another hash than its last block", i)
		}
	}
	return nil
}

// checkBlocks checks invariants 4 and 5.
func (p *Pool) checkBlocks(order []int) error {
	indexed := 0
	for i, id := range p.buckets {
		for ; id != none; id = p.pages[id].chained {
			if indexed++; indexed > len(p.pages) {
				return broken(4, "bucket %d is a ring", i)
			}
			if !p.pages[id].whole || p.bucket(p.pages[id].hash) != i {
				return broken(4, "page %d in bucket %d does not belong there", id, i)
			}
		}
	}
	for i := range p.pages {
		id, b := int32(i), &p.pages[i].block
		if !b.whole {
			continue
		}
		indexed--
		at, parentHash := cursor{page: b.parent, salt: b.salt}, p.hasher.root(b.salt)
		if b.parent != none {
			parent := &p.pages[b.parent]
			if parentHash = parent.hash; !parent.whole {
				return broken(4, "block %d has page %d for a parent, which is not a block", id, b.parent)
			}
			if parent.refs == 0 && (order[id] == 0 || order[id] > order[b.parent]) {
				return broken(5, "block %d is evicted after its parent %d", id, b.parent)
			}
		}
		if h := p.hasher.next(parentHash, p.pageArea(id)); h != b.hash {
			return broken(4, "block %d has hash %x, should have %x", id, b.hash, h)
		}
		// A twin of this block would hide it, or be hidden and find it.
		if found := p.lookup(at, b.hash, p.pageArea(id)); found != id {
			return broken(4, "block %d is found as %d", id, found)
		}
	}
	if indexed != 0 {
		return broken(4, "the index has %d entries too many", indexed)
	}
	return nil
}

// checkShared checks invariant 6.
func (p *Pool) checkShared() error {
	length := make(map[int32]int)
	for i, s := range p.open {
		for j := s.len / p.pageTokens; j < len(s.pages); j++ {
			id := s.pages[j]
			if j >= p.pagesFor(s.len) && p.pages[id].refs != 1 {
				return broken(6, "sequence %d shares page %d, which it has only reserved", i, id)
			}
			if n, seen := length[id]; seen && n != s.len {
				return broken(6, "page %d is shared at %d and %d tokens", id, n, s.len)
			}
			length[id] = s.len
		}
	}
	return nil
}

// checkClaims checks invariant 7.
func (p *Pool) checkClaims() error {
	claimed := 0
	for i, s := range p.open {
		if !s.claimed {
			continue
		}
		claimed++
		if got := p.claimant(p.tip(s), s.claimHash, s.claimBlock); got != s {
			return broken(7, "the block that sequence %d claims is claimed by another sequence too", i)
		}
		if h := p.hasher.next(s.hash, s.claimBlock); h != s.claimHash {
			return broken(7, "sequence %d claims a block that it is not at", i)
		}
	}
	if claimed != len(p.claims) {
		return broken(7, "%d claims, %d by open sequences", len(p.claims), claimed)
	}
	return nil
}

// checkStates checks invariant 9.
func (p *Pool) checkStates() error {
	x := &p.states
	uses := make([]int, x.total)
	for _, slot := range x.free {
		uses[slot]++
	}
	for i, s := range p.open {
		if pin := slices.ContainsFunc(p.pins.list, func(pin Pin) bool { return pin.seq == s }); (s.state == none) != (x.total == 0 || pin) {
			return broken(9, "sequence %d has state %d of %d", i, s.state, x.total)
		}
		if s.state != none {
			uses[s.state]++
		}
		for _, c := range s.checkpoints {
			uses[c.Slot]++
		}
	}
	listed, prev := 0, int32(none)
	for slot := x.oldest; slot != none; prev, slot = slot, x.next[slot] {
		if listed++; listed > x.total || x.prev[slot] != prev || p.pages[x.of[slot]].state != slot || !p.pages[x.of[slot]].whole {
			return broken(9, "the list of checkpoints is tangled at slot %d", slot)
		}
		uses[slot]++
	}
	if x.newest != prev {
		return broken(9, "the list of checkpoints ends at %d, not %d", prev, x.newest)
	}
	for slot, n := range uses {
		if x.held[slot] {
			n++
		}
		if n != 1 {
			return broken(9, "slot %d has %d uses", slot, n)
		}
	}
	for id := range p.pages {
		if slot := p.pages[id].state; slot != none && x.of[slot] != int32(id) {
			return broken(9, "page %d claims slot %d, which belongs to page %d", id, slot, x.of[slot])
		}
	}
	return nil
}
