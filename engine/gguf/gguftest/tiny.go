package gguftest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/forebay-io/forebay/kernels"
)

// Tiny is the shape of a random-weight llama model. A field left zero takes
// the value in its comment.
type Tiny struct {
	Name    string       // "tiny"
	Layers  int          // 2
	Embed   int          // 32
	FF      int          // 64
	Heads   int          // 4
	KVHeads int          // 2
	HeadDim int          // 8
	Context int          // 256
	Vocab   int          // 262, the tokenizer's size; rows above it have no token
	Type    kernels.Type // of the matrices: F32
	Untied  bool         // with an output matrix of its own
	Seed    uint64       // of the weights
	// LogitScale multiplies the output rows. 1 gives nearly flat logits; tests that
	// compare sampled text across different orders of summation need more.
	LogitScale float32
}

// TinyTokens is the size of a tiny model's tokenizer: three control tokens,
// 256 bytes, three merges.
const TinyTokens = 3 + 256 + 3

// The control tokens of a tiny model.
const (
	TinyBOS   = 0 // <|endoftext|>
	TinyStart = 1 // <|im_start|>
	TinyEOS   = 2 // <|im_end|>
)

// TinyTemplate is a tiny model's chat template.
const TinyTemplate = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

func orElse[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func (t *Tiny) fill() {
	orElse(&t.Name, "tiny")
	orElse(&t.Layers, 2)
	orElse(&t.Embed, 32)
	orElse(&t.FF, 64)
	orElse(&t.Heads, 4)
	orElse(&t.KVHeads, 2)
	orElse(&t.HeadDim, 8)
	orElse(&t.Context, 256)
	orElse(&t.Vocab, TinyTokens)
	orElse(&t.LogitScale, 1)
}

// TinyModel writes a whole model file of a few tens of kilobytes: llama
// architecture, byte-level BPE tokenizer (pre-tokenizer gpt-2), ChatML
// template. The same Tiny gives the same bytes.
func TinyModel(t Tiny) []byte { return TinyBuilder(t).Bytes() }

// TinyBuilder returns the Builder of TinyModel, for tests that add to it.
func TinyBuilder(t Tiny) *Builder {
	t.fill()
	b := &Builder{}
	b.Set("general.architecture", "llama").Set("general.name", t.Name)
	b.Set("llama.context_length", uint32(t.Context)).Set("llama.embedding_length", uint32(t.Embed))
	b.Set("llama.block_count", uint32(t.Layers)).Set("llama.feed_forward_length", uint32(t.FF))
	b.Set("llama.attention.head_count", uint32(t.Heads)).Set("llama.attention.head_count_kv", uint32(t.KVHeads))
	b.Set("llama.attention.key_length", uint32(t.HeadDim)).Set("llama.attention.value_length", uint32(t.HeadDim))
	b.Set("llama.attention.layer_norm_rms_epsilon", float32(1e-5)).Set("llama.rope.freq_base", float32(10000))
	b.Set("llama.rope.dimension_count", uint32(t.HeadDim)).Set("llama.vocab_size", uint32(t.Vocab))
	t.tokenizer(b)
	t.weights(b)
	return b
}

func (t *Tiny) tokenizer(b *Builder) {
	tokens := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
	types := []int32{3, 3, 3}
	for _, c := range byteAlphabet() {
		tokens, types = append(tokens, string(c)), append(types, 1)
	}
	tokens, types = append(tokens, "Ġa", "Ġt", "Ġth"), append(types, 1, 1, 1)
	b.Set("tokenizer.ggml.model", "gpt2").Set("tokenizer.ggml.pre", "gpt-2")
	b.Set("tokenizer.ggml.tokens", tokens).Set("tokenizer.ggml.token_type", types)
	b.Set("tokenizer.ggml.merges", []string{"Ġ a", "Ġ t", "Ġt h"})
	b.Set("tokenizer.ggml.bos_token_id", uint32(TinyBOS)).Set("tokenizer.ggml.eos_token_id", uint32(TinyEOS))
	b.Set("tokenizer.ggml.add_bos_token", false).Set("tokenizer.chat_template", TinyTemplate)
}

// byteAlphabet returns GPT-2's printable character for each byte, in vocabulary
// order: printable bytes stand for themselves, the others follow from U+0100 on.
func byteAlphabet() []rune {
	var out []rune
	for c := range rune(256) {
		if c >= '!' && c <= '~' || c >= '¡' && c <= '¬' || c >= '®' && c <= 'ÿ' {
			out = append(out, c)
		}
	}
	for next := rune(256); len(out) < 256; next++ {
		out = append(out, next)
	}
	return out
}

func (t *Tiny) weights(b *Builder) {
	rng := rand.New(rand.NewPCG(t.Seed, 1))
	matrix := func(name string, cols, rows int, size float32) {
		x := make([]float32, cols*rows)
		for i := range x {
			x[i] = size * float32(rng.NormFloat64())
		}
		b.Tensor(name, t.Type, []int{cols, rows}, Encode(t.Type, x))
	}
	norm := func(name string) {
		x := make([]float32, t.Embed)
		for i := range x {
			x[i] = 1 + 0.1*float32(rng.NormFloat64())
		}
		b.Tensor(name, kernels.F32, []int{t.Embed}, Encode(kernels.F32, x))
	}
	in := func(n int) float32 { return 1 / float32(math.Sqrt(float64(n))) }
	matrix("token_embd.weight", t.Embed, t.Vocab, t.LogitScale)
	norm("output_norm.weight")
	if t.Untied {
		matrix("output.weight", t.Embed, t.Vocab, t.LogitScale*in(t.Embed))
	}
	for l := range t.Layers {
		p := fmt.Sprintf("blk.%d.", l)
		norm(p + "attn_norm.weight")
		matrix(p+"attn_q.weight", t.Embed, t.Heads*t.HeadDim, in(t.Embed))
		matrix(p+"attn_k.weight", t.Embed, t.KVHeads*t.HeadDim, in(t.Embed))
		matrix(p+"attn_v.weight", t.Embed, t.KVHeads*t.HeadDim, in(t.Embed))
		matrix(p+"attn_output.weight", t.Heads*t.HeadDim, t.Embed, in(t.Heads*t.HeadDim))
		norm(p + "ffn_norm.weight")
		matrix(p+"ffn_gate.weight", t.Embed, t.FF, in(t.Embed))
		matrix(p+"ffn_up.weight", t.Embed, t.FF, in(t.Embed))
		matrix(p+"ffn_down.weight", t.FF, t.Embed, in(t.FF))
	}
}
