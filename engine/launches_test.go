package engine

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/wire"
)

func TestCaptureTakesLaunchesDown(t *testing.T) {
	b := newDemo(t, Config{StreamEventsMax: 1 << 16})
	from := b.State().Steps.Added()
	type result struct {
		*wire.LaunchTrace
		error
	}
	done := make(chan result)
	go func() {
		c, err := b.TraceLaunches(t.Context(), 6, patience)
		done <- result{c, err}
	}()
	waitFor(t, func() bool { return b.inbox.launchTrace.Load() != nil })
	if _, err := b.TraceLaunches(t.Context(), 1, patience); err == nil || wire.AsError(err).Kind != wire.Overloaded {
		t.Errorf("a second capture: %v", err)
	}
	q := question{id: "q", tokens: prompt(1, 40), options: greedy(20)}
	mustEnd(t, q, b.ask(q))
	got := <-done
	if got.error != nil || got.Steps != 6 || got.Missing != 0 {
		t.Fatalf("%+v, %v", got.LaunchTrace, got.error)
	}
	records := map[uint64]*wire.StepRecord{}
	b.State().Steps.After(from, func(r *wire.StepRecord) bool { records[r.Step] = r.Clone(); return true })
	var sums [wire.KernelClassCount]time.Duration
	for i, l := range got.Launches {
		r := records[l.Step]
		if r == nil || l.Begin < r.Began || l.End < l.Begin || l.End > r.Ended || i > 0 && l.Begin < got.Launches[i-1].End {
			t.Fatalf("launch %d is %+v, of step %+v", i, l, r)
		}
		sums[l.Class] += time.Duration(l.End - l.Begin)
	}
	for class := range wire.KernelClassCount {
		var want time.Duration
		for step := range uint64(6) {
			want += records[step+1].Kernels[class].Total
		}
		if (sums[class] - want).Abs() > time.Microsecond { // each is rounded by itself
			t.Errorf("launches of %v sum to %v; the records say %v", class, sums[class], want)
		}
	}
	if again, err := b.TraceLaunches(t.Context(), 3, time.Millisecond); err != nil || again.Steps != 0 || len(again.Launches) != 0 {
		t.Errorf("a capture of an idle engine: %+v, %v", again, err)
	}
}

func TestCaptureEnds(t *testing.T) {
	b := newDemo(t, Config{})
	for _, steps := range []int{0, -1, wire.LaunchTraceStepsMax + 1} {
		if _, err := b.TraceLaunches(t.Context(), steps, time.Second); err == nil || wire.AsError(err).Param != "steps" {
			t.Errorf("%d steps: %v", steps, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := b.TraceLaunches(ctx, 5, patience); err != nil || c.Steps != 0 {
		t.Errorf("with an ended context: %+v, %v", c, err)
	}
	done := make(chan error)
	go func() { _, err := b.TraceLaunches(t.Context(), 5, patience); done <- err }()
	waitFor(t, func() bool { return b.inbox.launchTrace.Load() != nil })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil && wire.AsError(err).Kind != wire.Unavailable {
		t.Errorf("a capture that Close ends: %v", err)
	}
	if _, err := b.TraceLaunches(t.Context(), 5, patience); err == nil || wire.AsError(err).Kind != wire.Unavailable {
		t.Errorf("after Close: %v", err)
	}
}

// TestKernelsAreTheForward: the classes of a step sum to nearly all of it.
func TestKernelsAreTheForward(t *testing.T) {
	b := newDemo(t, Config{})
	from := b.State().Steps.Added()
	b.askAll([]question{
		{id: "a", tokens: prompt(1, 400), options: greedy(60)}, {id: "b", tokens: prompt(2, 30), options: greedy(80)},
	})
	var covered []float64
	var total [wire.KernelClassCount]wire.KernelTime
	b.State().Steps.After(from, func(r *wire.StepRecord) bool {
		sum := time.Duration(0)
		for i, k := range r.Kernels {
			if k.Max > k.Total || k.Total > 0 && k.Count == 0 {
				t.Errorf("%v of step %d: %+v", wire.KernelClass(i), r.Step, k)
			}
			sum += k.Total
			total[i].Count += k.Count
		}
		covered = append(covered, float64(sum)/float64(r.Ended-r.Began))
		if prefill := r.Kernels[wire.KernelAttentionPrefill].Count > 0; prefill != (r.PrefillTokens > 0) {
			t.Errorf("step %d has %d prompt tokens, and attention of prompts: %v", r.Step, r.PrefillTokens, prefill)
		}
		if decode := r.Kernels[wire.KernelAttentionDecode].Count > 0; decode != (r.DecodeRows > 0) {
			t.Errorf("step %d has %d decode rows, and attention of these: %v", r.Step, r.DecodeRows, decode)
		}
		return true
	})
	slices.SortFunc(covered, cmp.Compare)
	if median := covered[len(covered)/2]; median < 0.7 || covered[len(covered)-1] > 1.01 {
		t.Errorf("kernels cover %.3f of a step (median of %d; the most is %.3f)", median, len(covered), covered[len(covered)-1])
	}
	for _, class := range []wire.KernelClass{wire.KernelEmbed, wire.KernelNormRope, wire.KernelQKV, wire.KernelOutput, wire.KernelMLP, wire.KernelLogits, wire.KernelSampling} {
		if total[class].Count == 0 {
			t.Errorf("no launch of %v", class)
		}
	}
}

func TestNoRecordsWhereTheyAreOff(t *testing.T) {
	b := newDemo(t, Config{StepRecordsOff: true})
	q := question{id: "q", tokens: prompt(1, 40), options: greedy(10)}
	a := b.ask(q)
	mustEnd(t, q, a)
	timings := a.end.Timings
	if wrong := checkTimings(&timings); wrong != "" {
		t.Error(wrong)
	}
	if b.State().Steps.Added() != 0 || b.loop.ledger.timer.Kernels != [model.KernelClassCount]model.KernelTime{} {
		t.Errorf("%d records", b.State().Steps.Added())
	}
	done := make(chan *wire.LaunchTrace)
	go func() { c, _ := b.TraceLaunches(t.Context(), 2, patience); done <- c }()
	waitFor(t, func() bool { return b.inbox.launchTrace.Load() != nil })
	q.id = "again"
	mustEnd(t, q, b.ask(q))
	if c := <-done; c == nil || c.Steps != 2 || len(c.Launches) == 0 {
		t.Errorf("a capture without records: %+v", c)
	}
}

// TestKernelClassesKeepTheirNames: every class of the model has one of its own
// in the contract, of the same name.
func TestKernelClassesKeepTheirNames(t *testing.T) {
	seen := map[wire.KernelClass]bool{}
	for class := range model.KernelClassCount {
		to := wireClasses[class]
		if seen[to] || class.String() != to.String() {
			t.Errorf("class %v is translated to %v", class, to)
		}
		seen[to] = true
	}
	var times [model.KernelClassCount]model.KernelTime
	times[model.KernelMLP] = model.KernelTime{Count: 2, Total: 3, Max: 2}
	if got := wireKernels(&times); got[wire.KernelMLP] != (wire.KernelTime{Count: 2, Total: 3, Max: 2}) || got[wire.KernelToDevice] != (wire.KernelTime{}) {
		t.Errorf("times are translated to %+v", got)
	}
}
