package admission

import (
	"math"
	"testing"
	"time"
)

// TestNobodyStarves: a request that arrives more than its age cap after another does
// not go before it, whatever the sizes.
//
// Case C15.
func TestNobodyStarves(t *testing.T) {
	p := newPipe(t, Config{LongPrefill: time.Hour, Classes: []Class{{Name: "offline", AgeCap: 5 * time.Second}}})
	large := p.ask("a", "offline", 4000)
	passed := 0
	for range 2000 { // small ones without end, at 1.5 times what can be done
		p.ask("a", "offline", 30)
		p.runUntil(p.now + 20*time.Millisecond)
		if large.state == waiting {
			passed++
		}
	}
	if large.state == waiting {
		t.Fatal("the large request never started")
	}
	for _, e := range p.ended {
		if e.started < large.started && e.arrived > large.arrived+5*time.Second {
			t.Fatalf("one that came at %v passed the large one", e.arrived)
		}
	}
	if passed == 0 {
		t.Error("nobody passed it: the order by cost is idle")
	}
}

// TestLowClassesHaveTheirFloor has more urgent work than the engine can do: floors
// bound how long the less urgent waits.
//
// Case C15.
func TestLowClassesHaveTheirFloor(t *testing.T) {
	p := newPipe(t, Config{LongPrefill: time.Hour})
	var low []*Entry
	for range 10 {
		low = append(low, p.ask("a", "offline", 100), p.ask("a", "batch", 100))
	}
	for p.now < time.Minute {
		p.ask("b", "interactive", 40)
		p.runUntil(p.now + 20*time.Millisecond)
	}
	for _, e := range low {
		// 10 × 100 ms at a floor of 5 % is 20 s, at 15 % it is 7 s.
		bound := map[string]time.Duration{"offline": 25 * time.Second, "batch": 10 * time.Second}[e.class.Name]
		if e.started == 0 || e.started > bound {
			t.Errorf("one of class %s started at %v, later than %v", e.class.Name, e.started, bound)
		}
	}
	busy := p.levels[levelInteractive].served.share(p.now)
	if busy < 0.7 {
		t.Errorf("the urgent class had only %.2f of the engine", busy)
	}
}

// TestTenantsShareByEngineTime: one tenant sends nine times its share.
func TestTenantsShareByEngineTime(t *testing.T) {
	p := newPipe(t, Config{LongPrefill: time.Hour, Classes: []Class{{Name: "interactive", FirstTokenGoal: 2 * time.Second, PrefillSlack: 0.01}}})
	polite := []string{"b", "c", "d", "e", "f", "g", "h", "i", "j"}
	met, asked := map[string]float64{}, map[string]float64{}
	next := map[string]time.Duration{}
	// Ten tenants: nine ask for 1/18 of the engine each, one for 9 times its tenth.
	gap := func(share float64) time.Duration {
		return time.Duration(p.rnd.ExpFloat64() * 50 / share * float64(time.Millisecond))
	}
	end := 5 * time.Minute
	for p.now < end {
		who, at := "a", next["a"]
		for _, name := range polite {
			if next[name] < at {
				who, at = name, next[name]
			}
		}
		p.runUntil(at)
		share := 0.9
		if who != "a" {
			share = 1.0 / 18
		}
		next[who] = at + gap(share)
		asked[who]++
		p.ask(who, "interactive", 50)
	}
	p.runUntil(end + time.Minute)
	for _, e := range p.ended {
		if e.firstToken <= e.arrived+2*time.Second {
			met[e.demand.Tenant]++
		}
	}
	for _, name := range polite {
		if met[name] < 0.94*asked[name] {
			t.Errorf("tenant %s had %v of %v in time", name, met[name], asked[name])
		}
	}
	t.Logf("the greedy one had %v of %v", met["a"], asked["a"])
	if met["a"] < 0.3*asked["a"] {
		t.Error("what the others leave is not given to the greedy one")
	}
}

// TestBackloggedTenantsAreEven has tenants with requests of very different size
// and number; the engine time they get must be even, or by weight.
func TestBackloggedTenantsAreEven(t *testing.T) {
	weights := map[string]float64{"a": 1, "b": 1, "c": 2, "d": 1}
	p := newPipe(t, Config{LongPrefill: time.Hour, Tenants: []Tenant{{Name: "c", Weight: 2, Keys: []string{"k"}}}, Classes: []Class{{Name: "offline"}}})
	size := map[string]int{"a": 10, "b": 400, "c": 60, "d": 150}
	for p.now < 2*time.Minute {
		for name, tokens := range size {
			for l := p.byName["offline"].held[p.tenants[name]]; l == nil || l.waiting() < 5; l = p.byName["offline"].held[p.tenants[name]] {
				p.ask(name, "offline", tokens)
			}
		}
		p.runUntil(p.now + 5*time.Millisecond)
	}
	served := map[string]float64{}
	for _, e := range p.ended {
		served[e.demand.Tenant] += e.prefill.Seconds() / weights[e.demand.Tenant]
	}
	least, most := math.Inf(1), 0.0
	for _, x := range served {
		least, most = min(least, x), max(most, x)
	}
	// The gap of two backlogged tenants is at most 2(U+Q).
	if bound := 2 * (0.4 + 0.3); most-least > bound {
		t.Errorf("engine seconds by weight: %v, a gap over %v", served, bound)
	}
}

// TestATenantPaysForWhatWasComputed: a request that ends early costs its tenant the
// engine time of what was computed, not of its whole prompt, however long it ran.
func TestATenantPaysForWhatWasComputed(t *testing.T) {
	for name, c := range map[string]struct {
		spent Spent
		ran   time.Duration
		want  time.Duration
	}{
		"left in the engine's queue":             {Spent{}, 10 * time.Second, 0},
		"left in prefill":                        {Spent{ComputedTokens: 100}, 10 * time.Second, 100 * time.Millisecond},
		"left in prefill behind a cached prefix": {Spent{ComputedTokens: 11, CachedTokens: 320}, time.Second, 11 * time.Millisecond},
		"ran to its end":                         {Spent{ComputedTokens: 697, CompletionTokens: 1, Whole: true}, time.Second, 697 * time.Millisecond},
		"nobody heard, and it ran for long":      {Spent{Unheard: true}, 10 * time.Second, 697 * time.Millisecond},
		"nobody heard, and it ran shortly":       {Spent{Unheard: true}, 50 * time.Millisecond, 50 * time.Millisecond},
	} {
		p := newPipe(t, Config{LongPrefill: time.Hour, Classes: []Class{{Name: "offline"}}})
		e := p.ask("a", "offline", 697)
		if p.Next(p.now) != e {
			t.Fatal("it does not start")
		}
		before := e.line.deficit + e.charged
		p.now += c.ran
		p.Done(e, c.spent, p.now)
		if charged := before - e.line.deficit; charged != c.want || e.charged != c.want {
			t.Errorf("%s: the tenant is charged %v, the request %v; want %v", name, charged, e.charged, c.want)
		}
	}
}
