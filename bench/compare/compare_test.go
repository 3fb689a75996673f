package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/bench/speed"
)

var rewrite = flag.Bool("rewrite", false, "write the expected files anew")

func TestParseJobs(t *testing.T) {
	jobs, err := parseJobs(512, "128:1,8 2048:1")
	if got := fmt.Sprint(jobs, err); got != "[{512 128 [1 8]} {0 2048 [1]}] <nil>" {
		t.Error(got)
	}
	if jobs, err := parseJobs(64, " "); fmt.Sprint(jobs, err) != "[{64 0 []}] <nil>" {
		t.Errorf("a prompt alone: %v, %v", jobs, err)
	}
	for decode, want := range map[string]string{"128": "is not a depth", "x:1": "is not a depth", "0:1": "is not a depth", "1:": "is not a number of streams", "1:2,0": "is not a number of streams", "": "nothing to measure"} {
		if _, err := parseJobs(0, decode); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", decode, err, want)
		}
	}
}

func TestCommands(t *testing.T) {
	o := &options{forebay: "fb", peers: "p", python: "py", flash: "auto,off", threads: 2, kernels: "avx2", openvinoArg: "--vocab 7"}
	all, err := o.engines()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range all {
		got = append(got, e.name, strings.Join(e.command("m.gguf", job{512, 128, []string{"1", "8"}}), " "))
	}
	got = append(got, strings.Join(all[0].command("m.gguf", job{64, 0, nil}), " "), strings.Join(all[3].command("m.gguf", job{64, 0, nil}), " "))
	want := []string{
		"forebay", "fb bench engine m.gguf --json --threads 2 --prefill 512 --kernels avx2 --depth 128 --streams 1,8",
		"llama.cpp", "py p/llamacpp_bench.py m.gguf --threads 2 --prefill 512 --flash -1 --depth 128 --streams 1 8",
		"llama.cpp, flash off", "py p/llamacpp_bench.py m.gguf --threads 2 --prefill 512 --flash 0 --depth 128 --streams 1 8",
		"OpenVINO GenAI", "py p/openvino_bench.py m.gguf --threads 2 --prefill 512 --vocab 7 --depth 128 --streams 1 8",
		"fb bench engine m.gguf --json --threads 2 --prefill 64 --kernels avx2 --depth none",
		"py p/openvino_bench.py m.gguf --threads 2 --prefill 64 --vocab 7 --streams",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := (&options{flash: "maybe"}).engines(); err == nil || !strings.Contains(err.Error(), "auto, on, off") {
		t.Errorf("a wrong setting: %v", err)
	}
}

// printed is an engine that prints what another printed once.
func printed(name string) engine {
	return engine{name: name, try: []string{"true"}, command: func(string, job) []string {
		return []string{"cat", filepath.Join("testdata", strings.ReplaceAll(name, ".", "")+".txt")}
	}}
}

// TestComparison runs engines that print recorded outputs, one that fails and one
// that is not there.
func TestComparison(t *testing.T) {
	engines := []engine{
		printed("forebay"), printed("llama.cpp"), printed("openvino"),
		{name: "broken", try: []string{"true"}, command: func(string, job) []string { return []string{"sh", "-c", "echo loading >&2; echo no room >&2; exit 3"} }},
		{name: "absent", try: []string{"sh", "-c", "echo there is no engine; exit 1"}},
	}
	r := &record{Date: "2026-11-28", Command: "go run ./bench/compare model.gguf", CPU: "a processor", Load: "0.10", Flags: []string{"sse", "avx2", "amx_int8"}, Rounds: 2, Threads: 2}
	for _, e := range engines {
		r.Engines = append(r.Engines, engineRecord{Name: e.name, Missing: e.missing(t.Context())})
	}
	o := &options{rounds: 2, limit: time.Minute, models: []string{"a/model.gguf"}, progress: io.Discard}
	jobs := []job{{512, 128, []string{"1", "8"}}, {0, 2048, []string{"1"}}}
	if err := r.measure(t.Context(), o, engines, jobs); err != nil {
		t.Fatal(err)
	}
	r.judge()
	name, got := filepath.Join("testdata", "table.md"), r.markdown()
	if *rewrite {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run go test ./bench/compare -rewrite if this is meant:\n%s", diff)
	}
	ours, theirs := 44030.6, 78037.1
	if w := r.Rows[0]; w.Best != "openvino" || w.Ratio != ours/theirs || len(w.Ratios) != 2 {
		t.Errorf("prefill: %+v", w)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.measure(gone, o, engines, jobs); err == nil || !strings.Contains(err.Error(), "interrupted in round 1") {
		t.Errorf("interrupted: %v", err)
	}
}

// The best other is that of the highest median, and rounds that failed do not count.
func TestJudge(t *testing.T) {
	engines := []engineRecord{{Name: "ours"}, {Name: "a"}, {Name: "b"}}
	for _, c := range []struct {
		rates  [3][]float64
		best   string
		ratio  float64
		ratios []float64
	}{
		{[3][]float64{{30, 40, 20}, {10, 12, 30}, {15, 15, 15}}, "b", 2, []float64{2, 40.0 / 15, 20.0 / 15.0}},
		{[3][]float64{{30, 0, 20}, {0, 10, 10}, {0, 0, 0}}, "a", 2.5, []float64{2}},
		{[3][]float64{{0, 0}, {1, 1}, {0, 0}}, "", 0, nil},
		{[3][]float64{{1, 1}, {0, 0}, {0, 0}}, "", 0, nil},
	} {
		w := &row{Cells: []cell{{Rates: c.rates[0]}, {Rates: c.rates[1]}, {Rates: c.rates[2]}}}
		if w.judge(engines); w.Best != c.best || w.Ratio != c.ratio || !slices.Equal(w.Ratios, c.ratios) {
			t.Errorf("%v: best %q, %g, %v; want %q, %g, %v", c.rates, w.Best, w.Ratio, w.Ratios, c.best, c.ratio, c.ratios)
		}
	}
}

func TestProcessor(t *testing.T) {
	root := fstest.MapFS{"proc/cpuinfo": {Data: []byte("processor\t: 0\nmodel name\t: A B\nflags\t\t: sse avx2\n\nprocessor : 1\nflags : x\n")}}
	if name, flags := processor(root); name != "A B" || !slices.Equal(flags, []string{"sse", "avx2"}) {
		t.Errorf("%q %v", name, flags)
	}
	if name, flags := processor(fstest.MapFS{}); name != "" || flags != nil {
		t.Errorf("of nothing: %q %v", name, flags)
	}
}

func TestMedianMachine(t *testing.T) {
	m := medianMachine([]*speed.Machine{
		{Threads: 2, ReadGBs: 10, CacheGBs: 3, GOPS: map[string]float64{"a": 1}}, {Threads: 2, ReadGBs: 30, CacheGBs: 1, GOPS: map[string]float64{"a": 5}},
	})
	if diff := cmp.Diff(&speed.Machine{Threads: 2, ReadGBs: 20, CacheGBs: 2, GOPS: map[string]float64{"a": 3}}, m); diff != "" {
		t.Error(diff)
	}
	if m := medianMachine(nil); m != nil {
		t.Errorf("of none: %+v", m)
	}
}
