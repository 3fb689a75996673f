package model

import (
	"fmt"
	"math"
	"regexp"

	"github.com/forebay-io/forebay/kernels"
)

// earlyExpert is the name of one expert's tensor in files made before all
// experts of a layer became one tensor.
var earlyExpert = regexp.MustCompile(`\.ffn_(gate|up|down)\.[0-9]+\.`)

// experts takes a mixture's router and matrices.
func (l *loader) experts(to *layer, prefix string) {
	c := l.config
	l.linear(&to.router, prefix+"ffn_gate_inp", c.Embed, c.Experts)
	l.routerBias(to, prefix)
	to.experts = make([]feedForward, c.Experts)
	for e := range to.experts {
		to.experts[e].width = c.ExpertFF
	}
	fused := l.fusedExperts(to, prefix)
	for _, m := range []struct {
		name       string
		cols, rows int
		of         func(*feedForward) *linear
	}{
		{"ffn_gate", c.Embed, c.ExpertFF, func(f *feedForward) *linear { return &f.gate }},
		{"ffn_up", c.Embed, c.ExpertFF, func(f *feedForward) *linear { return &f.up }},
		{"ffn_down", c.ExpertFF, c.Embed, func(f *feedForward) *linear { return &f.down }},
	} {
		if fused && m.name != "ffn_down" || c.Ungated && m.name == "ffn_gate" {
			continue
		}
		if l.has(prefix + m.name + ".0.weight") {
			for e := range to.experts {
				l.linear(m.of(&to.experts[e]), fmt.Sprintf("%s%s.%d", prefix, m.name, e), m.cols, m.rows)
			}
			continue
		}
		name := prefix + m.name + "_exps"
		t := l.take(name+".weight", m.cols, m.rows, c.Experts)
		if t == nil {
			return
		}
		var bias []float32
		if l.has(name + ".bias") {
			bias = l.numbers(name+".bias", m.rows, c.Experts)
		}
		job := packJob{tensor: t}
		for e := range to.experts {
			dst := m.of(&to.experts[e])
			job.parts = append(job.parts, part{&dst.Matrix, m.rows})
			if bias != nil {
				dst.bias = bias[e*m.rows : (e+1)*m.rows]
			}
		}
		l.jobs = append(l.jobs, job)
	}
}

// routerBias takes what is added to the scores for the choice, which some files call
// a matrix of one column.
func (l *loader) routerBias(to *layer, prefix string) {
	name := prefix + "exp_probs_b.bias"
	t, ok := l.file.Tensor(name)
	if !ok || l.config.Router.SoftmaxOfChosen() || l.config.Router.Sparse {
		return // where the router has no place for it, it stays a tensor that is not understood
	}
	dims := []int{l.config.Experts}
	if len(t.Dims) == 2 {
		dims = append(dims, 1)
	}
	to.routerBias = l.numbers(name, dims...)
}

// besideNorms takes what a mixture beside a dense layer norms and scales by itself. The
// router's input is divided by the root of its width, which goes into its norm.
func (l *loader) besideNorms(to *layer, prefix string) {
	c := l.config
	to.beside = besideNorms{
		dense: l.norm(prefix+"post_ffw_norm_1", c.Embed), experts: l.norm(prefix+"post_ffw_norm_2", c.Embed),
		input: l.norm(prefix+"pre_ffw_norm_2", c.Embed), router: l.vector(prefix+"ffn_gate_inp.scale", c.Embed),
	}
	scale(to.beside.router, float32(1/math.Sqrt(float64(c.Embed))))
	to.expertScales = l.vector(prefix+"ffn_down_exps.scale", c.Experts)
}

// fusedExperts takes the tensor in which some converters put gate and up together,
// each expert's gate before its up. It reports whether there is one.
func (l *loader) fusedExperts(to *layer, prefix string) bool {
	name := prefix + "ffn_gate_up_exps.weight"
	if !l.has(name) {
		return false
	}
	c := l.config
	if t := l.take(name, c.Embed, 2*c.ExpertFF, c.Experts); t != nil {
		job := packJob{tensor: t}
		for e := range to.experts {
			job.parts = append(job.parts, part{&to.experts[e].gate.Matrix, c.ExpertFF}, part{&to.experts[e].up.Matrix, c.ExpertFF})
		}
		l.jobs = append(l.jobs, job)
	}
	return true
}

// mixture is the state of a mixture's layer in one Forward. Each token has
// ExpertsUsed slots; the slots of one expert lie side by side, so that its
// matrices are multiplied with all their tokens at once. A token's result
// depends on its own row alone: its slots are added in the order of its own
// choice.
type mixture struct {
	scores  []float32   // [token][Experts]
	ranks   []float32   // [token][Experts]
	chosen  []int32     // [token][ExpertsUsed] experts, the best first
	shares  []float32   // [token][ExpertsUsed]
	slots   []int32     // [token][ExpertsUsed]
	first   []int32     // [Experts+1] slot of each expert's first token
	inputs  activations // [slot][Embed]
	outputs []float32   // [slot][Embed]
	gates   []float32   // [token] of the expert that every token uses
	routed  activations // [token][Embed] the router's input, where it is another than the experts'
	beside  []float32   // [token][Embed] the dense layer's output beside that of the experts
}

func newMixture(c *Config, set *kernels.Set, n int, rows func(n, width int) []float32) mixture {
	if c.Experts == 0 {
		return mixture{}
	}
	slots := n * c.ExpertsUsed
	x := mixture{
		scores: rows(n, c.Experts), ranks: rows(n, c.Experts), shares: rows(n, c.ExpertsUsed), gates: rows(n, 1),
		chosen: make([]int32, slots), slots: make([]int32, slots), first: make([]int32, c.Experts+1),
		inputs: newActivations(set, slots, c.Embed, rows), outputs: rows(slots, c.Embed),
	}
	if c.BesideDense {
		x.routed, x.beside = newActivations(set, n, c.Embed, rows), rows(n, c.Embed)
	}
	return x
}

