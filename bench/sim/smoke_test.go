package sim

import (
	"fmt"
	"testing"
	"time"
)

// smokeSeeds are how often each load is played; a minute of arrivals is short.
const smokeSeeds = 3

// smoke compares the Scheduler with FCFS on a minute of a made trace at a load.
func smoke(t *testing.T, name string, load float64, change func(*Engine)) (ours, control Outcome) {
	t.Helper()
	e := DefaultEngine()
	change(e)
	r, err := Compare(Options{
		Engine: e, Policies: []string{"forebay", "fcfs"}, Load: load, Seeds: smokeSeeds, Goal: 2 * time.Second, Slack: 2,
		Source: func(seed uint64) (*Trace, error) {
			probe, err := Generate(name, 1000, seed)
			if err != nil {
				return nil, err
			}
			g, err := newGoals(&Options{Goal: 2 * time.Second, Slack: 2})
			if err != nil {
				return nil, err
			}
			busy, err := busyTime(e, probe, g)
			if err != nil {
				return nil, err
			}
			return probe.Head(int(1000 * load * float64(time.Minute) / float64(busy))), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Policies[0].Mean, r.Policies[1].Mean
}

// TestSmokeTargets: the Scheduler keeps its targets on minutes of made traces, and
// first come, first served does not.
func TestSmokeTargets(t *testing.T) {
	for _, c := range []struct {
		name, trace string
		load        float64
		class, key  string
		least, most float64
		change      func(*Engine)
	}{
		{"chats at 0.95 keep their goals", "poisson", 0.95, interactive, "goodput", 0.95, 1, nil},
		{"chats at 1.4 keep their goals", "poisson", 1.4, interactive, "goodput", 0.82, 1, nil},
		{"chats at 1.9 keep their goals", "poisson", 1.9, interactive, "goodput", 0.68, 1, nil},
		{"chats at 1.9 start soon", "poisson", 1.9, interactive, "ttft_p95_s", 0, 2.2, nil},
		{"bursts keep their goals", "gamma", 0.95, interactive, "goodput", 0.68, 1, nil},
		{"promises hold", "poisson", 1.4, interactive, "broken", 0, 0.01, nil},
		{"promises hold where costs are wrong", "poisson", 1.4, interactive, "broken", 0, 0.01, func(e *Engine) { e.CostNoise = 0.3 }},
		{"long prompts leave short ones their goals", "pareto", 0.95, interactive, "goodput", 0.90, 1, nil},
		{"tenants are served by their shares", "mixed", 1.55, "", "jain_of_entitled", 0.9, 1, nil},
		{"tenants are served by their shares at twice the capacity", "mixed", 2, "", "jain_of_entitled", 0.81, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.change == nil {
				c.change = func(*Engine) {}
			}
			ours, control := smoke(t, c.trace, c.load, c.change)
			of := func(o *Outcome) float64 {
				if c.class == "" {
					return value(o.All, c.key)
				}
				return value(o.Classes[c.class], c.key)
			}
			got, theirs := of(&ours), of(&control)
			if !(got >= c.least && got <= c.most) {
				t.Errorf("%s is %.4f, not in [%g, %g]", c.key, got, c.least, c.most)
			}
			if theirs >= c.least && theirs <= c.most {
				t.Errorf("the control does so too: %s is %.4f", c.key, theirs)
			}
			t.Logf("%s %.4f, fcfs %.4f", c.key, got, theirs)
		})
	}
}

// TestSmokeDearRows: where decode rows cost as much as prefill, promises hold under
// any overload, and nothing of the engine's time is lost. A Scheduler that believes
// in full steps breaks most of its promises.
func TestSmokeDearRows(t *testing.T) {
	for _, c := range []struct {
		load                     float64
		brokenMost, revokedMost  float64
		goodputLeast, medianMost float64 // of the capacity that arrivals leave; of the goal
	}{
		{1.2, 0.01, 0.01, 0.95, 0.5},
		{2, 0.01, 0.01, 0.95, 0.5},
		{5, 0.01, 0.01, 0.95, 0.5},
		{10, 0.01, 0.01, 0.95, 0.5},
	} {
		t.Run(fmt.Sprint(c.load), func(t *testing.T) {
			t.Parallel()
			r, err := Compare(Options{
				Engine: slowCPUEngine(), Policies: []string{"forebay", "forebay-full-steps"}, Load: c.load, Seeds: smokeSeeds, Goal: 2 * time.Second, Slack: 2,
				Source: func(seed uint64) (*Trace, error) { return Generate("uniform", int(600*c.load), seed) },
			})
			if err != nil {
				t.Fatal(err)
			}
			price := slowCPUEngine().cost()
			goal := 2 + 2*price.Prefill(60, 0, 512).Seconds()
			left := 1 - c.load*r.Capacity*slowCPUEngine().ArrivalMS/1e3 // of the engine's time, by arrivals
			of := func(i int, key string) float64 { return value(r.Policies[i].Mean.Classes[interactive], key) }
			broken, revoked, goodput, median := of(0, "broken"), of(0, "revoked"), c.load*of(0, "goodput")/left, of(0, "ttft_p50_s")/goal
			if broken > c.brokenMost || revoked > c.revokedMost || goodput < c.goodputLeast || median > c.medianMost {
				t.Errorf("broken %.4f, revoked %.4f, goodput %.3f of the capacity that arrivals leave, median first token %.2f of the goal; want %+v", broken, revoked, goodput, median, c)
			}
			if control := of(1, "broken"); control <= c.brokenMost {
				t.Errorf("the control keeps its promises too: broken %.4f", control)
			}
			t.Logf("broken %.4f, control %.4f; revoked %.4f, goodput %.3f, median %.2f", broken, of(1, "broken"), revoked, goodput, median)
		})
	}
}

// TestSmokePoliteTenants: a tenant that asks for nine times as much does not take
// the others' places.
func TestSmokePoliteTenants(t *testing.T) {
	ours, control := smoke(t, "mixed", 1.55, func(*Engine) {})
	polite := func(o *Outcome) float64 {
		kept, all := 0., 0.
		for name, metrics := range o.Tenants {
			if len(name) > 6 && name[:6] == "polite" {
				n := value(metrics, "requests")
				kept, all = kept+n*value(metrics, "goodput"), all+n
			}
		}
		return kept / all
	}
	if p := polite(&ours); p < 0.94 {
		t.Errorf("of the polite tenants' requests %.3f are on time", p)
	}
	if p := polite(&control); p > 0.5 {
		t.Errorf("the control keeps %.3f of them too", p)
	}
	t.Logf("%.3f, fcfs %.3f", polite(&ours), polite(&control))
}
