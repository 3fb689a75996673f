package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/internal/conf"
)

func TestModelLogitsEqualReference(t *testing.T) {
	t.Parallel()
	stem := strings.TrimSuffix(shared(t, "conformance/arch/llama-gqa-tied.gguf"), ".gguf")
	text, err := os.ReadFile(stem + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var reference struct{ IDs []int }
	if err := json.Unmarshal(text, &reference); err != nil {
		t.Fatal(err)
	}
	ids := strings.Trim(strings.ReplaceAll(fmt.Sprint(reference.IDs), " ", ","), "[]")
	for _, set := range []string{"", "ref"} {
		out := filepath.Join(t.TempDir(), "out.f32")
		if words, status := run(t, "", "model", "logits", stem+".gguf", "--ids", ids, "-o", out, "--kernels", set); status != 0 {
			t.Fatalf("status %d: %s", status, words)
		}
		if nmse := compareFloats(t, out, stem+".logits.f32"); !(nmse < 1e-5) {
			t.Errorf("kernels %q: NMSE %g", set, nmse)
		}
	}
}

// compareFloats is Σ(a−b)²/Σb² over two files of float32.
func compareFloats(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := readFloats(t, a), readFloats(t, b)
	if len(x) != len(y) || len(x) == 0 {
		t.Fatalf("%s has %d numbers, %s has %d", a, len(x), b, len(y))
	}
	var difference, size float64
	for i := range x {
		difference += (x[i] - y[i]) * (x[i] - y[i])
		size += y[i] * y[i]
	}
	return difference / size
}

func readFloats(t *testing.T, name string) (x []float64) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for ; len(raw) >= 4; raw = raw[4:] {
		x = append(x, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
	}
	return x
}

func TestModelInfo(t *testing.T) {
	t.Parallel()
	out, status := run(t, "", "model", "info", filepath.Join("engine", "demo", "forebay-demo-q8_0.gguf"))
	for _, want := range []string{"llama", "2048 tokens", "4 layers", "Q8_0", "\n\ncan be served\n"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d, no %q in\n%s", status, want, out)
		}
	}
	out, _ = run(t, "", "model", "info", unservable(t))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(out, "key llama.strange_scale: (2) is not understood") || !strings.HasPrefix(last, "cannot be served: ") {
		t.Errorf("the problem is not named in\n%s", out)
	}
}

func TestModelLogitsToStandardOutput(t *testing.T) {
	t.Parallel()
	args := []string{"model", "logits", filepath.Join("engine", "demo", "forebay-demo-q8_0.gguf"), "--ids", "1,2", "-o"}
	var report strings.Builder
	cmd := exec.Command(program, append(args, "-")...)
	cmd.Stderr = &report
	out, err := cmd.Output()
	if err != nil || len(out) != 2*2048*4 || !strings.HasPrefix(report.String(), "-: 2 rows of 2048, by ") {
		t.Errorf("%d bytes, %v, %q", len(out), err, &report)
	}
	if out, status := run(t, "", append(args, "/dev/full")...); status != 1 || strings.Count(out, "\n") != 1 {
		t.Errorf("a full disk: status %d, %q; want one line", status, out)
	}
}

func TestVersionFlags(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"version", "--version", "-v"} {
		if out, status := run(t, "", arg); status != 0 || !strings.HasPrefix(out, "forebay "+version) {
			t.Errorf("%s: status %d, %q", arg, status, out)
		}
	}
}

// TestCommands plays testdata/commands.txt: the first line of the input are
// the arguments, the rest is f.yaml in the working directory; then comes what
// the program prints, and its exit status.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	datadriven.RunTest(t, "testdata/commands.txt", func(t *testing.T, d *datadriven.TestData) string {
		args, file, _ := strings.Cut(d.Input, "\n")
		if err := os.WriteFile(filepath.Join(dir, "f.yaml"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		out, status := runIn(t, dir, "", strings.Fields(args)...)
		return fmt.Sprintf("%sstatus %d\n", out, status)
	})
}

func TestConfigCheckKnowsKernels(t *testing.T) {
	t.Parallel()
	if out, status := run(t, "", "config", "check", "--engine.kernels", "zzz"); status != 1 || !strings.HasPrefix(out, `forebay: --engine.kernels: engine.kernels: no kernel set "zzz" on this machine; available: `) {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestConfigurationPage(t *testing.T) {
	const begin, end = "<!-- made by: go test . -run TestConfigurationPage -rewrite -->\n", "<!-- end -->"
	name := filepath.Join("docs", "configuration.md")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its markers", name)
	}
	want := "\n" + conf.Of(new(Config)).Table() + "\n"
	if flag.Lookup("rewrite").Value.String() == "true" { // datadriven defines it
		if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("docs/configuration.md differs from the structs; run go test . -run TestConfigurationPage -rewrite:\n%s", diff)
	}
}
