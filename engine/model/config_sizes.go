package model

import (
	"fmt"
	"slices"
)

// This file reads the sizes that all architectures have.

// readTransformer reads the keys of all decoder-only transformers.
func (k *keys) readTransformer(c *Config) {
	c.ContextTokens = k.size("context_length")
	c.Embed = k.size("embedding_length")
	if c.Architecture == "mamba2" { // writes 0
		c.Heads = k.sizeOrZero("attention.head_count")
	} else {
		c.Heads = k.size("attention.head_count")
	}
	c.HeadDim = k.sizeOr("attention.key_length", 0)
	k.readNormEps(c)
	k.readLayers(c)
	if k.err != nil {
		return
	}
	k.readHeads(c)
	k.readFeedForward(c)
	c.Vocab = k.vocab()
	_, untied := k.file.Tensor("output.weight")
	c.Tied = !untied
}

// layerNormEps are the architectures that have eps under the name of another kind
// of norm.
var layerNormEps = []string{"bert", "cohere2", "modern-bert", "nemotron_h", "nemotron_h_moe", "nomic-bert"}

func (k *keys) readNormEps(c *Config) {
	name := "attention.layer_norm_rms_epsilon"
	if slices.Contains(layerNormEps, c.Architecture) {
		name = "attention.layer_norm_epsilon"
	}
	c.NormEps = float32(k.number(name))
	if k.err == nil && !(c.NormEps > 0 && c.NormEps < 1) {
		k.fail(name, "is %g; allowed are numbers over 0 and under 1", c.NormEps)
	}
}

// readLayers reads how many layers there are. The last ones may predict tokens
// beyond the next one; these are passed over.
func (k *keys) readLayers(c *Config) {
	layers := k.size("block_count")
	if tensors := len(k.file.Tensors); layers > tensors {
		k.fail("block_count", "is %d, but the file has only %d tensors", layers, tensors)
		return
	}
	if slices.Contains(withPrediction, c.Architecture) {
		const name = "nextn_predict_layers"
		n, _ := k.whole(name)
		if n >= uint64(layers) {
			k.fail(name, "is %d of %d layers", n, layers)
			return
		}
		for i := layers - int(n); i < layers; i++ {
			k.passOver(fmt.Sprintf("blk.%d.", i))
		}
		layers -= int(n)
	}
	c.Layers = make([]Layer, layers)
}

// withPrediction are the architectures whose files may have layers that predict
// tokens beyond the next one.
var withPrediction = []string{"glm4moe", "bailingmoe2", "deepseek2", "qwen3next", "qwen35", "qwen35moe"}

// readHeads reads the sizes of heads, and checks what depends on them.
func (k *keys) readHeads(c *Config) {
	each := k.perLayer("attention.head_count_kv", len(c.Layers), c.Heads)
	for i := range c.Layers {
		l := &c.Layers[i]
		if l.KeysOf, l.KVHeads = i, each[i]; l.KVHeads == 0 && slices.Contains(withoutAttention, c.Architecture) {
			l.Recurrent = true
			continue
		}
		if l.KVHeads < 1 || c.Heads%l.KVHeads != 0 {
			k.fail("attention.head_count_kv", "is %d, which does not divide the %d heads", l.KVHeads, c.Heads)
			return
		}
		c.KVHeads = max(c.KVHeads, l.KVHeads)
	}
	if c.Heads == 0 {
		return
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
	for i := range c.Layers {
		c.Layers[i].HeadDim = c.HeadDim
	}
	if v := k.sizeOr("attention.value_length", c.HeadDim); v != c.HeadDim && c.Architecture != "deepseek2" {
		k.fail("attention.value_length", "is %d; only values as long as the keys (%d) are supported", v, c.HeadDim)
	}
}

// readFeedForward reads the widths of feed-forward layers, and the experts: a
// mixture has them in every layer, until the architecture says otherwise.
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
		k.readDense(c)
		return
	}
	// A mixture may give, beside the width of its experts, that of dense layers
	// that it does not have.
	c.ExpertFF = k.sizeOr("expert_feed_forward_length", 0)
	if k.name("feed_forward_length"); c.ExpertFF == 0 {
		c.ExpertFF = k.sizeOrZero("feed_forward_length")
	}
	if c.ExpertFF == 0 {
		k.fail("expert_feed_forward_length", "is missing")
	}
	for i := range c.Layers {
		c.Layers[i].Mixture = true
	}
}

// readDense reads the width of every layer's dense part.
func (k *keys) readDense(c *Config) {
	const name = "feed_forward_length"
	if k.file.Text(k.name(name)) == "" {
		k.fail(name, "is missing")
	}
	for i, width := range k.perLayer(name, len(c.Layers), 1) {
		if c.Layers[i].FF = width; width < 1 && !slices.Contains(withoutFF, c.Architecture) {
			k.fail(name, "is %d; allowed are 1 to %d", width, sizeMax)
		}
	}
}

// withoutFF are the architectures in which a layer may have no feed-forward layer.
var withoutFF = []string{"mamba2", "nemotron_h"}

const (
	headDimMax = 1 << 16 // numbers of a head
	expertsMax = 1 << 12 // experts of a layer
)
