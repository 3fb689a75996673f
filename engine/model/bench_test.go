package model

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// BenchmarkForward measures prompts (n new tokens of one sequence) and steps
// (n sequences of one new token) on a small model.
func BenchmarkForward(b *testing.B) {
	shape := gguftest.Tiny{Layers: 4, Embed: 256, FF: 768, Heads: 4, KVHeads: 2, HeadDim: 64, Vocab: 2048, Context: 512, Type: kernels.Q8_0}
	f, err := gguf.Parse("bench", gguftest.TinyModel(shape))
	if err != nil {
		b.Fatal(err)
	}
	team := kernels.NewTeam(2)
	defer team.Close()
	for _, set := range kernels.Sets() {
		m, err := Load(f, set, team, Options{Pages: 64})
		if err != nil {
			b.Fatal(err)
		}
		for _, n := range []int{1, 8, 64} {
			tokens := randomTokens(rand.New(rand.NewPCG(1, 1)), n, shape.Vocab)
			pages := firstPages(64)
			steps := make([]Chunk, n)
			for i := range steps {
				steps[i] = Chunk{Tokens: tokens[i : i+1], Pages: pages[i : i+1], Logits: 1}
			}
			for name, chunks := range map[string][]Chunk{"prompt": {{Tokens: tokens, Pages: pages, Logits: 1}}, "steps": steps} {
				b.Run(fmt.Sprintf("%s/%s/%d", set.Name, name, n), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						m.Forward(chunks)
					}
				})
			}
		}
		m.Close()
	}
}