// normBeside keeps the dense layer's output, and norms the residual stream for the
// router and for the experts.
func (p *pass) normBeside(worker int) {
	x, width := &p.mixture, p.m.config.Embed
	l := &p.m.weights.layers[p.layer]
	for i, hi := p.share(worker); i < hi; i++ {
		p.normTo(row(x.beside, i, width), row(p.scratch.sum, i, width), &l.beside.dense)
		p.m.set.RMSNorm(x.routed.row(i), row(p.scratch.x, i, width), l.beside.router, p.m.config.NormEps)
		x.routed.round(i, 0, width)
		p.norm(i, &l.beside.input)
	}
}

// route scores the experts for each token and chooses.
func (p *pass) route(worker int) {
	lo, hi := p.share(worker)
	if lo == hi {
		return
	}
	c, x := &p.m.config, &p.mixture
	l := &p.m.weights.layers[p.layer]
	input := &p.scratch.normed
	if c.BesideDense {
		input = &x.routed
	}
	p.m.set.MatMul(x.scores[lo*c.Experts:], c.Experts, l.router.Matrix, input.from(lo), hi-lo, 0, c.Experts)
	if c.SharedGated {
		p.m.set.MatMul(x.gates[lo:], 1, l.sharedGate.Matrix, p.scratch.normed.from(lo), hi-lo, 0, 1)
	}
	for i := lo; i < hi; i++ {
		scores, shares := row(x.scores, i, c.Experts), row(x.shares, i, c.ExpertsUsed)
		if l.router.bias != nil {
			p.m.set.Add(scores, l.router.bias)
		}
		chosen := x.chosen[i*c.ExpertsUsed : (i+1)*c.ExpertsUsed]
		if c.Router.SoftmaxOfChosen() {
			choose(chosen, shares, scores)
			p.m.set.Softmax(shares)
		} else {
			one := choice{chosen: chosen, shares: shares, scores: scores, rank: row(x.ranks, i, c.Experts)}
			one.take(&c.Router, l.routerBias)
		}
		for r, e := range chosen {
			if l.expertScales != nil {
				shares[r] *= l.expertScales[e]
			}
		}
	}
}

// place gives each choice of a token a slot, expert by expert.
func (x *mixture) place(choices int) {
	clear(x.first)
	for _, e := range x.chosen[:choices] {
		x.first[e+1]++
	}
	for e := 1; e < len(x.first); e++ {
		x.first[e] += x.first[e-1]
	}
	for i, e := range x.chosen[:choices] {
		x.slots[i] = x.first[e]
		x.first[e]++
	}
	copy(x.first[1:], x.first) // each has moved to the beginning of the next
	x.first[0] = 0
}

// scatter copies each token's row to its slots.
func (p *pass) scatter(worker int) {
	c, x := &p.m.config, &p.mixture
	for i, hi := p.share(worker); i < hi; i++ {
		for r, slot := range x.slots[i*c.ExpertsUsed : (i+1)*c.ExpertsUsed] {
			x.inputs.copyRow(int(slot), &p.scratch.normed, i)
			if c.Router.OnInput {
				scale(x.inputs.row(int(slot)), x.shares[i*c.ExpertsUsed+r])
				x.inputs.round(int(slot), 0, c.Embed)
				x.shares[i*c.ExpertsUsed+r] = 1
			}
		}
	}
}

// expertsGateUp computes the worker's part of every expert's activation.
func (p *pass) expertsGateUp(worker int) {
	x := &p.mixture
	lo, hi := kernels.Split(p.m.config.ExpertFF, portionRows, worker, p.m.team.Workers())
	for e := range p.m.config.Experts {
		if lo < hi {
			p.gated(worker, &p.m.weights.layers[p.layer].experts[e], &x.inputs, int(x.first[e]), int(x.first[e+1]), lo, hi)
		}
	}
}

func (p *pass) expertsDown(worker int) {
	x, width, gate := &p.mixture, p.m.config.Embed, p.scratch.gate.of(p.m.config.ExpertFF)
	lo, hi := kernels.Split(width, kernels.RowTile, worker, p.m.team.Workers())
	for e := range p.m.config.Experts {
		from, n := int(x.first[e]), int(x.first[e+1]-x.first[e])
		if n > 0 && lo < hi {
			down := &p.m.weights.layers[p.layer].experts[e].down
			p.multiply(x.outputs[from*width:], down, gate.from(from), n, lo, hi)
		}
	}
}

// gatherExperts sums the outputs of each token's experts by their shares, after that
// of the expert that every token uses.
func (p *pass) gatherExperts(worker int) {
	c, x := &p.m.config, &p.mixture
	for i, hi := p.share(worker); i < hi; i++ {
		sum := row(p.scratch.sum, i, c.Embed)
		switch {
		case c.SharedFF == 0: // what may be there stands beside
			clear(sum)
		case c.SharedGated:
			scale(sum, float32(1/(1+math.Exp(-float64(x.gates[i])))))
		}
		for r, slot := range x.slots[i*c.ExpertsUsed : (i+1)*c.ExpertsUsed] {
			share := x.shares[i*c.ExpertsUsed+r]
			for j, v := range row(x.outputs, int(slot), c.Embed) {
				sum[j] += share * v
			}
		}
		if c.BesideDense {
			p.normTo(sum, sum, &p.m.weights.layers[p.layer].beside.experts)
			p.m.set.Add(sum, row(x.beside, i, c.Embed))
		}
	}
}
