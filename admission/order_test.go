package admission

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/cost"
)

// pipe is an engine that prefills one request at a time, at 1 ms a token, and gives
// each one token of answer. So predictions are exact.
type pipe struct {
	*play
	busy  *Entry
	until time.Duration
	ended []*Entry
	order []string
}

var pipeCost = cost.Cost{PrefillToken: 1e6}

func newPipe(t *testing.T, cfg Config) *pipe {
	p := &pipe{play: newPlay(t, 1, cfg)}
	p.report()
	return p
}

func (p *pipe) report() {
	left := 0
	if p.busy != nil {
		left = max(0, int((p.until-p.now)/time.Millisecond))
	}
	p.Report(Report{Up: true, At: p.now, Cost: pipeCost, Room: cost.Room{TokensMax: 1}, ShortPrefill: left}, p.now)
	for _, e := range p.TakeRefused() {
		p.refused[e.refusal.Reason]++
		p.Done(e, Spent{}, p.now)
	}
}

// ask sends a request with some prompt tokens.
func (p *pipe) ask(tenant, class string, tokens int) *Entry {
	return p.arrive(Demand{Tenant: tenant, Class: class, Sequences: 1, PromptTokens: tokens, UncachedTokens: tokens, DecodeTokens: 1})
}

// runUntil lets the engine work until an instant.
func (p *pipe) runUntil(then time.Duration) {
	for {
		if p.busy == nil {
			if p.busy = p.Next(p.now); p.busy != nil {
				p.until = p.now + p.busy.prefill
				p.order = append(p.order, p.busy.demand.ID)
			}
			p.report()
		}
		if p.busy == nil || p.until > then {
			p.now = max(p.now, then)
			p.report()
			return
		}
		p.now = p.until
		p.Progress(p.busy, 1, p.now)
		p.Done(p.busy, Spent{ComputedTokens: p.busy.demand.PromptTokens, CompletionTokens: 1, Whole: true}, p.now)
		p.ended = append(p.ended, p.busy)
		p.busy = nil
		p.report()
	}
}

// TestAcceptedMeansInTime: where costs are exact and one tenant waits, a request that
// is admitted with a goal keeps it, at any load.
func TestAcceptedMeansInTime(t *testing.T) {
	for _, load := range []float64{0.5, 0.95, 1.5, 3} {
		p := newPipe(t, Config{LongPrefill: time.Hour, Classes: []Class{{Name: "interactive", FirstTokenGoal: time.Second}}})
		arrived := 0
		for range 3000 {
			tokens := 5 + int(p.rnd.ExpFloat64()*50)
			p.runUntil(p.now + time.Duration(p.rnd.ExpFloat64()*55/load*float64(time.Millisecond)))
			p.ask("a", "interactive", tokens)
			arrived++
		}
		p.runUntil(p.now + time.Hour)
		good := 0
		for _, e := range p.ended {
			if e.firstToken > e.arrived+time.Second+2*e.prefill {
				t.Fatalf("load %v: one arrived at %v and had its first token at %v", load, e.arrived, e.firstToken)
			}
			good++
		}
		// Waiting requests that were refused are the price of choosing the victim.
		t.Logf("load %v: %d of %d in time, refused %v", load, good, arrived, p.refused)
		if want := min(0.95, 0.9/load); float64(good) < want*float64(arrived) {
			t.Errorf("load %v: only %d of %d were served", load, good, arrived)
		}
	}
}

