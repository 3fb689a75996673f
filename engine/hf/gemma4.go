package hf

import (
	"strconv"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// This file has gemma 4, whose layers differ in size. Layers that see the whole context have
// longer heads, may have fewer keys, and may take their keys for values. The last layers may
// have queries alone, and read the keys and values of earlier ones. Each layer may add
// something of the token's own.

// gemma4 has the sizes that single layers have.
type gemma4 struct {
	headDim, kvHeads int  // of layers without a window
	keysAsValues     bool // in them
	shared           int  // of the last layers, without keys
	wide             bool // their feed-forward layers are twice as wide
	perLayer         int  // numbers of a token in each layer; 0: none
	rotated          int  // pairs of the longer heads
}

func readGemma4(d *description, c *config) {
	c.ignore("vocab_size_per_layer_input")
	if c.flag("enable_moe_block", false) {
		d.experts, d.expertsUsed, d.expertFF = 128, 8, 704
		d.sizes.readExperts(c)
	} else {
		c.ignore("num_experts", "top_k_experts", "moe_intermediate_size")
	}
	d.logitSoftCap = c.softCap("final_logit_softcapping", 0)
	g := &d.gemma4
	if n := len(d.slides); n > 0 {
		d.slides[n-1] = false // as transformers has it
	}
	g.headDim = c.size("global_head_dim", 512)
	g.keysAsValues, g.wide = c.flag("attention_k_eq_v", false), c.flag("use_double_wide_mlp", false)
	if g.kvHeads = d.kvHeads; c.has("num_global_key_value_heads") && g.keysAsValues {
		g.kvHeads = c.size("num_global_key_value_heads", d.kvHeads)
	}
	d.readPerLayer(c)
	if d.heads > sizeMax/g.headDim || g.kvHeads > sizeMax/g.headDim {
		c.fail("global_head_dim", "is %d with %d heads; allowed are up to %d numbers in all heads", g.headDim, d.heads, sizeMax)
		g.headDim, g.kvHeads = 2, 1
	}
	g.shared, g.perLayer = int(c.count("num_kv_shared_layers", 0)), int(c.count("hidden_size_per_layer_input", 256))
	if g.shared >= d.layers {
		c.fail("num_kv_shared_layers", "is %d of %d layers", g.shared, d.layers)
	}
	if g.perLayer > sizeMax/max(1, d.layers) {
		c.fail("hidden_size_per_layer_input", "is %d in each of %d layers", g.perLayer, d.layers)
		g.perLayer = 0
	}
}

// readPerLayer reads the sizes of single layers where config.json has them by number. All layers
// without a window must have the same.
func (d *description) readPerLayer(c *config) {
	const key = "per_layer_config"
	each := value[map[string]map[string]int](c, key, "an object of sizes for each layer", nil)
	if each == nil {
		return
	}
	seen := 0
	for i := range d.layers {
		l := each[strconv.Itoa(i)]
		if d.slides == nil || i >= len(d.slides) || d.slides[i] {
			if len(l) > 0 {
				c.fail(key, "has sizes for layer %d, which has a window; only layers without may have their own", i)
			}
			continue
		}
		headDim, kvHeads := d.headDim, d.kvHeads
		for name, n := range l {
			switch {
			case n < 1 || n > sizeMax:
				c.fail(key, "is %d for %.60q of layer %d; allowed are 1 to %d", n, name, i, sizeMax)
			case name == "head_dim":
				headDim = n
			case name == "num_key_value_heads":
				kvHeads = n
			default:
				c.fail(key, "has %.60q, which is not understood, and could change what the model computes", name)
			}
		}
		if seen++; seen > 1 && (headDim != d.gemma4.headDim || kvHeads != d.gemma4.kvHeads) {
			c.fail(key, "has other sizes for layer %d than for those before; only equal ones are supported", i)
		}
		d.gemma4.headDim, d.gemma4.kvHeads = headDim, kvHeads
	}
}

// count reads a whole number from 0 to sizeMax.
func (c *config) count(key string, absent int) int {
	if x := c.number(key, float64(absent)); x == 0 {
		return 0
	}
	return c.size(key, max(1, absent))
}

// readGemma4Ropes: of the longer heads only some pairs are rotated, at the speeds of a
// head that is rotated whole.
func (d *description) readGemma4Ropes(c *config) {
	d.localRope = rope{kind: "default", theta: 1e4, dims: d.headDim}
	d.rope = rope{kind: "default", theta: 1e6, dims: d.gemma4.headDim, original: d.context}
	part := 0.25
	if p := c.object("rope_parameters"); p != nil {
		if local := p.object(slidingAttention); local != nil {
			local.oneOf("rope_type", "default")
			d.localRope.theta = local.number("rope_theta", 1e4)
			local.ignore("partial_rotary_factor")
			local.checkAllRead()
		}
		if whole := p.object(fullAttention); whole != nil {
			whole.oneOf("rope_type", "proportional")
			d.rope.theta, part = whole.number("rope_theta", 1e6), whole.number("partial_rotary_factor", 1)
			if n := whole.number("factor", 1); n != 1 || !(part >= 0 && part <= 1) {
				whole.fail("partial_rotary_factor", "is %v, with a factor of %v; supported are parts of a head, and a factor of 1", part, n)
				part = 1
			}
			whole.checkAllRead()
		}
		p.checkAllRead()
	}
	d.gemma4.rotated = int(part * float64(d.gemma4.headDim) / 2)
}

// still is the divisor of the speed of a pair that is not rotated.
const still = 1e30

// factors are the divisors of the speeds of the longer heads.
func (g *gemma4) factors() []float32 {
	all := make([]float32, g.headDim/2)
	for i := range all {
		if all[i] = 1; i >= g.rotated {
			all[i] = still
		}
	}
	return all
}

func setGemma4(d *description, to *gguf.Draft) {
	g := &d.gemma4
	size := func(key string, n int) { to.Set("gemma4."+key, uint32(n)) }
	size("attention.key_length", g.headDim)
	size("attention.value_length", g.headDim)
	size("attention.key_length_swa", d.headDim)
	size("attention.value_length_swa", d.headDim)
	size("rope.dimension_count", g.headDim)
	size("rope.dimension_count_swa", d.headDim)
	to.Set("gemma4.rope.freq_base_swa", float32(d.localRope.theta))
	size("attention.shared_kv_layers", g.shared)
	size("embedding_length_per_layer_input", g.perLayer)
	if d.logitSoftCap != 0 {
		to.Set("gemma4.final_logit_softcapping", float32(d.logitSoftCap))
	}
	kvHeads, widths := make([]uint32, d.layers), make([]uint32, d.layers)
	for i := range kvHeads {
		l := d.layerSizes(i)
		kvHeads[i], widths[i] = uint32(l.kvHeads), uint32(l.ff)
	}
	to.Set("gemma4.attention.head_count_kv", kvHeads)
	to.Set("gemma4.feed_forward_length", widths)
	to.Set("gemma4.attention.sliding_window_pattern", d.slides)
}

// layerSizes are those of one layer.
type layerSizes struct {
	headDim, kvHeads, ff int
	keys, values         bool // it has matrices for them
}

func (d *description) layerSizes(i int) layerSizes {
	if d.uneven != nil {
		return d.uneven(d, i)
	}
	return layerSizes{d.headDim, d.kvHeads, d.ff, true, true}
}

func (d *description) gemma4Sizes(i int) layerSizes {
	l, g := layerSizes{d.headDim, d.kvHeads, d.ff, true, true}, &d.gemma4
	if i >= len(d.slides) || !d.slides[i] {
		l.headDim, l.kvHeads, l.values = g.headDim, g.kvHeads, !g.keysAsValues
	}
	if i >= d.layers-g.shared {
		if l.keys, l.values = false, false; g.wide {
			l.ff *= 2
		}
	}
	return l
}

// gemma4Inputs adds the tensors of what each layer adds of a token's own.
func (b *builder) gemma4Inputs() {
	b.draft.Add(gguf.Tensor{Name: "rope_freqs.weight", Type: kernels.F32, Dims: []int{b.gemma4.headDim / 2}, Data: float32Bytes(b.gemma4.factors())})
	if n := b.gemma4.perLayer; n > 0 {
		b.perLayerInputs(n, b.vocab)
	}
}

// perLayerInputs adds the tensors of n numbers of each token in each layer, of which there are so many rows.
func (b *builder) perLayerInputs(n, rows int) {
	b.whole("per_layer_token_embd.weight", b.matrix(b.root+"embed_tokens_per_layer.weight", rows, b.layers*n), asIs)
	b.whole("per_layer_model_proj.weight", b.matrix(b.root+"per_layer_model_projection.weight", b.layers*n, b.embed), asIs)
	b.vector("per_layer_proj_norm.weight", b.root+"per_layer_projection_norm.weight", n, asIs)
}

// gemma4Experts adds the mixture that stands beside the dense part of a layer. It has norms of its
// own, and its router scales its input and the experts' weights.
func (b *builder) gemma4Experts(to, from string) {
	for _, n := range []norm{{"post_ffw_norm_1", "post_feedforward_layernorm_1"}, {"post_ffw_norm_2", "post_feedforward_layernorm_2"}, {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"}} {
		b.norm(to+n.to, from+n.from)
	}
	b.vector(to+"ffn_gate_inp.scale", from+"router.scale", b.embed, asIs)
	b.vector(to+"ffn_down_exps.scale", from+"router.per_expert_scale", b.experts, asIs)
	gemma4Experts.tensors(b, to, from)
}

// gemma4Layer adds what a layer has beside attention and feed-forward.
func (b *builder) gemma4Layer(to, from string) {
	b.vector(to+"layer_output_scale.weight", from+"layer_scalar", 1, asIs)
	if n := b.gemma4.perLayer; n > 0 {
		b.perLayerGate(to, from, n)
	}
}

// perLayerGate adds the tensors that gate a token's own n numbers of a layer.
func (b *builder) perLayerGate(to, from string, n int) {
	b.linear(to+"inp_gate", from+"per_layer_input_gate", n, b.embed, false, asIs)
	b.linear(to+"proj", from+"per_layer_projection", b.embed, n, false, asIs)
	b.vector(to+"post_norm.weight", from+"post_per_layer_input_norm.weight", b.embed, asIs)
}
