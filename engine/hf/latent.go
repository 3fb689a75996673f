package hf

import (
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/mapped"
)

// latent has the sizes of multi-head latent attention (DeepSeek-V2, 2024).
type latent struct {
	rank, queryRank           int // queryRank 0: queries are made directly
	keyDim, ropeDim, valueDim int // of a head: what is not rotated, what is, and what it gives
	logMultiplier             float64
}

// readDeepSeek2 reads DeepSeek V2, which takes the weights as the softmax has them.
func readDeepSeek2(d *description, c *config) {
	c.oneOf("topk_method", "greedy", "group_limited_greedy")
	c.only("norm_topk_prob", false)
	d.readRouting(c, routing{})
	if c.text("topk_method", "greedy") == "greedy" {
		d.routing.groups = 1
	}
	d.readLatent(c)
}

// readDeepSeek3 reads DeepSeek V3 and Kimi K2.
func readDeepSeek3(d *description, c *config) {
	c.oneOf("topk_method", "noaux_tc")
	d.readRouting(c, routing{sigmoid: true, normed: true, scale: 2.5, groups: 8, groupsUsed: 4})
	d.predictions = c.predictions()
	d.readLatent(c)
}

// readGLM4Lite reads GLM-4.7-Flash, which is built as DeepSeek V3.
func readGLM4Lite(d *description, c *config) {
	d.leading = 1
	d.readLayersWithExperts(c)
	c.oneOf("topk_method", "noaux_tc")
	d.readRouting(c, routing{sigmoid: true, normed: true, scale: 1.8})
	d.predictions = c.predictions()
	d.readLatent(c)
}

// readLayersWithExperts reads which layers have experts where config.json lists them.
func (d *description) readLayersWithExperts(c *config) {
	const key = "mlp_layer_types"
	kinds := c.texts(key)
	if kinds == nil {
		return
	}
	if len(kinds) < d.layers {
		c.fail(key, "has %d layers of %d", len(kinds), d.layers)
		return
	}
	d.leading = 0
	for i, kind := range kinds[:d.layers] {
		switch {
		case kind == "dense" && i == d.leading:
			d.leading++
		case kind != "sparse":
			c.fail(key, "has %.60q in layer %d; supported are dense layers first, and sparse ones behind them", kind, i)
			return
		}
	}
	c.ignore("first_k_dense_replace")
}

// predictions is how many layers behind the last one predict tokens beyond the next one.
func (c *config) predictions() int { return min(layersMax, c.count("num_nextn_predict_layers", 0)) }

// readLatent reads what all of them share.
func (d *description) readLatent(c *config) {
	if !c.read["first_k_dense_replace"] {
		d.leading = c.count("first_k_dense_replace", d.leading)
	}
	d.readShared(c, "n_shared_experts", d.sharedFF)
	if n := c.number("moe_layer_freq", 1); n != 1 {
		c.fail("moe_layer_freq", "is %v; only 1 is supported", n)
	}
	c.only("attention_bias", false)
	c.only("rope_interleave", true)
	c.ignore("qk_head_dim") // the sum of two others
	l := &d.latent
	if !c.isNull("q_lora_rank") {
		l.queryRank = c.size("q_lora_rank", 1536)
	}
	l.rank, l.keyDim = c.size("kv_lora_rank", 512), c.size("qk_nope_head_dim", 128)
	l.ropeDim, l.valueDim = c.size("qk_rope_head_dim", 64), c.size("v_head_dim", 128)
	if d.heads > sizeMax/(l.keyDim+l.valueDim+l.ropeDim) {
		c.fail("num_attention_heads", "is %d; allowed are up to %d numbers in all heads", d.heads, sizeMax)
		*l, d.heads = latent{rank: 1, keyDim: 1, ropeDim: 2, valueDim: 1}, 1
	}
	d.headDim = l.ropeDim // for the rope
}

