package hf

import (
	"math"

	"github.com/forebay-io/forebay/engine/gguf"
)

// This file has what single families have: a function that reads their keys of
// config.json, and one that writes those of GGUF.

// scales are the factors of granite and cohere.
type scales struct{ attention, embedding, residual, logits float64 }

// positive reads a number over 0.
func (c *config) positive(key string, absent float64) float64 {
	x := c.number(key, absent)
	if !(x > 0) {
		c.fail(key, "is %v; allowed are numbers over 0", x)
	}
	return x
}

// smolPeriod: every fourth layer of smollm3 has no rope, which no key of GGUF says.
const smolPeriod = 4

// readSmolLM3 refuses what GGUF's readers would not know.
func readSmolLM3(d *description, c *config) {
	c.only("use_sliding_window", false)
	c.ignore("sliding_window", "max_window_layers", "layer_types") // of windows, which are off
	if n := c.size("no_rope_layer_interval", smolPeriod); !c.has("no_rope_layers") && n != smolPeriod {
		c.fail("no_rope_layer_interval", "is %d; only %d is supported", n, smolPeriod)
	}
	rotated := value[[]int](c, "no_rope_layers", "a list of 0 and 1", nil)
	if rotated != nil && len(rotated) < d.layers {
		c.fail("no_rope_layers", "has %d layers of %d", len(rotated), d.layers)
		return
	}
	for i := range min(d.layers, len(rotated)) {
		if want := (i+1)%smolPeriod != 0; (rotated[i] != 0) != want {
			c.fail("no_rope_layers", "is %d for layer %d; supported are models in which every %dth layer alone has no rope, where it is 0", rotated[i], i, smolPeriod)
			return
		}
	}
}

func readGranite(d *description, c *config) {
	d.scales = scales{c.positive("attention_multiplier", 1), c.positive("embedding_multiplier", 1), c.positive("residual_multiplier", 1), c.positive("logits_scaling", 1)}
}

func setGranite(d *description, to *gguf.Draft) {
	to.Set(d.arch+".attention.scale", float32(d.scales.attention))
	to.Set(d.arch+".embedding_scale", float32(d.scales.embedding))
	to.Set(d.arch+".residual_scale", float32(d.scales.residual))
	to.Set(d.arch+".logit_scale", float32(d.scales.logits))
}

func readGemma2(d *description, c *config) {
	d.queryScale = c.positive("query_pre_attn_scalar", 256)
	d.logitSoftCap = c.softCap("final_logit_softcapping", 30)
	d.attnSoftCap = c.softCap("attn_logit_softcapping", 50)
}

// softCap reads a soft cap; null is none.
func (c *config) softCap(key string, absent float64) float64 {
	if c.isNull(key) {
		return 0
	}
	x := c.number(key, absent)
	if x < 0 {
		c.fail(key, "is %v; allowed are numbers over 0, and null", x)
	}
	return x
}

// setGemma2: a reader takes the values of Google's models where the soft caps' keys are absent.
func setGemma2(d *description, to *gguf.Draft) {
	to.Set("gemma2.attn_logit_softcapping", float32(d.attnSoftCap))
	to.Set("gemma2.final_logit_softcapping", float32(d.logitSoftCap))
	d.setQueryScale(to, 46)
}

func readGemma3(d *description, c *config) {
	if d.bothWays = c.flag("use_bidirectional_attention", false); d.bothWays {
		d.arch = "gemma-embedding"
	}
	d.queryScale = c.positive("query_pre_attn_scalar", 256)
	d.logitSoftCap = c.softCap("final_logit_softcapping", 0)
	if c.has("attn_logit_softcapping") {
		c.fail("attn_logit_softcapping", "is %s; it is not supported in gemma 3", short(c.values["attn_logit_softcapping"]))
	}
}

func setGemma3(d *description, to *gguf.Draft) {
	to.Set(d.arch+".rope.freq_base_swa", float32(d.localRope.theta))
	if d.logitSoftCap != 0 {
		to.Set(d.arch+".final_logit_softcapping", float32(d.logitSoftCap))
	}
	d.setQueryScale(to, 62)
}

// setQueryScale writes the scale of gemma's queries. The converter has no key for it,
// because readers assume the values of Google's models, of which the largest, by its
// number of layers, has another rule. It is written only for models with other values.
func (d *description) setQueryScale(to *gguf.Draft, largest int) {
	assumed := float64(d.headDim)
	if d.layers == largest {
		assumed = float64(d.embed / d.heads)
	}
	if d.queryScale != assumed {
		to.Set(d.arch+".attention.scale", float32(1/math.Sqrt(d.queryScale)))
	}
}

func readPhi3(_ *description, c *config) { c.only("attention_bias", false) }

// setPhi3: the original context decides which of the two sets of factors is used.
func setPhi3(d *description, to *gguf.Draft) {
	to.Set(d.arch+".rope.scaling.original_context_length", uint32(d.rope.original))
	if d.rope.kind == longRope {
		to.Set(d.arch+".rope.scaling.attn_factor", float32(d.rope.magnitude))
	}
}

func setOLMo3(d *description, to *gguf.Draft) {
	to.Set("olmo2.rope.freq_base_swa", float32(d.localRope.theta))
}

func readCohere2(d *description, c *config) {
	d.scales.logits = c.positive("logit_scale", 0.0625)
	c.only("use_qk_norm", false)
	c.only("use_parallel_block", true)
	c.only("use_parallel_embedding", false)
	c.only("use_gated_activation", true)
}

func setCohere2(d *description, to *gguf.Draft) {
	to.Set("cohere2.logit_scale", float32(d.scales.logits))
}

// readMinistral3 reads the temperature of queries beyond the original context.
func readMinistral3(d *description, c *config) {
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		if p := c.object(key); p != nil {
			d.temperature = max(d.temperature, p.number("llama_4_scaling_beta", 0))
		}
	}
}

func setMinistral3(d *description, to *gguf.Draft) {
	if d.temperature > 0 {
		to.Set("mistral3.attention.temperature_scale", float32(d.temperature))
	}
}
