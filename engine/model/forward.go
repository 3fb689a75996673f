package model

import (
	"sync/atomic"

	"github.com/forebay-io/forebay/kernels"
)

// Forward computes the chunks together, writes their keys and values into their
// pages, and returns the logits asked for: rows of Config.Vocab, in the order of
// the chunks. Those of an embedder are its last hidden states, rows of Config.Embed.
// They belong to the model and are valid until the next Forward.
//
// The caller must not let two chunks write to one page, and must not exceed the
// vocabulary or BatchTokensMax; breaking any but the first of these panics.
func (m *Model) Forward(chunks []Chunk) []float32 {
	logits, _ := m.ForwardUnless(nil, chunks)
	return logits
}

// ForwardUnless is Forward, but gives up between two layers once stop is true
// and much of the work is still to be done. Then it reports false: the pages
// hold nothing new that counts, and the same chunks can be computed again, to
// the same bits. A nil stop never stops.
func (m *Model) ForwardUnless(stop *atomic.Bool, chunks []Chunk) (logits []float32, done bool) {
	if m.placed != nil {
		return m.forwardOn(stop, chunks)
	}
	p, layers := &m.pass, len(m.weights.layers)
	p.gather(chunks)
	p.layer, p.waits = -1, nil
	p.do(KernelEmbed, p.phases.embed)
	if m.config.PerLayer > 0 {
		p.do(KernelEmbed, p.phases.perLayerProject, p.phases.perLayerEmbed)
	}
	if m.config.AltUp.Streams > 0 {
		p.do(KernelEmbed, p.phases.beginStreams, p.phases.sizeStreams)
	}
	for p.layer = range layers {
		// A state that has moved on cannot be computed again.
		if stop != nil && m.stateLen == 0 && p.layer < layers*3/4 && stop.Load() {
			return nil, false
		}
		if m.config.Layers[p.layer].mixes() {
			if p.mix(); p.rows == 0 {
				return nil, true
			}
		}
		if m.config.Layers[p.layer].feeds() {
			p.do(KernelNormRope, p.phases.normFF)
			p.feedForward()
		}
		if m.config.PerLayer > 0 {
			p.perLayer()
		}
	}
	p.layer = -1
	if m.config.AltUp.Streams > 0 {
		p.endStreams()
	}
	p.do(KernelNormRope, p.phases.normOutput)
	if p.m.config.Pooling != PoolNone {
		return p.scratch.normed.numbers[:p.rows*p.m.config.Embed], true
	}
	p.do(KernelLogits, p.phases.logits)
	return p.logits[:p.rows*m.config.Vocab], true
}

// mix is the layer's first half: attention, or a state, or both, which then read the same
// norm.
func (p *pass) mix() {
	d, l := &p.m.config.Layers[p.layer], &p.m.weights.layers[p.layer]
	if p.m.config.AltUp.Streams > 0 {
		p.do(KernelNormRope, p.phases.predictStreams)
		p.do(KernelMLP, p.phases.laurelLeft, p.phases.laurelRound, p.phases.laurelRight)
	} else {
		p.do(KernelNormRope, p.phases.normAttention)
	}
	if d.Recurrent {
		if p.recur(); p.rows == 0 {
			return
		}
	}
	if d.Recurrent && d.KVHeads > 0 {
		p.wait(&noNorm, 1)
		p.do(KernelNormRope, p.phases.add)
	}
	switch {
	case p.m.config.Latent.Rank > 0:
		if p.attendLatent(); p.rows == 0 {
			return
		}
	case d.KVHeads > 0:
		p.do(KernelQKV, p.phases.project)
		p.do(KernelNormRope, p.phases.place)
		if p.layer == p.m.lastStore {
			p.dropRows()
		}
		if p.rows == 0 {
			return
		}
		p.attention()
		p.do(KernelOutput, p.phases.projectOut)
	}
	p.wait(&l.postAttention, 1)
}

// feedForward is the layer's second half, dense or a mixture of experts, or both.
func (p *pass) feedForward() {
	f, l := &p.phases, &p.m.weights.layers[p.layer]
	defer p.wait(&l.postFF, l.outputScale)
	switch {
	case p.sparse():
		p.do(KernelMLP, f.sparseGateUp, f.sparseActivate, f.down)
		return
	case l.experts == nil:
		p.do(KernelMLP, f.gateUp, f.down)
		return
	}
	if l.dense.width > 0 {
		p.run(f.gateUp)
		p.run(f.down)
	}
	if p.m.config.BesideDense {
		p.run(f.normBeside)
	}
	p.run(f.route)
	p.mixture.place(p.rows * p.m.config.ExpertsUsed)
	p.do(KernelMLP, f.scatter, f.expertsGateUp, f.expertsDown, f.gatherExperts)
}

