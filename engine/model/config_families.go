package model

import (
	"fmt"
	"math"
)

// This file has one function for each architecture, which sets what is special
// about it; readTransformer has read the rest. The names of keys and tensors are
// those of the GGUF converter; their meaning is in each model's own code at
// Hugging Face.

// readLlama reads llama 1 to 3.2, mistral, mixtral, smollm and others of the same
// name. Converters permute the rows of queries and keys, so neighbours are paired.
func readLlama(k *keys, c *Config) {
	c.AttentionScale = k.scale("attention.scale", c.AttentionScale)
	if n, _ := k.whole("attention.sliding_window"); n != 0 {
		k.windows(c, 1)
	}
	k.readRope(c, ropeKind{pairing: PairNeighbours})
}

func readGranite(k *keys, c *Config) {
	c.EmbeddingScale = k.scale("embedding_scale", 1)
	c.ResidualScale = k.scale("residual_scale", 1)
	c.LogitScale = 1 / k.scale("logit_scale", 1) // granite divides
	c.AttentionScale = k.scale("attention.scale", c.AttentionScale)
	k.readRope(c, ropeKind{pairing: PairNeighbours})
	// In granite this key says whether there is rope at all; elsewhere nothing.
	if rotated, present, err := k.file.Bool(k.name("rope.scaling.finetuned")); err != nil {
		k.keep(err)
	} else if present && !rotated {
		for i := range c.Layers {
			c.Layers[i].Rope = NoRope
		}
	}
}

// readGraniteDense refuses what would make it a hybrid model. Granite 4's dense models
// have keys of hybrids that mean nothing in them.
func readGraniteDense(k *keys, c *Config) {
	readGranite(k, c)
	for _, name := range []string{"conv_kernel", "state_size", "group_count", "inner_size", "time_step_rank"} {
		k.name("ssm." + name)
	}
	const shared = "expert_shared_feed_forward_length"
	if n, _ := k.whole(shared); c.Experts == 0 && n != 0 && int(n) != c.Layers[0].FF {
		k.fail(shared, "is %d; without experts only the feed-forward layer's %d is supported", n, c.Layers[0].FF)
	}
}

// readSmolLM3 takes the rope from every fourth layer; no key says so.
func readSmolLM3(k *keys, c *Config) {
	k.readRope(c, ropeKind{pairing: PairNeighbours})
	for i := range c.Layers {
		if (i+1)%4 == 0 {
			c.Layers[i].Rope = NoRope
		}
	}
}

func readQwen2(k *keys, c *Config) { k.readRope(c, ropeKind{pairing: PairHalves}) }

func readQwen3(k *keys, c *Config) {
	c.QKNorm = NormEachHead
	k.readRope(c, ropeKind{pairing: PairHalves})
}

// readQwen3MoE needs nothing for the router: its softmax over all experts,
// renormalised over the chosen ones, equals the softmax of the chosen.
func readQwen3MoE(k *keys, c *Config) {
	readQwen3(k, c)
	k.needExperts(c)
}

// readGemma reads what gemma 2 and 3 share. Converters have added the 1 to the
// norms' weights.
func (k *keys) readGemma(c *Config) {
	c.PostNorms = true
	c.Activation = GELU
	c.EmbeddingScale = float32(math.Sqrt(float64(c.Embed)))
}

// readGemma2 sets the scale of queries, 1/√query_pre_attn_scalar, which no key
// gives. The scalar is the head's length, except in the 27B model, the only one
// with 46 layers.
func readGemma2(k *keys, c *Config) {
	k.readGemma(c)
	c.AttentionSoftCap = k.softCap("attn_logit_softcapping", 50) // for files older than the keys
	c.LogitSoftCap = k.softCap("final_logit_softcapping", 30)
	if len(c.Layers) == 46 {
		c.AttentionScale = headScale(c.Embed / c.Heads)
	}
	c.AttentionScale = k.scale("attention.scale", c.AttentionScale)
	if _, present := k.whole("attention.sliding_window"); present {
		k.windows(c, 2)
	} else {
		k.setWindows(c, 4096, 2) // for files older than the key
	}
	k.readRope(c, ropeKind{pairing: PairHalves})
}

// readGemma3 gives layers with a window a rope of their own, never scaled. The 27B
// model, the only one with 62 layers, has another scale of queries, as gemma 2's.
func readGemma3(k *keys, c *Config) {
	k.readGemma(c)
	c.AttentionSoftCap = k.softCap("attn_logit_softcapping", 0)
	c.LogitSoftCap = k.softCap("final_logit_softcapping", 0)
	c.QKNorm = NormEachHead
	if len(c.Layers) == 62 {
		c.AttentionScale = headScale(c.Embed / c.Heads)
	}
	c.AttentionScale = k.scale("attention.scale", c.AttentionScale)
	k.readRope(c, ropeKind{pairing: PairHalves, theta: 1e6})
	local := k.theta("rope.freq_base_swa", 10000)
	if n, _ := k.whole("attention.sliding_window"); n == 0 {
		k.name("attention.sliding_window_pattern")
		return
	}
	k.windows(c, 6)
	k.localRope(c, local)
}

