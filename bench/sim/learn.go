package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// Sample is a step of a real engine.
type Sample struct {
	Load cost.Load
	Took time.Duration
	// Arrived are the requests that came since the end of the step before, those
	// that were refused too.
	Arrived int
	// Follows tells that it began at the end of the sample before.
	Follows bool
}

// SamplesMin is how many steps Learn needs.
const SamplesMin = 50

const (
	learnRounds  = 8    // of weighing the samples by what the round before predicts
	learnOutlier = 3    // times the prediction: the machine stalled in a longer step
	learnLags    = 5    // steps back whose noise is compared
	learnSweeps  = 2000 // of the coordinates, in a round
	features     = 6

	wayRuns = 5
)

// Learn sets what steps and arrivals cost on e, and the noise, from the steps of a real
// engine. It finds the coefficients, none below 0, with the least squares of the
// errors in units of the square root of the predictions: a relative error counts by
// the time in which it happens. All together then take as long as the samples did
// without stalls.
func (e *Engine) Learn(samples []Sample) error {
	if len(samples) < SamplesMin {
		return fmt.Errorf("%d steps are too few to learn from; %d are needed", len(samples), SamplesMin)
	}
	xs, took := make([][features]float64, len(samples)), make([]float64, len(samples))
	for i, s := range samples {
		xs[i] = [features]float64{1, float64(s.Load.PrefillTokens), s.Load.PrefillContext, float64(s.Load.DecodeRows), float64(s.Load.DecodeContext), float64(s.Arrived)}
		took[i] = float64(s.Took) / 1e6
	}
	var c [features]float64
	predicted := took
	for range learnRounds {
		c = leastSquares(xs, took, predicted)
		predicted = make([]float64, len(xs))
		for i := range xs {
			predicted[i] = max(dot(&c, &xs[i]), 1e-6)
		}
	}
	e.learnStalls(took, predicted)
	scale := sum(took) / sum(predicted)
	for i := range c {
		c[i] *= scale
	}
	e.BaseMS, e.PrefillTokenMS, e.PrefillContextMS = c[0], c[1], c[2]
	e.DecodeRowMS, e.DecodeContextMS, e.ArrivalMS = c[3], c[4], c[5]
	e.learnNoise(samples, took, predicted)
	return e.check()
}

// LearnWay lengthens the way in by what a real run's median time to first token is
// over the simulated one's. The run must have been far from full: there a request
// waits for little but its own prefill, and for the processors that compute. arrivals
// are when the requests came, each with a prompt and an answer of so many tokens.
func (e *Engine) LearnWay(arrivals []time.Duration, prompt, output int, median time.Duration) error {
	t := &Trace{Name: "calibration"}
	for _, at := range arrivals {
		t.Requests = append(t.Requests, Request{At: at - arrivals[0], Prompt: max(1, prompt), Output: output, Asked: output, Tenant: "default", Class: interactive})
	}
	r, err := Compare(Options{
		Engine: e, Policies: Policies()[:1], Seeds: wayRuns, Goal: time.Minute, Slack: 1,
		Source: func(uint64) (*Trace, error) { return t, nil },
	})
	if err != nil {
		return err
	}
	simulated := value(r.Policies[0].Mean.Classes[interactive], "ttft_p50_s")
	e.WayInMS += max(0, 1e3*(median.Seconds()-simulated))
	return nil
}

// learnStalls sets the stalls, and takes them out of the times.
func (e *Engine) learnStalls(took, predicted []float64) {
	minutes, stalls, stalled := sum(took)/60e3, 0., 0.
	for i := range took {
		if took[i] > learnOutlier*predicted[i] {
			stalls++
			stalled += took[i] - predicted[i]
			took[i] = predicted[i]
		}
	}
	e.StallsMinute = min(stalls/minutes, stallsMinuteMax)
	if stalls > 0 {
		e.StallMS = min(stalled/stalls, stallMSMax)
	}
}

// learnNoise sets the noise from the samples' times beside the predicted ones. Long
// steps count for more, as they do in the time that requests wait.
func (e *Engine) learnNoise(samples []Sample, took, predicted []float64) {
	logs := make([]float64, len(took))
	for i := range took {
		logs[i] = math.Log(max(took[i]/predicted[i], 1./learnOutlier))
	}
	middle, square, all := 0., 0., sum(predicted)
	for i := range logs {
		middle += logs[i] * predicted[i] / all
	}
	for i := range logs {
		logs[i] -= middle
		square += logs[i] * logs[i] * predicted[i] / all
	}
	both, kept := 0., 0.
	for i := range logs {
		apart := time.Duration(0)
		for k := i; k > max(0, i-learnLags) && samples[k].Follows; k-- {
			apart += samples[k-1].Took
			weight := math.Sqrt(predicted[i] * predicted[k-1])
			both += logs[i] * logs[k-1] * weight
			kept += math.Exp(-float64(apart)/float64(noiseLasts)) * weight
		}
	}
	e.Noise, e.NoiseMemory = math.Sqrt(square), 0
	if kept > 0 && square > 0 {
		e.NoiseMemory = min(max(0, both/kept/square), 1)
	}
}

// leastSquares finds the coefficients, none below 0, whose predictions have the
// least squares of errors, divided by before, the predictions of the round before. It moves one coefficient after the
// other to its best place; the problem is convex, so that ends at the best of all.
func leastSquares(xs [][features]float64, ys, before []float64) (c [features]float64) {
	var gram [features][features]float64
	var right [features]float64
	for i := range xs {
		if ys[i] > learnOutlier*before[i] {
			continue
		}
		w := 1 / before[i]
		for a := range gram {
			right[a] += w * xs[i][a] * ys[i]
			for b := range gram {
				gram[a][b] += w * xs[i][a] * xs[i][b]
			}
		}
	}
	for range learnSweeps {
		for a := range c {
			if gram[a][a] > 0 {
				c[a] = max(0, c[a]+(right[a]-dot(&gram[a], &c))/gram[a][a])
			}
		}
	}
	return c
}

func dot(a, b *[features]float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func sum(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x
	}
	return sum
}

// Ratio is the quantile q of what the samples took in units of what e says.
func (e *Engine) Ratio(samples []Sample, q float64) float64 {
	model, ratios := e.cost(), make([]float64, len(samples))
	for i, s := range samples {
		ratios[i] = float64(s.Took) / (model.StepNS(s.Load) + e.ArrivalMS*1e6*float64(s.Arrived))
	}
	slices.Sort(ratios)
	return quantile(ratios, q)
}
