package cache

import "slices"

// A model with recurrent layers has, beside pages, a state for each sequence: of fixed
// size, and changed by every token. The pool keeps the books of the slots that hold
// states. An open sequence has one of its own, which the model moves on. A block may
// have another, with a copy of the state as it was after the block's last token: a
// checkpoint. Nothing shared is ever written to, so a checkpoint is copied out before a
// sequence goes on from it.
//
// Checkpoints lie at the ends of blocks. Reserve asks for them:
//
//   - at the last border of the prompt that is known when the sequence opens, where the
//     next turn of a chat, or the same prompt again, goes on;
//   - every Config.StateTokens tokens;
//   - where the blocks end that were known at the opening, beyond the last of them with
//     a checkpoint: there another prompt parts from this one, and a third may;
//   - at the last border of what is computed now. This one follows the sequence, so that
//     a preempted one, and the next turn, lose less than a block of tokens.
//
// Where slots are short, the checkpoint that was not used for longest gives way, and its
// block stays. One that a pin holds stays too. A block gives its slot back when it is evicted.

// StateCopy asks for a state to be copied, or, where Src is NoState, to be cleared.
type StateCopy struct{ Dst, Src int32 }

// NoState is the source of a cleared state, and the slot of a sequence without one.
const NoState = none

// Checkpoint asks for a copy of the state after the first Tokens tokens of a sequence.
type Checkpoint struct {
	Tokens int
	Slot   int32
	follow bool // it follows the sequence
}

// states are the slots. All of it belongs to the loop, but page.state, which Match reads
// under Pool.mu.
type states struct {
	every  int // Config.StateTokens
	total  int
	free   []int32
	of     []int32 // page whose checkpoint is in a slot; none in others
	held   []bool  // by a pin
	pinned int     // how many are
	prev   []int32 // links the checkpoints that are not held; the first gives way next
	next   []int32
	oldest int32
	newest int32
	copies []StateCopy // in the order in which they must be done
	totals StateTotals
}

func newStates(slots, every int) states {
	x := states{every: every, total: slots, oldest: none, newest: none}
	x.free, x.of, x.held = make([]int32, slots), make([]int32, slots), make([]bool, slots)
	x.prev, x.next = make([]int32, slots), make([]int32, slots)
	for i := range x.free {
		x.free[i], x.of[i] = int32(slots-1-i), none
	}
	return x
}

// StateCounts counts the slots by their use; all are 0 in a pool without states.
type StateCounts struct {
	Total  int
	Used   int // by open sequences
	Cached int // checkpoints of blocks
	Pinned int // of Cached, held by pins
	Free   int
	StateTotals
}

// StateTotals count since the pool was made.
type StateTotals struct {
	Made     uint64 // checkpoints
	Restored uint64 // sequences that went on from one
	Dropped  uint64 // checkpoints that gave way to another state, or went with their block
	// Unreached are tokens of opened sequences whose blocks were there, behind the last
	// checkpoint, so that they are computed again.
	Unreached uint64
}

// StateCounts counts the slots of states.
func (p *Pool) StateCounts() StateCounts {
	x := &p.states
	c := StateCounts{Total: x.total, Free: len(x.free), Pinned: x.pinned, StateTotals: x.totals}
	for _, id := range x.of {
		if id != none {
			c.Cached++
		}
	}
	c.Used = c.Total - c.Cached - c.Free
	return c
}

// HasState reports whether a sequence can be opened or forked: there is a slot for it,
// or the model has no states.
func (p *Pool) HasState() bool {
	x := &p.states
	return x.total == 0 || len(x.free) > 0 || x.oldest != none
}

// StateCopies is what must be done to the states before the model computes again, in
// this order and before anything else is written to them. The next call gives what has
// come since; the slice is valid until then.
func (p *Pool) StateCopies() []StateCopy {
	copies := p.states.copies
	p.states.copies = p.states.copies[:0]
	return copies
}

// State is the slot of the sequence's state.
func (s *Seq) State() int32 { return s.state }

// Checkpoints are those to be made while the tokens that were reserved last are computed,
// in their order. It is valid until the next call that takes s.
func (s *Seq) Checkpoints() []Checkpoint { return s.checkpoints }

// takeState gives out a slot, if need be that of the oldest checkpoint; ok is false where all
// belong to sequences.
func (p *Pool) takeState() (slot int32, ok bool) {
	x := &p.states
	if len(x.free) == 0 {
		if x.oldest == none {
			return none, false
		}
		p.dropCheckpoint(x.of[x.oldest])
	}
	slot = x.free[len(x.free)-1]
	x.free = x.free[:len(x.free)-1]
	return slot, true
}

// dropCheckpoint takes a block's checkpoint from it, if it has one.
func (p *Pool) dropCheckpoint(id int32) {
	if slot := p.unsetState(id); slot != none {
		p.states.totals.Dropped++
		p.states.free = append(p.states.free, slot)
	}
}

// setState gives a block the checkpoint in a slot.
func (p *Pool) setState(id, slot int32) {
	p.mu.Lock()
	p.pages[id].state = slot
	p.mu.Unlock()
	p.states.of[slot] = id
	p.states.link(slot)
}