// readGemma4 reads Gemma 4. Layers with a window have heads of another size and a rope
// of their own. The last layers may have queries alone, and read the keys and values
// of the last layer of their kind before. Queries and keys are normed, so that scores
// are not scaled.
func readGemma4(k *keys, c *Config) {
	k.readGemma(c)
	c.LogitSoftCap = k.softCap("final_logit_softcapping", 0)
	c.QKNorm, c.VNorm, c.AttentionScale, c.OutputScales = NormEachHead, true, 1, true
	k.windows(c, 6)
	k.readRope(c, ropeKind{pairing: PairHalves, theta: 1e6})
	dim := k.sizeOr("attention.key_length_swa", c.HeadDim)
	if v := k.sizeOr("attention.value_length_swa", dim); v != dim || dim > headDimMax || c.Heads > sizeMax/dim {
		k.fail("attention.value_length_swa", "is %d and attention.key_length_swa %d; only equal lengths up to %d are supported", v, dim, headDimMax)
	}
	local := Rope{Dims: k.sizeOr("rope.dimension_count_swa", dim), Pairing: PairHalves, Magnitude: 1}
	if local.Dims > dim || local.Dims%2 != 0 {
		k.fail("rope.dimension_count_swa", "is %d; allowed are even numbers to the head's length of %d", local.Dims, dim)
	}
	local.Speeds = speeds(k.theta("rope.freq_base_swa", 10000), local.Dims)
	if c.PerLayer = k.sizeOrZero("embedding_length_per_layer_input"); c.PerLayer > sizeMax/len(c.Layers) {
		k.fail("embedding_length_per_layer_input", "is %d in each of %d layers; allowed are up to %d in all", c.PerLayer, len(c.Layers), sizeMax)
	}
	if c.Experts > 0 {
		k.readRouter(c, Router{Normed: true, Scale: 1})
		c.BesideDense = true
		k.readDense(c)
	}
	if k.err != nil {
		return
	}
	c.Ropes = append(c.Ropes, local)
	for i := range c.Layers {
		l := &c.Layers[i]
		if l.WindowTokens > 0 {
			l.HeadDim, l.Rope = dim, 1
		}
		_, has := k.file.Tensor(fmt.Sprintf("blk.%d.attn_v.weight", i))
		l.KeysAsValues = !has
	}
	k.shareKeys(c, k.sizeOrZero("attention.shared_kv_layers"))
}

// shareKeys makes the last n layers read the keys and values of the last layer of their
// own kind before them.
func (k *keys) shareKeys(c *Config, n int) {
	own := len(c.Layers) - n
	if own < 1 {
		k.fail("attention.shared_kv_layers", "is %d of %d layers", n, len(c.Layers))
		return
	}
	for i := own; i < len(c.Layers); i++ {
		l := &c.Layers[i]
		l.KeysOf = own - 1
		for l.KeysOf >= 0 && (c.Layers[l.KeysOf].WindowTokens > 0) != (l.WindowTokens > 0) {
			l.KeysOf--
		}
		if l.KeysOf < 0 || c.Layers[l.KeysOf].KVHeads != l.KVHeads {
			k.fail("attention.shared_kv_layers", "is %d: layer %d finds no keys and values of its kind", n, i)
			return
		}
	}
}

func readPhi3(k *keys, c *Config) {
	c.FusedGateUp = true
	if n, _ := k.whole("attention.sliding_window"); n != 0 {
		k.windows(c, 1)
	}
	k.readRope(c, ropeKind{pairing: PairHalves, long: true})
}

// readGPTOSS leaves the borders of the YaRN ramp unrounded (truncate: false in the
// model's config). The norm before the experts has the name of another norm.
func readGPTOSS(k *keys, c *Config) {
	k.needExperts(c)
	c.Sinks = true
	c.Activation = ClampedSiLU
	c.FFNormName = "post_attention_norm"
	k.windows(c, 2)
	k.readRope(c, ropeKind{pairing: PairHalves, exactRamp: true})
	if len(c.Ropes) > 0 {
		if theta, present, _ := k.file.Float(k.name("rope.freq_base_swa")); present && theta != k.theta("rope.freq_base", 10000) {
			k.fail("rope.freq_base_swa", "is %g; only the rope.freq_base of the other layers is supported", theta)
		}
	}
}
