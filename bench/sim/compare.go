package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Options say what to compare.
type Options struct {
	Engine   *Engine
	Policies []string
	// Load is the work that arrives, in units of what the engine can do; 0 leaves
	// a trace's times as they are.
	Load  float64
	Seeds int
	// Goal is the goal for the time to first token of interactive requests; Slack
	// times their own prefill is added.
	Goal  time.Duration
	Slack float64
	// Source is the trace of a seed.
	Source func(seed uint64) (*Trace, error)
}

// The limits of Options.
const (
	SeedsMax = 100
	LoadMax  = 100
)

// Result is a comparison, policies in the order asked for.
type Result struct {
	Trace    string
	Load     float64 // as measured, if Options.Load is 0
	Seeds    int
	Capacity float64 // requests a second that the engine can do, of this trace
	Policies []Measured
}

// Measured is a policy's mean over the seeds, and half the width of its 95 %
// confidence interval, NaN for one seed.
type Measured struct {
	Policy     string
	Mean, Half Outcome
}

// Compare plays the traces of all seeds through all policies.
func Compare(o Options) (*Result, error) {
	if o.Seeds < 1 || o.Seeds > SeedsMax {
		return nil, fmt.Errorf("%d seeds; allowed are 1 to %d", o.Seeds, SeedsMax)
	}
	if math.IsNaN(o.Load) || o.Load < 0 || o.Load > LoadMax {
		return nil, fmt.Errorf("a load of %g; allowed is 0 to %d", o.Load, LoadMax)
	}
	if len(o.Policies) == 0 {
		return nil, errors.New("there is no policy to compare")
	}
	if err := o.Engine.check(); err != nil {
		return nil, err
	}
	g, err := newGoals(&o)
	if err != nil {
		return nil, err
	}
	r := &Result{Seeds: o.Seeds}
	busy := map[*Trace]time.Duration{} // the same file for every seed is measured once
	outcomes := make([][]*Outcome, len(o.Policies))
	for seed := range uint64(o.Seeds) {
		t, err := o.Source(seed)
		if err != nil {
			return nil, err
		}
		if busy[t] == 0 {
			if busy[t], err = busyTime(o.Engine, t, g); err != nil {
				return nil, err
			}
		}
		t = r.atLoad(t, &o, busy[t])
		for i, name := range o.Policies {
			run, err := play(o.Engine, t, name, g, seed)
			if err != nil {
				return nil, err
			}
			outcomes[i] = append(outcomes[i], run.outcome())
		}
	}
	for i, name := range o.Policies {
		r.Policies = append(r.Policies, merge(name, outcomes[i]))
	}
	return r, nil
}

// atLoad scales a seed's trace, which keeps the engine busy for the time busy, to
// the load of o.
func (r *Result) atLoad(t *Trace, o *Options, busy time.Duration) *Trace {
	n := float64(o.Seeds)
	r.Trace = t.Name
	r.Capacity += float64(len(t.Requests)) / busy.Seconds() / n
	native := float64(busy) / float64(max(t.span(), time.Nanosecond))
	if o.Load == 0 || t.span() == 0 {
		r.Load += native / n
		return t
	}
	r.Load = o.Load
	return t.scaled(native / o.Load)
}

// busyTime is how long the engine works on a trace's requests when something always
// waits: the time for the trace twice in a row less that for it once, so that start
// and end, where the batch is not full, cancel. No client cancels.
func busyTime(e *Engine, t *Trace, g *goals) (time.Duration, error) {
	once := &Trace{Name: t.Name}
	for _, r := range t.Requests {
		if r.Prompt+r.Output > e.KVTokens {
			continue
		}
		r.At, r.CancelAfter = 0, 0
		once.Requests = append(once.Requests, r)
	}
	if len(once.Requests) == 0 {
		return 0, errors.New("the engine's memory holds none of the requests")
	}
	twice := &Trace{Name: t.Name, Requests: slices.Clone(once.Requests)}
	for _, r := range once.Requests {
		r.Blocks = slices.Clone(r.Blocks)
		for i := range r.Blocks {
			r.Blocks[i] = ^r.Blocks[i] // the second time is no hit of the first
		}
		twice.Requests = append(twice.Requests, r)
	}
	first, err := play(e.quiet(), once, "fcfs", g, 0)
	if err != nil {
		return 0, err
	}
	both, err := play(e.quiet(), twice, "fcfs", g, 0)
	if err != nil {
		return 0, err
	}
	return max(1, both.now-first.now), nil
}

// studentT is the 97.5 % quantile of Student's distribution, by degrees of freedom.
var studentT = []float64{math.NaN(), 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262}

// merge takes the mean over seeds.
func merge(name string, outcomes []*Outcome) Measured {
	m := Measured{Policy: name}
	m.Mean.All, m.Half.All = mergeMetrics(outcomes, func(o *Outcome) []Metric { return o.All })
	m.Mean.Classes, m.Half.Classes = mergeGroups(outcomes, func(o *Outcome) map[string][]Metric { return o.Classes })
	m.Mean.Tenants, m.Half.Tenants = mergeGroups(outcomes, func(o *Outcome) map[string][]Metric { return o.Tenants })
	return m
}

func mergeGroups(outcomes []*Outcome, of func(*Outcome) map[string][]Metric) (means, halves map[string][]Metric) {
	means, halves = map[string][]Metric{}, map[string][]Metric{}
	for _, o := range outcomes {
		for name := range of(o) {
			if means[name] == nil {
				means[name], halves[name] = mergeMetrics(outcomes, func(o *Outcome) []Metric { return of(o)[name] })
			}
		}
	}
	return means, halves
}

// mergeMetrics takes means over the outcomes that have a value.
func mergeMetrics(outcomes []*Outcome, of func(*Outcome) []Metric) (means, halves []Metric) {
	values := map[string][]float64{}
	var keys []string
	for _, o := range outcomes {
		for _, metric := range of(o) {
			if _, seen := values[metric.Key]; !seen {
				keys = append(keys, metric.Key)
				values[metric.Key] = nil
			}
			if !math.IsNaN(metric.Value) {
				values[metric.Key] = append(values[metric.Key], metric.Value)
			}
		}
	}
	for _, key := range keys {
		xs := values[key]
		middle, squares := mean(xs), 0.
		for _, x := range xs {
			squares += (x - middle) * (x - middle)
		}
		half := student(len(xs)) * math.Sqrt(squares/float64(len(xs)-1)/float64(len(xs)))
		means, halves = append(means, Metric{key, middle}), append(halves, Metric{key, half})
	}
	return means, halves
}

// student is the 97.5 % quantile for the mean of n values.
func student(n int) float64 {
	if n-1 < len(studentT) {
		return studentT[max(0, n-1)]
	}
	return 1.96
}

// value is a metric by its key, NaN if there is none.
func value(metrics []Metric, key string) float64 {
	for _, m := range metrics {
		if m.Key == key {
			return m.Value
		}
	}
	return math.NaN()
}

// names are the keys of groups, in the order of classes and then of the alphabet.
func names(groups map[string][]Metric) []string {
	return slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		rank := func(name string) int {
			if level, ok := levels[name]; ok {
				return level
			}
			return len(levels)
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}