// unsetState takes a block's checkpoint, which no pin holds, from it, and returns the slot;
// none if it has none.
func (p *Pool) unsetState(id int32) (slot int32) {
	if slot = p.pages[id].state; slot == none {
		return none
	}
	p.mu.Lock()
	p.pages[id].state = none
	p.mu.Unlock()
	p.states.unlink(slot)
	p.states.of[slot] = none
	return slot
}

// holdState keeps the checkpoint of a block for a pin, or lets it give way again.
func (p *Pool) holdState(id int32, hold bool) {
	x := &p.states
	if x.total == 0 {
		return
	}
	slot := p.pages[id].state
	if x.held[slot] = hold; hold {
		x.unlink(slot)
		x.pinned++
	} else {
		x.link(slot)
		x.pinned--
	}
}

// link puts a checkpoint behind all that give way before it.
func (x *states) link(slot int32) {
	x.prev[slot], x.next[slot] = x.newest, none
	if x.newest == none {
		x.oldest = slot
	} else {
		x.next[x.newest] = slot
	}
	x.newest = slot
}

func (x *states) unlink(slot int32) {
	if x.prev[slot] == none {
		x.oldest = x.next[slot]
	} else {
		x.next[x.prev[slot]] = x.next[slot]
	}
	if x.next[slot] == none {
		x.newest = x.prev[slot]
	} else {
		x.prev[x.next[slot]] = x.prev[slot]
	}
}

// openState gives a new sequence its slot.
func (p *Pool) openState(s *Seq) {
	if p.states.total == 0 {
		return
	}
	slot, ok := p.takeState()
	if !ok {
		panic("cache: a sequence without a state: ask HasState")
	}
	s.state = slot
}

func (p *Pool) closeState(s *Seq) {
	if s.state == none {
		return
	}
	x := &p.states
	if !slices.ContainsFunc(x.copies, func(c StateCopy) bool { return c.Src == s.state }) { // what is copied into it, nobody needs
		x.copies = slices.DeleteFunc(x.copies, func(c StateCopy) bool { return c.Dst == s.state })
	}
	x.free = append(x.free, s.state)
	p.forgetCheckpoints(s)
}

// forgetCheckpoints gives back the slots of checkpoints that are not made.
func (p *Pool) forgetCheckpoints(s *Seq) {
	for _, c := range s.checkpoints {
		p.states.free = append(p.states.free, c.Slot)
	}
	s.checkpoints = s.checkpoints[:0]
}

// restore makes the state of s that of the block that it has been attached to.
func (p *Pool) restore(s *Seq) {
	slot := p.pages[s.pages[s.len/p.pageTokens-1]].state
	if !p.states.held[slot] {
		p.states.unlink(slot)
		p.states.link(slot) // it was used just now
	}
	p.states.totals.Restored++
	p.states.copies = append(p.states.copies, StateCopy{Dst: s.state, Src: slot})
}

// planCheckpoints decides where the state is kept while the next n tokens are computed.
func (p *Pool) planCheckpoints(s *Seq, n int) {
	if s.state == none {
		return
	}
	p.forgetCheckpoints(s)
	if s.len == 0 {
		p.states.copies = append(p.states.copies, StateCopy{Dst: s.state, Src: NoState})
	}
	last := (s.len + n) / p.pageTokens * p.pageTokens
	for at := (s.len/p.pageTokens + 1) * p.pageTokens; at <= last; at += p.pageTokens {
		stays := at == s.promptEnd || at == s.junction || p.states.every > 0 && at/p.states.every != (at-p.pageTokens)/p.states.every
		if !stays && at != last {
			continue
		}
		slot, ok := int32(none), false
		if !stays {
			slot, ok = p.takeFollowed(s)
		}
		if !ok {
			if slot, ok = p.takeState(); !ok {
				return // all belong to sequences
			}
		}
		s.checkpoints = append(s.checkpoints, Checkpoint{Tokens: at, Slot: slot, follow: !stays})
	}
}

// takeFollowed takes the slot of the checkpoint that has followed s so far.
func (p *Pool) takeFollowed(s *Seq) (slot int32, ok bool) {
	if s.followed == none {
		return none, false
	}
	id := s.pages[s.followed]
	s.followed = none
	if slot = p.pages[id].state; slot == none || p.states.held[slot] {
		return none, false
	}
	return p.unsetState(id), true
}

// keepCheckpoint gives block i of s the checkpoint that was made at its end, if one was.
// An older one is equal, and stays.
func (p *Pool) keepCheckpoint(s *Seq, i int) {
	at := slices.IndexFunc(s.checkpoints, func(c Checkpoint) bool { return c.Tokens == (i+1)*p.pageTokens })
	if at < 0 {
		return
	}
	c := s.checkpoints[at]
	s.checkpoints = slices.Delete(s.checkpoints, at, at+1)
	if p.pages[s.pages[i]].state != none {
		p.states.free = append(p.states.free, c.Slot)
		return
	}
	p.setState(s.pages[i], c.Slot)
	p.states.totals.Made++
	if c.follow {
		s.followed = int32(i)
	}
}
