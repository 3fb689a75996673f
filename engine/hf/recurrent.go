package hf

import (
	"cmp"
	"math"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// This file has the families in which some layers have no attention.

// olderTypes are granite's names of layers before transformers 5.
var olderTypes = map[string]string{"mamba": linearAttention, "attention": fullAttention}

// readRecurrent reads which layers have another mixer than attention, by its name in
// layer_types; where config.json has none, recurrent says it.
func (d *description) readRecurrent(c *config, mixer string, recurrent func(layer int) bool) {
	d.recurrent = make([]bool, d.layers)
	for i := range d.recurrent {
		d.recurrent[i] = recurrent(i)
	}
	types := c.texts("layer_types")
	if types == nil {
		return
	}
	if len(types) < d.layers {
		c.fail("layer_types", "has %d layers of %d", len(types), d.layers)
		return
	}
	for i := range d.recurrent {
		types[i] = cmp.Or(olderTypes[types[i]], types[i])
		if d.recurrent[i] = types[i] == mixer; !d.recurrent[i] && types[i] != fullAttention {
			c.fail("layer_types", "has %.60q; supported: %s, %s", types[i], fullAttention, mixer)
		}
	}
}

// deltaNet has the sizes of a gated delta net (Yang et al., 2024): key heads, each of which
// serves as many value heads.
type deltaNet struct{ taps, keyHeads, valueHeads, keyDim, valueDim int }

// qwenPeriod is the default period of qwen 3.5's layers with attention.
const qwenPeriod = 4

func readQwen35(d *description, c *config) {
	period := c.size("full_attention_interval", qwenPeriod)
	d.readRecurrent(c, linearAttention, func(i int) bool { return (i+1)%period != 0 })
	n := deltaNet{
		taps: c.size("linear_conv_kernel_dim", 4), keyHeads: c.size("linear_num_key_heads", 16), valueHeads: c.size("linear_num_value_heads", 32),
		keyDim: c.size("linear_key_head_dim", 128), valueDim: c.size("linear_value_head_dim", 128),
	}
	if n.valueHeads%n.keyHeads != 0 {
		c.fail("linear_num_value_heads", "is %d, which the %d key heads do not divide", n.valueHeads, n.keyHeads)
	}
	if n.keyHeads > sizeMax/n.keyDim || n.valueHeads > sizeMax/n.valueDim {
		c.fail("linear_num_value_heads", "makes more than %d numbers in all heads", sizeMax)
		n = deltaNet{1, 1, 1, 1, 1}
	}
	d.net = n
	c.only("attn_output_gate", true)
	c.ignore("mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings") // of precision, and of predictions that are not made
}

func setQwen35(d *description, to *gguf.Draft) {
	n := d.net
	for key, size := range map[string]int{
		"ssm.conv_kernel": n.taps, "ssm.state_size": n.keyDim, "ssm.group_count": n.keyHeads,
		"ssm.time_step_rank": n.valueHeads, "ssm.inner_size": n.valueHeads * n.valueDim,
	} {
		to.Set(d.arch+"."+key, uint32(size))
	}
	to.Set(d.arch+".attention.recurrent_layers", d.recurrent)
}

// deltaNet adds the tensors of a layer with a gated delta net. In GGUF the value heads
// that one key head serves do not follow each other: the first ones of all key heads
// come first.
func (b *builder) deltaNet(to, from string) {
	n := b.net
	from += "linear_attn."
	keys, values := n.keyHeads*n.keyDim, n.valueHeads*n.valueDim
	heads := func(first, rows int) change {
		return change{tiles: tiles{first: first, heads: n.valueHeads, groups: n.keyHeads, size: rows}}
	}
	b.whole(to+"attn_qkv.weight", b.matrix(from+"in_proj_qkv.weight", 2*keys+values, b.embed), heads(2*keys, n.valueDim))
	b.whole(to+"attn_gate.weight", b.matrix(from+"in_proj_z.weight", values, b.embed), heads(0, n.valueDim))
	b.whole(to+"ssm_alpha.weight", b.matrix(from+"in_proj_a.weight", n.valueHeads, b.embed), heads(0, 1))
	b.whole(to+"ssm_beta.weight", b.matrix(from+"in_proj_b.weight", n.valueHeads, b.embed), heads(0, 1))
	across := heads(0, n.valueDim)
	across.tiles.columns = true
	b.whole(to+"ssm_out.weight", b.matrix(from+"out_proj.weight", b.embed, values), across)
	b.vector(to+"ssm_dt.bias", from+"dt_bias", n.valueHeads, heads(0, 1))
	decay := heads(0, 1)
	decay.negatedExp = true
	b.vector(to+"ssm_a", from+"A_log", n.valueHeads, decay)
	b.vector(to+"ssm_norm.weight", from+"norm.weight", n.valueDim, asIs)
	b.taps(to+"ssm_conv1d.weight", from+"conv1d.weight", 2*keys+values, n.taps, heads(2*keys, n.valueDim))
}

// groupedDeltaNet adds the tensors of qwen 3 next's gated delta nets. The rows of one key head and of
// the value heads that it serves follow each other, in one matrix for queries, keys, values and
// gates, and in one for what advances the state.
func (b *builder) groupedDeltaNet(to, from string) {
	n := b.net
	from += "linear_attn."
	keys, values, each := n.keyHeads*n.keyDim, n.valueHeads*n.valueDim, n.valueHeads/n.keyHeads*n.valueDim
	size := 2*n.keyDim + 2*each
	m := b.matrix(from+"in_proj_qkvz.weight", n.keyHeads*size, b.embed)
	b.pick(to+"attn_qkv.weight", m, size, rows{0, n.keyDim}, rows{n.keyDim, n.keyDim}, rows{2 * n.keyDim, each})
	b.pick(to+"attn_gate.weight", m, size, rows{2*n.keyDim + each, each})
	b.linear(to+"ssm_ba", from+"in_proj_ba", 2*n.valueHeads, b.embed, false, asIs)
	b.linear(to+"ssm_out", from+"out_proj", b.embed, values, false, asIs)
	b.vector(to+"ssm_dt.bias", from+"dt_bias", n.valueHeads, asIs)
	b.vector(to+"ssm_a", from+"A_log", n.valueHeads, change{negatedExp: true})
	b.vector(to+"ssm_norm.weight", from+"norm.weight", n.valueDim, asIs)
	b.taps(to+"ssm_conv1d.weight", from+"conv1d.weight", 2*keys+values, n.taps, asIs)
}

// taps adds the weights of a convolution, as float32.
func (b *builder) taps(to, from string, channels, taps int, how change) {
	t := b.take(from, channels, 1, taps)
	if t == nil {
		return
	}
	b.draft.Add(gguf.Tensor{Name: to, Type: kernels.F32, Dims: []int{taps, channels}, Make: func() []byte {
		x := make([]float32, t.Elements())
		kernels.Dequantize(x, types[t.Type], t.Data)
		for i := range b.mamba.multiplied {
			for j := range taps {
				x[i*taps+j] *= b.mamba.multiplied[i]
			}
		}
		return how.tiles.apply(float32Bytes(x), channels, 4*taps)
	}})
}

// tiles reorders heads, from (group, head in the group) to (head in the group, group). Those are
// rows from the first on, size of them a head, or columns.
type tiles struct {
	first, heads, groups, size int // heads 0: nothing is reordered
	columns                    bool
}

// apply reorders a matrix of rows with rowBytes each.
func (t tiles) apply(data []byte, rows, rowBytes int) []byte {
	if t.heads == 0 {
		return data
	}
	out := make([]byte, 0, len(data))
	if !t.columns {
		return t.order(append(out, data[:t.first*rowBytes]...), data[t.first*rowBytes:], t.size*rowBytes)
	}
	for row := range rows {
		out = t.order(out, data[row*rowBytes:(row+1)*rowBytes], rowBytes/t.heads)
	}
	return out
}

// order appends the heads of data, which have so many bytes each.
func (t tiles) order(out, data []byte, headBytes int) []byte {
	each := t.heads / t.groups
	for h := range t.heads {
		from := h%t.groups*each + h/t.groups
		out = append(out, data[from*headBytes:(from+1)*headBytes]...)
	}
	return out
}

// readLFM2 reads the width of the feed-forward layers as transformers computes it.
func readLFM2(d *description, c *config) {
	d.readShortConvolutions(c)
	d.ff = c.size("block_ff_dim", d.ff)
	multiple := c.size("block_multiple_of", 256)
	if multiplier := c.positive("block_ffn_dim_multiplier", 1); c.flag("block_auto_adjust_ff_dim", true) {
		width := min(sizeMax, multiplier*float64(2*d.ff/3))
		d.ff = (int(width) + multiple - 1) / multiple * multiple
	}
	c.only("block_use_swiglu", true)
	c.ignore("block_dim", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "block_mlp_init_scale", "block_norm_eps",
		"block_out_init_scale", "block_use_xavier_init", "num_heads", "theta") // of training, and repeated
}

func (d *description) readShortConvolutions(c *config) {
	attention := value[[]int](c, "full_attn_idxs", "a list of layers", nil)
	with := map[int]bool{}
	for _, i := range attention {
		with[i] = true
	}
	d.readRecurrent(c, "conv", func(i int) bool { return attention != nil && !with[i] })
	c.only("conv_bias", false)
	c.only("use_pos_enc", true)
	d.shortTaps = c.size("conv_L_cache", 3)
	d.tied = c.flag("tie_embedding", d.tied)
}

func setLFM2(d *description, to *gguf.Draft) {
	to.Set(d.arch+".shortconv.l_cache", uint32(d.shortTaps))
	d.setKVHeads(to)
}

// setKVHeads writes that recurrent layers have none.
func (d *description) setKVHeads(to *gguf.Draft) {
	kvHeads := make([]uint32, d.layers)
	for i := range kvHeads {
		if !d.recurrent[i] {
			kvHeads[i] = uint32(d.kvHeads)
		}
	}
	to.Set(d.arch+".attention.head_count_kv", kvHeads)
}

// shortConvolution adds the tensors of a layer with a short convolution.
func (b *builder) shortConvolution(to, from string) {
	from += "conv."
	b.linear(to+"shortconv.in_proj", from+"in_proj", 3*b.embed, b.embed, false, asIs)
	b.linear(to+"shortconv.out_proj", from+"out_proj", b.embed, b.embed, false, asIs)
	b.taps(to+"shortconv.conv.weight", from+"conv.weight", b.embed, b.shortTaps, asIs)
}

// negatedExp is -exp(x), for the decays of which a model has the logarithm.
func negatedExp(x []float32) {
	for i := range x {
		x[i] = float32(-math.Exp(float64(x[i])))
	}
}
