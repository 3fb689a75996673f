//go:build cuda

package gpu

import (
	"fmt"
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
	sameLogits(t, mixed, plain)
}

// TestGatedSharedExpert: Qwen2's mixture, whose shared expert has a gate and whose experts weigh the softmax of
// all, is computed as on the CPU. There is no reference of it: it is made of Qwen3's.
func TestGatedSharedExpert(t *testing.T) {
	from, err := gguf.Open(shared(t, "arch", "qwen3moe.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	d := gguf.NewDraft("qwen2moe")
	d.Copy(from)
	d.Set("general.architecture", "qwen2moe")
	const layers, embed, sharedFF = 3, 64, 80
	for key, n := range map[string]uint32{
		"block_count": layers, "context_length": 512, "embedding_length": embed, "feed_forward_length": 160, "attention.head_count": 4,
		"attention.head_count_kv": 2, "attention.key_length": 32, "attention.value_length": 32, "expert_count": 8, "expert_used_count": 3,
		"expert_feed_forward_length": 48, "expert_shared_feed_forward_length": sharedFF,
	} {
		d.Set("qwen2moe."+key, n)
	}
	d.Set("qwen2moe.attention.layer_norm_rms_epsilon", float32(1e-6))
	for _, tensor := range from.Tensors {
		if !strings.Contains(tensor.Name, "_norm.weight") || !strings.Contains(tensor.Name, "attn_q") && !strings.Contains(tensor.Name, "attn_k") {
			d.Add(tensor)
		}
	}
	random := rand.New(rand.NewPCG(3, 3))
	add := func(name string, dims ...int) {
		x := make([]float32, 1)
		for _, n := range dims {
			x = make([]float32, len(x)*n)
		}
		for i := range x {
			x[i] = float32(random.NormFloat64()) / 8
		}
		d.Add(gguf.Tensor{Name: name, Type: kernels.F32, Dims: dims, Data: gguftest.Encode(kernels.F32, x)})
	}
	for i := range layers {
		name := func(part string) string { return fmt.Sprintf("blk.%d.ffn_%s_shexp.weight", i, part) }
		add(name("gate"), embed, sharedFF)
		add(name("up"), embed, sharedFF)
		add(name("down"), sharedFF, embed)
		add(name("gate_inp"), embed, 1)
	}
	sameLogits(t, d, d)
}

// sameLogits compares a model on the device with one on the CPU.
func sameLogits(t *testing.T, mine, want *gguf.Draft) {
	t.Helper()
	random := rand.New(rand.NewPCG(4, 4))
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
	if d := nmse(logits(mine, openDevice(t)), logits(want, nil)); !(d < 1e-9) {
		t.Errorf("NMSE %g", d)
	}
}
