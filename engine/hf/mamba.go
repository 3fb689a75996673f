package hf

import (
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// mamba has the sizes of state spaces (Dao and Gu, Mamba 2, 2024).
type mamba struct {
	taps, heads, headDim, state int
	groups                      int       // of heads that share keys
	unnormed                    bool      // the output is gated, and not normed
	multiplied                  []float32 // by which each channel's weights of the convolution are multiplied; nil: none
	tapsBias                    bool      // the convolution has a bias
	name                        string    // of its tensors' prefix in a layer
}

// inner is the width of what a state space gives.
func (m *mamba) inner() int { return m.heads * m.headDim }

// channels are those of the convolution: what goes in, and a pair of keys for each group.
func (m *mamba) channels() int { return m.inner() + 2*m.groups*m.state }

// setMamba takes the sizes of state spaces, unless they are too large or do not fit each other.
func (d *description) setMamba(c *config, key string, m mamba) {
	if m.heads > sizeMax/m.headDim || m.groups > sizeMax/m.state || m.heads%m.groups != 0 {
		c.fail(key, "is %d of %d numbers each, in %d groups with %d keys; needed are whole groups, and up to %d numbers in all", m.heads, m.headDim, m.groups, m.state, sizeMax)
		m = mamba{taps: 2, heads: 1, headDim: 1, state: 1, groups: 1}
	}
	d.mamba = m
}

// readGraniteHybrid reads Granite 4: state spaces in most layers, with experts or without.
func readGraniteHybrid(d *description, c *config) {
	readGranite(d, c)
	d.readRecurrent(c, linearAttention, func(int) bool { return true })
	m := mamba{taps: c.size("mamba_d_conv", 4), heads: c.size("mamba_n_heads", 128), state: c.size("mamba_d_state", 256), groups: 1, tapsBias: true, name: "mamba."}
	expand := c.size("mamba_expand", 2)
	if string(c.values["mamba_d_head"]) == `"auto"` {
		c.ignore("mamba_d_head")
		m.headDim = max(1, expand*d.embed/m.heads)
	} else {
		m.headDim = c.size("mamba_d_head", max(1, expand*d.embed/m.heads))
	}
	if m.heads > sizeMax/m.headDim || m.inner() != expand*d.embed {
		c.fail("mamba_n_heads", "is %d of %d numbers each; needed are %d numbers, mamba_expand times hidden_size, in all", m.heads, m.headDim, expand*d.embed)
		m.heads, m.headDim = 1, 1
	}
	d.setMamba(c, "mamba_n_heads", m)
	if n := c.number("mamba_n_groups", 1); n != 1 {
		c.fail("mamba_n_groups", "is %v; only 1 is supported in this model type", n)
	}
	c.only("mamba_conv_bias", true)
	c.only("mamba_proj_bias", false)
	c.oneOf("normalization_function", "rmsnorm")
	c.oneOf("position_embedding_type", "nope", "rope")
	d.still = c.text("position_embedding_type", "nope") != "rope"
	c.ignore("mamba_chunk_size", "init_method", "time_step_min", "time_step_max", "time_step_floor") // of speed and of training
	d.readStepLimit(c)
	d.sharedFF = c.size("shared_intermediate_size", 1024)
	if c.count("num_local_experts", 8) == 0 {
		c.ignore("num_experts_per_tok")
		d.ff = d.sharedFF
		return
	}
	d.experts, d.expertsUsed = 8, 2
	d.sizes.readExperts(c)
}

// readStepLimit refuses bounds of a state space's steps.
func (d *description) readStepLimit(c *config) {
	const key = "time_step_limit"
	limit := value[[]any](c, key, "a list of two numbers", nil)
	if limit == nil {
		return
	}
	endless := len(limit) == 2 && limit[0] == 0.0
	if endless {
		object, _ := limit[1].(map[string]any) // so transformers writes what is no number of JSON
		endless = limit[1] == infinity || object["__float__"] == infinity
	}
	if !endless {
		c.fail(key, "is %s; only 0 to infinity is supported", short(c.values[key]))
	}
}

func setGraniteHybrid(d *description, to *gguf.Draft) {
	setGranite(d, to)
	d.setKVHeads(to)
	d.mamba.set(to, d.arch)
	to.Set(d.arch+".rope.scaling.finetuned", !d.still)
}

func (m *mamba) set(to *gguf.Draft, arch string) {
	for key, n := range map[string]int{"conv_kernel": m.taps, "state_size": m.state, "group_count": m.groups, "inner_size": m.inner(), "time_step_rank": m.heads} {
		to.Set(arch+".ssm."+key, uint32(n))
	}
}

// stateSpace adds the tensors of a layer with a state space.
func (b *builder) stateSpace(to, from string) {
	m := &b.mamba
	from += m.name
	b.linear(to+"ssm_in", from+"in_proj", m.inner()+m.channels()+m.heads, b.embed, false, asIs)
	b.linear(to+"ssm_out", from+"out_proj", b.embed, m.inner(), false, asIs)
	b.taps(to+"ssm_conv1d.weight", from+"conv1d.weight", m.channels(), m.taps, asIs)
	if m.tapsBias {
		b.vector(to+"ssm_conv1d.bias", from+"conv1d.bias", m.channels(), asIs)
	}
	b.vector(to+"ssm_dt.bias", from+"dt_bias", m.heads, asIs)
	b.floats(to+"ssm_d", b.take(from+"D", m.heads), 1, m.heads)
	if !m.unnormed {
		b.floats(to+"ssm_norm.weight", b.take(from+"norm.weight", m.inner()), m.inner()/m.groups, m.groups)
	}
	if t := b.take(from+"A_log", m.heads); t != nil {
		b.draft.Add(gguf.Tensor{Name: to + "ssm_a", Type: kernels.F32, Dims: []int{1, m.heads}, Make: func() []byte {
			x := make([]float32, m.heads)
			kernels.Dequantize(x, types[t.Type], t.Data)
			negatedExp(x)
			return float32Bytes(x)
		}})
	}
}

// graniteDense adds the feed-forward layer of a model without experts, which has the name of the shared one.
func (b *builder) graniteDense(to, from string) {
	m := b.matrix(from+"shared_mlp.input_linear.weight", 2*b.ff, b.embed)
	b.pick(to+"ffn_gate.weight", m, 2*b.ff, rows{0, b.ff})
	b.pick(to+"ffn_up.weight", m, 2*b.ff, rows{b.ff, b.ff})
	b.linear(to+"ffn_down", from+"shared_mlp.output_linear", b.embed, b.ff, false, asIs)
}
