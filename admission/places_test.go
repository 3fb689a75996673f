package admission

import (
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// TestPlacesOfTheEngine: an engine that says how many sequences it takes gets no more
// than that, and a request that is larger runs alone. More than the configuration
// allows never runs.
func TestPlacesOfTheEngine(t *testing.T) {
	p := newPlay(t, 1, Config{RunningSequencesMax: 8})
	running := func() (n int) {
		for p.Next(p.now) != nil {
		}
		for _, e := range p.entries {
			if e.state == running {
				n += e.demand.Sequences
			}
		}
		return n
	}
	report := func(places int) {
		p.now += time.Millisecond
		r := Report{Up: true, At: p.now, Places: places}
		r.Room.TokensMax = 1 << 20
		p.Report(r, p.now)
	}
	report(2)
	for range 12 {
		p.arrive(Demand{Sequences: 1, PromptTokens: 10, DecodeTokens: 10})
	}
	if n := running(); n != 2 {
		t.Errorf("%d sequences run in 2 places", n)
	}
	report(5)
	if n := running(); n != 5 {
		t.Errorf("%d sequences run in 5 places", n)
	}
	report(100)
	if n := running(); n != 8 {
		t.Errorf("%d sequences run where 8 may", n)
	}
	report(3)
	if n := running(); n != 8 {
		t.Errorf("%d of 8 sequences run on after the places became fewer", n)
	}
	for _, e := range p.entries {
		p.Done(e, Spent{}, p.now)
	}
	p.entries = p.entries[:0]
	p.arrive(Demand{Sequences: 5, PromptTokens: 10, DecodeTokens: 10})
	p.arrive(Demand{Sequences: 1, PromptTokens: 10, DecodeTokens: 10})
	if n := running(); n != 5 {
		t.Errorf("%d sequences run; want the request of 5 alone in 3 places", n)
	}
}

// TestPromisesCountPlaces: where an engine has few places and hardly any prefill to do,
// a tenant that is alone is promised no more than places become free in time for.
func TestPromisesCountPlaces(t *testing.T) {
	p := newPlay(t, 1, Config{RunningSequencesMax: 2, Classes: []Class{{Name: "interactive", FirstTokenGoal: 2 * time.Second}}})
	r := Report{Up: true, Cost: cost.Cost{Base: 10e6, PrefillToken: 1e3}}
	r.Room.TokensMax = 512
	p.Report(r, p.now)
	in := 0
	for range 50 { // of half a second each
		if p.arrive(Demand{Tenant: "a", Sequences: 1, PromptTokens: 10, UncachedTokens: 10, DecodeTokens: 50}) != nil {
			in++
		}
		for p.Next(p.now) != nil {
		}
	}
	if in < 4 || in > 8 {
		t.Errorf("%d are promised a first token within 2 s; 2 run at a time, for 0.5 s each", in)
	}
}
