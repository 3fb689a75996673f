package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/hf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

// TestModelsPage compares every reference model, and says in docs/models.md how
// near the best kernel set of this machine is. Only bounds far above the numbers
// go there, so that machines agree.
func TestModelsPage(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- made by: go test ./cli -run TestModelsPage -rewrite -->\n", "<!-- end -->"
	name := filepath.Join("docs", "models.md")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its markers", name)
	}
	want := modelsPage(t)
	if flag.Lookup("rewrite").Value.String() == "true" { // datadriven defines it
		if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("docs/models.md is not what was measured; run go test ./cli -run TestModelsPage -rewrite:\n%s", diff)
	}
}

func modelsPage(t *testing.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nArchitectures, in GGUF files: %s.\n\n", strings.Join(model.Architectures(), ", "))
	fmt.Fprintf(&b, "Model types, in Hugging Face folders: %s, and the text parts of %s.\n\n", strings.Join(hf.ModelTypes(), ", "), strings.Join(hf.TypesWithImages(), ", "))
	fmt.Fprintf(&b, "Tensor types: %s.\n\n", model.SupportedTypes())
	b.WriteString("Each file below is compared with another implementation's float32 logits of its dequantised weights: NMSE is Σ(a−b)²/Σb² over all\n")
	b.WriteString("positions, first choices are the share of positions whose largest logit is the same, greedy are the tokens of a continuation that agree.\n")
	b.WriteString("The kernels here do not round activations; with `avx2int8`, `avx512vnni`, `avx512bf16` and `avx512amx`, which do, the NMSE of quantised models is below 0.001 ([why](adr/0014-rounded-activations.md)).\n\n")
	b.WriteString("| model | architecture | weights | NMSE | first choices | greedy |\n|---|---|---|---|---|---|\n")
	team := kernels.NewTeam(runtime.GOMAXPROCS(0))
	defer team.Close()
	root := shared(t, "conformance")
	var refused []string
	for _, pattern := range []string{"arch/*.gguf", "arch2/*.gguf", "quant/*.gguf", "safetensors/*"} {
		paths, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, path := range paths {
			switch arch, vectors := architecture(t, path); {
			case !slices.Contains(model.Architectures(), arch):
				refused = append(refused, arch)
				continue
			case vectors: // which package model compares
				continue
			}
			b.WriteString(compareModel(t, root, path, team))
		}
	}
	if len(refused) > 0 {
		t.Errorf("reference models are refused: %s", strings.Join(refused, ", "))
	}
	b.WriteString("\nTokenizers, with the reference's ids on every text:\n\n| vocabulary | texts |\n|---|---|\n")
	folders, _ := filepath.Glob(filepath.Join(root, "tokenizers", "*"))
	for _, folder := range folders { // TestModelTokenizeEqualsReference compares them
		fmt.Fprintf(&b, "| %s | %d |\n", filepath.Base(folder), len(readCases(t, filepath.Join(folder, "cases.jsonl"))))
	}
	files, _ := filepath.Glob(filepath.Join(root, "templates", "*.json"))
	count := 0
	for _, file := range files { // TestModelRenderEqualsReference compares them
		var r conversations
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Cases {
			if c.Fails == nil {
				count++
			}
		}
	}
	fmt.Fprintf(&b, "\nTemplates: %d of real models render %d conversations byte for byte as transformers does.\n\n", len(files), count)
	return b.String()
}

// architecture names a reference model's architecture, and says whether it makes vectors
// instead of logits.
func architecture(t *testing.T, path string) (name string, vectors bool) {
	t.Helper()
	f, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	name, _, _ = f.String("general.architecture")
	pooling, _, _ := f.Uint(name + ".pooling_type")
	return name, pooling != 0
}

// modelReference is what lies beside a reference model.
type modelReference struct {
	IDs          []int32   `json:"ids"`
	Shape        [2]int    `json:"shape"`
	RowsFrom     int       `json:"rows_from"`
	GreedyPrompt int       `json:"greedy_prompt"`
	Greedy       []int32   `json:"greedy"`
	Margins      []float64 `json:"margins"`
}