// embed reads the tokens' embeddings and their positions' angles.
func (p *pass) embed(worker int) {
	e := p.m.weights.embedding
	width := p.m.config.Embed
	rowBytes := e.Type.Bytes(width)
	for i, hi := p.share(worker); i < hi; i++ {
		at := int(p.batch.tokens[i]) * rowBytes
		x := row(p.scratch.x, i, width)
		kernels.Dequantize(x, e.Type, e.Data[at:at+rowBytes])
		scale(x, p.m.config.EmbeddingScale)
		p.encode(x, i)
		if p.m.config.PerLayer > 0 {
			p.norm(i, &noNorm)
		}
		for r := range p.m.ropes {
			p.m.ropes[r].angles(row(p.scratch.angles[r], i, p.m.config.Ropes[r].Dims), p.batch.positions[i])
		}
	}
}

func (p *pass) normAttention(worker int) {
	for i, hi := p.share(worker); i < hi; i++ {
		p.addSum(i)
		p.norm(i, &p.m.weights.layers[p.layer].attentionNorm)
	}
}

// add adds the sum that waits, and norms nothing.
func (p *pass) add(worker int) {
	for i, hi := p.share(worker); i < hi; i++ {
		p.addSum(i)
	}
}

func (p *pass) normFF(worker int) {
	for i, hi := p.share(worker); i < hi; i++ {
		p.addSum(i)
		if p.m.config.AltUp.Streams > 0 {
			p.addLaurel(i)
		}
		if !p.m.config.Parallel { // else the norm before attention is still there
			p.norm(i, &p.m.weights.layers[p.layer].ffNorm)
		}
	}
}

func (p *pass) normOutput(worker int) {
	for i, hi := p.share(worker); i < hi; i++ {
		p.addSum(i)
		p.norm(i, &p.m.weights.outputNorm)
	}
}

// addSum adds the output of the half of a layer before to row i of x, after a norm
// where the model has one there. The phase of the next norm calls it, since it reads
// the row anyway.
func (p *pass) addSum(i int) {
	if p.waits == nil {
		return
	}
	x, sum := row(p.scratch.x, i, p.m.config.Embed), row(p.scratch.sum, i, p.m.config.Embed)
	after := p.m.config.SumNorms
	if p.waits.weight != nil && !after {
		p.normTo(sum, sum, p.waits)
	}
	scale(sum, p.m.config.ResidualScale)
	p.m.set.Add(x, sum)
	if after {
		p.normTo(x, x, p.waits)
	}
	scale(x, p.xScale)
}

// wait says that sum is to be added to x after a norm, and x then multiplied by xScale.
func (p *pass) wait(n *norm, xScale float32) { p.waits, p.xScale = n, xScale }

// norm writes the norm of row i of x to normed, or the row itself where the model has
// no norm there, and rounds it.
func (p *pass) norm(i int, n *norm) {
	x := row(p.scratch.x, i, p.m.config.Embed)
	if n.weight != nil {
		p.normTo(p.scratch.normed.row(i), x, n)
	} else {
		copy(p.scratch.normed.row(i), x)
	}
	p.scratch.normed.round(i, 0, p.m.config.Embed)
}

// noNorm leaves a row as it is.
var noNorm norm

// normTo computes dst = norm(x). dst may be x.
func (p *pass) normTo(dst, x []float32, n *norm) {
	if p.m.config.CentredNorms {
		centre(dst, x)
		x = dst
	}
	p.m.set.RMSNorm(dst, x, n.weight, p.m.config.NormEps)
	if n.bias != nil {
		p.m.set.Add(dst, n.bias)
	}
}

// centre computes dst = x − mean(x). dst may be x.
func centre(dst, x []float32) {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	mean := sum / float64(len(x))
	for i, v := range x {
		dst[i] = float32(float64(v) - mean)
	}
}

// scale multiplies x by a factor that is 1 in most models.
func scale(x []float32, by float32) {
	if by == 1 {
		return
	}
	for i := range x {
		x[i] *= by
	}
}

func tiles(w *linear) int {
	if w.Matrix == nil {
		return 0
	}
	return (w.Rows + kernels.RowTile - 1) / kernels.RowTile
}