// TestExpiredNeverStart: the smallest of all limits ends the wait.
//
// Case C13.
func TestExpiredNeverStart(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		within time.Duration
		want   time.Duration
		reason Reason
	}{
		{"class", Config{Classes: []Class{{Name: "offline", WaitLimit: time.Second}}}, 0, time.Second, TimedOut},
		{"all", Config{WaitLimit: time.Second}, 0, time.Second, TimedOut},
		{"client less", Config{WaitLimit: 2 * time.Second}, time.Second, time.Second, PastDeadline},
		{"client more", Config{WaitLimit: time.Second}, time.Hour, time.Second, TimedOut},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.RunningSequencesMax = 1
			p := newPlay(t, 1, c.cfg)
			holder := p.arrive(Demand{Class: "interactive", Sequences: 1, PromptTokens: 1})
			p.Next(p.now)
			late := p.arrive(Demand{Class: "offline", Sequences: 1, PromptTokens: 1, Within: c.within})
			at, ok := p.WakeAt()
			if !ok || at != p.now+c.want {
				t.Fatalf("it wakes at %v, %v", at-p.now, ok)
			}
			p.now = at - 1
			if p.Next(p.now); len(p.TakeRefused()) > 0 {
				t.Fatal("turned away too early")
			}
			p.now = at
			p.Done(holder, Spent{}, p.now)
			if e := p.Next(p.now); e != nil {
				t.Fatal("an expired request started")
			}
			refused := p.TakeRefused()
			if len(refused) != 1 || refused[0] != late || late.Refusal().Reason != c.reason || late.Refusal().RetryAfter < time.Second {
				t.Fatalf("%v", late.Refusal())
			}
		})
	}
}

// TestWhatCannotFitIsRefusedAtOnce has a prompt that is too large for the memory, and
// one that takes nearly all of it, beside small ones.
//
// Case C19.
func TestWhatCannotFitIsRefusedAtOnce(t *testing.T) {
	p := newPlay(t, 1, Config{})
	p.Report(Report{Up: true, Cost: testCost, Room: cost.Room{TokensMax: 256}, KVTokens: 1024}, 0)
	_, refusal := p.Arrive(Demand{Class: "interactive", Sequences: 1, PromptTokens: 1280, UncachedTokens: 1280, DecodeTokens: 10}, 0)
	if refusal == nil || refusal.Reason != TooLarge || refusal.RetryAfter != 0 || !strings.Contains(refusal.Message, "1281") || !strings.Contains(refusal.Message, "1024") {
		t.Fatalf("%v", refusal)
	}
	small := p.arrive(Demand{Class: "interactive", Sequences: 1, PromptTokens: 100, UncachedTokens: 100, DecodeTokens: 10})
	if p.Next(0) != small {
		t.Fatal("a small one did not start")
	}
	large := p.arrive(Demand{Class: "interactive", Sequences: 1, PromptTokens: 960, UncachedTokens: 960, DecodeTokens: 10})
	for range 3 {
		p.now += time.Millisecond
		p.arrive(Demand{Class: "interactive", Sequences: 1, PromptTokens: 100, UncachedTokens: 100, DecodeTokens: 10})
	}
	for range 3 {
		if e := p.Next(p.now); e == large {
			t.Fatal("the large one started without memory for it")
		}
	}
	for _, e := range slices.Clone(p.running) {
		p.Progress(e, 1, p.now)
		p.Done(e, Spent{}, p.now)
	}
	for range 10 {
		p.now += time.Millisecond
		if e := p.Next(p.now); e == large {
			return
		} else if e != nil {
			p.Done(e, Spent{}, p.now)
		}
	}
	t.Fatal("the large one never started")
}

// TestLongPrefillsLeaveShortOnesTheirWay: one long prefill is given at a time,
// and short ones start beside it.
func TestLongPrefillsLeaveShortOnesTheirWay(t *testing.T) {
	p := newPlay(t, 1, Config{})
	p.Report(Report{Up: true, Cost: testCost, Room: cost.Room{TokensMax: 256}, KVTokens: 1 << 20}, 0)
	ask := func(tokens int) *Entry {
		return p.arrive(Demand{Class: "interactive", Sequences: 1, PromptTokens: tokens, UncachedTokens: tokens, DecodeTokens: 10})
	}
	first, second, short := ask(2000), ask(2000), ask(50)
	var started []*Entry
	for e := p.Next(0); e != nil; e = p.Next(0) {
		started = append(started, e)
	}
	if !slices.Equal(started, []*Entry{short, first}) {
		t.Fatalf("%d started", len(started))
	}
	if second.why != WhyPrefill || !first.Grant().Long || short.Grant().Long {
		t.Errorf("why %v, lanes %v %v", second.why, first.Grant().Long, short.Grant().Long)
	}
	p.Progress(first, 1, time.Second)
	if p.Next(time.Second) != second {
		t.Error("the second long one did not follow")
	}
}

