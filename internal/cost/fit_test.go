package cost

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// smol is what one small model took on a CPU.
var smol = Cost{Base: 2e6, PrefillToken: 5.5e5, PrefillContext: 430, DecodeRow: 6e5, DecodeContext: 600}

func scaled(c Cost, by float64) Cost {
	return Cost{c.Base * by, c.PrefillToken * by, c.PrefillContext * by, c.DecodeRow * by, c.DecodeContext * by}
}

// randomLoad is a step as they come: decodes, often with prefill beside them.
func randomLoad(r *rand.Rand) (l Load) {
	for range r.IntN(12) {
		l.AddRow(r.IntN(2000))
	}
	if r.IntN(3) == 0 || l.DecodeRows == 0 {
		l.AddChunk(1+r.IntN(200), r.IntN(4000))
	}
	return l
}

// noisy is how long a step takes: 5 % of noise, and a stop of 200 ms now and then.
func noisy(r *rand.Rand, c *Cost, l Load) time.Duration {
	took := c.StepNS(l) * math.Exp(0.05*r.NormFloat64())
	if r.IntN(200) == 0 {
		took += 200e6
	}
	return time.Duration(took)
}

// off is the mean relative error of predictions of loads as they come.
func off(c *Cost, truth *Cost) float64 {
	r, sum := rand.New(rand.NewPCG(9, 9)), 0.0
	for range 200 {
		l := randomLoad(r)
		sum += math.Abs(c.StepNS(l)/truth.StepNS(l)-1) / 200
	}
	return sum
}

func TestFitFindsTheCost(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		truth := Cost{smol.Base * 4 * r.Float64(), smol.PrefillToken * 4 * r.Float64(), smol.PrefillContext * 4 * r.Float64(), smol.DecodeRow * 4 * r.Float64(), smol.DecodeContext * 4 * r.Float64()}
		var f Fit
		for range 2000 {
			l := randomLoad(r)
			f.Observe(l, noisy(r, &truth, l))
			if !f.Cost().Valid() {
				t.Fatalf("seed %d: %+v", seed, *f.Cost())
			}
		}
		if e := off(f.Cost(), &truth); e > 0.05 {
			t.Errorf("seed %d: predictions are off by %.3f: %+v; the truth is %+v", seed, e, *f.Cost(), truth)
		}
	}
}

func TestFitFollowsASlowerMachine(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	var f Fit
	learn := func(truth Cost, steps int) float64 {
		for range steps {
			l := randomLoad(r)
			f.Observe(l, noisy(r, &truth, l))
		}
		return off(f.Cost(), &truth)
	}
	learn(smol, 2000)
	slow := scaled(smol, 2)
	if e := off(f.Cost(), &slow); e < 0.4 {
		t.Fatalf("the control, before the change, is off by %.3f", e)
	}
	if e := learn(slow, 6); e > 0.15 {
		t.Errorf("6 steps after the machine became half as fast it is off by %.3f", e)
	}
	if e := learn(slow, 2000); e > 0.06 {
		t.Errorf("2000 steps later it is off by %.3f", e)
	}
	if e := learn(smol, 6); e < 0.5 {
		t.Errorf("6 steps after the machine became fast again it believes it: off by %.3f", e)
	}
	if e := learn(smol, 300); e > 0.15 {
		t.Errorf("300 steps after the machine became fast again it is off by %.3f", e)
	}
}

func TestFitDoesNotWindUp(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	var f Fit
	for range 500 {
		l := randomLoad(r)
		f.Observe(l, noisy(r, &smol, l))
	}
	alike := Load{DecodeRows: 4, DecodeContext: 2000}
	for range 200_000 { // hours of four streams
		f.Observe(alike, noisy(r, &smol, alike))
	}
	if e := off(f.Cost(), &smol); e > 0.25 {
		t.Errorf("after many steps that look alike it is off by %.3f elsewhere: %+v", e, *f.Cost())
	}
	if got, want := f.Cost().StepNS(alike), smol.StepNS(alike); math.Abs(got/want-1) > 0.1 {
		t.Errorf("those steps themselves: %.0f; want %.0f", got, want)
	}
}

func TestOneStoppedStepTeachesLittle(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	var f Fit
	for range 1000 {
		l := randomLoad(r)
		f.Observe(l, noisy(r, &smol, l))
	}
	before := f.Cost().StepNS(Load{DecodeRows: 4, DecodeContext: 2000})
	for range 3 {
		f.Observe(randomLoad(r), time.Hour)
	}
	if after := f.Cost().StepNS(Load{DecodeRows: 4, DecodeContext: 2000}); after > 1.2*before {
		t.Errorf("three stopped steps moved the estimate from %.0f to %.0f", before, after)
	}
}

func TestFitSurvivesAnything(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		var f Fit
		if r.IntN(2) == 0 {
			f.Restore(scaled(smol, math.Exp(20*r.NormFloat64())))
		}
		for range 300 {
			l := randomLoad(r)
			if r.IntN(3) == 0 {
				l = Load{PrefillTokens: r.IntN(1 << 20), DecodeRows: r.IntN(1 << 20), PrefillContext: math.Exp(40 * r.Float64()), DecodeContext: r.Int()}
			}
			f.Observe(l, time.Duration(r.Uint64()>>uint(r.IntN(64))))
			if c := f.Cost(); !c.Valid() || c.Step(l) < 0 {
				t.Fatalf("seed %d: %+v predicts %v", seed, *c, c.Step(l))
			}
		}
	}
}

func TestRestoredCostIsWhatWasLearned(t *testing.T) {
	var f Fit
	f.Restore(smol)
	if e := off(f.Cost(), &smol); e > 1e-9 {
		t.Errorf("a restored cost is off by %.3g", e)
	}
	f.Observe(Load{DecodeRows: 1}, time.Duration(smol.StepNS(Load{DecodeRows: 1})))
	if e := off(f.Cost(), &smol); e > 0.02 {
		t.Errorf("after one step as predicted it is off by %.3g", e)
	}
	for _, c := range []Cost{{}, {Base: math.NaN()}, {Base: -1}, {DecodeRow: math.Inf(1)}} {
		var f Fit
		if f.Restore(c); f.Cost().Known() {
			t.Errorf("%+v was restored", c)
		}
	}
}

func TestFitAllocatesNothing(t *testing.T) {
	var f Fit
	var q Ratio
	if n := testing.AllocsPerRun(100, func() {
		f.Observe(Load{DecodeRows: 3, DecodeContext: 100}, time.Millisecond)
		q.Add(time.Millisecond, f.Cost().Step(Load{DecodeRows: 3}))
		q.Quantile(0.9)
	}); n > 0 {
		t.Errorf("a step's lesson allocates %v times", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	var f Fit
	r := rand.New(rand.NewPCG(4, 1))
	l := randomLoad(r)
	for b.Loop() {
		f.Observe(l, time.Millisecond)
	}
}
