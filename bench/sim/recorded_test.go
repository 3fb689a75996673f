package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// recording is a trace whose requests became what a simulated run of e made of them.
func recording(t *testing.T, e *Engine, load float64, seed uint64) *Trace {
	t.Helper()
	r, err := play(e, atLoad(t, e, generate(t, "uniform", 1500), load), "forebay", testGoals(t), seed)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(strings.NewReader(recordingText(t, r.jobs)), "run")
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// recordingText is what bench/overload would have recorded of the jobs.
func recordingText(t *testing.T, jobs []*job) string {
	t.Helper()
	var b strings.Builder
	for _, j := range jobs {
		outcome := map[bool]string{true: recordedRevoked, false: recordedRefused}[j.admitted]
		if j.ending == finished {
			outcome = recordedOK
		}
		ms := func(d time.Duration) float64 { return float64(max(0, d)) / 1e6 }
		line, err := json.Marshal(map[string]any{
			"timestamp": ms(j.At - jobs[0].At), "input_length": j.Prompt, "output_length": j.Output, "asked_length": j.Asked, "tenant": j.Tenant, "class": j.Class,
			"outcome": outcome, "client_first_ms": ms(j.first - j.At), "client_total_ms": ms(j.ended - j.At), "goal_ms": ms(j.goal), "source": "open",
		})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}

// TestRecordedRunsAreNearTheirOwnEngine: runs that the simulator itself recorded are near
// to its simulation with other noise, and far from that of an engine half as fast.
func TestRecordedRunsAreNearTheirOwnEngine(t *testing.T) {
	e := cpuEngine()
	traces := []*Trace{recording(t, e, 2, 11), recording(t, e, 2, 12), recording(t, e, 2, 13)}
	check := func(e *Engine) (*Check, string) {
		c, err := CheckRecorded(traces, Options{Engine: e, Seeds: 4, Goal: 2 * time.Second, Slack: 2})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		c.WriteTable(&b)
		return c, b.String()
	}
	if c, table := check(e); c.Far() {
		t.Errorf("%s", table)
	}
	slow := *e
	slow.DecodeRowMS, slow.PrefillTokenMS = 2*e.DecodeRowMS, 2*e.PrefillTokenMS
	if c, table := check(&slow); !c.Far() {
		t.Errorf("half as fast, the control: %s", table)
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		row  CheckRow
		want Verdict
	}{
		{CheckRow{Recorded: 0.5, Simulated: 0.54, Deviation: 0}, Near},
		{CheckRow{Recorded: 0.5, Simulated: 0.6, Deviation: 0.2}, Chance}, // of 4 runs: 0.2 · 2 / √4
		{CheckRow{Recorded: 0.5, Simulated: 0.8, Deviation: 0.2}, Far},
		{CheckRow{Recorded: math.NaN(), Simulated: math.NaN(), Deviation: math.NaN()}, Near},
		{CheckRow{Recorded: math.NaN(), Simulated: 1, Deviation: 1}, Far},
	} {
		if c.row.judge(0.05, 4); c.row.Verdict != c.want {
			t.Errorf("%+v, want %s", c.row, c.want)
		}
	}
}

func TestRecordedOutcomes(t *testing.T) {
	const run = `{"timestamp":0,"input_length":70,"cached_length":16,"output_length":30,"asked_length":30,"outcome":"ok","client_first_ms":500,"client_total_ms":900,"goal_ms":2000}
{"timestamp":1,"input_length":70,"output_length":30,"asked_length":30,"outcome":"ok","client_first_ms":2500,"client_total_ms":3900,"goal_ms":2000}
{"timestamp":2,"input_length":70,"output_length":30,"outcome":"refused","client_total_ms":2}
{"timestamp":3,"input_length":70,"output_length":30,"outcome":"revoked","client_total_ms":1500}
{"timestamp":4,"input_length":70,"output_length":30,"outcome":"failed","client_total_ms":1500}
`
	trace, err := Read(strings.NewReader(run), "run")
	if err != nil {
		t.Fatal(err)
	}
	if r := trace.Requests[0]; r.Cached != 16 || r.Asked != 30 || r.Recorded.First != 500*time.Millisecond || r.Recorded.Goal != 2*time.Second {
		t.Errorf("%+v %+v", r, r.Recorded)
	}
	if got := trace.Requests[2].Cached; got != 16 { // the larger of the two that are known
		t.Errorf("of a refused request %d tokens are cached", got)
	}
	o, err := trace.recorded(cpuEngine(), testGoals(t))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]float64{"goodput": 0.2, "broken": 0.5, "revoked": 0.25, "refused": 0.4, "ttft_p50_s": 0.5, "ttft_p99_s": 2.5} {
		if got := value(o.Classes[interactive], key); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %g, want %g", key, got, want)
		}
	}
	trace.Requests[2].Recorded = nil
	if _, err := trace.recorded(cpuEngine(), testGoals(t)); err == nil || !strings.Contains(err.Error(), "bench/overload has recorded") {
		t.Errorf("a trace that is no recording: %v", err)
	}
}
