package admission

import (
	"testing"
	"time"
)

// Memory that is pinned is not promised, but for a request that needs it and runs alone.
func TestPinnedMemoryIsForTheOneThatNeedsIt(t *testing.T) {
	p := newPlay(t, 1, Config{})
	report := func(pinned int) {
		p.now += time.Millisecond
		r := Report{Up: true, At: p.now, KVTokens: 1000, KVPinned: pinned}
		r.Room.TokensMax = 1 << 20
		p.Report(r, p.now)
	}
	running := func() (n int) {
		for p.Next(p.now) != nil {
		}
		for _, e := range p.entries {
			if e.state == running {
				n++
			}
		}
		return n
	}
	arrive := func(prompt int) {
		p.arrive(Demand{Sequences: 1, PromptTokens: prompt, UncachedTokens: prompt, DecodeTokens: 1})
	}
	report(500)
	for range 4 {
		arrive(200)
	}
	if n := running(); n != 2 {
		t.Errorf("%d requests of 200 tokens run where 500 of 1,000 are pinned", n)
	}
	report(0)
	if n := running(); n != 4 {
		t.Errorf("%d of 4 requests run where nothing is pinned", n)
	}
	for _, e := range p.entries {
		p.Done(e, Spent{}, p.now)
	}
	arrive(900) // priced where nothing is pinned
	report(500)
	if n := running(); n != 1 {
		t.Errorf("%d requests run where the only one needs what is pinned", n)
	}
}
