package main

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// shape is the sizes of a model.
type shape struct {
	arch                         string
	context, layers, embed       int
	heads, kvHeads, headDim      int
	ff, vocab                    int // ff is the width of an expert where there are experts
	experts, expertsUsed         int
	window                       int // tokens that layers with windows see; 0 for none
	every                        int // each every-th layer sees all tokens; the others have windows, or are delta nets
	keyHeads, valueHeads, keyDim int // of delta nets, whose values are as wide as keys
	ropeBase                     float32
}

// shapes are those of published models, by their names.
var shapes = map[string]shape{
	"gemma3-1b": {arch: "gemma3", context: 32768, layers: 26, embed: 1152, ff: 6912, heads: 4, kvHeads: 1, headDim: 256, window: 512, every: 6, ropeBase: 1e6},
	"gemma3-4b": {arch: "gemma3", context: 131072, layers: 34, embed: 2560, ff: 10240, heads: 8, kvHeads: 4, headDim: 256, window: 1024, every: 6, ropeBase: 1e6},
	"qwen3.5-0.8b": {arch: "qwen35", context: 262144, layers: 24, embed: 1024, ff: 3584, heads: 8, kvHeads: 2, headDim: 256,
		every: 4, keyHeads: 16, valueHeads: 16, keyDim: 128, ropeBase: 1e7},
	"qwen3.5-4b": {arch: "qwen35", context: 262144, layers: 32, embed: 2560, ff: 9216, heads: 16, kvHeads: 4, headDim: 256,
		every: 4, keyHeads: 16, valueHeads: 32, keyDim: 128, ropeBase: 1e7},
	"qwen3-30b-a3b": {arch: "qwen3moe", context: 40960, layers: 48, embed: 2048, ff: 768, heads: 32, kvHeads: 4, headDim: 128,
		experts: 128, expertsUsed: 8, ropeBase: 1e6},
}

const convTaps = 4 // of delta nets

// file is a model of the shape whose matrices have type t. Weights are made as they are read.
func (s *shape) file(name string, t kernels.Type) (*gguf.File, error) {
	d := &draft{Draft: gguf.NewDraft(name), typ: t}
	s.keys(d, name)
	vocabulary(d.Draft, s.vocab)
	d.matrix("token_embd", s.embed, s.vocab)
	d.vector("output_norm.weight", s.embed)
	for i := range s.layers {
		s.layer(d, fmt.Sprintf("blk.%d.", i), (i+1)%max(1, s.every) == 0)
	}
	return d.File(name, false)
}

func (s *shape) keys(d *draft, name string) {
	d.Set("general.architecture", s.arch)
	d.Set("general.name", name)
	d.Set("general.quantization_version", uint32(2))
	d.sizes(s.arch, map[string]int{
		"context_length": s.context, "block_count": s.layers, "embedding_length": s.embed, "feed_forward_length": s.ff,
		"attention.head_count": s.heads, "attention.head_count_kv": s.kvHeads, "attention.key_length": s.headDim, "attention.value_length": s.headDim,
		"attention.sliding_window": s.window, "expert_count": s.experts, "expert_used_count": s.expertsUsed,
	})
	d.Set(s.arch+".attention.layer_norm_rms_epsilon", float32(1e-6))
	d.Set(s.arch+".rope.freq_base", s.ropeBase)
	if s.experts > 0 {
		d.Set(s.arch+".expert_feed_forward_length", uint32(s.ff))
	}
	if s.keyHeads == 0 {
		return
	}
	d.sizes(s.arch, map[string]int{
		"ssm.conv_kernel": convTaps, "ssm.state_size": s.keyDim, "ssm.group_count": s.keyHeads, "ssm.time_step_rank": s.valueHeads,
		"ssm.inner_size": s.valueHeads * s.keyDim, "full_attention_interval": s.every, "rope.dimension_count": s.headDim / 4,
	})
	d.Set(s.arch+".rope.dimension_sections", []int32{int32(s.headDim/8 - 2*(s.headDim/24)), int32(s.headDim / 24), int32(s.headDim / 24), 0})
}

// layer adds the tensors of a layer; whole says that it sees all tokens.
func (s *shape) layer(d *draft, at string, whole bool) {
	d.vector(at+"attn_norm.weight", s.embed)
	if s.keyHeads > 0 && !whole {
		s.deltaNet(d, at)
	} else {
		queries := s.heads * s.headDim
		if s.keyHeads > 0 {
			queries *= 2 // with the gates of the output
		}
		d.matrix(at+"attn_q", s.embed, queries)
		d.matrix(at+"attn_k", s.embed, s.kvHeads*s.headDim)
		d.matrix(at+"attn_v", s.embed, s.kvHeads*s.headDim)
		d.matrix(at+"attn_output", s.heads*s.headDim, s.embed)
		d.vector(at+"attn_q_norm.weight", s.headDim)
		d.vector(at+"attn_k_norm.weight", s.headDim)
	}
	switch s.arch {
	case "gemma3":
		d.vector(at+"post_attention_norm.weight", s.embed)
		d.vector(at+"ffn_norm.weight", s.embed)
		d.vector(at+"post_ffw_norm.weight", s.embed)
	case "qwen35":
		d.vector(at+"post_attention_norm.weight", s.embed)
	default:
		d.vector(at+"ffn_norm.weight", s.embed)
	}
	if s.experts > 0 {
		d.random(at+"ffn_gate_inp.weight", s.embed, s.experts)
		d.matrix(at+"ffn_gate_exps", s.embed, s.ff, s.experts)
		d.matrix(at+"ffn_up_exps", s.embed, s.ff, s.experts)
		d.matrix(at+"ffn_down_exps", s.ff, s.embed, s.experts)
		return
	}
	d.matrix(at+"ffn_gate", s.embed, s.ff)
	d.matrix(at+"ffn_up", s.embed, s.ff)
	d.matrix(at+"ffn_down", s.ff, s.embed)
}

