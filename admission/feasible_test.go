package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// lateNaively is forecast.test without blocks: it looks at everybody.
func lateNaively(s *Scheduler, e *Entry) *Entry {
	var all []*Entry
	for _, b := range s.levels[e.level].track.blocks {
		all = append(all, b.entries...)
	}
	slices.SortFunc(all, compareEntries)
	f := s.forecast(e.level)
	var ahead sums
	seen := false
	for _, o := range all {
		ahead.add(o, 1)
		if seen = seen || o == e; seen && f.firstToken(&ahead, o.prefill, o.long) > o.due {
			return o
		}
	}
	return nil
}

// TestFeasibilityIsThatOfEachRequest compares the walk by blocks with one that
// looks at everybody, on queues near what is feasible.
func TestFeasibilityIsThatOfEachRequest(t *testing.T) {
	late := 0
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		s, err := NewScheduler(Config{RunningSequencesMax: 4, WaitingRequestsMax: 1 << 20, Classes: []Class{{Name: "interactive", FirstTokenGoal: time.Duration(1+rnd.IntN(100)) * time.Second, WaitLimit: time.Hour, AgeCap: time.Duration(1+rnd.IntN(20)) * time.Second}}})
		if err != nil {
			t.Fatal(err)
		}
		s.Report(Report{Up: true, Cost: testCost, Room: cost.Room{TokensMax: 256}, KVTokens: 1 << 20}, 0)
		now := time.Duration(0)
		for i := range 1500 {
			now += time.Duration(rnd.IntN(3)) * time.Millisecond
			tokens := 1 + rnd.IntN(100)
			if rnd.IntN(100) == 0 {
				tokens = 3000
			}
			s.now = now
			e := &Entry{demand: Demand{ID: fmt.Sprint(i), Sequences: 1, PromptTokens: tokens, UncachedTokens: tokens, DecodeTokens: 9}, order: uint64(i), arrived: now, inLane: out, inExpiry: out, inRunning: out}
			e.class = s.byName["interactive"]
			e.asked = e.class
			s.price(e)
			e.expires = now + time.Hour
			s.enter(e, s.tenant("a"))
			if i%7 == 0 {
				f := s.forecast(0)
				want := lateNaively(s, e)
				if got, _ := f.test(&s.levels[0].track, e); got != want {
					t.Fatalf("seed %d, request %d: by blocks %v is late, one by one %v", seed, i, got, want)
				}
				if want != nil {
					late++
					s.refuse(want, &Refusal{})
				}
			}
		}
		s.levels[0].track.check(t)
		if len(s.levels[0].track.blocks) < 3 {
			t.Fatal("the queue is too short to tell")
		}
	}
	if late < 100 {
		t.Errorf("only %d were late", late)
	}
}

// TestTheLargestGivesWay: the request that helps most by leaving is refused, and
// among equals the newcomer.
func TestTheLargestGivesWay(t *testing.T) {
	p := newPipe(t, Config{LongPrefill: time.Hour, Classes: []Class{{Name: "interactive", FirstTokenGoal: time.Second, PrefillSlack: 0.01}}})
	first := p.ask("a", "interactive", 400)
	small := p.ask("a", "interactive", 100)
	large := p.ask("a", "interactive", 300)
	fourth := p.ask("a", "interactive", 200)
	if fourth == nil || small.state != waiting || first.state != refused || large.state != waiting {
		t.Errorf("states: %v %v %v", first.state, small.state, large.state)
	}
	if again := p.ask("a", "interactive", 300); again != nil {
		t.Error("of two as large the newcomer was let in")
	}
}

// TestTheGreedyTenantGivesWay although its requests are smaller.
func TestTheGreedyTenantGivesWay(t *testing.T) {
	p := newPipe(t, Config{LongPrefill: time.Hour, Classes: []Class{{Name: "interactive", FirstTokenGoal: time.Second, PrefillSlack: 0.01}}})
	var greedy []*Entry
	for range 8 {
		greedy = append(greedy, p.ask("a", "interactive", 100))
	}
	polite := p.ask("b", "interactive", 200)
	if polite == nil || polite.state != waiting {
		t.Fatal("the polite tenant was refused")
	}
	if n := len(slices.DeleteFunc(greedy, func(e *Entry) bool { return e.state == waiting })); n < 1 || n > 2 {
		t.Errorf("%d of the greedy one's were refused", n)
	}
}

