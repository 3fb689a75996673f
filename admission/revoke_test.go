package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// TestPlacesHoldWhenPricesChange: a request that went behind another stays behind it
// when all that waits is priced again.
func TestPlacesHoldWhenPricesChange(t *testing.T) {
	p := newPipe(t, goals(""))
	p.ask("a", "interactive", 10)
	large := p.ask("a", "interactive", 600)
	p.now += 150 * time.Millisecond
	small := p.ask("a", "interactive", 20)
	for range 12 {
		if small == nil || small.behind > 0 {
			break
		}
		small = p.ask("a", "interactive", 20)
	}
	if large == nil || small == nil || small.behind == 0 || !before(large, small) {
		t.Fatalf("nothing went behind the large one: %+v", small)
	}
	p.Report(Report{Up: true, At: p.now, Cost: cost.Cost{PrefillToken: 0.7e6}, Room: cost.Room{TokensMax: 1}}, p.now)
	if large.state != waiting || small.state != waiting || !before(large, small) {
		t.Error("it passed the large one when prices fell")
	}
}

// TestPromisesAreTakenBackWhereFactsChange: the engine becomes three times slower. Once
// it has been for lateFor, the largest of those that would be late are told, as few as
// possible. Where it was slow for a moment only, nobody is.
func TestPromisesAreTakenBackWhereFactsChange(t *testing.T) {
	p := newPipe(t, goals(""))
	var in []*Entry
	for i := range 9 {
		in = append(in, p.ask("a", "interactive", 20+10*i))
	}
	look := func(prefill float64) []*Entry {
		p.now += lookEvery
		p.Report(Report{Up: true, At: p.now, Cost: cost.Cost{PrefillToken: prefill}, Room: cost.Room{TokensMax: 1}}, p.now)
		return p.TakeRefused()
	}
	quick, slow := 1e6, 3e6
	for _, prefill := range []float64{slow, slow, quick, slow, slow, slow} {
		if gone := look(prefill); len(gone) > 0 {
			t.Fatalf("after a moment %d are told", len(gone))
		}
	}
	gone := look(slow)
	if len(gone) == 0 || len(gone) > 7 {
		t.Fatalf("%d of %d are told", len(gone), len(in))
	}
	for _, e := range gone {
		if e.refusal.Reason != Revoked {
			t.Errorf("%s: %v", e.ID(), e.refusal)
		}
	}
	for _, e := range in {
		if e != nil && e.state == waiting && e.prefill > gone[0].prefill {
			t.Errorf("%s of %v waits, %s of %v was given up", e.ID(), e.prefill, gone[0].ID(), gone[0].prefill)
		}
	}
	if k := p.View(p.now).Classes[0]; k.Revoked != uint64(len(gone)) {
		t.Errorf("%d are counted", k.Revoked)
	}
}

// TestDemotedInsteadOfRefused: a request that would be late waits on without a goal,
// and runs at its own level again when that delays no other.
func TestDemotedInsteadOfRefused(t *testing.T) {
	p := newPipe(t, goals("demote"))
	asked := 0
	for range 30 {
		if p.ask("a", "interactive", 100) == nil {
			t.Fatal("one was refused")
		}
		asked++
	}
	demoted := p.byName["offline"].waiting
	if demoted < 15 || p.View(p.now).Classes[2].Demoted != uint64(demoted) {
		t.Fatalf("%d were demoted", demoted)
	}
	p.runUntil(time.Minute)
	if len(p.ended) != asked {
		t.Errorf("%d of %d were served", len(p.ended), asked)
	}
	last := p.ended[len(p.ended)-1]
	if g := last.Grant(); g.Class != "offline" || g.Level != levelInteractive {
		t.Errorf("the last one ran as %+v", g)
	}
}

// TestTheLadder climbs while waits are much longer than predicted, sheds in the end,
// and comes down afterwards.
func TestTheLadder(t *testing.T) {
	p := newPlay(t, 1, Config{Classes: []Class{{Name: "interactive", BusyOutputTokens: 8}}})
	k := p.byName["interactive"]
	turn := func(wrong bool) {
		for range 10 {
			p.now += 100 * time.Millisecond
			if wrong {
				k.margin.observe(10*time.Second, time.Second)
				k.sojourn.observe(3*time.Second, p.now)
			} else {
				k.margin.observe(time.Second, time.Second)
				k.sojourn.observe(0, p.now)
			}
		}
		p.advance(p.now)
	}
	for range 8 {
		turn(true)
	}
	if p.load.rung != rungShed || p.load.cursor >= 1 {
		t.Fatalf("on rung %d, cursor %v", p.load.rung, p.load.cursor)
	}
	p.arrive(Demand{Class: "offline", Sequences: 1, PromptTokens: 1})
	if p.now += time.Second; p.Next(p.now) != nil {
		t.Error("offline work starts")
	}
	for range 20 {
		turn(true)
	}
	shed, in := 0, 0
	for i := range 200 {
		e, r := p.Arrive(Demand{Tenant: "t", User: fmt.Sprint(i), Class: "interactive", Sequences: 1, PromptTokens: 1, DecodeTokens: 100}, p.now)
		switch {
		case r == nil:
			in++
			if e.Grant().OutputTokens != 8 || e.demand.DecodeTokens != 8 {
				t.Fatal("the answer is not cut")
			}
		case r.Reason == Overloaded && r.RetryAfter >= time.Second:
			shed++
		default:
			t.Fatal(r)
		}
	}
	if shed < 60 || in < 20 {
		t.Errorf("%d shed, %d let in", shed, in)
	}
	for range 200 {
		turn(false)
	}
	if p.load.rung != 0 || p.Next(p.now) == nil {
		t.Errorf("still on rung %d", p.load.rung)
	}
}
