package sim

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Recorded is what became of a request in a real run, at its client.
type Recorded struct {
	Outcome string
	First   time.Duration // from sending to the first token; 0 without one
	Whole   time.Duration // from sending to the end
	Goal    time.Duration // for First; 0 is unknown
}

// The outcomes of a Recorded. The others failed.
const (
	recordedOK      = "ok"
	recordedRefused = "refused" // on arrival
	recordedRevoked = "revoked" // after it had waited
)

// recordedFields are the fields of a line that only a recording has.
type recordedFields struct {
	Cached  int     `json:"cached_length"`
	Asked   int     `json:"asked_length"`
	Outcome string  `json:"outcome"`
	First   float64 `json:"client_first_ms"`
	Whole   float64 `json:"client_total_ms"`
	Goal    float64 `json:"goal_ms"`
}

// complete adds what the fields say to r.
func (f *recordedFields) complete(r *Request) error {
	if f.Cached < 0 || f.Asked < 0 || f.Cached > fileTokensMax || f.Asked > fileTokensMax {
		return fmt.Errorf("cached_length %d and asked_length %d; allowed is 0 to %d", f.Cached, f.Asked, fileTokensMax)
	}
	r.Cached, r.Asked = f.Cached, f.Asked
	if f.Outcome == "" {
		return nil
	}
	r.Recorded = &Recorded{Outcome: f.Outcome}
	for _, t := range []struct {
		to *time.Duration
		ms float64
	}{{&r.Recorded.First, f.First}, {&r.Recorded.Whole, f.Whole}, {&r.Recorded.Goal, f.Goal}} {
		var err error
		if *t.to, err = seconds(t.ms / 1e3); err != nil {
			return err
		}
	}
	return nil
}

// guessCached gives the requests that did not run the cached tokens of the median one
// that did: only of those the recording knows them.
func (t *Trace) guessCached() {
	var known []int
	for i := range t.Requests {
		if v := t.Requests[i].Recorded; v != nil && v.Outcome == recordedOK {
			known = append(known, t.Requests[i].Cached)
		}
	}
	if len(known) == 0 {
		return
	}
	slices.Sort(known)
	for i := range t.Requests {
		if r := &t.Requests[i]; r.Recorded != nil && r.Recorded.Outcome != recordedOK {
			r.Cached = min(max(r.Cached, known[len(known)/2]), r.Prompt-1)
		}
	}
}

// recorded measures the run that the trace was recorded in. Goals that the
// recording does not know are those of g on e.
func (t *Trace) recorded(e *Engine, g *goals) (*Outcome, error) {
	classes, model := map[string]*group{}, e.cost()
	end := time.Duration(1)
	for i := range t.Requests {
		r := &t.Requests[i]
		switch {
		case r.At < t.From:
			continue
		case r.Recorded == nil:
			return nil, fmt.Errorf("trace %s does not say what became of its requests: compare with a run that bench/overload has recorded", t.Name)
		}
		if classes[r.Class] == nil {
			classes[r.Class] = &group{}
		}
		j := r.recordedJob()
		if j.goal == 0 {
			j.goal = g.of(r, &model, e)
		}
		end = max(end, j.ended)
		classes[r.Class].add(j)
	}
	o := &Outcome{Classes: map[string][]Metric{}}
	for name, c := range classes {
		o.Classes[name] = c.measure(end - t.From)
	}
	return o, nil
}

// recordedJob is r at the end of its recorded run.
func (r *Request) recordedJob() *job {
	v := r.Recorded
	j := &job{Request: r, goal: v.Goal, ended: r.At + v.Whole, admitted: v.Outcome != recordedRefused}
	if v.First > 0 {
		j.started, j.first = true, r.At+v.First
	}
	switch v.Outcome {
	case recordedOK:
		j.ending = finished
	case recordedRefused, recordedRevoked:
		j.ending = refused
	}
	return j
}

// The tolerance of a Check: shares may differ by tolerancePoints, times by the part
// toleranceTime. Beyond it, what runs of the same load differ by may still explain it:
// chanceWidths standard deviations of the mean of as many runs as were recorded.
const (
	tolerancePoints = 0.05
	toleranceTime   = 0.15
	chanceWidths    = 2
)

