package hf

import (
	"math"

	"github.com/forebay-io/forebay/engine/gguf"
)

// This file has Falcon-H1: attention and a state space in every layer, which read the same norm, and a number
// by which what each matrix gives is multiplied. The GGUF converter multiplies the weights by them; here they
// stay apart, so that no weight is rounded again.

var (
	falconNames = names{out: "o_proj", gate: "feed_forward.gate_proj", up: "feed_forward.up_proj", down: "feed_forward.down_proj", outputNorm: "final_layernorm", eps: "rms_norm_eps", lastNorm: "output_norm"}
	falconNorms = []norm{{"attn_norm", "input_layernorm"}, {"ffn_norm", "pre_ff_layernorm"}}
)

// falcon has Falcon-H1's multipliers.
type falcon struct {
	embedding, logits, in, key, out, spaceIn, spaceOut float64
	spaces                                             []float64 // of gates, inputs, keys, queries and steps
	ff                                                 []float64 // of gate and output
}

func readFalconH1(d *description, c *config) {
	x := &d.falcon
	for key, to := range map[string]*float64{
		"embedding_multiplier": &x.embedding, "lm_head_multiplier": &x.logits, "attention_in_multiplier": &x.in, "key_multiplier": &x.key,
		"attention_out_multiplier": &x.out, "ssm_in_multiplier": &x.spaceIn, "ssm_out_multiplier": &x.spaceOut,
	} {
		*to = c.positive(key, 1)
	}
	x.spaces, x.ff = c.multipliers("ssm_multipliers", 5), c.multipliers("mlp_multipliers", 2)
	for _, key := range []string{"attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias"} {
		c.only(key, false)
	}
	inner := c.size("mamba_d_ssm", 1024)
	if c.isNull("mamba_d_ssm") {
		inner = min(sizeMax, c.size("mamba_expand", 2)*d.embed)
	}
	m := mamba{taps: c.size("mamba_d_conv", 4), heads: c.size("mamba_n_heads", 128), state: c.size("mamba_d_state", 256), groups: c.size("mamba_n_groups", 1),
		tapsBias: c.flag("mamba_conv_bias", true), name: "mamba.", unnormed: !c.flag("mamba_rms_norm", false)}
	if m.headDim = max(1, inner/m.heads); string(c.values["mamba_d_head"]) != `"auto"` {
		m.headDim = c.size("mamba_d_head", m.headDim)
	}
	if m.heads > sizeMax/m.headDim || m.inner() != inner {
		c.fail("mamba_n_heads", "is %d of %d numbers each; needed are the %d of mamba_d_ssm in all", m.heads, m.headDim, inner)
		m.heads, m.headDim, m.groups = 1, 1, 1
	}
	d.setMamba(c, "mamba_n_heads", m)
	if c.flag("mamba_norm_before_gate", true) && !m.unnormed {
		c.fail("mamba_norm_before_gate", "is true; only false is supported where mamba_rms_norm is true")
	}
	d.readStepLimit(c)
	c.ignore("mamba_d_head", "mamba_expand", "mamba_chunk_size", "num_logits_to_keep", "mamba_use_mlp", "mlp_expansion_factor", "time_step_min", "time_step_max", "time_step_floor")
}

// multipliers reads n numbers over 0, which are 1 where there are none.
func (c *config) multipliers(key string, n int) []float64 {
	all := value[[]float64](c, key, "a list of numbers", nil)
	if len(all) != n && all != nil {
		c.fail(key, "has %d numbers; needed are %d", len(all), n)
	}
	for len(all) < n {
		all = append(all, 1)
	}
	for _, x := range all {
		if !(x > 0) {
			c.fail(key, "has %v; allowed are numbers over 0", x)
		}
	}
	return all
}

func setFalconH1(d *description, to *gguf.Draft) {
	d.mamba.set(to, d.arch)
	x := &d.falcon
	for key, by := range map[string]float64{
		"embedding_scale": x.embedding, "logit_scale": x.logits, "attention.scale": x.in * x.in * x.key / math.Sqrt(float64(d.headDim)), "attention.output_scale": x.in * x.out,
		"feed_forward_gate_scale": x.ff[0], "feed_forward_scale": x.ff[1], "ssm.gate_scale": x.spaceIn * x.spaces[0], "ssm.step_scale": x.spaceIn * x.spaces[4], "ssm.output_scale": x.spaceOut,
	} {
		to.Set(d.arch+"."+key, float32(by))
	}
	to.Set(d.arch+".ssm.normed", !d.mamba.unnormed)
}

// falconSpace adds a layer's state space. What multiplies the convolution's input multiplies its weights.
func (b *builder) falconSpace(to, from string) {
	m, x := &b.mamba, &b.falcon
	by := make([]float32, m.channels())
	for i := range by {
		part := 1 // the inputs
		if i >= m.inner() {
			part = 2 + (i-m.inner())/(m.groups*m.state) // keys and queries
		}
		by[i] = float32(x.spaceIn * x.spaces[part])
	}
	m.multiplied = by
	b.stateSpace(to, from)
}