// readLatentRope: both magnitudes of YaRN are equal, so that the rope has none, and one of them scales
// the scores.
func (d *description) readLatentRope(c *config) {
	key := "rope_parameters"
	p := c.object(key)
	if scaling := c.object("rope_scaling"); scaling != nil {
		key, p = "rope_scaling", scaling
	}
	d.rope = d.readRope(c, p, c.number("rope_theta", d.theta))
	if d.rope.kind != "yarn" || p == nil {
		return
	}
	a, b := p.number("mscale", 0), p.number("mscale_all_dim", 0)
	if a != b || a == 0 || d.rope.magnitude != 1 {
		c.fail(key, "has the magnitudes mscale %v, mscale_all_dim %v and attention_factor %v; supported are equal ones of the first two, and none of the last", a, b, d.rope.magnitude)
	}
	d.latent.logMultiplier = 0.1 * a
}

func setDeepSeek(d *description, to *gguf.Draft) {
	l := &d.latent
	for key, n := range map[string]int{
		"attention.head_count_kv": 1, "attention.key_length": l.rank + l.ropeDim, "attention.value_length": l.rank,
		"attention.key_length_mla": l.keyDim + l.ropeDim, "attention.value_length_mla": l.valueDim,
		"attention.kv_lora_rank": l.rank, "attention.q_lora_rank": l.queryRank, "rope.dimension_count": l.ropeDim,
	} {
		if n > 0 {
			to.Set(d.arch+"."+key, uint32(n))
		}
	}
	if l.logMultiplier != 0 {
		to.Set(d.arch+".rope.scaling.yarn_log_multiplier", float32(l.logMultiplier))
	}
}

// latentAttention adds the tensors of a layer's attention. The matrix that makes keys and values of a
// row is cut into one for keys, which queries are multiplied with, and one for values.
func (b *builder) latentAttention(to, from string) {
	l := &b.latent
	if queries := b.heads * (l.keyDim + l.ropeDim); l.queryRank > 0 {
		b.linear(to+"attn_q_a", from+"q_a_proj", l.queryRank, b.embed, false, asIs)
		b.vector(to+"attn_q_a_norm.weight", from+"q_a_layernorm.weight", l.queryRank, asIs)
		b.linear(to+"attn_q_b", from+"q_b_proj", queries, l.queryRank, false, asIs)
	} else {
		b.linear(to+"attn_q", from+"q_proj", queries, b.embed, false, asIs)
	}
	b.linear(to+"attn_kv_a_mqa", from+"kv_a_proj_with_mqa", l.rank+l.ropeDim, b.embed, false, asIs)
	b.vector(to+"attn_kv_a_norm.weight", from+"kv_a_layernorm.weight", l.rank, asIs)
	b.linear(to+"attn_output", from+"o_proj", b.embed, b.heads*l.valueDim, false, asIs)
	if m := b.matrix(from+"kv_b_proj.weight", b.heads*(l.keyDim+l.valueDim), l.rank); m != nil {
		b.latentHeads(to+"attn_k_b.weight", m, 0, l.keyDim, true)
		b.latentHeads(to+"attn_v_b.weight", m, l.keyDim, l.valueDim, false)
	}
}

// latentHeads adds n rows of each head of m, from the first on, as a matrix of each head.
func (b *builder) latentHeads(to string, m *matrix, first, n int, transposed bool) {
	l, row := &b.latent, m.bytes/m.Shape[0]
	dims := []int{l.rank, n, b.heads}
	if transposed {
		dims[0], dims[1] = dims[1], dims[0]
	}
	b.bytes[m.kind] += b.heads * n * row
	b.draft.Add(gguf.Tensor{Name: to, Type: m.kind, Dims: dims, Make: func() []byte {
		data, out := m.data(), make([]byte, 0, b.heads*n*row)
		for h := range b.heads {
			at := h*(l.keyDim+l.valueDim) + first
			out = append(out, data[at*row:(at+n)*row]...)
		}
		if transposed {
			out = transpose(out, b.heads, n, l.rank, row/l.rank)
		} else {
			mapped.Release(m.Data) // the second one that reads it
		}
		return out
	}})
}
