//go:build cuda

package gpu

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/demo"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// openDevice takes the device. These tests are compiled only with the tag cuda, so a missing
// driver fails them.
func openDevice(t *testing.T) *Device {
	t.Helper()
	d, err := Open(Options{Driver: os.Getenv("FOREBAY_CUDA_DRIVER")})
	if err != nil {
		t.Fatalf("%v; FOREBAY_CUDA_DRIVER names the emulated driver, which kernels/cuda/build makes", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// shared is a file of the reference outputs, which lie beside the repository; the test is
// skipped where they are not at hand.
func shared(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "shared", "conformance"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("reference data %s is not there", path)
	}
	return path
}

// reference is a conformance model with its logits.
type reference struct {
	IDs          []int32 `json:"ids"`
	Shape        [2]int  `json:"shape"`
	GreedyPrompt int     `json:"greedy_prompt"`
	Greedy       []int32 `json:"greedy"`

	name   string
	file   *gguf.File
	logits []float32
}

func read(t *testing.T, path string) (r reference) {
	t.Helper()
	base := strings.TrimSuffix(path, ".gguf")
	text, err := os.ReadFile(base + ".json")
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(base + ".logits.f32")
	if err != nil {
		t.Fatal(err)
	}
	for ; len(raw) > 0; raw = raw[4:] {
		r.logits = append(r.logits, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	if r.file, err = gguf.Open(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.file.Close() })
	r.name = filepath.Base(base)
	return r
}

func load(t *testing.T, f *gguf.File, o model.Options) *model.Model {
	t.Helper()
	team := kernels.NewTeam(1)
	t.Cleanup(team.Close)
	m, err := model.Load(f, kernels.Best(), team, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func inOrder(n int) []int32 {
	pages := make([]int32, n)
	for i := range pages {
		pages[i] = int32(i)
	}
	return pages
}

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

// nmseMax is the distance from the reference that is allowed. The GPU multiplies float32
// numbers with dequantised weights, so a type costs nothing beside its pages.
var nmseMax = map[kernels.KVType]float64{kernels.KVF32: 1e-9, kernels.KVF16: 1e-5, kernels.KVInt8: 1e-3, kernels.KVBF16: 1e-4, kernels.KVFP8: 1e-2}

// TestLogitsMatchReference: every architecture and type within its distance, and the
// continuation of the prompt, token by token, by graphs.
func TestLogitsMatchReference(t *testing.T) {
	d := openDevice(t)
	files, _ := filepath.Glob(shared(t, "arch") + "/*.gguf")
	quant, _ := filepath.Glob(shared(t, "quant") + "/*.gguf")
	for _, name := range []string{"glm4", "seed-oss", "ernie45", "olmo2", "olmo3", "exaone4", "hunyuan-dense", "ministral3", "glm4moe", "ernie45-moe", "minimax-m2", "cohere2", "bailingmoe2", "phimoe", "lfm2", "lfm2moe"} {
		files = append(files, shared(t, "arch2", name+".gguf"))
	}
	if files = append(files, quant...); len(files) < 46 {
		t.Fatalf("only %d reference models", len(files))
	}
	seen := map[string]bool{"qwen2moe": true, "olmoe": true, "granitemoe": true, "llama4": true} // by mixes_test.go
	for _, path := range files {
		r := read(t, path)
		architecture, _, _ := r.file.String("general.architecture")
		seen[architecture] = true
		for kv, most := range nmseMax {
			if kv != kernels.KVF32 && !slices.Contains([]string{"llama-gqa-tied", "gemma2", "gpt-oss", "qwen3", "llama-q8_0"}, r.name) {
				continue // pages do not know the weights' type, nor most of the architecture
			}
			t.Run(fmt.Sprintf("%s/%v", r.name, kv), func(t *testing.T) {
				m := load(t, r.file, model.Options{ContextTokens: len(r.IDs) + len(r.Greedy), KVType: kv, Device: d})
				pages := inOrder(m.Options().Pages)
				got := m.Forward([]model.Chunk{{Tokens: r.IDs, Pages: pages, Logits: len(r.IDs)}})
				if len(got) != len(r.logits) {
					t.Fatalf("%d logits, want %d", len(got), len(r.logits))
				}
				if m.Config().Experts > 0 && (kv == kernels.KVInt8 || kv == kernels.KVBF16 || kv == kernels.KVFP8) {
					most = 5e-2 // a near tie of a router falls the other way, and then the row is another
				}
				distance := nmse(got, r.logits)
				t.Logf("NMSE %.2g", distance)
				if !(distance <= most) {
					t.Errorf("NMSE %g, allowed %g", distance, most)
				}
				if kv == kernels.KVF32 {
					checkGreedy(t, m, &r, pages)
				}
			})
		}
	}
	if !maps.Equal(seen, architectures) {
		t.Errorf("references are of %v, the GPU computes %v", slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(architectures)))
	}
}

// TestEveryArchitectureIsDecided: of those that this engine knows, each is computed and on the
// page of the GPU, or refused by its name.
func TestEveryArchitectureIsDecided(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "gpu.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, refused, _ := strings.Cut(string(page), "\nNot yet there are ")
	refused, _, _ = strings.Cut(refused, "\n\n")
	_, row, _ := strings.Cut(string(page), "| architectures | ")
	row, _, _ = strings.Cut(row, "; others are refused by name")
	row = strings.ReplaceAll(row, " (also Mistral and Mixtral)", "")
	if want := slices.Sorted(maps.Keys(architectures)); !slices.Equal(slices.Sorted(strings.SplitSeq(row, ", ")), want) {
		t.Errorf("docs/gpu.md has the architectures %q; computed are %q", row, want)
	}
	known := model.Architectures()
	for name := range architectures {
		if !slices.Contains(known, name) {
			t.Errorf("%s is no architecture of package model", name)
		}
	}
	for _, name := range known {
		err := refusal(&model.Config{Architecture: name})
		if (err != nil) == architectures[name] {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.Contains(refused, name) {
			t.Errorf("%s is refused, and docs/gpu.md does not say so", name)
		}
		if err != nil && !strings.Contains(err.Error(), "architecture "+name+" is not computed on the GPU") {
			t.Errorf("%s is refused by %q", name, err)
		}
	}
}

// TestRefusalsByType: every type of package kernels is in the kernels, or refused by name.
func TestRefusalsByType(t *testing.T) {
	c := &model.Config{Architecture: "llama"}
	var d *Device
	for typ := range kernels.Type(64) {
		if !typ.Known() {
			continue
		}
		err := d.Refusal(c, []kernels.Type{typ})
		if computed := cuda.TypeName(typ) != ""; computed != (err == nil) || err != nil && !strings.Contains(err.Error(), typ.String()) {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

func checkGreedy(t *testing.T, m *model.Model, r *reference, pages []int32) {
	t.Helper()
	tokens, start := slices.Clone(r.IDs[:r.GreedyPrompt]), 0
	if m.StateBytes() > 0 {
		m.ClearState(0)
	}
	for i, want := range r.Greedy {
		logits := m.Forward([]model.Chunk{{Tokens: tokens[start:], Start: start, Pages: pages, Logits: 1}})
		start = len(tokens)
		if got := argmax(logits); got != want {
			t.Fatalf("greedy token %d is %d, want %d", i, got, want)
		}
		tokens = append(tokens, want)
	}
}

// TestBitsDoNotDependOnSchedule: a sequence has the same bits alone, in any batch, in any
// chunks, on any pages, by a graph and by launches one after another, and in any order in
// which a GPU may run threads.
func TestBitsDoNotDependOnSchedule(t *testing.T) {
	d := openDevice(t)
	for _, name := range []string{"arch/gemma2", "arch/mixtral", "quant/llama-q4_k_s", "quant/gpt-oss-mxfp4"} {
		r := read(t, shared(t, name+".gguf"))
		t.Run(r.name, func(t *testing.T) {
			const length, sequences = 24, 4
			m := load(t, r.file, model.Options{ContextTokens: 64, PageTokens: 8, Pages: 8 * sequences, KVType: kernels.KVF16, Device: d})
			vocab := m.Config().Vocab
			alone := slices.Clone(m.Forward([]model.Chunk{{Tokens: r.IDs[:length], Pages: inOrder(8), Logits: length}}))
			for round, order := range []string{"forward", "reverse", "random"} {
				t.Setenv("FOREBAY_EMU_ORDER", order)
				t.Setenv("FOREBAY_EMU_STREAM", []string{"late", "eager", "late"}[round])
				random := rand.New(rand.NewPCG(uint64(round), 1))
				tables, pages := make([][]int32, sequences), random.Perm(8*sequences)
				for s := range tables {
					for _, p := range pages[8*s : 8*s+8] {
						tables[s] = append(tables[s], int32(p))
					}
				}
				checkSchedule(t, m, r.IDs[:length], tables, random, func(position int, logits []float32) {
					if !slices.Equal(logits, alone[position*vocab:(position+1)*vocab]) {
						t.Fatalf("%s: position %d has other bits", order, position)
					}
				})
			}
			if n := m.DeviceGraphs(); n < 2 {
				t.Errorf("%d graphs were made", n)
			}
		})
	}
}

// checkSchedule computes the same tokens for every table, in random chunks side by side.
func checkSchedule(t *testing.T, m *model.Model, ids []int32, tables [][]int32, random *rand.Rand, check func(position int, logits []float32)) {
	done, vocab := make([]int, len(tables)), m.Config().Vocab
	for {
		var chunks []model.Chunk
		for s := range tables {
			left := len(ids) - done[s]
			if left == 0 || random.IntN(4) == 0 {
				continue
			}
			n := 1
			if random.IntN(3) == 0 {
				n = 1 + random.IntN(min(left, 17))
			}
			chunks = append(chunks, model.Chunk{Tokens: ids[done[s] : done[s]+n], Start: done[s], Pages: tables[s], Logits: 1, State: int32(s)})
			done[s] += n
		}
		if len(chunks) == 0 {
			if !slices.ContainsFunc(done, func(n int) bool { return n < len(ids) }) {
				return
			}
			continue
		}
		logits := m.Forward(chunks)
		for i, c := range chunks {
			check(c.Start+len(c.Tokens)-1, logits[i*vocab:(i+1)*vocab])
		}
	}
}

// TestCopyPage: a copied page continues a sequence as the page itself does.
func TestCopyPage(t *testing.T) {
	d := openDevice(t)
	r := read(t, shared(t, "arch", "qwen3.gguf"))
	m := load(t, r.file, model.Options{ContextTokens: 64, Pages: 8, KVType: kernels.KVInt8, Device: d})
	m.Forward([]model.Chunk{{Tokens: r.IDs[:20], Pages: []int32{0, 1}}})
	m.CopyPage(5, 1)
	next := model.Chunk{Tokens: r.IDs[20:21], Start: 20, Pages: []int32{0, 1}, Logits: 1}
	want := slices.Clone(m.Forward([]model.Chunk{next}))
	next.Pages = []int32{0, 5}
	if got := m.Forward([]model.Chunk{next}); !slices.Equal(got, want) {
		t.Error("the copy has other logits")
	}
}

// TestNothingGrows: steps take no memory of the Go heap, and the device's memory is
// free again after Close.
func TestNothingGrows(t *testing.T) {
	d := openDevice(t)
	r := read(t, shared(t, "arch", "llama-gqa-tied.gguf"))
	free := func() int64 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := d.cuda.Bind(); err != nil {
			t.Fatal(err)
		}
		n, err := d.cuda.FreeBytes()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := free()
	team := kernels.NewTeam(1)
	defer team.Close()
	m, err := model.Load(r.file, kernels.Best(), team, model.Options{ContextTokens: 64, Device: d})
	if err != nil {
		t.Fatal(err)
	}
	chunks := []model.Chunk{{Tokens: r.IDs[:1], Pages: inOrder(4), Logits: 1}, {Tokens: r.IDs[1:2], Pages: inOrder(4)[2:], Logits: 1}}
	step := func() { m.Forward(chunks) }
	step()
	during := free()
	if n := testing.AllocsPerRun(50, step); n > 0 {
		t.Errorf("a step allocates %v times", n)
	}
	if now := free(); now != during {
		t.Errorf("the device's free memory went from %d to %d", during, now)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if after := free(); after != before {
		t.Errorf("free memory was %d before the model, and is %d after it", before, after)
	}
}

// TestRefusals: what the GPU lacks, or has no memory for, is refused with a reason.
func TestRefusals(t *testing.T) {
	d := openDevice(t)
	team := kernels.NewTeam(1)
	defer team.Close()
	for _, c := range []struct {
		file string
		o    model.Options
		want string
	}{
		{"arch2/gemma4-dense.gguf", model.Options{}, "architecture gemma4 is not computed on the GPU"},
		{"arch2/mamba2.gguf", model.Options{}, "architecture mamba2 is not computed on the GPU"},
		{"arch/qwen3.gguf", model.Options{Pages: 1 << 22}, "for keys and values"},
		{"arch/qwen3.gguf", model.Options{BatchTokensMax: 1 << 15}, "steps of 32768 tokens"},
	} {
		c.o.Device = d
		r, err := gguf.Open(shared(t, c.file))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		_, err = model.Load(r, kernels.Best(), team, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: %v, want %q", c.file, c.o, err, c.want)
		}
	}
}

// TestNoDevice: the errors for a device that is not there say what there is.
func TestNoDevice(t *testing.T) {
	openDevice(t)
	_, err := Open(Options{Driver: os.Getenv("FOREBAY_CUDA_DRIVER"), ID: 7})
	if err == nil || !strings.Contains(err.Error(), "there is no CUDA device 7; this machine has 1") {
		t.Errorf("device 7: %v", err)
	}
}

// TestSplitsGiveTheSameBits: attention over a long context is cut between blocks where rows are
// few, and not where they are many.
func TestSplitsGiveTheSameBits(t *testing.T) {
	d := openDevice(t)
	f, err := gguf.Parse("demo.gguf", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	const length, last = 530, 6
	m := load(t, f, model.Options{ContextTokens: 1024, BatchTokensMax: length, KVType: kernels.KVF16, Device: d})
	ids := make([]int32, length)
	for i := range ids {
		ids[i] = int32(20 + i*7%200)
	}
	pages, vocab := inOrder(m.Options().Pages), m.Config().Vocab
	many := slices.Clone(m.Forward([]model.Chunk{{Tokens: ids, Pages: pages, Logits: last}}))
	few := m.Forward([]model.Chunk{{Tokens: ids[length-last:], Start: length - last, Pages: pages, Logits: last}})
	if len(few) != last*vocab || !slices.Equal(few, many) {
		t.Error("few rows have other bits than many")
	}
}
