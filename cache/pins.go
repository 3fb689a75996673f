package cache

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A pin keeps the blocks of a prompt in memory until it ends, whether sequences use them
// or not. It is an open sequence that nobody computes: it holds its blocks, and the windows
// that the token after them sees, so that they are neither evicted nor counted as room. In a
// pool with states it has none of its own: it holds the checkpoint at its end.
//
// Pins never keep the others from computing: they hold PinLimits.Pages pages and
// PinLimits.States checkpoints at most, and YieldPin gives those of one back.

// PinLimits bounds the pins of a pool. Its zero value allows none.
type PinLimits struct {
	Pins   int // how many
	Pages  int // pages that they hold together
	States int // checkpoints that they hold together
	// StateBlocks is how many blocks a checkpoint counts as among what a salt may hold.
	StateBlocks int
}

func (l *PinLimits) check(pages, states int) error {
	if min(l.Pins, l.Pages, l.States, l.StateBlocks) < 0 || l.Pages > pages || l.States > states || l.StateBlocks > 0 && states == 0 {
		return fmt.Errorf("cache: pins %+v; give 0 or more of each, and no more than the pool's %d pages and %d states", *l, pages, states)
	}
	return nil
}

// Pin is a prompt whose blocks stay.
type Pin struct {
	Salt   string
	Hash   uint64 // of its last block
	Tokens int
	Until  time.Duration // on the caller's clock

	seq *Seq
}

// PinRefusal says why a prompt is not pinned.
type PinRefusal uint8

// The refusals.
const (
	PinDone  PinRefusal = iota
	PinShort            // it has no whole block
	PinSalt             // the pins of its salt hold as much as they may
	PinPages            // all pins together hold as much as they may, or there was no room to keep it
	PinCount            // there are as many pins as there may be
)

// pins are those of a pool, all of it owned by the loop.
type pins struct {
	PinLimits
	list   []Pin          // those that end first are first
	pages  int            // that they hold
	blocks map[string]int // that those of a salt hold, their checkpoints as StateBlocks each
}

// Pin keeps the blocks of a prompt that is in memory until the given time. The pins of
// a salt hold at most tokensMax tokens. Blocks that several pins share count once. A prompt
// that is pinned already gets the new time. It returns how many tokens are pinned.
func (p *Pool) Pin(salt string, tokens []int32, until time.Duration, tokensMax int) (pinned int, why PinRefusal) {
	s := p.openForPin(salt, tokens)
	if i := p.pinOf(s); i >= 0 {
		p.Close(s)
		pin := p.pins.list[i]
		p.pins.list = slices.Delete(p.pins.list, i, i+1)
		pin.Until = until
		p.insertPin(pin)
		return pin.Tokens, PinDone
	}
	blocks, pages := p.pinned(s, 0)
	switch {
	case s.promptEnd == 0:
		why = PinShort
	case s.len < s.promptEnd:
		why = PinPages
	case p.pins.blocks[salt]+blocks+p.pins.StateBlocks > tokensMax/p.pageTokens:
		why = PinSalt
	case p.pins.pages+pages > p.pins.Pages || p.states.total > 0 && p.states.pinned >= p.pins.States:
		why = PinPages
	case len(p.pins.list) >= p.pins.Pins:
		why = PinCount
	}
	if why != PinDone {
		p.Close(s)
		return 0, why
	}
	p.countPin(s, +1)
	p.insertPin(Pin{Salt: salt, Hash: s.hash, Tokens: s.len, Until: until, seq: s})
	return s.len, PinDone
}

// openForPin is Open without a state, which counts as no use.
func (p *Pool) openForPin(salt string, tokens []int32) *Seq {
	s := p.newSeq(salt)
	p.begin(s, tokens)
	for _, id := range s.pages {
		p.pages[id].uses--
	}
	return s
}

// insertPin puts a pin into the list.
func (p *Pool) insertPin(pin Pin) {
	i, _ := slices.BinarySearchFunc(p.pins.list, pin, func(a, b Pin) int { return cmp.Compare(a.Until, b.Until) })
	p.pins.list = slices.Insert(p.pins.list, i, pin)
}

// pinOf is the pin of the prompt that s was opened with, or -1.
func (p *Pool) pinOf(s *Seq) int {
	if s.len == 0 || s.len < s.promptEnd {
		return -1
	}
	return slices.IndexFunc(p.pins.list, func(pin Pin) bool { return p.tip(pin.seq) == p.tip(s) })
}

