package model

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// sharedPath is a file of the reference outputs, which lie beside the
// repository; the test is skipped where they are not at hand.
func sharedPath(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "shared"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("reference data %s is not there", path)
	}
	return path
}

func openFile(t *testing.T, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func newTeam(t *testing.T, workers int) *kernels.Team {
	team := kernels.NewTeam(workers)
	t.Cleanup(team.Close)
	return team
}

func load(t *testing.T, f *gguf.File, set *kernels.Set, team *kernels.Team, o Options) *Model {
	t.Helper()
	m, err := Load(f, set, team, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// firstPages is the page table of n pages that lie in order.
func firstPages(n int) []int32 {
	pages := make([]int32, n)
	for i := range pages {
		pages[i] = int32(i)
	}
	return pages
}

// reference is the json file beside a conformance model.
type reference struct {
	IDs          []int32 `json:"ids"`
	Shape        [2]int  `json:"shape"`
	GreedyPrompt int     `json:"greedy_prompt"`
	Greedy       []int32 `json:"greedy"`
	Dequantised  struct {
		Tensor, File string
	} `json:"dequantised"`
}

func readReference(t *testing.T, path string) (r reference) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readFloats(t *testing.T, path string) []float32 {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, len(raw)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return x
}

// nmse is Σ(a−b)² / Σb².
func nmse(a, b []float32) float64 {
	var wrong, size float64
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		wrong += d * d
		size += float64(b[i]) * float64(b[i])
	}
	return wrong / size
}

func argmax(x []float32) int32 {
	best := 0
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return int32(best)
}

// conformanceCases are the reference models that can be computed, each with
// the distance allowed.
var conformanceCases = []struct {
	dir, name string
	nmseMax   float64
}{
	{"arch", "llama-gqa-tied", 1e-5}, {"arch", "llama-mha-untied-spm", 1e-5},
	{"arch", "llama3-ropescale", 1e-5}, {"arch", "mistral-wide-heads", 1e-5},
	{"quant", "llama-f32", 1e-5}, {"quant", "llama-f16", 1e-4}, {"quant", "llama-bf16", 1e-4},
	{"quant", "llama-q8_0", 1e-3}, {"quant", "llama-q4_0", 1e-3},
}

func TestLogitsMatchReference(t *testing.T) {
	team := newTeam(t, 2)
	for _, c := range conformanceCases {
		base := sharedPath(t, "conformance", c.dir, c.name+".gguf")
		base = strings.TrimSuffix(base, ".gguf")
		ref, want, f := readReference(t, base+".json"), readFloats(t, base+".logits.f32"), openFile(t, base+".gguf")
		if len(want) != len(ref.IDs)*ref.Shape[1] || len(want) == 0 {
			t.Fatalf("%s: %d reference logits for %d tokens", c.name, len(want), len(ref.IDs))
		}
		for _, set := range kernels.Sets() {
			t.Run(c.name+"/"+set.Name, func(t *testing.T) {
				m := load(t, f, set, team, Options{})
				got := m.Forward([]Span{{Tokens: ref.IDs, Pages: firstPages(m.Options().Pages), Logits: len(ref.IDs)}})
				if len(got) != len(want) {
					t.Fatalf("%d logits, want %d", len(got), len(want))
				}
				distance := nmse(got, want)
				t.Logf("NMSE %.2g", distance)
				if !(distance <= c.nmseMax) {
					t.Errorf("NMSE %g, allowed %g", distance, c.nmseMax)
				}
				if set.Name == kernels.Best().Name {
					checkGreedy(t, m, &ref)
				}
			})
		}
	}
}

// checkGreedy continues the reference's prompt a token at a time.
func checkGreedy(t *testing.T, m *Model, ref *reference) {
	t.Helper()
	pages := firstPages(m.Options().Pages)
	tokens := append([]int32(nil), ref.IDs[:ref.GreedyPrompt]...)
	start := 0
	for i, want := range ref.Greedy {
		logits := m.Forward([]Span{{Tokens: tokens[start:], Start: start, Pages: pages, Logits: 1}})
		start = len(tokens)
		if got := argmax(logits); got != want {
			t.Fatalf("greedy token %d is %d, want %d", i, got, want)
		}
		tokens = append(tokens, want)
	}
}

func TestDequantisedTensorsMatchBitForBit(t *testing.T) {
	for _, name := range []string{"llama-q8_0", "llama-q4_0"} {
		base := strings.TrimSuffix(sharedPath(t, "conformance", "quant", name+".gguf"), ".gguf")
		ref, f := readReference(t, base+".json"), openFile(t, base+".gguf")
		tensor, ok := f.Tensor(ref.Dequantised.Tensor)
		if !ok {
			t.Fatalf("%s: no tensor %q", name, ref.Dequantised.Tensor)
		}
		want := readFloats(t, filepath.Join(filepath.Dir(base), ref.Dequantised.File))
		got := make([]float32, tensor.Elements())
		kernels.Dequantize(got, tensor.Type, tensor.Data)
		if len(got) != len(want) {
			t.Fatalf("%s: %d values, want %d", name, len(got), len(want))
		}
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%s: value %d is %g, want %g", name, i, got[i], want[i])
			}
		}
	}
}

func TestOtherModelsAreRefusedByName(t *testing.T) {
	team := newTeam(t, 1)
	for path, words := range map[string]string{
		"arch/gemma2.gguf":                          `architecture "gemma2" is not supported; supported: llama`,
		"arch/gemma3.gguf":                          `architecture "gemma3"`,
		"arch/gpt-oss.gguf":                         `architecture "gpt-oss"`,
		"arch/granite.gguf":                         `architecture "granite"`,
		"arch/mixtral.gguf":                         "key llama.expert_count: is 4: mixtures of experts are not supported",
		"arch/phi3.gguf":                            `architecture "phi3"`,
		"arch/qwen2-bias.gguf":                      `architecture "qwen2"`,
		"arch/qwen3.gguf":                           `architecture "qwen3"`,
		"arch/qwen3moe.gguf":                        `architecture "qwen3moe"`,
		"arch/smollm3.gguf":                         `architecture "smollm3"`,
		"quant/gpt-oss-mxfp4.gguf":                  `architecture "gpt-oss"`,
		"quant/llama-q4_1.gguf":                     "has the type Q4_1, which is not supported; supported: F32, F16, Q4_0, Q8_0, BF16",
		"quant/llama-q6_k.gguf":                     "has the type Q6_K",
		"quant/llama-iq4_nl.gguf":                   "has the type IQ4_NL",
		"../models/SmolLM2-135M-Instruct.Q4_1.gguf": "tensor blk.0.attn_q.weight: has the type Q4_1",
	} {
		f := openFile(t, sharedPath(t, append([]string{"conformance"}, strings.Split(path, "/")...)...))
		_, err := Load(f, kernels.Sets()[0], team, Options{})
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: error %v, want %q", path, err, words)
		}
	}
}
