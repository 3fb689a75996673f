package capture

import (
	"encoding/json"
)

// Trace returns the view as JSON of Chrome's trace event format, which Perfetto's
// viewer opens. The request's parts, the engine's steps and their kernel classes are
// threads of one process. Arrows lead from the request to each of its steps, and from
// each step to its kernels.
func (v *View) Trace() []byte {
	t := chromeTrace{Unit: "ms", Other: map[string]string{"request": v.ID, "trace_id": v.TraceID, "sentence": v.Sentence}}
	t.name("process_name", 0, "request "+v.ID)
	for thread, name := range []string{threadParts: "parts", threadSteps: "steps", threadKernels: "kernels, laid end to end"} {
		if name != "" {
			t.name("thread_name", thread, name)
		}
	}
	for _, p := range v.Parts {
		t.span(threadParts, p.Name, p.BeginMS, p.MS, nil)
	}
	flows := 0
	for i := range v.Steps {
		s := &v.Steps[i]
		t.span(threadSteps, stepName(s), s.BeginMS, s.MS, map[string]any{
			"step": s.Step, "members": s.Members, "own_ms": s.OwnMS, "own_tokens": s.OwnTokens, "decode_rows": s.DecodeRows,
			"prefill_tokens": s.PrefillTokens, "others_prefill": s.OthersPrefill, "largest": s.Largest,
		})
		if s.Member {
			flows++
			t.flow("request", flows, threadParts, threadSteps, s.BeginMS)
		}
		at := s.BeginMS
		for j, k := range s.Kernels {
			t.span(threadKernels, k.Class, at, k.MS, map[string]any{"count": k.Count, "max_ms": k.MaxMS})
			if j == 0 {
				flows++
				t.flow("step", flows, threadSteps, threadKernels, at)
			}
			at += k.MS
		}
	}
	b, err := json.Marshal(t)
	if err != nil {
		panic("capture: a view that is no JSON: " + err.Error()) // its numbers are finite by construction
	}
	return b
}

const (
	threadParts = 1 + iota
	threadSteps
	threadKernels
)

func stepName(s *StepView) string {
	switch {
	case s.Member && s.Decode:
		return "decode step"
	case s.Member:
		return "prefill step"
	case s.LeftOut != "":
		return "left out: " + s.LeftOut
	}
	return "others' step"
}

// chromeTrace is the format's object form. Times are microseconds.
type chromeTrace struct {
	Events []chromeEvent     `json:"traceEvents"`
	Unit   string            `json:"displayTimeUnit"`
	Other  map[string]string `json:"otherData"`
}

type chromeEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	At       float64        `json:"ts"`
	Duration float64        `json:"dur,omitempty"`
	ID       int            `json:"id,omitempty"`
	Bind     string         `json:"bp,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

func (t *chromeTrace) name(what string, thread int, name string) {
	t.Events = append(t.Events, chromeEvent{Name: what, Phase: "M", Process: 1, Thread: thread, Args: map[string]any{"name": name}})
}

func (t *chromeTrace) span(thread int, name string, begin, ms float64, args map[string]any) {
	t.Events = append(t.Events, chromeEvent{Name: name, Phase: "X", Process: 1, Thread: thread, At: microseconds(begin), Duration: microseconds(ms), Args: args})
}

// microseconds clamps to what JSON can hold: a file on disk may have any number.
func microseconds(ms float64) float64 { return min(max(ms*1000, -1e15), 1e15) }

// flow is an arrow from one thread to another at an instant.
func (t *chromeTrace) flow(name string, id, from, to int, at float64) {
	e := chromeEvent{Name: name, Category: "flow", Phase: "s", Process: 1, Thread: from, At: microseconds(at), ID: id}
	t.Events = append(t.Events, e)
	e.Phase, e.Thread, e.Bind = "f", to, "e"
	t.Events = append(t.Events, e)
}