// exactSet is the best set that does not round activations.
func exactSet() *kernels.Set {
	sets := kernels.Sets()
	return sets[slices.IndexFunc(sets, func(s *kernels.Set) bool { return s.Round == nil })]
}

// compareModel gives the row of one model.
func compareModel(t *testing.T, root, path string, team *kernels.Team) string {
	t.Helper()
	base := strings.TrimSuffix(path, ".gguf")
	if base == path { // a folder has the weights of the file of its name
		base = filepath.Join(root, "arch", filepath.Base(path))
	}
	text, err := os.ReadFile(base + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var r modelReference
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	f, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := model.Load(f.File, exactSet(), team, model.Options{ContextTokens: len(r.IDs) + len(r.Greedy), BatchTokensMax: len(r.IDs)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	pages := make([]int32, m.Options().Pages)
	for i := range pages {
		pages[i] = int32(i)
	}
	nmse, same := distance(t, m.Forward([]model.Chunk{{Tokens: r.IDs, Pages: pages, Logits: len(r.IDs) - r.RowsFrom}}), base+".logits.f32", r.Shape[1])
	weights, allowed := weightTypes(f.TypeUses())
	if !(nmse <= allowed) || same < 0.99 {
		t.Errorf("%s: NMSE %g, allowed %g; first choices %.1f %%", path, nmse, allowed, 100*same)
	}
	greedy := "–"
	if len(r.Greedy) > 0 {
		greedy = fmt.Sprintf("%d of %d", continued(m, &r, pages), len(r.Greedy))
	}
	kind := filepath.Base(filepath.Dir(path))
	return fmt.Sprintf("| %s/%s | %s | %s | < %s | %.0f %% | %s |\n", kind, filepath.Base(path), m.Config().Architecture, weights, bound(nmse), 100*same, greedy)
}

// weightTypes names the types that matrices have, most bytes first, and says what
// distance they are allowed; vectors are always F32.
func weightTypes(uses []gguf.TypeUse) (names string, allowed float64) {
	var list []string
	allowed = 1e-5
	for _, use := range uses {
		switch use.Type {
		case kernels.F32:
			if len(uses) > 1 {
				continue
			}
		case kernels.F16, kernels.BF16:
			allowed = max(allowed, 1e-4)
		default:
			allowed = 1e-3
		}
		list = append(list, use.Type.String())
	}
	return strings.Join(list, ", "), allowed
}

// distance compares logits with those of a file: their NMSE, and the share of
// rows whose largest number is at the same place.
func distance(t *testing.T, got []float32, name string, width int) (nmse, same float64) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, len(raw)/4)
	if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, want); err != nil || len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%s: %d logits, got %d, %v", name, len(want), len(got), err)
	}
	var wrong, all float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		wrong, all = wrong+d*d, all+float64(want[i])*float64(want[i])
	}
	rows := 0
	for at := 0; at < len(want); at += width {
		if first(got[at:at+width]) == first(want[at:at+width]) {
			rows++
		}
	}
	return wrong / all, float64(rows*width) / float64(len(want))
}

func first(x []float32) int32 {
	best := 0
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return int32(best)
}

// continued counts the greedy tokens that agree with the reference.
func continued(m *model.Model, r *modelReference, pages []int32) int {
	m.ClearState(0)
	next, start := r.IDs[:r.GreedyPrompt], 0
	for i, want := range r.Greedy {
		logits := m.Forward([]model.Chunk{{Tokens: next, Start: start, Pages: pages, Logits: 1}})
		near := r.Margins != nil && r.Margins[i] < 1e-3 // then either choice is the reference's
		if first(logits) != want && !near {
			return i
		}
		next, start = r.Greedy[i:i+1], start+len(next)
	}
	return len(r.Greedy)
}

// bound is an even power of ten that is at least ten times x: rounding differs
// between machines by less.
func bound(x float64) string {
	return fmt.Sprintf("1e%d", 2*int(math.Ceil((math.Log10(max(x, 1e-16))+1)/2)))
}
