package cache

import (
	"math/rand/v2"
	"testing"
	"time"
)

// fill computes tokens and ends their sequence, as far as the pool has room.
func fill(p *Pool, salt string, tokens []int32) bool {
	s := p.Open(salt, tokens)
	defer p.Close(s)
	if _, ok := p.Reserve(s, len(tokens)-s.Len(), nil); !ok {
		return false
	}
	p.StateCopies()
	p.Commit(s, tokens[s.Len():])
	return true
}

// counting is n tokens that begin with first.
func counting(first, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(first + i)
	}
	return tokens
}

func pinPool(t *testing.T) *Pool {
	return newPool(t, Config{Pages: 20, PageTokens: 4, Pins: PinLimits{Pins: 3, Pages: 8}})
}

func TestPinnedBlocksStay(t *testing.T) {
	p := pinPool(t)
	prompt := counting(0, 14) // of 4 pages, 3 whole blocks before the last token
	fill(p, "a", prompt)
	if n, why := p.Pin("a", prompt, time.Minute, 100); n != 12 || why != PinDone {
		t.Fatalf("pinned %d, %d", n, why)
	}
	for i := range 50 { // a storm of other prompts
		fill(p, "a", counting(1000*(i+1), 40))
	}
	if got := p.Match("a", prompt); got != 12 {
		t.Errorf("%d tokens are left of a pinned prompt of 12", got)
	}
	if p.Match("b", prompt) != 0 {
		t.Error("another salt finds it")
	}
	p.ExpirePins(time.Minute - 1)
	if len(p.Pins()) != 1 || p.PinnedPages() != 3 {
		t.Fatalf("%+v before its end, %d pages", p.Pins(), p.PinnedPages())
	}
	p.ExpirePins(time.Minute)
	if c := p.Counts(); len(p.Pins()) != 0 || c.Used != 0 {
		t.Errorf("after its end: %+v, %+v", p.Pins(), c)
	}
	for i := range 50 {
		fill(p, "a", counting(1000*(i+1), 40))
	}
	if got := p.Match("a", prompt); got != 0 {
		t.Errorf("%d tokens outlive the end of their pin and a storm", got)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

func TestPinsAreBounded(t *testing.T) {
	p := pinPool(t)
	pin := func(salt string, tokens []int32, most int) (int, PinRefusal) {
		t.Helper()
		fill(p, salt, tokens)
		n, why := p.Pin(salt, tokens, time.Hour, most)
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		return n, why
	}
	for _, c := range []struct {
		name   string
		salt   string
		tokens []int32
		most   int
		want   int
		why    PinRefusal
	}{
		{"no whole block before the last token", "a", counting(0, 4), 100, 0, PinShort},
		{"more than its salt may", "a", counting(0, 14), 11, 0, PinSalt},
		{"as much as its salt may", "a", counting(0, 14), 12, 12, PinDone},
		{"again, and it holds no more", "a", counting(0, 14), 12, 12, PinDone},
		{"its beginning is held already", "a", counting(0, 6), 12, 4, PinDone},
		{"another salt has its own", "b", counting(0, 14), 12, 12, PinDone},
		{"one pin too many", "b", counting(0, 6), 12, 0, PinCount},
	} {
		if n, why := pin(c.salt, c.tokens, c.most); n != c.want || why != c.why {
			t.Errorf("%s: %d tokens, %d; want %d, %d", c.name, n, why, c.want, c.why)
		}
	}
	if !p.Unpin("b", counting(0, 14)) || p.Unpin("b", counting(0, 14)) {
		t.Error("a pin does not end exactly once")
	}
	if n, why := pin("b", counting(0, 26), 100); n != 0 || why != PinPages {
		t.Errorf("more pages than pins may hold: %d tokens, %d", n, why)
	}
}

// A sequence that needs all pages gets those of pins, the one that ends first before the others.
func TestPinsYield(t *testing.T) {
	p := pinPool(t)
	for i, until := range []time.Duration{2 * time.Hour, time.Hour} {
		fill(p, "a", counting(100*i, 14))
		p.Pin("a", counting(100*i, 14), until, 100)
	}
	all := counting(1000, 4*18)
	s := p.Open("a", all)
	if _, ok := p.Reserve(s, len(all), nil); ok {
		t.Fatal("18 of 20 pages are there, and 6 are pinned")
	}
	if !p.YieldPin() || p.Pins()[0].Until != 2*time.Hour {
		t.Fatalf("the wrong pin is left: %+v", p.Pins())
	}
	if _, ok := p.Reserve(s, len(all), nil); ok {
		t.Fatal("18 of 20 pages are there, and 3 are pinned")
	}
	if !p.YieldPin() || p.YieldPin() {
		t.Fatal("there was not exactly one more")
	}
	if _, ok := p.Reserve(s, len(all), nil); !ok {
		t.Error("no room without pins")
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

// In a pool with states a pin holds the checkpoint at its end, so that a prompt goes on from the
// same state after a storm; it counts among what its salt may hold.
func TestPinsHoldCheckpoints(t *testing.T) {
	x := newStateScript(t, Config{Pages: 60, PageTokens: 4, States: 6, StateTokens: 8, Pins: PinLimits{Pins: 9, Pages: 20, States: 2, StateBlocks: 5}})
	run := func(salt string, tokens []int32) (attached int) {
		t.Helper()
		s := x.open(salt, tokens)
		attached = s.Len()
		if err := x.compute(s, len(tokens)-attached); err != nil {
			t.Fatal(err)
		}
		x.close(s)
		return attached
	}
	storm := func() {
		for i := range 50 {
			run("a", counting(1000*(i+1), 40))
		}
	}
	prompt := counting(0, 14) // 3 blocks before the last token, and a checkpoint as large as 5
	run("a", prompt)
	if n, why := x.pool.Pin("a", prompt, time.Minute, 31); n != 0 || why != PinSalt {
		t.Errorf("7 blocks hold 3 and a checkpoint of 5: %d tokens, %d", n, why)
	}
	for range 2 {
		if n, why := x.pool.Pin("a", prompt, time.Minute, 32); n != 12 || why != PinDone {
			t.Fatalf("pinned %d, %d", n, why)
		}
	}
	storm()
	if got := run("a", prompt); got != 12 {
		t.Errorf("a storm leaves %d tokens of a pinned prompt of 12", got)
	}
	if x.pool.Unpin("a", counting(0, 10)) {
		t.Error("a beginning of the prompt ended its pin")
	}
	for i, why := range []PinRefusal{PinDone, PinPages} {
		run("b", counting(500+i, 9))
		if n, got := x.pool.Pin("b", counting(500+i, 9), time.Hour, 100); got != why {
			t.Errorf("%d tokens, %d: pins hold two checkpoints, not three", n, got)
		}
	}
	if c := x.pool.StateCounts(); c.Pinned != 2 || c.Used != 0 {
		t.Errorf("%+v", c)
	}
	x.pool.ExpirePins(time.Minute)
	storm()
	if got := run("a", prompt); got != 0 || x.pool.StateCounts().Pinned != 1 || x.pool.PinnedPages() != 2 {
		t.Errorf("%d tokens outlive the end of their pin and a storm; %+v", got, x.pool.StateCounts())
	}
	if !x.pool.YieldPin() || x.pool.StateCounts().Pinned != 0 {
		t.Error("a pin that gave way holds its checkpoint")
	}
}

// A prompt for whose checkpoint there was no room is not pinned.
func TestPinsNeedCheckpoints(t *testing.T) {
	x := newStateScript(t, Config{Pages: 60, PageTokens: 4, States: 1, Pins: PinLimits{Pins: 1, Pages: 20, States: 1}})
	s := x.open("a", counting(0, 14))
	if err := x.compute(s, 14); err != nil {
		t.Fatal(err)
	}
	if n, why := x.pool.Pin("a", counting(0, 14), time.Minute, 100); n != 0 || why != PinPages {
		t.Errorf("pinned %d tokens, %d", n, why)
	}
	if err := x.pool.Check(); err != nil {
		t.Error(err)
	}
}

// Case D15: random work with pins, on pools with and without windows and states. Whatever is pinned is
// found to its end.
func TestPinsInRandomWork(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		c := Config{Pages: 12 + r.IntN(20), PageTokens: 1 + r.IntN(4)}
		if seed%2 == 1 {
			c.Windows = Windows{Tokens: 1 + r.IntN(8), Pages: 1 + r.IntN(2), Step: 64}
		}
		if seed%3 == 2 {
			c.States, c.StateTokens = 2+r.IntN(5), r.IntN(3)*c.PageTokens
		}
		c.Pins = PinLimits{Pins: 1 + r.IntN(4), Pages: c.Pages / 2, States: max(0, c.States-1)}
		p := newPool(t, c)
		for now := time.Duration(0); now < 200; now++ {
			salt, tokens := string(rune('a'+r.IntN(2))), counting(r.IntN(3), 1+r.IntN(5*c.PageTokens))
			switch r.IntN(6) {
			case 0:
				p.Pin(salt, tokens, now+time.Duration(r.IntN(50)), r.IntN(40))
			case 1:
				p.Unpin(salt, tokens)
			case 2:
				p.ExpirePins(now)
			default:
				fill(p, salt, counting(r.IntN(100), 1+r.IntN(8*c.PageTokens)))
				fill(p, salt, tokens)
			}
			if err := p.Check(); err != nil {
				t.Fatalf("seed %d, %+v, at %d: %v", seed, c, now, err)
			}
			for _, pin := range p.Pins() {
				prompt := make([]int32, 0, pin.Tokens+1)
				for _, id := range pin.seq.pages {
					prompt = append(prompt, p.pageArea(id)...)
				}
				if got := p.Match(pin.Salt, append(prompt, 1)); got != pin.Tokens {
					t.Fatalf("seed %d, %+v, at %d: %d of %d pinned tokens are found", seed, c, now, got, pin.Tokens)
				}
			}
		}
	}
}
