package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// Config describes a model: what Forward must compute and at which sizes.
type Config struct {
	Architecture string // as the file names it
	Name         string // general.name, or the architecture

	ContextTokens int // of the training
	Vocab         int // rows of the embedding, and logits of a token
	Layers        int
	Embed         int // width of the residual stream
	FF            int // width of the feed-forward layer, or of one expert
	Heads         int
	KVHeads       int // divides Heads
	HeadDim       int
	NormEps       float32
	Tied          bool // the output matrix is the embedding

	FusedGateUp bool   // gate's and up's rows are one tensor, in this order
	QKNorm      bool   // queries and keys are normed head by head, before the rope
	PostNorms   bool   // the outputs of attention and feed-forward are normed before they are added
	Sinks       bool   // every head has one more score in its softmax, without a value
	FFNormName  string // of the norm before the feed-forward layer

	Attention        []LayerAttention // of each layer
	Ropes            []Rope
	AttentionScale   float32
	AttentionSoftCap float32 // 0 means none

	Activation  Activation
	Experts     int // 0 means a dense feed-forward layer
	ExpertsUsed int // of each token

	EmbeddingScale float32 // of the embedding's rows
	ResidualScale  float32 // of each sum that half a layer adds
	LogitScale     float32
	LogitSoftCap   float32 // 0 means none

	read []string // tensors that are read already, as part of the description
}

// LayerAttention is what differs in attention from layer to layer.
type LayerAttention struct {
	WindowTokens int // a token sees itself and WindowTokens−1 before it; 0 means all
	Rope         int // index in Ropes, or NoRope
}

// NoRope is the rope of a layer that does not rotate queries and keys.
const NoRope = -1

// Activation is the function between the feed-forward layer's matrices.
type Activation int

const (
	SiLU        Activation = iota // silu(gate)·up
	GELU                          // gelu(gate)·up, in the tanh form
	ClampedSiLU                   // of gpt-oss, with its limit of 7
)

// activationLimit is swiglu_limit of gpt-oss, which its files do not give.
const activationLimit = 7

// kvLayout is the layout of a layer's pools.
func (c *Config) kvLayout(t kernels.KVType, pageTokens int) kernels.KVLayout {
	return kernels.KVLayout{KVType: t, PageTokens: pageTokens, KVHeads: c.KVHeads, HeadDim: c.HeadDim}
}

// PageBytes is the memory of pageTokens positions over all layers, keys and
// values. It is at least 1, and does not overflow for up to 2^16 positions.
func (c *Config) PageBytes(t kernels.KVType, pageTokens int) int {
	l := c.kvLayout(t, pageTokens)
	return c.Layers * 2 * l.PageBytes()
}

// KVReadBytes is the bytes of keys and values that attention reads for one token
// that sees contextTokens positions, itself included.
func (c *Config) KVReadBytes(t kernels.KVType, contextTokens int) int {
	positions := 0
	for _, a := range c.Attention {
		if a.WindowTokens > 0 {
			positions += min(a.WindowTokens, contextTokens)
		} else {
			positions += contextTokens
		}
	}
	return positions * 2 * c.KVHeads * t.TokenBytes(c.HeadDim)
}

// WeightReadBytes is the bytes of f's weights that one token reads, in the file's
// types: of the embedding one row, of the experts those that it uses.
func (c *Config) WeightReadBytes(f *gguf.File) int {
	total, experts := 0, 0
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if !t.Type.Known() {
			continue
		}
		n := t.Type.Bytes(t.Elements())
		switch {
		case t.Name == embeddingName && !c.Tied:
			n = t.Type.Bytes(t.Dims[0])
		case c.Experts > 0 && isExpert(t.Name):
			experts += n
			continue
		}
		total += n
	}
	return total + experts*c.ExpertsUsed/max(1, c.Experts)
}

// architectures has one row for each supported architecture. The function reads
// all keys under its name; a key that it does not read is refused.
var architectures = map[string]func(k *keys, c *Config){
	"llama": readLlama, "granite": readGranite, "smollm3": readSmolLM3,
	"qwen2": readQwen2, "qwen3": readQwen3, "qwen3moe": readQwen3MoE,
	"gemma2": readGemma2, "gemma3": readGemma3,
	"phi3": readPhi3, "gpt-oss": readGPTOSS,
}

// Architectures lists the names that ReadConfig knows.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

