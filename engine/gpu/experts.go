//go:build cuda

package gpu

import (
	"slices"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// This file is the feed-forward of a mixture: which experts each token chooses, and their
// products.

// expertProducts are the variants of the product with experts: tokens is the most of a group.
func expertProducts(t kernels.Type, find func(shared int, format string, args ...any) *cuda.Kernel) []product {
	if t == kernels.F32 {
		return []product{{tokens: 1, weights: expertThreads / warpSize * expertRows, threads: expertThreads, kernel: find(0, "experts_f32")}}
	}
	all := slices.Clone(tileProducts)
	for i := range all {
		all[i].kernel = find(all[i].shared, "experts_%s_%d", cuda.TypeName(t), all[i].tokens)
	}
	return all
}

// mixture is the feed-forward of layer l.
func (s *pass) mixture(l *layer) {
	c, b := s.config, &s.buffers
	beside, gates := s.sharedExpert(l)
	s.multiply(b.scores, c.Experts, []matrix{l.router}, b.normed, c.Embed, s.rows, s.rowCount())
	s.launch(s.kernels.route, cudrv.Grid{s.rows, 1, 1}, warpSize, 2*4*c.Router.Groups, s.args.Reset().
		At(b.chosen, b.shares, b.scores, l.routerBias).Int(c.Experts, c.ExpertsUsed, routing(&c.Router), c.Router.Groups, c.Router.GroupsUsed).
		Float(float32(c.Router.SumAdd), float32(c.Router.Scale)).At(s.rowCount()))
	s.groupExperts()
	input, perChoice, shares := b.normed, 0, b.shares
	if c.Router.OnInput { // outputs is free until the experts' own
		input, perChoice, shares = b.outputs, 1, 0
		s.launch(s.kernels.shareInputs, cudrv.Grid{cut(c.Embed, rowThreads), s.rows, c.ExpertsUsed}, rowThreads, 0, s.args.Reset().
			At(input, b.normed, b.shares).Int(c.Embed, c.ExpertsUsed).At(s.rowCount()))
	}
	s.multiplyExperts(b.gateUp, 2*c.ExpertFF, l.experts.gateUp, input, c.Embed, perChoice)
	s.activate(c.ExpertFF, c.ExpertsUsed)
	s.multiplyExperts(b.outputs, c.Embed, l.experts.down, b.gate, c.ExpertFF, 1)
	s.launch(s.kernels.gather, cudrv.Grid{cut(c.Embed, rowThreads), s.rows, 1}, rowThreads, 0, s.args.Reset().
		At(b.sum, b.outputs, shares, beside, gates).Int(c.Embed, c.ExpertsUsed).At(s.rowCount()))
}

// sharedExpert computes the expert that every token uses, and its gates; address 0 where there are none.
func (s *pass) sharedExpert(l *layer) (output, gates cuda.Address) {
	c, b := s.config, &s.buffers
	if c.SharedFF == 0 {
		return 0, 0
	}
	s.multiply(b.gateUp, 2*c.SharedFF, l.gateUp, b.normed, c.Embed, s.rows, s.rowCount())
	s.activate(c.SharedFF, 1)
	s.multiply(b.beside, c.Embed, []matrix{l.down}, b.gate, c.SharedFF, s.rows, s.rowCount())
	if c.SharedGated {
		gates = b.gates
		s.multiply(gates, 1, []matrix{l.sharedGate}, b.normed, c.Embed, s.rows, s.rowCount())
	}
	return b.beside, gates
}

// routing is how a router chooses and weighs, as route in rows.cu has it.
func routing(r *model.Router) (kind int) {
	const softmax, sigmoid, normed, byTwo, sparse = 1, 2, 4, 8, 16
	switch {
	case r.SoftmaxOfChosen():
		return 0
	case r.Sparse:
		return sparse
	case r.Sigmoid:
		kind = sigmoid
	default:
		kind = softmax
	}
	if r.Normed {
		kind |= normed
	}
	if r.GroupByTwo {
		kind |= byTwo
	}
	return kind
}

// groupTokens is the most tokens of a group of a step: where an expert has few, those of the
// narrow product.
func (s *pass) groupTokens() int {
	narrow, wide := &tileProducts[0], &tileProducts[len(tileProducts)-1]
	if s.rows*s.config.ExpertsUsed > s.config.Experts*2*narrow.tokens {
		return wide.tokens
	}
	return narrow.tokens
}

// groups is the most groups that a step can have.
func (s *pass) groups() int {
	choices := s.rows * s.config.ExpertsUsed
	return min(choices, choices/s.groupTokens()+s.config.Experts)
}

// groupExperts sorts the step's choices by expert. One token has no expert twice.
func (s *pass) groupExperts() {
	c, b := s.config, &s.buffers
	if s.rows == 1 {
		return
	}
	s.launch(s.kernels.group, cudrv.Grid{1, 1, 1}, rowThreads, 3*4*c.Experts, s.args.Reset().
		At(b.order, b.groups, b.groupsCount, b.chosen).Int(c.Experts, c.ExpertsUsed, s.groupTokens()).At(s.rowCount()))
}

// multiplyExperts computes dst = w·x for every choice of every token. x has a row for each
// token, or for each choice where perChoice is 1.
func (s *pass) multiplyExperts(dst cuda.Address, stride int, w []expertMatrix, x cuda.Address, cols, perChoice int) {
	for i := range w {
		m, b := &w[i], &s.buffers
		all := s.kernels.experts[m.kind]
		v := &all[0]
		if s.rows > 1 && s.groupTokens() > v.tokens {
			v = &all[len(all)-1]
		}
		a := s.args.Reset().At(dst+cuda.Address(4*m.first)).Int(stride).At(m.data).Long(uint64(m.bytes)).At(m.bias).Int(m.rows, m.cols).
			At(x).Int(cols, perChoice).At(b.chosen).Int(s.config.ExpertsUsed).At(s.rowCount())
		blocks := s.rows * s.config.ExpertsUsed
		switch {
		case m.kind == kernels.F32:
		case s.rows == 1:
			a.At(0, 0, 0)
		default:
			blocks = s.groups()
			a.At(b.order, b.groups, b.groupsCount)
		}
		s.launch(v.kernel, cudrv.Grid{cut(m.rows, v.weights), blocks, 1}, v.threads, v.shared, a)
	}
}
