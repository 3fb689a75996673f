package hf

import (
	"cmp"
	"slices"

	"github.com/forebay-io/forebay/engine/gguf"
)

// This file has models of state spaces alone (Mamba 2), and Nemotron-H, in which a layer is one
// part: a state space, attention, a feed-forward layer or a mixture of experts.

var (
	backboneNames   = names{embedding: "embeddings", out: "o_proj", outputNorm: "norm_f", eps: "layer_norm_epsilon", lastNorm: "output_norm"}
	spaceNorms      = []norm{{"attn_norm", "norm"}}
	withoutRope     = ropeKeys{read: func(*description, *config) {}}
	nemotronExperts = &expertNames{router: "mixer.gate", bias: "mixer.gate.e_score_correction_bias", each: "mixer.experts.%d.", up: "up_proj", down: "down_proj",
		shared: "mixer.shared_experts.", ungated: true}
)

var spaceFamilies = map[string]*family{
	"mamba2": {arch: "mamba2", classes: []string{"Mamba2ForCausalLM"}, norms: spaceNorms, names: &backboneNames, ropes: withoutRope,
		part: func(b *builder, _ int, to, from string) { b.stateSpace(to, from) }, read: readMamba2, set: setMamba2,
		sizes: sizes{embed: 4096, ff: 1, layers: 64, heads: 1, headDim: 64, context: 1 << 20, eps: 1e-5}},
	"falcon_h1": {arch: "falcon-h1", classes: []string{"FalconH1ForCausalLM"}, norms: falconNorms, names: &falconNames, theta: 1e4, inLayer: (*builder).falconSpace, read: readFalconH1, set: setFalconH1,
		sizes: sizes{embed: 4096, ff: 14336, layers: 32, heads: 32, kvHeads: 8, context: 8192, eps: 1e-5}},
	"nemotron_h": {arch: "nemotron_h", classes: []string{"NemotronHForCausalLM"}, norms: spaceNorms, names: &backboneNames, ropes: withoutRope, bias: biasKeys{ff: "mlp_bias"},
		epsOfCentred: true, part: (*builder).nemotronPart, read: readNemotronH, set: setNemotronH,
		sizes: sizes{embed: 4096, ff: 21504, layers: 52, heads: 32, kvHeads: 8, headDim: 128, context: 4096, eps: 1e-5}},
}

// harmlessInSpaces are keys of speed, of training, and of predictions that are not made.
var harmlessInSpaces = []string{
	"chunk_size", "mamba_chunk_size", "time_step_min", "time_step_max", "time_step_floor", "time_step_rank", "residual_in_fp32", "rescale_prenorm_residual",
	"num_logits_to_keep", "use_mamba_kernels", "mamba_ssm_cache_dtype", "moe_shared_expert_overlap", "mtp_layers_block_type", "mtp_hybrid_override_pattern", "num_nextn_predict_layers",
	"rms_norm", "norm_before_gate", "rope_theta", "partial_rotary_factor", "rms_norm_eps", "norm_eps",
}

// readSpaces reads what the models of this file share; heads and headDim are the names of two keys.
func (d *description) readSpaces(c *config, heads, headDim string, m mamba) {
	m.taps, m.groups, m.tapsBias, m.name = c.size("conv_kernel", 4), c.size("n_groups", 8), c.flag("use_conv_bias", true), "mixer."
	m.heads, m.headDim = c.size(heads, 128), c.size(headDim, 64)
	d.setMamba(c, heads, m)
	c.only("use_bias", false)
	d.readStepLimit(c)
	c.ignore(harmlessInSpaces...)
}

func readMamba2(d *description, c *config) {
	d.readSpaces(c, "num_heads", "head_dim", mamba{state: c.size("state_size", 128)})
	if n := c.size("expand", 2); n > sizeMax/d.embed || d.mamba.inner() != n*d.embed {
		c.fail("num_heads", "is %d of %d numbers each; needed are expand times hidden_size in all, %d times %d", d.mamba.heads, d.mamba.headDim, n, d.embed)
	}
	d.heads, d.kvHeads, d.ff = 0, 0, 0
}

func setMamba2(d *description, to *gguf.Draft) { d.mamba.set(to, "mamba2") }

// part is what a layer of Nemotron-H is.
type part int