// checked are the metrics of a Check.
var checked = []struct {
	title, key string
	scale      float64
	share      bool
}{
	{"goodput %", "goodput", 100, true}, {"broken %", "broken", 100, true}, {"revoked %", "revoked", 100, true},
	{"TTFT p50 ms", "ttft_p50_s", 1000, false}, {"TTFT p99 ms", "ttft_p99_s", 1000, false},
}

// Check compares recorded runs with their simulation.
type Check struct {
	Traces []string
	Rows   []CheckRow
}

// CheckRow is a metric of a class at a load, where there are several: its means over the recorded and over the simulated
// runs, and the deviation of one simulated run; NaN where there is none.
type CheckRow struct {
	Load, Class, Title             string
	Recorded, Simulated, Deviation float64
	Verdict                        Verdict
}

// Verdict says how near the two sides of a CheckRow are.
type Verdict string

// The verdicts.
const (
	Near   Verdict = "near"
	Chance Verdict = "chance" // beyond the tolerance, but the runs differ as much among themselves
	Far    Verdict = "far"
)

// CheckRecorded simulates recorded runs as they arrived, each o.Seeds times, by the
// product's own policy, and compares what became of their requests.
func CheckRecorded(traces []*Trace, o Options) (*Check, error) {
	o.Policies, o.Load, o.Seeds = Policies()[:1], 0, o.Seeds*len(traces)
	o.Source = func(seed uint64) (*Trace, error) { return traces[seed%uint64(len(traces))], nil }
	g, err := newGoals(&o)
	if err != nil {
		return nil, err
	}
	c := &Check{}
	var outcomes []*Outcome
	for _, t := range traces {
		outcome, err := t.recorded(o.Engine, g)
		if err != nil {
			return nil, err
		}
		c.Traces, outcomes = append(c.Traces, t.Name), append(outcomes, outcome)
	}
	r, err := Compare(o)
	if err != nil {
		return nil, err
	}
	real, simulated := merge("recorded", outcomes), &r.Policies[0]
	for _, class := range names(real.Mean.Classes) {
		for _, k := range checked {
			at := func(o *Outcome) float64 { return value(o.Classes[class], k.key) }
			row := CheckRow{Class: class, Title: k.title, Recorded: at(&real.Mean), Simulated: at(&simulated.Mean)}
			row.Deviation = at(&simulated.Half) * math.Sqrt(float64(o.Seeds)) / student(o.Seeds)
			tolerance := toleranceTime * row.Recorded
			if k.share {
				tolerance = tolerancePoints
			}
			row.judge(tolerance, len(traces))
			row.Recorded, row.Simulated, row.Deviation = k.scale*row.Recorded, k.scale*row.Simulated, k.scale*row.Deviation
			c.Rows = append(c.Rows, row)
		}
	}
	return c, nil
}

// judge sets the verdict on the mean of some recorded runs.
func (r *CheckRow) judge(tolerance float64, runs int) {
	apart := math.Abs(r.Recorded - r.Simulated)
	switch {
	case math.IsNaN(r.Recorded) && math.IsNaN(r.Simulated) || apart <= tolerance:
		r.Verdict = Near
	case apart <= chanceWidths*r.Deviation/math.Sqrt(float64(runs)):
		r.Verdict = Chance
	default:
		r.Verdict = Far
	}
}

// Far tells that some metric is.
func (c *Check) Far() bool {
	return slices.ContainsFunc(c.Rows, func(r CheckRow) bool { return r.Verdict == Far })
}

// WriteTable writes the comparison as text.
func (c *Check) WriteTable(out io.Writer) error {
	var b strings.Builder
	what := strings.Join(c.Traces, ", ")
	if len(c.Traces) > 3 {
		what = fmt.Sprintf("%d runs", len(c.Traces))
	}
	fmt.Fprintf(&b, "%s, as recorded and as simulated; shares may differ by %g points, times by %g %%, and all by what chance explains\n\n",
		what, 100*tolerancePoints, 100*toleranceTime)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "load\tclass\tmetric\trecorded\tsimulated\tdeviation of a run\t\t")
	number := func(x float64) string {
		if math.IsNaN(x) {
			return "-"
		}
		return fmt.Sprintf("%.4g", x)
	}
	for _, r := range c.Rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", cmp.Or(r.Load, "-"), r.Class, r.Title, number(r.Recorded), number(r.Simulated), number(r.Deviation), r.Verdict)
	}
	w.Flush()
	fmt.Fprintf(&b, "\n%s.\n", c.summary())
	_, err := io.WriteString(out, b.String())
	return err
}
