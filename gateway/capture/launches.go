package capture

import (
	"encoding/json"

	"github.com/forebay-io/forebay/internal/wire"
)

// LaunchTrace returns a launch trace as JSON of Chrome's trace event format:
// the steps, and below each its launches with layer and class.
func LaunchTrace(c *wire.LaunchTrace) []byte {
	t := chromeTrace{Unit: "ms", Other: map[string]string{}}
	t.name("process_name", 0, "engine")
	t.name("thread_name", threadSteps, "steps")
	t.name("thread_name", threadKernels, "launches")
	if len(c.Launches) > 0 {
		origin, first := c.Launches[0].Begin, 0
		at := func(ns int64) float64 { return float64(ns-origin) / 1e6 }
		for i, l := range c.Launches {
			t.span(threadKernels, l.Class.String(), at(l.Begin), at(l.End)-at(l.Begin), map[string]any{"step": l.Step, "layer": l.Layer})
			if last := i == len(c.Launches)-1; last || c.Launches[i+1].Step != l.Step {
				begin := c.Launches[first].Begin
				t.span(threadSteps, "step", at(begin), at(l.End)-at(begin), map[string]any{"step": l.Step, "launches": i + 1 - first})
				first = i + 1
			}
		}
	}
	b, err := json.Marshal(struct {
		chromeTrace
		Steps   int `json:"steps"`
		Missing int `json:"launchesMissing"`
	}{t, c.Steps, c.Missing})
	if err != nil {
		panic("capture: launches that are no JSON: " + err.Error()) // their numbers are finite
	}
	return b
}
