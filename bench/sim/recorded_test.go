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
func recording(t *testing.T, e *Engine, load float64) string {
	t.Helper()
	r := playOut(t, e, atLoad(t, e, generate(t, "uniform", 6000), load), "forebay")
	var b strings.Builder
	for _, j := range r.jobs {
		outcome := map[bool]string{true: recordedRevoked, false: recordedRefused}[j.admitted]
		if j.ending == finished {
			outcome = recordedOK
		}
		ms := func(d time.Duration) float64 { return float64(max(0, d)) / 1e6 }
		line, err := json.Marshal(map[string]any{
			"timestamp": ms(j.At), "input_length": j.Prompt, "output_length": j.Output, "asked_length": j.Asked, "tenant": j.Tenant, "class": j.Class,
			"outcome": outcome, "client_first_ms": ms(j.first - j.At), "client_total_ms": ms(j.ended - j.At), "goal_ms": ms(j.goal), "source": "open",
		})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}

// TestRecordedRunIsNearItsOwnEngine: a run that the simulator itself recorded is near
// to its simulation with other noise, and far from that of an engine half as fast.
func TestRecordedRunIsNearItsOwnEngine(t *testing.T) {
	e := cpuEngine()
	trace, err := Read(strings.NewReader(recording(t, e, 2)), "run")
	if err != nil {
		t.Fatal(err)
	}
	check := func(e *Engine) *Check {
		c, err := CheckRecorded(Options{
			Engine: e, Seeds: 4, Goal: 2 * time.Second, Slack: 2, Source: func(uint64) (*Trace, error) { return trace, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var b strings.Builder
	if c := check(e); !c.Near() {
		c.WriteTable(&b)
		t.Errorf("%s", b.String())
	}
	slow := *e
	slow.DecodeRowMS, slow.PrefillTokenMS = 2*e.DecodeRowMS, 2*e.PrefillTokenMS
	if c := check(&slow); c.Near() {
		c.WriteTable(&b)
		t.Errorf("half as fast, the control: %s", b.String())
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
