package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// embedderFile is a small model with a pooling.
func embedderFile(t *testing.T, pooling uint32) string {
	b := gguftest.TinyBuilder(gguftest.Tiny{Type: kernels.Q8_0, Seed: 3, Layers: 2, Embed: 64, FF: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 270, Context: 300})
	path := filepath.Join(t.TempDir(), "embedder.gguf")
	if err := os.WriteFile(path, b.Set("llama.pooling_type", pooling).Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// textIDs is n byte tokens; those of one seed begin alike.
func textIDs(seed uint64, n int) []int32 {
	r, ids := rand.New(rand.NewPCG(seed, 3)), make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(256)
	}
	return ids
}

var embedOnce = wire.Options{N: 1, Embed: true}

// TestEmbeddingsDoNotDependOnTheSchedule: every text's vector has the same bits alone
// and among others, in pieces, from the cache, paused and preempted.
func TestEmbeddingsDoNotDependOnTheSchedule(t *testing.T) {
	for pooling, name := range map[uint32]string{1: "mean", 2: "first", 3: "last"} {
		t.Run(name, func(t *testing.T) {
			preempted, cached := embeddingsInSchedules(t, Config{Model: embedderFile(t, pooling), KVBytes: 1 << 18, Threads: 2})
			if preempted == 0 || (cached > 0) != (pooling == 3) {
				t.Errorf("%d preempted, %d tokens cached", preempted, cached)
			}
		})
	}
}

// TestEncodersInSchedules is the same for encoders, whose texts are computed whole.
func TestEncodersInSchedules(t *testing.T) {
	for _, name := range []string{"embed-gemma", "embed-modern-bert"} {
		path := filepath.Join("..", "..", "shared", "conformance", "arch2", name+".gguf")
		if _, err := os.Stat(path); err != nil {
			t.Skipf("reference data %s is not there", path)
		}
		t.Run(name, func(t *testing.T) {
			if _, cached := embeddingsInSchedules(t, Config{Model: path, KVBytes: 1 << 20, Threads: 2}); cached > 0 {
				t.Errorf("%d tokens were taken from the cache", cached)
			}
		})
	}
}

// embeddingsInSchedules wants the vectors of the runs alone in many random schedules, with a
// quarter of the memory.
func embeddingsInSchedules(t *testing.T, cfg Config) (preempted, cached uint64) {
	var qs []question
	for i := range 12 {
		qs = append(qs, question{id: fmt.Sprint(i), tokens: textIDs(uint64(i%3), 10+17*i), options: embedOnce, level: i % 3, key: int64(i * 31 % 7)})
	}
	alone, _ := reference(t, labSetup{real: true, cfg: cfg}, qs)
	schedules := uint64(12)
	if underRace {
		schedules = 4
	}
	for seed := range schedules {
		r := rand.New(rand.NewPCG(seed, 11))
		c := &chaos{random: r, batch: 1 + r.IntN(60)}
		crowded := cfg
		crowded.KVBytes /= 4
		b := newLab(t, labSetup{real: true, cfg: crowded, onTurn: c.turn})
		for i, a := range b.askAll(qs) {
			mustEnd(t, qs[i], a)
			if !slices.Equal(a.vector, alone[i].vector) || len(a.vector) != 64 || a.end.Usage.Computed+a.end.Usage.Cached != len(qs[i].tokens) {
				t.Errorf("schedule %d, text %d: %d numbers, or other bits than alone", seed, i, len(a.vector))
			}
		}
		b.mustIdle()
		preempted += b.State().Preempted
		cached += b.State().CachedTokens
		b.Close()
	}
	return preempted, cached
}

// TestEmbeddingUsage: a vector of length 1, no tokens generated, and a prompt as long as the context.
func TestEmbeddingUsage(t *testing.T) {
	b := newLab(t, labSetup{real: true, cfg: Config{Model: embedderFile(t, 1), Threads: 1}})
	for _, length := range []int{1, 300} {
		a := b.ask(question{id: "q", tokens: textIDs(1, length), options: embedOnce})
		size := 0.0
		for _, x := range a.vector {
			size += float64(x) * float64(x)
		}
		if a.end.Err != nil || math.Abs(size-1) > 1e-6 || a.end.Usage != (wire.Usage{Prompt: length, Computed: length}) || a.finishes[0] != wire.FinishStop {
			t.Errorf("%d tokens: %+v, length %v, finish %v", length, a.end, size, a.finishes)
		}
	}
	if a := b.ask(question{id: "q", tokens: textIDs(1, 301), options: embedOnce}); a.end.Err == nil || a.end.Err.Kind != wire.ContextLength {
		t.Errorf("a text longer than the context: %+v", a.end)
	}
	if a := b.ask(question{id: "q", tokens: textIDs(1, 9), options: wire.Options{N: 1, MaxTokens: 1}}); a.end.Err == nil || a.end.Err.Param != "model" {
		t.Errorf("an embedder that is asked for text: %+v", a.end)
	}
	plain := newLab(t, labSetup{real: true})
	if a := plain.ask(question{id: "q", tokens: textIDs(1, 9), options: embedOnce}); a.end.Err == nil || a.end.Err.Param != "model" {
		t.Errorf("a model that generates, asked for a vector: %+v", a.end)
	}
}
