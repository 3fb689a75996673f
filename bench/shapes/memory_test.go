package main

import (
	"bytes"
	"math"
	"testing"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/kernels"
)

const (
	contextTokens = 32768
	promptTokens  = contextTokens - 128
	halfBytes     = 2 // of a number in f16
)

// others is what llama.cpp 0.5.0 allocates for one sequence of contextTokens tokens with f16
// keys and values: each cell of a layer that sees all tokens, for layers with windows as many
// as the window and a batch of 512 have, in whole 256s, and float32 for recurrent layers.
// Its log says the same numbers.
var others = map[string]int{
	"gemma3-4b":     2 * 4 * 256 * halfBytes * (5*contextTokens + 29*1536),
	"qwen3.5-4b":    2*4*256*halfBytes*8*contextTokens + 24*4*(32*128*128+3*(32+2*16)*128),
	"qwen3-30b-a3b": 2 * 4 * 128 * halfBytes * 48 * contextTokens,
}

// held is the memory that a conversation holds in its steps.
type held struct{ most, last int }

// converse plays a prompt in steps of the engine's length and an answer, token by token, to the
// engine's page pool, with the engine's layout of the shape.
func converse(t *testing.T, s shape) held {
	t.Helper()
	s.vocab = 300
	f, err := s.file("shape", kernels.Q4_K)
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	var cfg engine.Config
	conf.Fill(&cfg)
	layout, windows := cfg.Paging(&c, kernels.KVF16, contextTokens, false)
	states := min(1, c.StateBytes()) // its own: checkpoints are kept for later prompts, and give way
	pool, err := cache.New(cache.Config{
		Pages: windows.PagesFor(contextTokens, cfg.PageTokens), PageTokens: cfg.PageTokens, Space: "test", Windows: windows, States: states, StateTokens: cfg.StateTokens,
	})
	if err != nil {
		t.Fatal(err)
	}
	tokens := make([]int32, contextTokens)
	seq := pool.Open("", tokens[:promptTokens])
	var h held
	for seq.Len() < contextTokens {
		n := 1
		if seq.Len() < promptTokens {
			n = min(cfg.BatchTokensMax, promptTokens-seq.Len())
		}
		if _, ok := pool.Reserve(seq, n, nil); !ok {
			t.Fatalf("no room for %d tokens after %d", n, seq.Len())
		}
		h.last = pool.Counts().Used*layout.PageBytes + pool.StateCounts().Used*c.StateBytes()
		h.most = max(h.most, h.last)
		pool.StateCopies()
		pool.Commit(seq, tokens[seq.Len():seq.Len()+n])
	}
	return h
}

// A conversation of 32k tokens holds no more than llama.cpp allocates for it.
func TestConversationsHoldNoMoreThanOthers(t *testing.T) {
	for name, other := range others {
		h := converse(t, shapes[name])
		t.Logf("%s: %.2f MiB in an answer, at most %.2f; llama.cpp %.2f", name, mib(h.last), mib(h.most), mib(other))
		if h.most > other || h.last > h.most || h.last < other*9/10 {
			t.Errorf("%s: %d bytes in an answer, at most %d; llama.cpp allocates %d", name, h.last, h.most, other)
		}
	}
}

// Every shape, cut to a few narrow layers, is a file that loads and computes numbers.
func TestFilesCompute(t *testing.T) {
	team := kernels.NewTeam(1)
	defer team.Close()
	for name, s := range shapes {
		for _, typ := range types {
			s.layers, s.embed, s.ff, s.vocab, s.experts, s.expertsUsed = 6, 256, 256, 300, min(s.experts, 4), min(s.expertsUsed, 2)
			f, err := s.file(name, typ)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := gguf.Write(&b, f, nil); err != nil {
				t.Fatal(err)
			}
			if f, err = gguf.Parse(name, b.Bytes()); err != nil {
				t.Fatal(err)
			}
			m, err := model.Load(f, kernels.Best(), team, model.Options{ContextTokens: 32, PageTokens: 16, Pages: 2, States: 1, BatchTokensMax: 8, KVType: kernels.KVF16})
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range m.Forward([]model.Chunk{{Tokens: []int32{1, 2, 3}, Pages: []int32{0, 1}, Logits: 1}}) {
				if math.IsNaN(float64(x)) || math.Abs(float64(x)) > 1e6 {
					t.Errorf("%s in %s: logit %d is %g", name, typ, i, x)
					break
				}
			}
			m.Close()
		}
	}
}

func mib(n int) float64 { return float64(n) / (1 << 20) }