// TestCacheChangesThePrice: a cached prefix makes a waiting request cheaper, and its
// eviction makes it dear again.
func TestCacheChangesThePrice(t *testing.T) {
	p := newPlay(t, 1, Config{RunningSequencesMax: 1})
	p.Report(Report{Up: true, Cost: pipeCost, Room: cost.Room{TokensMax: 256}, KVTokens: 1 << 20}, 0)
	p.arrive(Demand{Class: "batch", Sequences: 1, PromptTokens: 16, UncachedTokens: 16, DecodeTokens: 1})
	p.Next(time.Second)
	e := p.arrive(Demand{Class: "batch", Sequences: 1, PromptTokens: 1000, UncachedTokens: 1000, DecodeTokens: 1, Blocks: []uint64{1, 2, 3}, BlockTokens: 300})
	key := e.key
	prefill := func(want int) {
		t.Helper()
		if e.prefill != time.Duration(want)*time.Millisecond || e.uncached() != want {
			t.Errorf("prefill is %v for %d tokens, want %d", e.prefill, e.uncached(), want)
		}
		p.check(t, p.entries)
	}
	report := func(changes ...hitmap.Change) {
		p.Report(Report{Up: true, Cost: pipeCost, Room: cost.Room{TokensMax: 256}, KVTokens: 1 << 20, Blocks: hitmap.News{Changes: changes}}, p.now)
	}
	prefill(1000)
	report(hitmap.Change{Hash: 2})
	prefill(1000)
	report(hitmap.Change{Hash: 1})
	prefill(400)
	if e.key >= key {
		t.Error("its place in the order did not rise")
	}
	report(hitmap.Change{Hash: 2, Evicted: true})
	prefill(700)
	report(hitmap.Change{Hash: 1, Evicted: true})
	prefill(1000)
	report(hitmap.Change{Hash: 1}, hitmap.Change{Hash: 1, Evicted: true}) // came and went between two reports
	prefill(1000)
	report(hitmap.Change{Hash: 1, Evicted: true}, hitmap.Change{Hash: 1})
	prefill(700)
}

// TestWaitingRequestsArePricedAfreshWhenChangesWereMissed: what a request was
// believed to find in the cache is void once changes were missed or the engine
// is gone, and the price follows at once.
func TestWaitingRequestsArePricedAfreshWhenChangesWereMissed(t *testing.T) {
	for name, c := range map[string]struct {
		report Report
		want   int
	}{
		"all was missed":        {Report{Up: true, Blocks: hitmap.News{Missed: true}}, 1000},
		"the second was missed": {Report{Up: true, Blocks: hitmap.News{Missed: true, Changes: []hitmap.Change{{Hash: 1}}}}, 700},
		"the engine is gone":    {Report{Blocks: hitmap.News{Missed: true}}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, 1, Config{RunningSequencesMax: 1})
			report := Report{Up: true, Cost: pipeCost, Room: cost.Room{TokensMax: 256}, KVTokens: 1 << 20}
			report.Blocks.Changes = []hitmap.Change{{Hash: 1}, {Hash: 2}}
			p.Report(report, 0)
			p.arrive(Demand{Class: "batch", Sequences: 1, PromptTokens: 16, UncachedTokens: 16, DecodeTokens: 1})
			p.Next(time.Second)
			e := p.arrive(Demand{Class: "batch", Sequences: 1, PromptTokens: 1000, UncachedTokens: 400, DecodeTokens: 1, Blocks: []uint64{1, 2, 3}, BlockTokens: 300})
			if e.uncached() != 400 {
				t.Fatalf("%d tokens are to be computed at first", e.uncached())
			}
			c.report.Cost, c.report.Room.TokensMax, c.report.KVTokens = pipeCost, 256, 1<<20
			p.Report(c.report, p.now)
			if e.uncached() != c.want || e.prefill != time.Duration(c.want)*time.Millisecond {
				t.Errorf("prefill is %v for %d tokens, want %d", e.prefill, e.uncached(), c.want)
			}
			p.check(t, p.entries)
		})
	}
}