// ReadConfig reads the description of the model in f, without its weights.
func ReadConfig(f *gguf.File) (Config, error) {
	arch, _, err := f.String("general.architecture")
	if err != nil {
		return Config{}, err
	}
	read, ok := architectures[arch]
	if !ok {
		return Config{}, fmt.Errorf("%s: architecture %s is not supported; supported: %s",
			f.Name(), cmp.Or(f.Text("general.architecture"), `""`), strings.Join(Architectures(), ", "))
	}
	c := Config{Architecture: arch, FFNormName: "ffn_norm", EmbeddingScale: 1, ResidualScale: 1, LogitScale: 1}
	k := &keys{file: f, prefix: arch + ".", read: map[string]bool{}}
	k.checkWhole()
	k.readTransformer(&c)
	if k.err == nil {
		read(k, &c)
	}
	k.readHarmless(&c)
	k.checkAllRead()
	if k.err != nil {
		return Config{}, k.err
	}
	c.read = k.tensors
	c.Name, _, err = f.String("general.name")
	if c.Name == "" {
		c.Name = arch
	}
	return c, err
}

// readTransformer reads the keys of all decoder-only transformers.
func (k *keys) readTransformer(c *Config) {
	c.ContextTokens = k.size("context_length")
	c.Layers = k.size("block_count")
	c.Embed = k.size("embedding_length")
	c.Heads = k.size("attention.head_count")
	c.KVHeads = k.sizeOr("attention.head_count_kv", c.Heads)
	c.NormEps = float32(k.number("attention.layer_norm_rms_epsilon"))
	c.HeadDim = k.sizeOr("attention.key_length", 0)
	if k.err != nil {
		return
	}
	if !(c.NormEps > 0 && c.NormEps < 1) {
		k.fail("attention.layer_norm_rms_epsilon", "is %g; allowed are numbers over 0 and under 1", c.NormEps)
	}
	if tensors := len(k.file.Tensors); c.Layers > tensors {
		k.fail("block_count", "is %d, but the file has only %d tensors", c.Layers, tensors)
		return
	}
	k.readHeads(c)
	k.readFeedForward(c)
	c.Attention = make([]LayerAttention, c.Layers)
	c.Vocab = k.vocab()
	_, untied := k.file.Tensor("output.weight")
	c.Tied = !untied
}

// readHeads reads the size of a head, and checks what depends on it.
func (k *keys) readHeads(c *Config) {
	if c.Heads%c.KVHeads != 0 {
		k.fail("attention.head_count_kv", "is %d, which does not divide the %d heads", c.KVHeads, c.Heads)
	}
	if c.HeadDim == 0 {
		if c.Embed%c.Heads != 0 {
			k.fail("attention.head_count", "is %d, which does not divide the width of %d; such a model needs the key attention.key_length", c.Heads, c.Embed)
			return
		}
		c.HeadDim = c.Embed / c.Heads
	}
	if c.HeadDim > headDimMax {
		k.fail("attention.key_length", "is %d; allowed are up to %d", c.HeadDim, headDimMax)
	}
	if c.Heads > sizeMax/c.HeadDim {
		k.fail("attention.head_count", "is %d; allowed are up to %d numbers in all heads, and a head has %d", c.Heads, sizeMax, c.HeadDim)
	}
	c.AttentionScale = headScale(c.HeadDim)
	if v := k.sizeOr("attention.value_length", c.HeadDim); v != c.HeadDim {
		k.fail("attention.value_length", "is %d; only values as long as the keys (%d) are supported", v, c.HeadDim)
	}
}

// readFeedForward reads the width of the feed-forward layer, and the experts.
func (k *keys) readFeedForward(c *Config) {
	if n, _ := k.whole("expert_count"); n != 0 {
		c.Experts = k.size("expert_count")
		c.ExpertsUsed = k.size("expert_used_count")
		if c.ExpertsUsed > c.Experts {
			k.fail("expert_used_count", "is %d of %d experts", c.ExpertsUsed, c.Experts)
		}
		if c.Experts > expertsMax {
			k.fail("expert_count", "is %d; allowed are up to %d", c.Experts, expertsMax)
		}
	}
	k.zero("expert_used_count", c.Experts > 0, "there are no experts to use")
	if c.Experts == 0 {
		c.FF = k.size("feed_forward_length")
		return
	}
	// A mixture may give, beside the width of its experts, that of dense layers
	// that it does not have.
	c.FF = k.sizeOr("expert_feed_forward_length", 0)
	if shared := k.sizeOr("feed_forward_length", c.FF); c.FF == 0 {
		c.FF = shared
	}
	if c.FF == 0 {
		k.fail("expert_feed_forward_length", "is missing")
	}
}

const (
	headDimMax = 1 << 16 // numbers of a head
	expertsMax = 1 << 12 // experts of a layer
)
