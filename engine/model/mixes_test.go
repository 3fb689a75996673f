package model

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/kerneltest"
)

// TestMixesOfTypes: a file may have any types beside each other, as publishers of small
// files mix them, and computes with the numbers that they stand for.
func TestMixesOfTypes(t *testing.T) {
	types := []kernels.Type{kernels.IQ1_S, kernels.IQ1_M, kernels.IQ2_XXS, kernels.IQ2_XS, kernels.IQ2_S, kernels.IQ3_XXS, kernels.IQ3_S,
		kernels.TQ1_0, kernels.TQ2_0, kernels.IQ4_XS, kernels.Q4_K, kernels.Q8_0}
	whole := parseTiny(t, gguftest.Tiny{Layers: 2, Embed: 256, FF: 256, Heads: 4, KVHeads: 4, HeadDim: 64, Vocab: 300, Untied: true})
	mixed, plain := gguf.NewDraft("mixed"), gguf.NewDraft("mixed, as numbers")
	mixed.Copy(whole)
	plain.Copy(whole)
	rng := rand.New(rand.NewPCG(2, 2))
	for i, tensor := range whole.Tensors {
		if len(tensor.Dims) > 1 && strings.HasSuffix(tensor.Name, ".weight") {
			typ, n := types[i%len(types)], tensor.Elements()
			raw, x := kerneltest.Weights(rng, typ, n), make([]float32, n)
			kernels.Dequantize(x, typ, raw)
			mixed.Add(gguf.Tensor{Name: tensor.Name, Type: typ, Dims: tensor.Dims, Data: raw})
			tensor.Type, tensor.Data = kernels.F32, gguftest.Encode(kernels.F32, x)
		} else {
			if strings.HasSuffix(tensor.Name, "attn_norm.weight") { // or scores are so large that rounding chooses among positions
				tensor.Data = gguftest.Encode(kernels.F32, slices.Repeat([]float32{1. / 64}, tensor.Elements()))
			}
			mixed.Add(tensor)
		}
		plain.Add(tensor)
	}
	tokens := randomTokens(rng, 20, 300)
	logits := func(d *gguf.Draft, set *kernels.Set) []float32 {
		f, err := d.File("", false)
		if err != nil {
			t.Fatal(err)
		}
		return runAlone(load(t, f, set, newTeam(t, 2), Options{ContextTokens: 64}), tokens).rows[19]
	}
	want := logits(plain, kernels.Sets()[len(kernels.Sets())-1])
	for _, set := range kernels.Sets() {
		most := 1e-8
		if set.Round != nil {
			most = 1e-3
		}
		if d := nmse(logits(mixed, set), want); !(d < most) {
			t.Errorf("%s: NMSE %g, allowed %g", set.Name, d, most)
		}
	}
}