// TestWindowWaitsForCompany: an idle engine waits for more requests, but not longer
// than the window, and not when a step is full.
func TestWindowWaitsForCompany(t *testing.T) {
	p := newPlay(t, 1, Config{Classes: []Class{{Name: "offline", Window: 50 * time.Millisecond}}})
	p.Report(Report{Up: true, Cost: testCost, Room: cost.Room{TokensMax: 256}}, 0)
	ask := func(class string, tokens int) *Entry {
		return p.arrive(Demand{Class: class, Sequences: 1, PromptTokens: tokens, UncachedTokens: tokens, DecodeTokens: 10})
	}
	ask("offline", 10)
	if p.Next(0) != nil {
		t.Fatal("it did not wait")
	}
	if at, ok := p.WakeAt(); !ok || at != 50*time.Millisecond {
		t.Fatalf("it wakes at %v, %v", at, ok)
	}
	if ask("offline", 300); p.Next(0) == nil {
		t.Error("a full step waited")
	}
}

// TestModes: a paused class starts nothing, a drained one takes nothing.
func TestModes(t *testing.T) {
	p := newPlay(t, 1, Config{})
	if err := p.SetMode("nothing", Paused, 0); err == nil || !strings.Contains(err.Error(), "interactive") {
		t.Errorf("%v", err)
	}
	if err := errors.Join(p.SetMode("batch", Paused, 0), p.SetMode("offline", Drained, 0)); err != nil {
		t.Fatal(err)
	}
	batch := p.arrive(Demand{Class: "batch", Sequences: 1, PromptTokens: 1})
	if _, refusal := p.Arrive(Demand{Class: "offline", Sequences: 1, PromptTokens: 1}, 0); refusal == nil || refusal.Reason != ClassClosed {
		t.Errorf("%v", refusal)
	}
	if p.Next(time.Minute) != nil {
		t.Error("a paused class started something")
	}
	if v := p.View(time.Minute); len(v.Waiting) != 1 || v.Waiting[0].Why != WhyPaused || v.Waiting[0].Starts != StartsUnknown {
		t.Errorf("%+v", v.Waiting)
	}
	if err := p.SetMode("batch", Open, time.Minute); err != nil || p.Next(time.Minute) != batch {
		t.Error("it did not go on")
	}
	if why := batch.Grant().Why; why != WhyPaused {
		t.Errorf("it waited for %v", why)
	}
}

// TestAPauseIsNamed: who waited because of a pause is told so, also when it is refused
// for it, and who hardly met the pause is not.
func TestAPauseIsNamed(t *testing.T) {
	p := newPlay(t, 1, Config{})
	set := func(m Mode, at time.Duration) {
		if err := p.SetMode("batch", m, at); err != nil {
			t.Fatal(err)
		}
	}
	arrive := func(at time.Duration) *Entry {
		e, refusal := p.Arrive(Demand{Class: "batch", Sequences: 1, PromptTokens: 1}, at)
		if refusal != nil {
			t.Fatal(refusal)
		}
		return e
	}
	set(Paused, time.Second)
	set(Open, 31*time.Second)
	if e := arrive(40 * time.Second); p.Next(45*time.Second) != e || e.Grant().Why == WhyPaused {
		t.Errorf("a pause before it came: %v", e.Grant().Why)
	}
	set(Paused, 100*time.Second)
	e := arrive(101 * time.Second)
	p.View(24 * time.Hour)
	refused := p.TakeRefused()
	if len(refused) != 1 || refused[0] != e || e.Refusal().Why != WhyPaused || !strings.Contains(e.Refusal().Message, "class batch was paused by its operator for") {
		t.Errorf("refused are %v: %+v", refused, e.Refusal())
	}
}
