package model

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// TestLongContextsInPieces decodes after a long prompt, where workers share the pieces
// of a KV head: each token has the same bits as in a tile of the prompt.
func TestLongContextsInPieces(t *testing.T) {
	shape := gguftest.Tiny{Type: kernels.Q8_0, Seed: 5, Layers: 2, Embed: 64, FF: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 270, Context: 3000}
	const length, decoded = 2*kernels.PieceLen + 70, 60
	f, tokens := parseTiny(t, shape), randomTokens(rand.New(rand.NewPCG(1, 9)), length, shape.Vocab)
	for _, set := range kernels.Sets() {
		if set.Merge == nil {
			continue
		}
		for _, kv := range kvTypes {
			for _, workers := range []int{1, 3} {
				if underRace && workers == 1 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%d", set.Name, kv, workers), func(t *testing.T) {
					m := load(t, f, set, newTeam(t, workers), Options{ContextTokens: length, KVType: kv})
					r := &runner{tokens: tokens, rows: make([][]float32, length), pages: firstPages(m.Options().Pages)}
					step := func(n, logits int) {
						s := Chunk{Tokens: tokens[r.done : r.done+n], Start: r.done, Pages: r.pages, Logits: logits, Decode: n == 1}
						r.keep(s, m.Forward([]Chunk{s}), shape.Vocab)
					}
					for r.done < length-decoded {
						step(min(m.Options().BatchTokensMax, length-decoded-r.done), 0)
					}
					step(decoded, decoded)
					whole := append([][]float32(nil), r.rows...)
					r.done, r.rows = length-decoded, make([][]float32, length)
					for r.done < length {
						if step(1, 1); len(m.pass.batch.contexts.items) == 0 {
							t.Fatal("one stream's context is not computed in pieces")
						}
					}
					wantSameBits(t, "decoded", r.rows[length-decoded:], whole[length-decoded:])
				})
			}
		}
	}
}
