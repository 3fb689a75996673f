package hf

import (
	"cmp"
	"fmt"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/mapped"
	"github.com/forebay-io/forebay/engine/safetensors"
	"github.com/forebay-io/forebay/kernels"
)

// This file has what mixtures of experts share: the keys of config.json and the tensors.

// Names of one size in the families' config.json. A file may have several, if all say the same.
var (
	expertCounts = []string{"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}
	usedCounts   = []string{"num_experts_per_tok", "moe_k", "top_k_experts"}
)

// sizeOf reads a size that has several names.
func (c *config) sizeOf(absent int, names []string) int {
	n, from := absent, ""
	for _, name := range names {
		if !c.has(name) {
			continue
		}
		if x := c.size(name, absent); from == "" {
			n, from = x, name
		} else if x != n {
			c.fail(name, "is %d, and %s is %d", x, from, n)
		}
	}
	return n
}

// readExperts reads the experts' sizes; 0 experts of the family mean that it has none.
func (s *sizes) readExperts(c *config) {
	if s.experts == 0 {
		return
	}
	s.experts, s.expertsUsed = c.sizeOf(s.experts, expertCounts), c.sizeOf(s.expertsUsed, usedCounts)
	if s.expertsUsed > s.experts {
		c.fail(usedCounts[0], "is %d of %d experts", s.expertsUsed, s.experts)
	}
	if s.expertFF > 0 {
		s.expertFF = c.size("moe_intermediate_size", s.expertFF)
	}
}

// readShared reads how many experts every token uses; they are one of so many times the width.
func (d *description) readShared(c *config, key string, absent int) {
	n := c.count(key, absent)
	if n > sizeMax/max(1, d.expertFF) {
		c.fail(key, "is %d, which makes a width of more than %d", n, sizeMax)
		return
	}
	d.sharedFF = n * d.expertFF
}

// routing is what makes weights of the router's outputs.
type routing struct {
	sigmoid            bool // of each output, not the softmax of all
	normed             bool // the weights of a token's experts add up to scale
	scale              float64
	groups, groupsUsed int // experts are chosen from the best groups alone
}

// readRouting reads the router's keys over what the family does without them.
func (d *description) readRouting(c *config, r routing) {
	r.normed = c.flag("norm_topk_prob", r.normed)
	r.scale = c.positive("routed_scaling_factor", cmp.Or(r.scale, 1))
	r.groups, r.groupsUsed = max(1, c.count("n_group", r.groups)), max(1, c.count("topk_group", r.groupsUsed))
	if size := d.experts / r.groups; d.experts%r.groups != 0 || r.groupsUsed > r.groups || r.groupsUsed*size < d.expertsUsed {
		c.fail("n_group", "is %d, of which %d are used: that does not fit %d experts, of which %d are used", r.groups, r.groupsUsed, d.experts, d.expertsUsed)
	}
	if r.sigmoid {
		c.oneOf("scoring_func", "sigmoid")
	} else {
		c.oneOf("scoring_func", "softmax")
	}
	c.ignore("aux_loss_alpha", "seq_aux", "ep_size") // of training
	d.routing = &r
}

// setExperts writes the keys of experts as the GGUF converter does.
func (d *description) setExperts(to *gguf.Draft) {
	if d.experts == 0 {
		return
	}
	size := func(key string, n int) { to.Set(d.arch+"."+key, uint32(n)) }
	size("expert_count", d.experts)
	size("expert_used_count", d.expertsUsed)
	if d.expertFF > 0 {
		size("expert_feed_forward_length", d.expertFF)
	}
	if d.sharedFF > 0 {
		size("expert_shared_feed_forward_length", d.sharedFF)
	}
	if d.leading > 0 {
		size("leading_dense_block_count", d.leading)
	}
	if d.step > 1 {
		size("interleave_moe_layer_step", d.step)
	}
	r := d.routing
	if r == nil {
		return
	}
	gating := 1 // softmax
	if r.sigmoid {
		gating = 2
	}
	size("expert_gating_func", gating)
	to.Set(d.arch+".expert_weights_norm", r.normed)
	to.Set(d.arch+".expert_weights_scale", float32(r.scale))
	if r.groups > 1 {
		size("expert_group_count", r.groups)
		size("expert_group_used_count", r.groupsUsed)
	}
}

// expertNames are the names of a layer's experts in safetensors. Experts have a tensor each,
// or lie together in one tensor of each kind.
type expertNames struct {
	router         string
	bias           string // of the scores, for the choice; "": none
	each           string // prefix of one expert's tensors
	gate, down, up string
	ungated        bool // there is no gate
	together       together
	shared         string // prefix of those of the experts that every token uses
	sharedGateUp   string // where gate's and up's rows are one tensor
	sharedDown     string
	sharedGate     string // "": none
}

// together are the tensors that hold a matrix of every expert, gate's rows before up's.
type together struct {
	gateUp, down string
	transposed   bool // a matrix is inputs×outputs, not outputs×inputs
}

// tensors adds a layer's router and experts.
func (n *expertNames) tensors(b *builder, to, from string) {
	width := cmp.Or(b.expertFF, b.ff)
	b.router(to+"ffn_gate_inp.weight", from+n.router+".weight")
	if n.bias != "" && !b.unbiased {
		b.routerBias(to+"exp_probs_b.bias", from+n.bias)
	}
	if _, ok := b.weights.Tensor(from + n.together.gateUp); !n.ungated && (ok || n.each == "") {
		b.together(to+"ffn_gate_up_exps.weight", from+n.together.gateUp, 2*width, b.embed, n.together.transposed)
		b.together(to+"ffn_down_exps.weight", from+n.together.down, b.embed, width, n.together.transposed)
	} else {
		if !n.ungated {
			b.stack(to+"ffn_gate_exps.weight", from+n.each+n.gate+".weight", b.experts, width, b.embed)
		}
		b.stack(to+"ffn_down_exps.weight", from+n.each+n.down+".weight", b.experts, b.embed, width)
		b.stack(to+"ffn_up_exps.weight", from+n.each+n.up+".weight", b.experts, width, b.embed)
	}
	if b.sharedFF > 0 {
		n.sharedTensors(b, to, from)
	}
}

// sharedTensors adds the experts that every token uses.
func (n *expertNames) sharedTensors(b *builder, to, from string) {
	from, gate := from+n.shared, from+n.sharedGate
	if n.sharedGateUp != "" {
		m := b.matrix(from+n.sharedGateUp+".weight", 2*b.sharedFF, b.embed)
		b.pick(to+"ffn_gate_shexp.weight", m, 2*b.sharedFF, rows{0, b.sharedFF})
		b.pick(to+"ffn_up_shexp.weight", m, 2*b.sharedFF, rows{b.sharedFF, b.sharedFF})
	} else {
		if !n.ungated {
			b.linear(to+"ffn_gate_shexp", from+"gate_proj", b.sharedFF, b.embed, false, asIs)
		}
		b.linear(to+"ffn_up_shexp", from+"up_proj", b.sharedFF, b.embed, false, asIs)
	}
	b.linear(to+"ffn_down_shexp", from+cmp.Or(n.sharedDown, "down_proj"), b.embed, b.sharedFF, false, asIs)
	if n.sharedGate != "" {
		b.linear(to+"ffn_gate_inp_shexp", gate, 1, b.embed, false, asIs)
	}
}

// router adds the matrix that scores experts, as float32.
func (b *builder) router(to, from string) {
	b.floats(to, b.take(from, b.experts, b.embed), b.embed, b.experts)
}

// routerBias adds what is added to the scores for the choice: a vector, or a matrix of one row.
func (b *builder) routerBias(to, from string) {
	shape := []int{b.experts}
	if t, ok := b.weights.Tensor(from); ok && len(t.Shape) == 2 {
		shape = []int{1, b.experts}
	}
	b.floats(to, b.take(from, shape...), b.experts)
}

// floats adds t, unless it is nil, as float32 of the dimensions.
func (b *builder) floats(to string, t *safetensors.Tensor, dims ...int) {
	if t == nil {
		return
	}
	b.draft.Add(gguf.Tensor{Name: to, Type: kernels.F32, Dims: dims, Make: func() []byte {
		x := make([]float32, t.Elements())
		kernels.Dequantize(x, types[t.Type], t.Data)
		return float32Bytes(x)
	}})
}

// stack adds n matrices, such as one of every expert, as one tensor.
func (b *builder) stack(to, from string, n, rows, cols int) {
	var parts []*matrix
	for i := range n {
		m := b.matrix(fmt.Sprintf(from, i), rows, cols)
		if m == nil {
			return
		}
		if parts = append(parts, m); m.kind != parts[0].kind {
			b.fail(m.Name, "has the type %s; another one beside it has %s", m.Type, parts[0].Type)
			return
		}
	}
	kind, total := parts[0].kind, len(parts)*parts[0].bytes
	b.bytes[kind] += total
	b.draft.Add(gguf.Tensor{Name: to, Type: kind, Dims: []int{cols, rows, len(parts)}, Make: func() []byte {
		out := make([]byte, 0, total)
		for _, m := range parts {
			out = append(out, m.data()...)
			mapped.Release(m.Data)
		}
		return out
	}})
}

// together adds a tensor that holds a matrix of every expert; transposed, it is brought to
// outputs×inputs.
func (b *builder) together(to, from string, rows, cols int, transposed bool) {
	if !transposed {
		b.whole(to, b.matrix(from, b.experts, rows, cols), asIs)
		return
	}
	t := b.take(from, b.experts, cols, rows)
	if t == nil {
		return
	}
	b.bytes[types[t.Type]] += len(t.Data)
	b.draft.Add(gguf.Tensor{Name: to, Type: types[t.Type], Dims: []int{cols, rows, b.experts}, Make: func() []byte {
		out := transpose(t.Data, b.experts, cols, rows, len(t.Data)/t.Elements())
		mapped.Release(t.Data)
		return out
	}})
}

// transpose transposes n matrices of rows×cols numbers, which have size bytes each.
func transpose(data []byte, n, rows, cols, size int) []byte {
	out := make([]byte, 0, len(data))
	for i := range n {
		for col := range cols {
			for row := range rows {
				at := ((i*rows+row)*cols + col) * size
				out = append(out, data[at:at+size]...)
			}
		}
	}
	return out
}

// rows are n rows, of a matrix or of each group of its rows.
type rows struct{ first, n int }

// pick adds those rows of m, unless it is nil, that each group of size rows has, one choice after
// another.
func (b *builder) pick(to string, m *matrix, size int, choices ...rows) {
	if m == nil {
		return
	}
	groups, bytes, total := m.Shape[0]/size, m.bytes/m.Shape[0], 0
	for _, r := range choices {
		total += groups * r.n
	}
	b.bytes[m.kind] += total * bytes
	b.draft.Add(gguf.Tensor{Name: to, Type: m.kind, Dims: []int{m.Shape[1], total}, Make: func() []byte {
		data, out := m.data(), make([]byte, 0, total*bytes)
		for _, r := range choices {
			for g := range groups {
				first := g*size + r.first
				out = append(out, data[first*bytes:(first+r.n)*bytes]...)
			}
		}
		return out
	}})
}
