package model

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// inQ8 is f with its matrices in Q8_0, where their rows are whole blocks.
func inQ8(t *testing.T, f *gguf.File) *gguf.File {
	t.Helper()
	d := gguf.NewDraft(f.Name() + " in Q8_0")
	d.Copy(f)
	for _, tensor := range f.Tensors {
		if len(tensor.Dims) > 1 && tensor.Dims[0]%32 == 0 && tensor.Type == kernels.F32 && strings.HasSuffix(tensor.Name, ".weight") && !strings.Contains(tensor.Name, "norm") {
			x := make([]float32, tensor.Elements())
			kernels.Dequantize(x, tensor.Type, tensor.Data)
			tensor.Type, tensor.Data = kernels.Q8_0, gguftest.Encode(kernels.Q8_0, x)
		}
		d.Add(tensor)
	}
	q, err := d.File("", false)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestReferenceModelsAreBitInvariantOverSchedules: what blocks a model is made of must
// not let a schedule change a bit. Chunks of attention are shortened, so that they end
// within the sequences.
func TestReferenceModelsAreBitInvariantOverSchedules(t *testing.T) {
	exact := kernels.Sets()[slices.IndexFunc(kernels.Sets(), func(s *kernels.Set) bool { return s.Round == nil })]
	for _, base := range referenceModels(t) {
		if filepath.Base(filepath.Dir(base)) != "arch2" {
			continue
		}
		t.Run(filepath.Base(base), func(t *testing.T) {
			whole := openFile(t, base+".gguf")
			for i, set := range []*kernels.Set{kernels.Best(), exact} {
				f := whole
				if i == 0 {
					f = inQ8(t, whole)
				}
				rng := rand.New(rand.NewPCG(9, uint64(i)))
				for round := range 3 {
					pageTokens := []int{1, 2, 4, 8, 16}[rng.IntN(5)]
					kv := kvTypes[round%len(kvTypes)]
					alone := load(t, f, set, newTeam(t, 1), Options{ContextTokens: 128, KVType: kv})
					together := load(t, f, set, newTeam(t, 1+rng.IntN(3)),
						Options{ContextTokens: 128, PageTokens: pageTokens, Pages: 400, States: 12, BatchTokensMax: 20 + rng.IntN(60), KVType: kv})
					shortenChunks(alone, together)
					var sequences [][]int32
					for range 1 + rng.IntN(4) {
						sequences = append(sequences, randomTokens(rng, 1+rng.IntN(80), alone.Config().Vocab))
					}
					for i, got := range runTogether(together, rng, sequences) {
						wantSameBits(t, fmt.Sprintf("%s, round %d, sequence %d", set.Name, round, i), got.rows, runAlone(alone, sequences[i]).rows)
					}
				}
			}
		})
	}
}

// shortenChunks makes chunks of attention end every 32 tokens, where models have them.
func shortenChunks(models ...*Model) {
	for _, m := range models {
		m.config.ChunkTokens = min(m.config.ChunkTokens, 32)
	}
}

// TestChunksOfAttention: a token sees its chunk alone, so in a model whose layers are
// all in chunks the first token of a chunk depends on nothing before it but its place.
func TestChunksOfAttention(t *testing.T) {
	f := openFile(t, sharedPath(t, "conformance", "arch2", "llama4-long.gguf"))
	m := load(t, f, kernels.Best(), newTeam(t, 2), Options{ContextTokens: 128})
	shortenChunks(m)
	for i := range m.config.Layers {
		m.config.Layers[i].Chunked, m.config.Layers[i].Rope, m.config.Layers[i].Tempered = true, 0, false
	}
	tokens := randomTokens(rand.New(rand.NewPCG(5, 5)), 70, m.Config().Vocab)
	changed := slices.Clone(tokens)
	changed[31]++ // the last of the first chunk
	a, b := runAlone(m, tokens), runAlone(m, changed)
	wantSameBits(t, "the second chunk", a.rows[32:], b.rows[32:])
	if nmse(a.rows[31], b.rows[31]) == 0 {
		t.Error("another token gives the same logits")
	}
	changed[32]++
	if c := runAlone(m, changed); nmse(a.rows[63], c.rows[63]) == 0 {
		t.Error("the last token of a chunk does not see its first")
	}
}

func TestPagesMustDivideChunks(t *testing.T) {
	f := openFile(t, sharedPath(t, "conformance", "arch2", "llama4-long.gguf"))
	if _, err := Load(f, kernels.Best(), newTeam(t, 1), Options{PageTokens: 12}); err == nil || !strings.Contains(err.Error(), "pages of 12 tokens do not divide") {
		t.Errorf("pages across chunks: %v", err)
	}
}

// TestReferenceModelsAllocateNothing: not with checkpoints of states either.
func TestReferenceModelsAllocateNothing(t *testing.T) {
	team := newTeam(t, 2)
	for _, base := range referenceModels(t) {
		if filepath.Base(filepath.Dir(base)) != "arch2" {
			continue
		}
		m := load(t, openFile(t, base+".gguf"), kernels.Best(), team, Options{ContextTokens: 64, States: 3})
		chunks := []Chunk{{Tokens: []int32{1, 2, 3}, Pages: firstPages(4), Logits: 1}}
		if m.stateLen > 0 {
			chunks[0].Checkpoints = []Checkpoint{{2, 1}, {3, 2}}
		}
		if n := testing.AllocsPerRun(10, func() { m.Forward(chunks) }); n != 0 {
			t.Errorf("%s: Forward allocates %v times", filepath.Base(base), n)
		}
	}
}
