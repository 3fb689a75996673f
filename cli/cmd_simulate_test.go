package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/bench/sim"
)

// TestCalibrate measures the demo model, and simulates the engine that it gives.
func TestCalibrate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "engine.json")
	said, status := run(t, "", "simulate", "--calibrate", "", "--calibrate-time", "300ms", "--engine", file)
	if status != 0 || !strings.Contains(said, "what was predicted in the median") {
		t.Fatalf("status %d: %s", status, said)
	}
	e, err := readFile(file, sim.ReadEngine)
	if err != nil {
		t.Fatal(err)
	}
	if e.PrefillTokenMS <= 0 || e.KVTokens < 1000 || e.WayInMS <= 0 || e.WayOutMS <= 0 || e.Noise <= 0 {
		t.Errorf("%+v", e)
	}
	out, status := run(t, "", "simulate", "--trace", "poisson", "--requests", "40", "--seeds", "2", "--load", "0.5", "--policies", "forebay,fcfs", "--engine", file, "--json")
	var r struct {
		Trace    string
		Load     float64
		Seeds    int
		Policies map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || status != 0 || r.Trace != "poisson" || r.Load != 0.5 || r.Seeds != 2 || len(r.Policies) != 2 {
		t.Fatalf("status %d, %v: %s", status, err, out)
	}
	for _, key := range []string{"goodput", "ttft_p50_s", "ttft_p99_s", "jain"} {
		if _, ok := r.Policies["forebay"][key].(float64); !ok {
			t.Errorf("no %s in %s", key, out)
		}
	}
}

func TestCalibrateFails(t *testing.T) {
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"the engine ended":          {"--calibrate", "no.gguf"},
		"no such file or directory": {"--calibrate", "", "--engine", "no/engine.json"},
	} {
		if out, status := runIn(t, dir, "", append([]string{"simulate"}, args...)...); status == 0 || !strings.Contains(out, want) {
			t.Errorf("%v: status %d, %s; want %q", args, status, out, want)
		}
	}
}

func TestSimulateWritesFiles(t *testing.T) {
	dir := t.TempDir()
	out, status := runIn(t, dir, "", "simulate", "--trace", "mixed", "--requests", "60", "--seeds", "1", "--load", "0.5,1.5", "--policies", "forebay,vtc", "--csv", "a.csv", "--svg", "a.svg")
	if status != 0 || strings.Count(out, "trace mixed, load") != 2 {
		t.Fatalf("status %d: %s", status, out)
	}
	for name, want := range map[string]string{"a.csv": "mixed,1.5,1,vtc,tenant,abuser,goodput,", "a.svg": "</svg>"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, without %q", name, err, want)
		}
	}
}

// TestSimulateCompares: a recorded run that no engine like this could give is far.
func TestSimulateCompares(t *testing.T) {
	dir := t.TempDir()
	line := `{"timestamp": %d, "input_length": 70, "output_length": 30, "outcome": "ok", "client_first_ms": 9000, "client_total_ms": 9500, "goal_ms": 2000}`
	var run strings.Builder
	for i := range 20 {
		fmt.Fprintf(&run, line+"\n", 1000*i)
	}
	if err := os.WriteFile(filepath.Join(dir, "run.jsonl"), []byte(run.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "plain.jsonl"), []byte(`{"timestamp": 1, "input_length": 70}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run.meta.json"), []byte(`{"server": "forebay", "scenario": "uniform", "factor": 1.2, "run": 1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for trace, load := range map[string]string{"run.jsonl": "-", ".": "uniform 1.2×"} {
		out, status := runIn(t, dir, "", "simulate", "--compare", "--trace", trace, "--engine", "cpu", "--seeds", "2")
		if status == 0 || !strings.Contains(out, load+"  interactive  TTFT p50 ms") || !strings.Contains(out, "are far") || !strings.Contains(out, "far from the run") {
			t.Errorf("%s: status %d: %s", trace, status, out)
		}
	}
	if out, status := runIn(t, dir, "", "simulate", "--compare", "--trace", "plain.jsonl"); status == 0 || !strings.Contains(out, "does not say what became of its requests") {
		t.Errorf("status %d: %s", status, out)
	}
}
