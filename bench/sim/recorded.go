package sim

import (
	"errors"
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
		if r.Recorded == nil {
			return nil, errors.New("the trace does not say what became of its requests: compare with a run that bench/overload has recorded")
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
		o.Classes[name] = c.measure(end)
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

// The tolerance of Check: shares may differ by tolerancePoints, times by the part
// toleranceTime.
const (
	tolerancePoints = 0.05
	toleranceTime   = 0.15
)

// checked are the metrics of Check.
var checked = []struct {
	title, key string
	share      bool
}{
	{"goodput %", "goodput", true}, {"broken %", "broken", true}, {"revoked %", "revoked", true},
	{"TTFT p50 ms", "ttft_p50_s", false}, {"TTFT p99 ms", "ttft_p99_s", false},
}

// Check is a recorded run beside its simulation.
type Check struct {
	Trace string
	Rows  []CheckRow
}

// CheckRow is a metric of a class, NaN where a side has none.
type CheckRow struct {
	Class, Title        string
	Recorded, Simulated float64 // shares in percent, times in milliseconds
	Far                 bool    // they differ by more than the tolerance
}

// CheckRecorded simulates the recorded run that o.Source gives, by the product's own
// policy and as it arrived, and compares what became of its requests.
func CheckRecorded(o Options) (*Check, error) {
	o.Policies, o.Load = Policies()[:1], 0
	g, err := newGoals(&o)
	if err != nil {
		return nil, err
	}
	t, err := o.Source(0)
	if err != nil {
		return nil, err
	}
	real, err := t.recorded(o.Engine, g)
	if err != nil {
		return nil, err
	}
	r, err := Compare(o)
	if err != nil {
		return nil, err
	}
	c := &Check{Trace: t.Name}
	for _, class := range names(real.Classes) {
		for _, k := range checked {
			a, b := value(real.Classes[class], k.key), value(r.Policies[0].Mean.Classes[class], k.key)
			far := math.IsNaN(a) != math.IsNaN(b)
			scale := 1e3
			if k.share {
				scale = 100
				far = far || math.Abs(a-b) > tolerancePoints
			} else {
				far = far || math.Abs(a-b) > toleranceTime*a
			}
			c.Rows = append(c.Rows, CheckRow{class, k.title, scale * a, scale * b, far})
		}
	}
	return c, nil
}

// Near tells that no metric differs by more than the tolerance.
func (c *Check) Near() bool {
	for _, r := range c.Rows {
		if r.Far {
			return false
		}
	}
	return true
}

// WriteTable writes the comparison as text.
func (c *Check) WriteTable(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "trace %s, as recorded and as simulated; shares may differ by %g points, times by %g %%\n\n", c.Trace, 100*tolerancePoints, 100*toleranceTime)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "class\tmetric\trecorded\tsimulated\t\t")
	number := func(x float64) string {
		if math.IsNaN(x) {
			return "-"
		}
		return fmt.Sprintf("%.4g", x)
	}
	for _, r := range c.Rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", r.Class, r.Title, number(r.Recorded), number(r.Simulated), map[bool]string{true: "far", false: "near"}[r.Far])
	}
	w.Flush()
	_, err := io.WriteString(out, b.String())
	return err
}
