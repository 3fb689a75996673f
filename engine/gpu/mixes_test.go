//go:build cuda

package gpu

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/kerneltest"
)

// TestMixesOfTypes: a file may have any types beside each other, also among matrices that share
// their input, and the GPU computes with the numbers that they stand for, as the CPU does.
func TestMixesOfTypes(t *testing.T) {
	whole, err := gguf.Parse("tiny", gguftest.TinyModel(gguftest.Tiny{Layers: 3, Embed: 256, FF: 256, Heads: 4, KVHeads: 4, HeadDim: 64, Vocab: 300, Untied: true}))
	if err != nil {
		t.Fatal(err)
	}
	var types []kernels.Type
	for typ := range kernels.Type(64) {
		if typ.Known() {
			types = append(types, typ)
		}
	}
	mixed, plain := gguf.NewDraft("mixed"), gguf.NewDraft("mixed, as numbers")
	mixed.Copy(whole)
	plain.Copy(whole)
	random, used := rand.New(rand.NewPCG(2, 2)), map[kernels.Type]bool{}
	for _, tensor := range whole.Tensors {
		if len(tensor.Dims) > 1 {
			typ, n := types[len(used)%len(types)], tensor.Elements()
			raw, x := kerneltest.Weights(random, typ, n), make([]float32, n)
			kernels.Dequantize(x, typ, raw)
			mixed.Add(gguf.Tensor{Name: tensor.Name, Type: typ, Dims: tensor.Dims, Data: raw})
			tensor.Type, tensor.Data = kernels.F32, gguftest.Encode(kernels.F32, x)
			used[typ] = true
		} else {
			if strings.HasSuffix(tensor.Name, "attn_norm.weight") { // or scores are so large that rounding chooses among positions
				tensor.Data = gguftest.Encode(kernels.F32, slices.Repeat([]float32{1. / 64}, tensor.Elements()))
			}
			mixed.Add(tensor)
		}
		plain.Add(tensor)
	}
	if len(used) < 23 {
		t.Fatalf("only %d types in the model", len(used))
	}
	tokens := make([]int32, 20)
	for i := range tokens {
		tokens[i] = random.Int32N(300)
	}
	logits := func(draft *gguf.Draft, device model.Device) []float32 {
		f, err := draft.File("", false)
		if err != nil {
			t.Fatal(err)
		}
		o := model.Options{ContextTokens: 64, KVType: kernels.KVF32, Device: device}
		m := load(t, f, o)
		return m.Forward([]model.Chunk{{Tokens: tokens, Pages: inOrder(m.Options().Pages), Logits: len(tokens)}})
	}
	if d := nmse(logits(mixed, openDevice(t)), logits(plain, nil)); !(d < 1e-9) {
		t.Errorf("NMSE %g", d)
	}
}
