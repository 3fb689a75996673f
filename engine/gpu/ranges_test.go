//go:build cuda

package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/demo"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
)

// TestStepsAreRanges: a profiler that is injected has a range of each step, and in it one of each class of kernels that
// are launched. It is injected once for a process, so the steps are in one of their own.
func TestStepsAreRanges(t *testing.T) {
	if file := os.Getenv("FOREBAY_EMU_NVTX"); file == "" {
		file = filepath.Join(t.TempDir(), "ranges")
		steps := exec.Command(os.Args[0], "-test.run=^TestStepsAreRanges$")
		steps.Env = append(os.Environ(), "FOREBAY_EMU_NVTX="+file, "NVTX_INJECTION64_PATH="+os.Getenv("FOREBAY_CUDA_DRIVER"))
		if said, err := steps.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		checkRanges(t, file)
		return
	}
	if err := NameRanges(); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("demo.gguf", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, f, model.Options{ContextTokens: 64, Device: openDevice(t)})
	pages := inOrder(m.Options().Pages)
	m.Forward([]model.Chunk{{Tokens: []int32{20, 21, 22}, Pages: pages, Logits: 1}})
	for i := range 2 { // the first makes a graph
		m.Forward([]model.Chunk{{Tokens: []int32{23}, Start: 3 + i, Pages: pages, Logits: 1}})
	}
}

func checkRanges(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string // at the top
	within, depth := map[string]int{}, 0
	for line := range strings.Lines(string(text)) {
		name, begins := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "( ")
		switch {
		case begins && depth == 0:
			steps = append(steps, name)
			depth++
		case begins:
			within[name]++
			depth++
		default:
			depth--
		}
	}
	if want := "step of 3 tokens, 1 with logits;step of 1 tokens, 1 with logits;step of 1 tokens, 1 with logits"; strings.Join(steps, ";") != want || depth != 0 {
		t.Errorf("the steps are %q, and %d ranges stay open", steps, depth)
	}
	for _, name := range []string{"embed", "attention_prefill in layer 0", "attention_decode in layer 0", "mlp in layer 0", "logits"} {
		if within[name] == 0 {
			t.Errorf("no range is %q, of %v", name, within)
		}
	}
	if within["mlp in layer 0"] != 2 {
		t.Errorf("the layer is launched %d times, want 2: in the prompt, and for the graph", within["mlp in layer 0"])
	}
}