func (s *shape) deltaNet(d *draft, at string) {
	inner := s.valueHeads * s.keyDim
	channels := inner + 2*s.keyHeads*s.keyDim
	d.matrix(at+"attn_qkv", s.embed, channels)
	d.matrix(at+"attn_gate", s.embed, inner)
	d.matrix(at+"ssm_alpha", s.embed, s.valueHeads)
	d.matrix(at+"ssm_beta", s.embed, s.valueHeads)
	d.matrix(at+"ssm_out", inner, s.embed)
	d.fill(at+"ssm_conv1d.weight", 1/float32(convTaps), convTaps, channels)
	d.fill(at+"ssm_a", -1, s.valueHeads)
	d.fill(at+"ssm_dt.bias", 1, s.valueHeads)
	d.vector(at+"ssm_norm.weight", s.keyDim)
}

// draft is a GGUF file whose matrices have one type.
type draft struct {
	*gguf.Draft
	typ  kernels.Type
	seed uint64
}

// sizes sets those that are over 0, in an order that is always the same.
func (d *draft) sizes(arch string, all map[string]int) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if all[key] > 0 {
			d.Set(arch+"."+key, uint32(all[key]))
		}
	}
}

// matrix adds random blocks. Their scales make products of about the size of what is
// multiplied, so that nothing overflows in any number of layers.
func (d *draft) matrix(name string, dims ...int) {
	n := 1
	for _, size := range dims {
		n *= size
	}
	d.seed++
	r := rand.New(rand.NewPCG(d.seed, 0))
	typ := d.typ
	d.Add(gguf.Tensor{Name: name + ".weight", Type: typ, Dims: dims, Make: func() []byte { return blocks(typ, n/typ.BlockLen(), r) }})
}

// vector adds the weights of a norm.
func (d *draft) vector(name string, n int) { d.fill(name, 1, n) }

// fill adds numbers that are all the same.
func (d *draft) fill(name string, value float32, dims ...int) {
	d.floats(name, func() float32 { return value }, dims...)
}

// random adds the weights of a router, whose choices then spread over all experts.
func (d *draft) random(name string, dims ...int) {
	r := rand.New(rand.NewPCG(d.seed, 1))
	d.floats(name, func() float32 { return float32(r.NormFloat64()) / 20 }, dims...)
}

func (d *draft) floats(name string, value func() float32, dims ...int) {
	n := 1
	for _, size := range dims {
		n *= size
	}
	var data []byte
	for range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value()))
	}
	d.Add(gguf.Tensor{Name: name, Type: kernels.F32, Dims: dims, Data: data})
}

// unitBlocks is how many random blocks there are, after which they begin again.
const unitBlocks = 4096

// scales begin a block, as half-precision numbers: of Q4_K a second one is that of its minima.
var scales = map[kernels.Type][]uint16{
	kernels.Q8_0: {0x0cea},         // 0.0003
	kernels.Q4_0: {0x1c19},         // 0.004
	kernels.Q4_K: {0x07dd, 0x128e}, // 0.00012, 0.0008
}

func blocks(t kernels.Type, n int, r *rand.Rand) []byte {
	unit := make([]byte, 0, min(n, unitBlocks)*t.BlockBytes())
	for range min(n, unitBlocks) {
		end := len(unit) + t.BlockBytes()
		for _, scale := range scales[t] {
			unit = binary.LittleEndian.AppendUint16(unit, scale)
		}
		for len(unit) < end {
			unit = append(unit, byte(r.Uint32()))
		}
	}
	all := make([]byte, n*t.BlockBytes())
	for at := 0; at < len(all); at += len(unit) {
		copy(all[at:], unit)
	}
	return all
}

// vocabulary sets a byte-level tokenizer of n tokens: the bytes, one merge, and names that no
// text has.
func vocabulary(d *gguf.Draft, n int) {
	tokens, types := make([]string, 0, n), make([]int32, n)
	for next, c := rune(256), 0; c < 256; c++ { // GPT-2's printable character for each byte
		switch {
		case c >= '!' && c <= '~' || c >= '¡' && c <= '¬' || c >= '®':
			tokens = append(tokens, string(rune(c)))
		default:
			tokens, next = append(tokens, string(next)), next+1
		}
	}
	tokens = append(tokens, "Ġa")
	for len(tokens) < n-1 {
		tokens = append(tokens, fmt.Sprintf("<tok%d>", len(tokens)))
	}
	tokens = append(tokens, "<|endoftext|>")
	for i := range types {
		types[i] = 1
	}
	types[n-1] = 3 // a control token
	d.Set("tokenizer.ggml.model", "gpt2")
	d.Set("tokenizer.ggml.pre", "qwen2")
	d.Set("tokenizer.ggml.tokens", tokens)
	d.Set("tokenizer.ggml.token_type", types)
	d.Set("tokenizer.ggml.merges", []string{"Ġ a"})
	d.Set("tokenizer.ggml.bos_token_id", uint32(n-1))
	d.Set("tokenizer.ggml.eos_token_id", uint32(n-1))
	d.Set("tokenizer.ggml.add_bos_token", false)
}
