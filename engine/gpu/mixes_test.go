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

// TestMixturesWithoutReference: mixtures of which there is no reference are computed as on the CPU. They are made of
// Qwen3's: Qwen2's, whose shared expert has a gate and whose experts weigh the softmax of all; OLMoE's, which norms all
// heads together; Granite's, with its scales and a shared expert without a gate.
func TestMixturesWithoutReference(t *testing.T) {
	for _, c := range []struct {
		arch     string
		keys     map[string]any
		sharedFF int
		gated    bool
		allHeads bool // are normed together
	}{
		{arch: "qwen2moe", sharedFF: 80, gated: true},
		{arch: "olmoe", allHeads: true},
		{arch: "granitemoe", sharedFF: 80, keys: map[string]any{"embedding_scale": float32(3), "residual_scale": float32(0.3), "logit_scale": float32(4), "attention.scale": float32(0.2)}},
	} {
		t.Run(c.arch, func(t *testing.T) {
			const layers, embed, heads, kvHeads, dim = 3, 64, 4, 2, 32
			d, add := fromQwen3MoE(t, c.arch, c.keys)
			for i := range layers {
				p := fmt.Sprintf("blk.%d.", i)
				if c.allHeads {
					add(p+"attn_q_norm.weight", heads*dim)
					add(p+"attn_k_norm.weight", kvHeads*dim)
				}
				if c.sharedFF > 0 {
					d.Set(c.arch+".expert_shared_feed_forward_length", uint32(c.sharedFF))
					add(p+"ffn_gate_shexp.weight", embed, c.sharedFF)
					add(p+"ffn_up_shexp.weight", embed, c.sharedFF)
					add(p+"ffn_down_shexp.weight", c.sharedFF, embed)
				}
				if c.gated {
					add(p+"ffn_gate_inp_shexp.weight", embed, 1)
				}
			}
			sameLogits(t, d, d)
		})
	}
}

// fromQwen3MoE is the reference of Qwen3's mixture under another architecture's name, without norms of queries and keys;
// add adds a tensor.
func fromQwen3MoE(t *testing.T, arch string, keys map[string]any) (d *gguf.Draft, add func(name string, dims ...int)) {
	t.Helper()
	from, err := gguf.Open(shared(t, "arch", "qwen3moe.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close() })
	d = gguf.NewDraft(arch)
	d.Copy(from)
	d.Set("general.architecture", arch)
	for key, n := range map[string]uint32{
		"block_count": 3, "context_length": 512, "embedding_length": 64, "feed_forward_length": 160, "attention.head_count": 4,
		"attention.head_count_kv": 2, "attention.key_length": 32, "attention.value_length": 32, "expert_count": 8, "expert_used_count": 3,
		"expert_feed_forward_length": 48,
	} {
		d.Set(arch+"."+key, n)
	}
	d.Set(arch+".attention.layer_norm_rms_epsilon", float32(1e-6))
	for key, v := range keys {
		d.Set(arch+"."+key, v)
	}
	for _, tensor := range from.Tensors {
		if !strings.Contains(tensor.Name, "_norm.weight") || !strings.Contains(tensor.Name, "attn_q") && !strings.Contains(tensor.Name, "attn_k") {
			d.Add(tensor)
		}
	}
	random := rand.New(rand.NewPCG(3, 3))
	return d, func(name string, dims ...int) {
		x := make([]float32, 1)
		for _, n := range dims {
			x = make([]float32, len(x)*n)
		}
		for i := range x {
			x[i] = float32(random.NormFloat64()) / 8
		}
		d.Add(gguf.Tensor{Name: name, Type: kernels.F32, Dims: dims, Data: gguftest.Encode(kernels.F32, x)})
	}
}

// TestLlama4: the reference's tokens are those of thousands, so the beginning is compared with the CPU's.
func TestLlama4(t *testing.T) {
	r, d := read(t, shared(t, "arch2", "llama4-long.gguf")), openDevice(t)
	const length = 90
	o := model.Options{ContextTokens: 128, KVType: kernels.KVF32}
	want := load(t, r.file, o)
	o.Device = d
	m := load(t, r.file, o)
	chunk := model.Chunk{Tokens: r.IDs[:length], Pages: inOrder(m.Options().Pages), Logits: length}
	if d := nmse(m.Forward([]model.Chunk{chunk}), want.Forward([]model.Chunk{chunk})); !(d < 1e-9) {
		t.Errorf("NMSE %g", d)
	}
	checkGreedy(t, m, &r, chunk.Pages)
}

// shortChunks places a model with attention in chunks of 32 tokens in every layer.
type shortChunks struct{ *Device }

func (d shortChunks) Place(c *model.Config, w *model.DeviceWeights, o *model.Options) (model.Placed, error) {
	c.ChunkTokens = 32
	for i := range c.Layers {
		c.Layers[i].Chunked, c.Layers[i].Rope, c.Layers[i].Tempered = true, 0, false
	}
	return d.Device.Place(c, w, o)
}

// TestChunksOfAttention: where all layers have chunks, the tokens of one depend on nothing in the chunk before.
func TestChunksOfAttention(t *testing.T) {
	r := read(t, shared(t, "arch2", "llama4-long.gguf"))
	m := load(t, r.file, model.Options{ContextTokens: 128, KVType: kernels.KVF32, Device: shortChunks{openDevice(t)}})
	const length = 70
	rows, vocab := map[string][]float32{}, m.Config().Vocab
	for name, changed := range map[string]int{"as it is": -1, "31 changed": 31, "32 changed": 32} {
		tokens := slices.Clone(r.IDs[:length])
		if changed >= 0 {
			tokens[changed]++
		}
		rows[name] = slices.Clone(m.Forward([]model.Chunk{{Tokens: tokens, Pages: inOrder(m.Options().Pages), Logits: length}}))
	}
	same := func(name string, from, to int) bool {
		return slices.Equal(rows["as it is"][from*vocab:to*vocab], rows[name][from*vocab:to*vocab])
	}
	if !same("31 changed", 32, length) || same("31 changed", 31, 32) {
		t.Error("the second chunk sees the last token of the first, or this does not see itself")
	}
	if !same("32 changed", 64, length) || same("32 changed", 63, 64) {
		t.Error("the third chunk sees the second, or the last token of this does not see its first")
	}
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