// TestDemotedInsteadOfRefused: a request that would be late waits on without a goal,
// and runs at its own level again when that delays no other.
func TestDemotedInsteadOfRefused(t *testing.T) {
	p := newPipe(t, Config{LongPrefill: time.Hour, Classes: []Class{{Name: "interactive", FirstTokenGoal: time.Second, PrefillSlack: 0.01, Late: "demote"}}})
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

// TestOversized: the class says what happens to prompts that are too long.
func TestOversized(t *testing.T) {
	for _, c := range []struct {
		class Class
		cfg   Config
		want  string // class, or "" for refused
	}{
		{Class{Name: "interactive"}, Config{OversizedPrefill: time.Second}, "interactive"},
		{Class{Name: "interactive", Oversized: "refuse"}, Config{OversizedPrefill: time.Second}, ""},
		{Class{Name: "interactive", Oversized: "demote"}, Config{OversizedPrefill: time.Second}, "offline"},
	} {
		c.cfg.Classes = []Class{c.class}
		p := newPipe(t, c.cfg)
		e := p.ask("a", "interactive", 2000)
		switch {
		case e == nil && (c.want != "" || p.refused[TooLarge] != 1):
			t.Errorf("%+v: refused %v", c.class, p.refused)
		case e != nil && e.class.Name != c.want:
			t.Errorf("%+v: runs as %s", c.class, e.class.Name)
		}
		if p.ask("a", "interactive", 50) == nil {
			t.Errorf("%+v: a short one was refused", c.class)
		}
	}
}

// TestRetriesAreRefusedFirst while others wait, once they are more than a tenth.
func TestRetriesAreRefusedFirst(t *testing.T) {
	p := newPlay(t, 1, Config{RunningSequencesMax: 1})
	ask := func(tenant string, retry bool) *Refusal {
		p.now += 10 * time.Millisecond
		_, r := p.Arrive(Demand{Tenant: tenant, Class: "batch", Sequences: 1, PromptTokens: 1, Retry: retry}, p.now)
		return r
	}
	for range 20 {
		ask("a", false)
		ask("b", false)
	}
	refused := 0
	for range 10 {
		if r := ask("a", true); r != nil && r.Reason == RetryBudget {
			refused++
		}
	}
	if refused < 6 || refused > 9 {
		t.Errorf("%d of 10 retries were refused", refused)
	}
	if r := ask("b", true); r != nil {
		t.Errorf("another tenant's first retry: %v", r)
	}
}

// TestTheRefusedComeBackOneByOne: requests that would be late are told different
// times, over as long as their work takes, and most are served when they come back
// at those times.
func TestTheRefusedComeBackOneByOne(t *testing.T) {
	p := newPipe(t, Config{LongPrefill: time.Hour, Classes: []Class{{Name: "interactive", FirstTokenGoal: time.Second, PrefillSlack: 0.01}}})
	var back []time.Duration
	ask := func() {
		_, r := p.Arrive(Demand{Tenant: "a", Class: "interactive", Sequences: 1, PromptTokens: 100, UncachedTokens: 100, DecodeTokens: 1}, p.now)
		if r != nil {
			back = append(back, p.now+r.RetryAfter)
		}
	}
	for range 200 {
		ask()
	}
	first := slices.Clone(back)
	slices.Sort(first)
	if spread := first[len(first)-1] - first[0]; spread < 15*time.Second {
		t.Errorf("%d are told to come back within %v", len(first), spread)
	}
	back = nil
	for _, at := range first {
		p.runUntil(at)
		ask()
	}
	if len(back) > len(first)/4 {
		t.Errorf("%d of %d were refused again", len(back), len(first))
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
				p.engine.margin.observe(10*time.Second, time.Second)
				k.sojourn.observe(3*time.Second, p.now)
			} else {
				p.engine.margin.observe(time.Second, time.Second)
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

func TestMarginRisesFastAndFallsSlowly(t *testing.T) {
	var m margin
	m.init()
	rise, fall := 0, 0
	for m.value() < 1.9 {
		m.observe(4*time.Second, 2*time.Second)
		rise++
	}
	for m.value() > 1.1 {
		m.observe(2*time.Second, 2*time.Second)
		fall++
	}
	if rise > 10 || fall < 3*rise {
		t.Errorf("up in %d, down in %d", rise, fall)
	}
	for range 1000 {
		m.observe(time.Hour, 1)
	}
	if m.value() > marginMost*1.1 {
		t.Errorf("the margin is %v", m.value())
	}
}
