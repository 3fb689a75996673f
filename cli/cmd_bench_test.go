package cli

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/bench/speed"
	"github.com/forebay-io/forebay/kernels"
)

var demoFile = filepath.Join("engine", "demo", "forebay-demo-q8_0.gguf")

// These tests compute on all processors, so they are not parallel to others.

// What a benchmark prints differs from run to run in its numbers, and from machine to
// machine in the loops that the processor has and the classes that take time.
var (
	lists    = regexp.MustCompile(`"(gops|shares)":\{[^}]*\}`)
	digits   = regexp.MustCompile(`(:|\[|,)-?[0-9][0-9.e+-]*`)
	versions = regexp.MustCompile(`"version":"[^"]*"`)
)

func masked(text string) string {
	text = versions.ReplaceAllString(lists.ReplaceAllString(text, `"$1":{…}`), `"version":"…"`)
	return digits.ReplaceAllString(text, "${1}N")
}

// TestBenchEngineForm holds the form that programs read.
func TestBenchEngineForm(t *testing.T) {
	out, status := run(t, "", "bench", "engine", demoFile, "--json", "--kernels", "ref", "--threads", "1",
		"--prefill", "20", "--batch", "8", "--depth", "5,40", "--streams", "1,3", "--runs", "2", "--steps", "2")
	if status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	name, got := filepath.Join("cli/testdata", "bench_engine.txt"), masked(out)
	if flag.Lookup("rewrite").Value.String() == "true" { // datadriven defines it
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the form changed; if that is meant, run go test ./cli -run BenchEngineForm -rewrite:\n%s", diff)
	}
	r, err := speed.Parse(strings.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	if r.Head.Peer != "forebay" || r.Head.Features != "ref" || r.Head.ChunkTokens != 8 || r.Head.WeightBytes == 0 || r.Machine == nil || len(r.Prefills) != 1 || len(r.Decodes) != 4 {
		t.Errorf("got %+v", r)
	}
	if p := r.Prefills[0]; p.Tokens != 20 || len(p.All) != 2 {
		t.Errorf("prefill %+v", p)
	}
	for i, d := range r.Decodes {
		sum := 0.0
		for _, share := range d.Shares {
			sum += share
		}
		if d.Depth != []int{5, 5, 40, 40}[i] || d.Streams != []int{1, 3, 1, 3}[i] || !(sum > 0.5 && sum < 1.02) || !(d.ReadShare > 0) {
			t.Errorf("decode %d: %+v; its shares sum to %g", i, d, sum)
		}
	}
}

func TestBenchEngineWords(t *testing.T) {
	out, status := run(t, "", "bench", "engine", demoFile, "--prefill", "20", "--depth", "20", "--runs", "1", "--steps", "2")
	for _, want := range []string{"\nmachine  ", " GB/s", "prefill        20 tokens: ", "decode         depth 20, 1 streams: ", "mlp ", "prompts in steps of 512 tokens"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d, no %q in\n%s", status, want, out)
		}
	}
}

func TestBenchEngineRefusesTooMuch(t *testing.T) {
	for _, args := range []string{"--depth 2040 --steps 24", "--prefill 4000 --depth none"} {
		out, status := run(t, "", append([]string{"bench", "engine", demoFile}, strings.Fields(args)...)...)
		if status != 1 || !strings.Contains(out, "the model's context is 2048") || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: status %d, %q", args, status, out)
		}
	}
}

func TestBenchKernels(t *testing.T) {
	out, status := run(t, "", "bench", "kernels", "--types", "Q4_0", "--time", "0s", "--threads", "2")
	for _, want := range []string{"matmul Q4_0                 1 rows   1 workers", "matmul Q4_0               256 rows   2 workers", "attention decode at 16384", "attention prefill at 2048", "norm ", "silu ", "% of cache"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d, no %q in\n%s", status, want, out)
		}
	}
	out, status = run(t, "", "bench", "kernels", "--types", "none", "--time", "0s", "--threads", "1", "--json")
	if status != 0 || strings.Count(out, `{"machine":{"threads":1,`) != 1 || strings.Count(out, `{"op":"`) != 5 {
		t.Errorf("status %d, %s", status, out)
	}
	t.Setenv(kernels.DisableEnv, "avx1024")
	out, status = run(t, "", "bench", "kernels", "--types", "none", "--time", "0s", "--threads", "1")
	if want := `no kernel set is named "avx1024" in FOREBAY_KERNELS_DISABLE; there are avx2, `; status != 0 || !strings.Contains(out, want) {
		t.Errorf("status %d, no %q in\n%s", status, want, out)
	}
}
