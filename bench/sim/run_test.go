package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

func testGoals(t *testing.T) *goals {
	t.Helper()
	g, err := newGoals(&Options{Goal: 2 * time.Second, Slack: 2})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func generate(t *testing.T, name string, n int) *Trace {
	t.Helper()
	trace, err := Generate(name, n, 7)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// atLoad is a generated trace at a load of e.
func atLoad(t *testing.T, e *Engine, trace *Trace, load float64) *Trace {
	t.Helper()
	busy, err := busyTime(e, trace, testGoals(t))
	if err != nil {
		t.Fatal(err)
	}
	return trace.scaled(float64(busy) / float64(trace.span()) / load)
}

func playOut(t *testing.T, e *Engine, trace *Trace, policy string) *run {
	t.Helper()
	r, err := play(e, trace, policy, testGoals(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestNothingIsLost plays every kind of trace through every policy, on an
// engine that is short of memory too: each request ends once and gets what it
// asked for, and the sums of what the machine computed are right.
func TestNothingIsLost(t *testing.T) {
	tight := DefaultEngine()
	tight.KVTokens, tight.SequencesMax, tight.PrefixTokens = 30_000, 24, 8192
	preempted := 0
	for _, name := range Generators() {
		trace := atLoad(t, DefaultEngine(), generate(t, name, 150), 1.2)
		for i := range trace.Requests {
			trace.Requests[i].Blocks = []uint64{1, uint64(2 + i%5)}[:min(2, trace.Requests[i].Prompt/BlockTokens)]
		}
		for _, policy := range append(Policies(), Ablations()...) {
			for _, e := range []*Engine{DefaultEngine(), tight} {
				r := playOut(t, e, trace, policy)
				r.checkEnds(t, name+" "+policy)
				preempted += r.m.lost
			}
		}
	}
	if preempted == 0 {
		t.Error("memory never was short")
	}
}

// checkEnds demands that the sums of a run that has ended are right.
func (r *run) checkEnds(t *testing.T, what string) {
	t.Helper()
	if len(r.m.sequences) > 0 || r.m.kvUsed != 0 || r.m.reserved != 0 {
		t.Errorf("%s: the machine still holds %d sequences, %d tokens and %d reserved", what, len(r.m.sequences), r.m.kvUsed, r.m.reserved)
	}
	held := 0
	for _, j := range r.jobs {
		switch {
		case j.ending == unended:
			t.Errorf("%s: request %d has not ended", what, j.index)
		case j.ending == finished && (j.tokens != j.Output || j.first < j.released || j.ended < j.first || j.released < j.At):
			t.Errorf("%s: request %d: %d of %d tokens, arrived %v, released %v, first %v, ended %v", what, j.index, j.tokens, j.Output, j.At, j.released, j.first, j.ended)
		case j.ending == refused && (j.started || j.tokens > 0):
			t.Errorf("%s: request %d was refused after it began", what, j.index)
		}
		if j.ending == finished {
			held += j.computed
		}
	}
	if got := r.m.computed + r.m.matched - r.m.lost; got != held {
		t.Errorf("%s: the machine computed %d tokens that count, the requests have %d", what, got, held)
	}
	for _, l := range r.tally.order {
		if l.waiting != 0 {
			t.Errorf("%s: %d of %v still wait", what, l.waiting, l.line)
		}
	}
}

// TestStepsTakeWhatTheModelSays follows one request on a quiet engine by hand.
func TestStepsTakeWhatTheModelSays(t *testing.T) {
	e := DefaultEngine().quiet()
	trace := &Trace{Requests: []Request{{Prompt: 600, Output: 3, Asked: 10, Tenant: "a", Class: interactive}}}
	j := playOut(t, e, trace, "fcfs").jobs[0]
	prefill := 2*e.BaseMS + 600*e.PrefillTokenMS + e.PrefillContextMS*600*300
	decode := 2*(e.BaseMS+e.DecodeRowMS) + e.DecodeContextMS*(600+601)
	for what, c := range map[string][2]float64{"first token": {j.first.Seconds() * 1e3, prefill}, "end": {j.ended.Seconds() * 1e3, prefill + decode}} {
		if d := c[0] - c[1]; d > 0.001 || d < -0.001 {
			t.Errorf("%s after %.3f ms, want %.3f", what, c[0], c[1])
		}
	}
}

func TestBaselinesDoWhatTheyAreNamedFor(t *testing.T) {
	trace := atLoad(t, DefaultEngine(), generate(t, "mixed", 600), 1.1)
	runs := map[string]*run{}
	for _, policy := range Policies()[1:] {
		runs[policy] = playOut(t, DefaultEngine(), trace, policy)
	}
	last := time.Duration(-1)
	for _, j := range runs["fcfs"].jobs {
		if j.released < last {
			t.Fatalf("fcfs: request %d was released before one that came earlier", j.index)
		}
		last = j.released
	}
	meanOf := func(policy, class string) float64 { return value(runs[policy].outcome().Classes[class], "ttft_mean_s") }
	if meanOf("sjf-oracle", interactive) > 0.7*meanOf("fcfs", interactive) {
		t.Error("the shortest first are not much faster than the first first")
	}
	if meanOf("priority", interactive) > 0.7*meanOf("fcfs", interactive) || meanOf("priority", batch) < meanOf("fcfs", batch) {
		t.Error("priority does not prefer the interactive class")
	}
	jainOf := func(policy string) float64 { return value(runs[policy].outcome().All, "jain") }
	if jainOf("vtc") < jainOf("fcfs")+0.05 {
		t.Errorf("vtc is not fairer: %.3f, fcfs %.3f", jainOf("vtc"), jainOf("fcfs"))
	}
	for _, policy := range []string{"fcfs-drop", "lifo-drop", "newcomer"} {
		if o := runs[policy].outcome().Classes[interactive]; value(o, "refused") == 0 || value(o, "ttft_p50_s") > 10 {
			t.Errorf("%s: %.3f refused, median %.1f s", policy, value(o, "refused"), value(o, "ttft_p50_s"))
		}
	}
}

func TestMaxMin(t *testing.T) {
	for _, c := range []struct {
		wants, got []float64
		total      float64
	}{
		{[]float64{1, 5, 10}, []float64{1, 4.5, 4.5}, 10},
		{[]float64{1, 2}, []float64{1, 2}, 10},
		{[]float64{9, 9}, []float64{1, 1}, 2},
	} {
		if diff := cmp.Diff(c.got, maxMin(c.wants, c.total)); diff != "" {
			t.Errorf("%v of %v: %s", c.wants, c.total, diff)
		}
	}
}

// TestEveryRunRepeats: a run depends on nothing but the trace and the seed.
func TestEveryRunRepeats(t *testing.T) {
	trace := atLoad(t, DefaultEngine(), generate(t, "mixed", 200), 1.5)
	for _, policy := range Policies() {
		a, b := playOut(t, DefaultEngine(), trace, policy), playOut(t, DefaultEngine(), trace, policy)
		for i := range a.jobs {
			if x, y := a.jobs[i], b.jobs[i]; x.ending != y.ending || x.first != y.first || x.ended != y.ended {
				t.Fatalf("%s: request %d ended once at %v and once at %v", policy, i, x.ended, y.ended)
			}
		}
	}
}

// TestSameSeedSameNumbers compares a small comparison's table, CSV, JSON and SVG
// with files.
func TestSameSeedSameNumbers(t *testing.T) {
	var results []*Result
	var b strings.Builder
	for _, load := range []float64{0.7, 1.3} {
		r, err := Compare(Options{
			Engine: DefaultEngine(), Policies: []string{"fcfs", "newcomer"}, Load: load, Seeds: 2, Goal: 2 * time.Second, Slack: 2,
			Source: func(seed uint64) (*Trace, error) { return Generate("adversarial", 60, seed) },
		})
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
		if err := r.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n%s\n\n", text)
	}
	if err := WriteCSV(&b, results[:1]); err != nil {
		t.Fatal(err)
	}
	golden(t, "comparison.txt", b.String())
	b.Reset()
	if err := WriteSVG(&b, results); err != nil {
		t.Fatal(err)
	}
	if err := WriteSVG(&b, results[:1]); err != nil {
		t.Fatal(err)
	}
	golden(t, "plots.svg", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; run go test ./bench/sim -run Same -rewrite:\n%.2000s", name, diff)
	}
}