// pinned is how many blocks of s are held by that many pins, and how many pages these and the
// windows of s have. A window that several pins hold counts for each.
func (p *Pool) pinned(s *Seq, pins int32) (blocks, pages int) {
	for _, id := range s.pages {
		if p.pages[id].pins == pins {
			blocks++
		}
	}
	pages = blocks
	for _, id := range s.windows {
		if id != none {
			pages += p.windows.Pages
		}
	}
	return blocks, pages
}

// countPin counts a pin that comes (+1) or goes (-1).
func (p *Pool) countPin(s *Seq, sign int32) {
	blocks, pages := p.pinned(s, (1-sign)/2)
	blocks += p.pins.StateBlocks
	for _, id := range s.pages {
		p.pages[id].pins += sign
	}
	p.holdState(p.tip(s).page, sign > 0)
	p.pins.pages += pages * int(sign)
	if p.pins.blocks[s.salt] += blocks * int(sign); p.pins.blocks[s.salt] == 0 {
		delete(p.pins.blocks, s.salt)
	}
}

// Unpin ends the pin of a prompt, and reports whether there was one.
func (p *Pool) Unpin(salt string, tokens []int32) bool {
	if len(p.pins.list) == 0 {
		return false
	}
	s := p.openForPin(salt, tokens)
	i := p.pinOf(s)
	p.Close(s)
	if i < 0 {
		return false
	}
	p.endPin(i)
	return true
}

// endPin ends a pin. Its blocks stay cached.
func (p *Pool) endPin(i int) {
	s := p.pins.list[i].seq
	p.pins.list = slices.Delete(p.pins.list, i, i+1)
	p.countPin(s, -1)
	p.Close(s)
}

// ExpirePins ends the pins whose time is over.
func (p *Pool) ExpirePins(now time.Duration) {
	for len(p.pins.list) > 0 && p.pins.list[0].Until <= now {
		p.endPin(0)
	}
}

// YieldPin ends the pin that would end first, for a sequence that must have its pages. It
// reports whether there was one.
func (p *Pool) YieldPin() bool {
	if len(p.pins.list) == 0 {
		return false
	}
	p.endPin(0)
	return true
}

// Pins are the pins, those that end first at the beginning. The slice is valid until the next call.
func (p *Pool) Pins() []Pin { return p.pins.list }

// PinnedPages is how many pages pins hold.
func (p *Pool) PinnedPages() int { return p.pins.pages }

// checkPins checks invariant 11.
func (p *Pool) checkPins() error {
	x := &p.pins
	held, blocks, pages, states := make([]int32, len(p.pages)), map[string]int{}, 0, 0
	for i, pin := range x.list {
		s := pin.seq
		if s.slot < 0 || s.slot >= len(p.open) || p.open[s.slot] != s || s.len != pin.Tokens || s.hash != pin.Hash || s.salt != pin.Salt {
			return broken(11, "pin %d of %d tokens has no open sequence of them", i, pin.Tokens)
		}
		if i > 0 && pin.Until < x.list[i-1].Until {
			return broken(11, "pin %d ends before the one in front of it", i)
		}
		for _, id := range s.pages {
			if held[id]++; held[id] == 1 {
				blocks[s.salt]++
				pages++
			}
		}
		blocks[s.salt] += x.StateBlocks
		if slot := p.pages[p.tip(s).page].state; p.states.total > 0 {
			if states++; s.state != none || slot == none || !p.states.held[slot] {
				return broken(11, "pin %d has state %d, and does not hold the checkpoint at its end", i, s.state)
			}
		}
		for _, id := range s.windows {
			if id != none {
				pages += p.windows.Pages
			}
		}
	}
	for id := range p.pages {
		if p.pages[id].pins != held[id] {
			return broken(11, "page %d counts %d pins, has %d", id, p.pages[id].pins, held[id])
		}
	}
	if states != p.states.pinned || states > x.States {
		return broken(11, "pins hold %d checkpoints of at most %d, counted are %d", states, x.States, p.states.pinned)
	}
	if pages != x.pages || pages > x.Pages || len(x.list) > x.Pins || !maps.Equal(blocks, x.blocks) {
		return broken(11, "%d pins hold %d pages, and blocks by salt %v; counted are %d and %v, limits %+v", len(x.list), pages, blocks, x.pages, x.blocks, x.PinLimits)
	}
	return nil
}
