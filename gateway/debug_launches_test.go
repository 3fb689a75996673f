package gateway

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// TestLaunchesAreAFileForPerfetto takes the scripted engine's launches, and asks
// for what cannot be.
func TestLaunchesAreAFileForPerfetto(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(endless)})
	c := r.dial()
	defer c.Close()
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true`)))
	taken := r.adminDo("GET", "/debug/launches?steps=2")
	status, body := taken.status, taken.body
	var file struct {
		Events []struct {
			Name  string  `json:"name"`
			Phase string  `json:"ph"`
			At    float64 `json:"ts"`
			Args  struct {
				Step  uint64
				Layer *int
			}
		} `json:"traceEvents"`
		Steps int `json:"steps"`
	}
	if err := json.Unmarshal([]byte(body), &file); status != 200 || err != nil {
		t.Fatalf("status %d, %v: %s", status, err, body)
	}
	launches, steps := 0, 0
	for _, e := range file.Events {
		switch {
		case e.Phase != "X":
		case e.Name == "step":
			steps++
		case e.Args.Step == 0 || e.Args.Layer == nil || e.At < 0:
			t.Errorf("a launch is %+v", e)
		default:
			launches++
		}
	}
	if launches == 0 || steps == 0 || file.Steps == 0 {
		t.Errorf("%d launches in %d steps of %d", launches, steps, file.Steps)
	}
	for _, bad := range []string{"0", "x", "5000"} {
		if a := r.adminDo("GET", "/debug/launches?steps="+bad); a.status != 400 || !strings.Contains(a.body, "4096") {
			t.Errorf("steps=%s: status %d: %s", bad, a.status, a.body)
		}
	}
}
