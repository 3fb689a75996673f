package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// TestLearnFindsTheEngine: from the noisy steps of an engine, Learn finds its costs and
// its noise, although some steps were stopped for long.
func TestLearnFindsTheEngine(t *testing.T) {
	truth := cpuEngine()
	truth.ArrivalMS, truth.Noise, truth.NoiseMemory = 0.8, 0.2, 0.4
	m := newMachine(truth, &Trace{Requests: []Request{{}}}, 7)
	rnd := rand.New(rand.NewPCG(1, 1))
	var samples []Sample
	now, quietly, noisily := time.Duration(0), 0., 0.
	for i := range 12000 {
		s := Sample{Follows: i > 0, Arrived: rnd.IntN(4)}
		for range rnd.IntN(40) {
			s.Load.AddRow(rnd.IntN(1500))
		}
		if rnd.IntN(2) == 0 {
			s.Load.AddChunk(1+rnd.IntN(200), rnd.IntN(1500))
		}
		quiet := m.model.StepNS(s.Load) + truth.ArrivalMS*1e6*float64(s.Arrived)
		took := quiet * m.disturbance(now)
		quietly, noisily = quietly+quiet, noisily+took
		if rnd.IntN(500) == 0 {
			took += 1e9
		}
		s.Took = time.Duration(took)
		now += s.Took
		samples = append(samples, s)
	}
	learned := DefaultEngine()
	if err := learned.Learn(samples[:SamplesMin-1]); err == nil {
		t.Error("it learned from too few steps")
	}
	if err := learned.Learn(samples); err != nil {
		t.Fatal(err)
	}
	var l cost.Load
	l.AddChunk(60, 0)
	for range 20 {
		l.AddRow(75)
	}
	for what, v := range map[string][3]float64{ // got, want, tolerance
		"a usual step":   {learned.model().StepNS(l), m.model.StepNS(l) * noisily / quietly, 0.05},
		"the mean noise": {noisily, quietly, 0.05},
		"prefill token":  {learned.PrefillTokenMS, truth.PrefillTokenMS, 0.1},
		"decode row":     {learned.DecodeRowMS, truth.DecodeRowMS, 0.1},
		"context":        {learned.DecodeContextMS, truth.DecodeContextMS, 0.1},
		"arrival":        {learned.ArrivalMS, truth.ArrivalMS, 0.15},
		"noise":          {learned.Noise, truth.Noise, 0.15},
		"noise memory":   {learned.NoiseMemory, truth.NoiseMemory, 0.25},
		"stall":          {learned.StallMS, 1000, 0.05},
		"median ratio":   {learned.Ratio(samples, 0.5), 1, 0.1},
	} {
		if math.Abs(v[0]/v[1]-1) > v[2] {
			t.Errorf("%s: %.4g, want %.4g within %g", what, v[0], v[1], v[2])
		}
	}
}

// TestLearnWayFindsTheWay: of a run far from full, all that the steps do not explain
// is the way in.
func TestLearnWayFindsTheWay(t *testing.T) {
	truth := cpuEngine()
	truth.WayInMS = 6
	trace := atLoad(t, truth, generate(t, "uniform", 400), 0.4)
	r := playOut(t, truth, trace, "forebay")
	var arrivals []time.Duration
	for i := range trace.Requests {
		arrivals = append(arrivals, time.Second+trace.Requests[i].At)
	}
	median := time.Duration(1e9 * value(r.outcome().Classes[interactive], "ttft_p50_s"))
	learned := cpuEngine()
	if err := learned.LearnWay(arrivals, 60, 30, median); err != nil {
		t.Fatal(err)
	}
	if math.Abs(learned.WayInMS-truth.WayInMS) > 1 {
		t.Errorf("the way in is %.2f ms, want %g", learned.WayInMS, truth.WayInMS)
	}
}

func (e *Engine) model() *cost.Cost { c := e.cost(); return &c }
