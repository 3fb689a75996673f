package sim

import (
	"math/rand/v2"
	"testing"
)

// begins plays a trace and returns, of the short requests of level 0, the share that
// is in the first step composed after its release, and in the first two.
func begins(t *testing.T, e *Engine, trace, policy string, seed uint64) (inOne, inTwo float64) {
	t.Helper()
	made, err := Generate(trace, 400, seed)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRun(e, atLoad(t, e, made, 1.5), policy, testGoals(t), seed)
	if err != nil {
		t.Fatal(err)
	}
	released, began := map[*job]uint64{}, map[*job]uint64{} // by step
	for r.left > 0 {
		if err := r.turn(); err != nil {
			t.Fatal(err)
		}
		for _, j := range r.m.sequences {
			if released[j] == 0 {
				released[j] = r.m.steps + 1
			}
		}
		for _, s := range r.m.shares {
			if s.job != nil && began[s.job] == 0 {
				began[s.job] = r.m.steps
			}
		}
	}
	n := 0.
	for j, step := range began {
		if j.long || j.level != 0 {
			continue
		}
		n++
		if step <= released[j] {
			inOne++
		}
		if step <= released[j]+1 {
			inTwo++
		}
	}
	if n < 200 {
		t.Fatalf("only %.0f requests began", n)
	}
	return inOne / n, inTwo / n
}

// TestWhatIsDispatchedBegins: the Scheduler and the composer agree on how much
// prefill the next step has room for, over random engines with dear and cheap rows.
// What does not begin in the next step found more rows than were known when it was
// released, or, in the mixed trace, met a batch class whose floor was due. The control believes in full steps.
func TestWhatIsDispatchedBegins(t *testing.T) {
	const engines = 12
	for _, c := range []struct {
		trace              string
		inOneLeast         float64
		inTwoLeast         float64
		controlInOneAtMost float64
	}{
		{"poisson", 0.95, 0.99, 0.7},
		{"mixed", 0.75, 0.83, 0.6},
	} {
		t.Run(c.trace, func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(8, 8))
			one, two, control := 0., 0., 0.
			for seed := range uint64(engines) {
				e := DefaultEngine()
				e.BaseMS, e.PrefillTokenMS = 2+8*rnd.Float64(), 0.05+0.2*rnd.Float64()
				e.DecodeRowMS, e.StepBudgetMS = 1.5*rnd.Float64()*rnd.Float64(), 30+70*rnd.Float64()
				e.SequencesMax, e.LongStretch = 64, 1+3*rnd.Float64()
				inOne, inTwo := begins(t, e, c.trace, "forebay", seed)
				blind, _ := begins(t, e, c.trace, "forebay-full-steps", seed)
				one, two, control = one+inOne/engines, two+inTwo/engines, control+blind/engines
			}
			if one < c.inOneLeast || two < c.inTwoLeast {
				t.Errorf("%.3f begin in the next step, %.3f in the next two; want %+v", one, two, c)
			}
			if control > c.controlInOneAtMost {
				t.Errorf("with full steps too %.3f begin in the next", control)
			}
			t.Logf("%.3f begin in the next step, %.3f in the next two; with full steps %.3f in the next", one, two, control)
		})
	}
}
