package sim

import (
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// TestPromisesOfASuddenOverload: in the first seconds at five times the capacity nearly
// every promise is kept, also by a server that has just started and has seen no answer
// yet, and where the engine believes its steps to take two thirds of their time.
func TestPromisesOfASuddenOverload(t *testing.T) {
	const first, seeds, brokenMost = 8 * time.Second, 6, 0.008
	for _, c := range []struct {
		name   string
		calm   int // requests before, at 0.8 of the capacity
		belief float64
	}{
		{"fresh", 0, 1},
		{"fresh, costs too low", 0, 2. / 3},
		{"after a calm time", 100, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := cpuEngine()
			believed := e.cost()
			for _, x := range []*float64{&believed.Base, &believed.PrefillToken, &believed.PrefillContext, &believed.DecodeRow, &believed.DecodeContext} {
				*x *= c.belief
			}
			promised, broken := 0, 0
			for seed := range uint64(seeds) {
				made, err := Generate("uniform", 1500, seed)
				if err != nil {
					t.Fatal(err)
				}
				trace, from := suddenly(atLoad(t, e, made, 5), c.calm)
				for _, j := range playBelieving(t, e, trace, believed, seed).jobs {
					if j.admitted && j.ending == finished && j.At >= from && j.At < from+first {
						if promised++; !j.kept() {
							broken++
						}
					}
				}
			}
			t.Logf("%d of %d broken", broken, promised)
			if promised < 200*seeds || float64(broken) > brokenMost*float64(promised) {
				t.Errorf("of %d promises %d were broken", promised, broken)
			}
		})
	}
}

// suddenly slows the first calm requests of a trace at 5 times the capacity down to 0.8
// times, and returns when the others begin.
func suddenly(t *Trace, calm int) (*Trace, time.Duration) {
	slow := &Trace{Name: t.Name}
	var from, shift time.Duration
	for i, r := range t.Requests {
		if i < calm {
			shift = time.Duration(float64(r.At) * (5/0.8 - 1))
		} else if i == calm {
			shift += 3 * time.Second // all of the calm ones end
			from = r.At + shift
		}
		r.At += shift
		slow.Requests = append(slow.Requests, r)
	}
	return slow, from
}

// playBelieving plays a trace on an engine that begins with wrong costs.
func playBelieving(t *testing.T, e *Engine, trace *Trace, believed cost.Cost, seed uint64) *run {
	t.Helper()
	r, err := newRun(e, trace, "forebay", testGoals(t), seed)
	if err != nil {
		t.Fatal(err)
	}
	r.m.fit.Restore(believed)
	r.p.report(r.m.report(0), 0)
	for r.left > 0 {
		if err := r.turn(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}
