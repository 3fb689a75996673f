package admission

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
	f := s.forecast(e.class)
	var ahead sums
	seen := false
	for _, o := range all {
		ahead.add(o, 1)
		if seen = seen || o == e; seen && f.promised(f.expected(&ahead, o.prefill, o.long)) > o.due {
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
		s.engine.typical = typical{50, 50, 9}
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
				f := s.forecast(e.class)
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

// goals is a class of one second with no slack, in which nothing is long.
func goals(late string) Config {
	return Config{LongPrefill: time.Hour, Classes: []Class{{Name: "interactive", FirstTokenGoal: time.Second, PrefillSlack: 0.01, Late: late}}}
}

// TestNoNewcomerTakesAPromisedPlace: whoever is let in is served, whatever comes
// after it, while the engine does what it says.
func TestNoNewcomerTakesAPromisedPlace(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		p := newPipe(t, goals(""))
		tenants := 1 + int(seed%2)*2
		var in []*Entry
		for range 400 {
			p.runUntil(p.now + time.Duration(rnd.IntN(60))*time.Millisecond)
			if e := p.ask(string('a'+rune(rnd.IntN(tenants))), "interactive", 1+rnd.IntN(300)); e != nil {
				in = append(in, e)
			}
		}
		p.runUntil(p.now + time.Minute)
		if p.refused[Late] < 50 {
			t.Fatalf("seed %d: only %d were refused", seed, p.refused[Late])
		}
		late, most := 0, 1+len(in)/50
		for _, e := range in {
			if e.firstToken == 0 || e.firstToken > e.due {
				late++
			}
		}
		if tenants > 1 {
			most = len(in) / 25 // shares bend the order that the forecast knows
		}
		if late > most {
			t.Errorf("seed %d, %d tenants: of %d that were let in %d came late or not at all", seed, tenants, len(in), late)
		}
	}
}

// TestSmallRequestsAreServedInOverload: at three times what can be served, the small
// ones are served, and of requests that are all alike an even part.
func TestSmallRequestsAreServedInOverload(t *testing.T) {
	served := func(size func(*rand.Rand) int) (small, large [2]int, in []bool) {
		rnd := rand.New(rand.NewPCG(7, 4))
		p := newPipe(t, goals(""))
		for i := range 3000 {
			p.runUntil(p.now + time.Duration(rnd.IntN(60))*time.Millisecond)
			n := size(rnd)
			group := &small
			if n > 90 {
				group = &large
			}
			ok := p.ask("a", "interactive", n) != nil
			if i > 300 {
				in = append(in, ok)
				group[0]++
				if ok {
					group[1]++
				}
			}
		}
		return small, large, in
	}
	small, large, _ := served(func(rnd *rand.Rand) int { return []int{30, 150}[rnd.IntN(2)] })
	if s, l := float64(small[1])/float64(small[0]), float64(large[1])/float64(large[0]); s < 0.95 || l > 0.3 {
		t.Errorf("of the small ones %.2f are served, of the large ones %.2f", s, l)
	}
	_, _, in := served(func(*rand.Rand) int { return 91 })
	gap, longest, all := 0, 0, 0
	for _, ok := range in {
		if gap++; ok {
			all++
			longest, gap = max(longest, gap), 0
		}
	}
	if share := float64(all) / float64(len(in)); share < 0.28 || share > 0.38 || longest > 20 {
		t.Errorf("of requests that are alike %.2f are served, with up to %d refused in a row", share, longest)
	}
}

// TestLargerRequestsNeedAShorterQueue in a lasting overload, but not in a burst; and a
// tenant whose requests are all large gets as much of the engine as another.
func TestLargerRequestsNeedAShorterQueue(t *testing.T) {
	p := newPipe(t, goals(""))
	rnd := rand.New(rand.NewPCG(8, 4))
	asked, served := map[string]int{}, map[string]int{}
	for p.now < 3*time.Minute {
		p.runUntil(p.now + time.Duration(rnd.ExpFloat64()*float64(20*time.Millisecond)))
		tenant, n := "small", 20+rnd.IntN(20)
		if rnd.IntN(5) == 0 {
			tenant, n = "large", 4*n
		}
		asked[tenant] += n
		if p.ask(tenant, "interactive", n) != nil {
			served[tenant] += n
		}
	}
	small := float64(served["small"]) / float64(asked["small"])
	if large := float64(served["large"]) / float64(asked["large"]); math.Abs(small-large) > 0.1*small || small > 0.6 {
		t.Errorf("of the small requests' work %.3f was served, of the large ones' %.3f", small, large)
	}
	k := p.byName["interactive"]
	lv := &p.levels[k.level]
	part := func(larger time.Duration) float64 {
		f, queue := p.forecast(k), lv.track.total()
		standing := lv.standing
		defer func() { lv.standing = standing }()
		return p.part(&f, lv.asking[0], &queue, larger)
	}
	const more = 100 * time.Millisecond
	if small, mean, large := part(-more), part(0), part(more); !lv.standing.on || small <= mean || mean <= large {
		t.Errorf("lasting overload: %v; the parts are %.3f for small requests, %.3f and %.3f for large ones", lv.standing.on, small, mean, large)
	}
	lv.standing = standing{}
	if small, large := part(-more), part(more); small != large {
		t.Errorf("in a burst the parts are %.3f and %.3f", small, large)
	}
}

// TestALoneTenantIsOnTime behind another's flood, which had filled the queue as far
// as the goal allows; and the flood's own promises hold.
func TestALoneTenantIsOnTime(t *testing.T) {
	p := newPipe(t, goals(""))
	var flood []*Entry
	for range 40 {
		if e := p.ask("a", "interactive", 40); e != nil {
			flood = append(flood, e)
		}
	}
	if len(flood) < 15 {
		t.Fatalf("only %d of the flood wait", len(flood))
	}
	lone := p.ask("b", "interactive", 100)
	if lone == nil {
		t.Fatal("the lone tenant was refused")
	}
	p.runUntil(10 * time.Second)
	if wait := lone.firstToken - lone.arrived; lone.firstToken == 0 || wait > 600*time.Millisecond {
		t.Errorf("the lone tenant's first token came after %v", wait)
	}
	for _, e := range flood {
		if e.firstToken == 0 || e.firstToken > e.due {
			t.Errorf("%s of the flood: first token at %v, due at %v, %v", e.ID(), e.firstToken, e.due, e.refusal)
		}
	}
}

// TestADeadlineThatCannotBeMetIsNamed: the refusal speaks of the client's deadline,
// not of the class's goal.
func TestADeadlineThatCannotBeMetIsNamed(t *testing.T) {
	p := newPipe(t, goals(""))
	_, r := p.Arrive(Demand{Tenant: "a", Class: "interactive", Sequences: 1, PromptTokens: 100, UncachedTokens: 100, DecodeTokens: 1, Within: 90 * time.Millisecond}, p.now)
	if r == nil || r.Reason != PastDeadline || r.RetryAfter <= 0 || !strings.Contains(r.Message, "deadline of 90ms") {
		t.Errorf("%+v", r)
	}
}

// TestAClientsDeadlineTeachesTheMarginNothing: whoever asks for the impossible does
// not make its class wary of others' promises.
func TestAClientsDeadlineTeachesTheMarginNothing(t *testing.T) {
	p := newPipe(t, goals(""))
	margin := &p.byName["interactive"].margin
	start := margin.factor
	for range 20 {
		e := p.arrive(Demand{Tenant: "a", Class: "interactive", Sequences: 1, PromptTokens: 10, UncachedTokens: 10, DecodeTokens: 1, Within: 20 * time.Millisecond})
		if e == nil {
			t.Fatal("a deadline that can be met was refused")
		}
		if started := p.Next(p.now); started != e {
			t.Fatal("it does not start")
		}
		p.now += 50 * time.Millisecond
		p.Progress(e, 1, p.now)
		p.Done(e, Spent{}, p.now)
	}
	if margin.factor != start {
		t.Errorf("the margin went from %v to %v", start, margin.factor)
	}
	late := p.ask("a", "interactive", 10)
	p.Next(p.now)
	p.now += 2 * time.Second
	if p.Progress(late, 1, p.now); margin.factor <= start {
		t.Error("the control: the class's own goal teaches nothing either")
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
	p := newPipe(t, goals(""))
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