const (
	spacePart part = iota
	attentionPart
	densePart
	expertsPart
)

// partNames are the parts' names in a list of layers, and in a pattern with a letter for each.
var partNames = map[string]part{
	linearAttention: spacePart, fullAttention: attentionPart, "mlp": densePart, "moe": expertsPart,
	"M": spacePart, "*": attentionPart, "-": densePart, "E": expertsPart,
}

func readNemotronH(d *description, c *config) {
	d.readParts(c)
	d.readSpaces(c, "mamba_num_heads", "mamba_head_dim", mamba{state: c.size("ssm_state_size", 128)})
	d.headDim = c.size("head_dim", c.size("attention_head_dim", d.headDim))
	c.ignore("expand") // the heads say it
	c.oneOf("mlp_hidden_act", "relu2")
	c.oneOf("mamba_hidden_act", "silu")
	c.only("mamba_proj_bias", false)
	for _, key := range []string{"sliding_window", "moe_latent_size"} {
		if c.has(key) {
			c.fail(key, "is %s; only null is supported", short(c.values[key]))
		}
	}
	if !slices.Contains(d.parts, expertsPart) {
		c.ignore("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_shared_experts",
			"norm_topk_prob", "routed_scaling_factor", "n_group", "topk_group")
		return
	}
	if slices.Contains(d.parts, densePart) {
		c.fail("layers_block_type", "has layers with experts and feed-forward layers without; only one of the two is supported")
	}
	d.arch, d.experts, d.expertsUsed, d.expertFF = "nemotron_h_moe", 8, 2, 7688
	d.sizes.readExperts(c)
	d.sharedFF = c.size("moe_shared_expert_intermediate_size", 7688)
	if n := c.count("n_shared_experts", 1); n != 1 {
		c.fail("n_shared_experts", "is %d; only 1 is supported in this model type", n)
	}
	c.only("mlp_bias", false)
	d.readRouting(c, routing{sigmoid: true, normed: true})
}

// readParts reads what each layer is, from a list or a pattern.
func (d *description) readParts(c *config) {
	layers := c.texts("layers_block_type")
	if layers == nil {
		layers = c.texts("layer_types")
	}
	pattern := c.text("hybrid_override_pattern", "")
	if layers == nil {
		for _, letter := range pattern {
			layers = append(layers, string(letter))
		}
	}
	if n := len(layers); n == 0 || n > layersMax || c.has("num_hidden_layers") && n != d.layers {
		c.fail("layers_block_type", "and hybrid_override_pattern name %d layers; needed is one of them, with 1 to %d layers, or num_hidden_layers where that is given", n, layersMax)
		layers = []string{linearAttention}
	}
	d.layers = len(layers)
	for _, name := range layers {
		p, known := partNames[cmp.Or(olderTypes[name], name)]
		if !known {
			c.fail("layers_block_type", "has %.60q; supported: %s, %s, mlp, moe", name, linearAttention, fullAttention)
		}
		d.parts = append(d.parts, p)
	}
}

// setNemotronH writes the sizes of each layer, which are 0 for what it has not.
func setNemotronH(d *description, to *gguf.Draft) {
	kvHeads, widths := make([]uint32, d.layers), make([]uint32, d.layers)
	for i, p := range d.parts {
		switch p {
		case attentionPart:
			kvHeads[i] = uint32(d.kvHeads)
		case densePart:
			widths[i] = uint32(d.ff)
		case expertsPart:
			widths[i] = uint32(d.expertFF)
		}
	}
	to.Set(d.arch+".attention.head_count_kv", kvHeads)
	to.Set(d.arch+".feed_forward_length", widths)
	d.mamba.set(to, d.arch)
}

// nemotronPart adds the tensors of a layer of Nemotron-H.
func (b *builder) nemotronPart(i int, to, from string) {
	switch b.parts[i] {
	case spacePart:
		b.stateSpace(to, from)
	case attentionPart:
		b.attention(i, to, from+"mixer.")
	case densePart:
		b.linear(to+"ffn_up", from+"mixer.up_proj", b.ff, b.embed, b.ffBias, asIs)
		b.linear(to+"ffn_down", from+"mixer.down_proj", b.embed, b.ff, b.ffBias, asIs)
	case expertsPart:
		nemotronExperts.tensors(b, to, from)
	}
}