// multiplyPart computes the part of dst = w·normed that [lo,hi) covers, and
// returns the range as the matrix after w sees it.
func (p *pass) multiplyPart(dst []float32, w *linear, lo, hi int) (nextLo, nextHi int) {
	if w.Matrix == nil {
		return lo, hi
	}
	if from, to := max(lo, 0), min(hi, w.Rows); from < to {
		p.multiply(dst, w, p.scratch.normed.from(0), p.rows, from, to)
	}
	length := kernels.RowTile * tiles(w)
	return lo - length, hi - length
}

// multiply computes the outputs [lo,hi) of dst = w·from + bias for n rows.
func (p *pass) multiply(dst []float32, w *linear, from kernels.Input, n, lo, hi int) {
	p.m.set.MatMul(dst, w.Rows, w.Matrix, from, n, lo, hi)
	if w.bias == nil {
		return
	}
	for i := range n {
		p.m.set.Add(dst[i*w.Rows+lo:i*w.Rows+hi], w.bias[lo:hi])
	}
}

// multiplySum computes sum = w·from, which the phase of the next norm adds to x.
func (p *pass) multiplySum(w *linear, from *activations) {
	for lo, hi := range p.portions(w.Rows) {
		p.multiply(p.scratch.sum, w, from.from(0), p.rows, lo, hi)
	}
}

// gateUp computes the gated feed-forward activation into gate.
func (p *pass) gateUp(worker int) {
	dense := &p.m.weights.layers[p.layer].dense
	for lo, hi := range p.portions(dense.width) {
		p.gated(worker, dense, &p.scratch.normed, 0, p.rows, lo, hi)
	}
}

// gatedRows is how many rows are multiplied with both matrices before their
// activations are computed, so that a portion of both products stays in the
// second-level cache.
const gatedRows = 66

// gated computes the outputs [lo,hi) of gate = activation(gate·x, up·x) for the rows
// [first,end), and rounds them.
func (p *pass) gated(worker int, f *feedForward, x *activations, first, end, lo, hi int) {
	width, gate, up := f.width, p.scratch.gate.of(f.width), p.scratch.up[worker]
	for ; first < end; first += gatedRows {
		n := min(gatedRows, end-first)
		if p.m.config.Ungated {
			p.multiply(gate.from(first).Numbers, &f.up, x.from(first), n, lo, hi)
			for i := range n {
				p.activateAlone(gate.row(first + i)[lo:hi])
				gate.round(first+i, lo, hi)
			}
			continue
		}
		p.multiply(gate.from(first).Numbers, &f.gate, x.from(first), n, lo, hi)
		p.multiply(up, &f.up, x.from(first), n, lo, hi)
		for i := range n {
			part := gate.row(first + i)[lo:hi]
			scale(part, p.m.config.Multipliers.FFGate)
			p.activate(part, row(up, i, width)[lo:hi])
			scale(part, p.m.config.Multipliers.FF)
			gate.round(first+i, lo, hi)
		}
	}
}

// activateAlone replaces x by activation(x).
func (p *pass) activateAlone(x []float32) {
	if p.m.config.Activation == SquaredReLU {
		squaredReLU(x)
	} else {
		exactGELU(x)
	}
}

func squaredReLU(x []float32) {
	for i, v := range x {
		v = max(v, 0)
		x[i] = v * v
	}
}

// activate replaces gate by activation(gate, up).
func (p *pass) activate(gate, up []float32) {
	switch p.m.config.Activation {
	case GELU:
		p.m.set.GELUMul(gate, gate, up)
	case ExactGELU:
		exactGELU(gate)
		for i, x := range up {
			gate[i] *= x
		}
	case ClampedSiLU:
		p.m.set.ClampedSiLUMul(gate, gate, up, activationLimit)
	default:
		p.m.set.SiLUMul(gate, gate, up)
	}
}

func (p *pass) down(int) {
	dense := &p.m.weights.layers[p.layer].dense
	gate := p.scratch.gate.of(dense.width)
	p.multiplySum(&dense.down, &gate)
}

func (p *pass) outputLogits(int) {
	w := &p.m.weights.output
	for lo, hi := range p.portions(w.Rows) {
		p.multiply(p.logits, w, p.scratch.normed.from(0), p.rows, lo, hi)
		for i := range p.rows {
			logits := p.logits[i*w.Rows+lo : i*w.Rows+hi]
			scale(logits, p.m.config.LogitScale)
			if p.m.config.LogitSoftCap > 0 {
				p.m.set.SoftCap(logits, p.m.config.LogitSoftCap)
			}
		}
	}
}
