package model

import (
	"sync/atomic"

	"github.com/forebay-io/forebay/kernels"
)

// Forward computes the chunks together, writes their keys and values into their
// pages, and returns the logits asked for: rows of Config.Vocab, in the order of
// the chunks. The logits belong to the model and are valid until the next
// Forward.
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
	p, layers := &m.pass, len(m.weights.layers)
	p.gather(chunks)
	p.layer = -1
	p.do(KernelEmbed, p.phases.embed)
	for p.layer = range layers {
		if stop != nil && p.layer < layers*3/4 && stop.Load() {
			return nil, false
		}
		p.do(KernelNormRope, p.phases.normAttention)
		p.do(KernelQKV, p.phases.project)
		p.do(KernelNormRope, p.phases.place)
		if p.layer == layers-1 {
			p.dropRows()
		}
		if p.rows == 0 {
			return nil, true
		}
		p.attention()
		p.do(KernelOutput, p.phases.projectOut)
		p.do(KernelNormRope, p.phases.normFF)
		p.feedForward()
	}
	p.layer = -1
	p.do(KernelNormRope, p.phases.normOutput)
	p.do(KernelLogits, p.phases.logits)
	return p.logits[:p.rows*m.config.Vocab], true
}

// attention computes what the queries find, and counts it by who asked.
func (p *pass) attention() {
	p.batch.contexts.begin(p.m.config.KVHeads)
	p.run(p.phases.attend)
	if !p.m.headBlocks {
		p.run(p.phases.roundHeads)
	}
	p.timer.lapAttention(p.layer, p.batch.keys)
}

// feedForward is the layer's second half, dense or a mixture of experts.
func (p *pass) feedForward() {
	f := &p.phases
	if p.m.config.Experts == 0 {
		p.do(KernelMLP, f.gateUp, f.down)
		return
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
		for r := range p.m.ropes {
			p.m.ropes[r].angles(row(p.scratch.angles[r], i, p.m.config.Ropes[r].Dims), p.batch.positions[i])
		}
	}
}

func (p *pass) normAttention(worker int) {
	layers := p.m.weights.layers
	for i, hi := p.share(worker); i < hi; i++ {
		if p.layer > 0 {
			p.addSum(i, layers[p.layer-1].postFF)
		}
		p.norm(i, layers[p.layer].attentionNorm)
	}
}

func (p *pass) normFF(worker int) {
	l := &p.m.weights.layers[p.layer]
	for i, hi := p.share(worker); i < hi; i++ {
		p.addSum(i, l.postAttention)
		p.norm(i, l.ffNorm)
	}
}

func (p *pass) normOutput(worker int) {
	for i, hi := p.share(worker); i < hi; i++ {
		p.addSum(i, p.m.weights.layers[len(p.m.weights.layers)-1].postFF)
		p.norm(i, p.m.weights.outputNorm)
	}
}

// addSum adds the output of half a layer to row i of x, after a norm where the
// model has one there. The phase of the next norm calls it, since it reads the
// row anyway.
func (p *pass) addSum(i int, post []float32) {
	sum := row(p.scratch.sum, i, p.m.config.Embed)
	if post != nil {
		p.m.set.RMSNorm(sum, sum, post, p.m.config.NormEps)
	}
	scale(sum, p.m.config.ResidualScale)
	p.m.set.Add(row(p.scratch.x, i, p.m.config.Embed), sum)
}

// norm writes the norm of row i of x to normed, and rounds it.
func (p *pass) norm(i int, weight []float32) {
	p.m.set.RMSNorm(p.scratch.normed.row(i), row(p.scratch.x, i, p.m.config.Embed), weight, p.m.config.NormEps)
	p.scratch.normed.round(i, 0, p.m.config.Embed)
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

// project computes queries, keys and values. The rows of the three matrices are
// one line of tiles, so that workers share them evenly.
func (p *pass) project(int) {
	l, s := &p.m.weights.layers[p.layer], &p.scratch
	for lo, hi := range p.portions(kernels.RowTile * (tiles(&l.q) + tiles(&l.k) + tiles(&l.v))) {
		lo, hi = p.multiplyPart(s.q, &l.q, lo, hi)
		lo, hi = p.multiplyPart(s.k, &l.k, lo, hi)
		p.multiplyPart(s.v, &l.v, lo, hi)
	}
}

func tiles(w *linear) int { return (w.Rows + kernels.RowTile - 1) / kernels.RowTile }

// multiplyPart computes the part of dst = w·normed that [lo,hi) covers, and
// returns the range as the matrix after w sees it.
func (p *pass) multiplyPart(dst []float32, w *linear, lo, hi int) (nextLo, nextHi int) {
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

// place norms and rotates queries and keys, and stores keys and values in their
// pages.
func (p *pass) place(worker int) {
	c, s, pages := &p.m.config, &p.scratch, &p.m.pools[p.layer]
	l, which := &p.m.weights.layers[p.layer], c.Attention[p.layer].Rope
	kvWidth, dim, pageTokens := c.KVHeads*c.HeadDim, c.HeadDim, p.m.layout.PageTokens
	for i, hi := p.share(worker); i < hi; i++ {
		q, k, v := row(s.q, i, c.Heads*dim), row(s.k, i, kvWidth), row(s.v, i, kvWidth)
		if c.QKNorm {
			p.normHeads(q, l.qNorm)
			p.normHeads(k, l.kNorm)
		}
		if which != NoRope {
			angles := row(s.angles[which], i, c.Ropes[which].Dims)
			neighbours := c.Ropes[which].Pairing == PairNeighbours
			p.m.set.Rotate(q, angles, dim, neighbours)
			p.m.set.Rotate(k, angles, dim, neighbours)
		}
		position := p.batch.positions[i]
		p.m.set.Place(&p.m.layout, pages.keys, pages.values, int(p.batch.pages[i][position/pageTokens]), position%pageTokens, k, v)
	}
}

func (p *pass) normHeads(x, weight []float32) {
	for ; len(x) > 0; x = x[len(weight):] {
		head := x[:len(weight)]
		p.m.set.RMSNorm(head, head, weight, p.m.config.NormEps)
	}
}

// attend takes items until none is left: each is one tile and one KV head, or a
// piece of their context.
func (p *pass) attend(worker int) {
	c, a, b := &p.m.config, &p.workers[worker], &p.batch
	a.K, a.V = p.m.pools[p.layer].keys, p.m.pools[p.layer].values
	a.Window = c.Attention[p.layer].WindowTokens
	items, inPieces := len(b.tiles)*c.KVHeads, len(b.contexts.items) > 0 && a.Window == 0
	if inPieces {
		items = len(b.contexts.items)
	}
	for item := int(p.taken.Add(1)) - 1; item < items; item = int(p.taken.Add(1)) - 1 {
		if inPieces {
			i := b.contexts.items[item]
			t := p.aim(a, i.tile, i.head)
			if p.attendPiece(a, i) {
				p.roundHead(t, i.head)
			}
			continue
		}
		head := item % c.KVHeads
		t := p.aim(a, item/c.KVHeads, head)
		p.m.set.Attend(a)
		p.roundHead(t, head)
	}
}

// aim points a at a tile and KV head of the layer.
func (p *pass) aim(a *kernels.Attention, at, head int) tile {
	t, heads, width := p.batch.tiles[at], p.m.config.KVHeads, p.m.group*p.m.config.HeadDim
	from, to := (t.row*heads+head)*width, ((t.row+t.rows-1)*heads+head+1)*width
	a.KVHead, a.Queries = head, t.rows
	a.Q, a.Out = p.scratch.q[from:to], p.scratch.heads.numbers[from:to]
	a.Pages, a.To = p.batch.pages[t.row], p.batch.positions[t.row]+1
	if sinks := p.m.weights.layers[p.layer].sinks; sinks != nil {
		a.Sinks = row(sinks, head, p.m.group)
	}
	return t
}

// roundHead rounds attention's output for a tile and KV head, where that is a
// multiple of BlockLen.
func (p *pass) roundHead(t tile, head int) {
	width := p.m.group * p.m.config.HeadDim
	for i := t.row; i < t.row+t.rows && p.m.headBlocks; i++ {
		p.scratch.heads.round(i, head*width, (head+1)*width)
	}
}

// roundHeads rounds attention's output, where KV heads share blocks.
func (p *pass) roundHeads(worker int) {
	for i, hi := p.share(worker); i < hi; i++ {
		p.scratch.heads.round(i, 0, p.scratch.heads.width)
	}
}

func (p *pass) projectOut(int) {
	p.multiplySum(&p.m.weights.layers[p.layer].out, &p.scratch.heads)
}

// multiplySum computes sum = w·from, which the phase of the next norm adds to x.
func (p *pass) multiplySum(w *linear, from *activations) {
	for lo, hi := range p.portions(w.Rows) {
		p.multiply(p.scratch.sum, w, from.from(0), p.rows, lo, hi)
	}
}

// gateUp computes the gated feed-forward activation into gate.
func (p *pass) gateUp(worker int) {
	for lo, hi := range p.portions(p.m.config.FF) {
		p.gated(worker, &p.m.weights.layers[p.layer].feedForward, &p.scratch.normed, 0, p.rows, lo, hi)
	}
}

// gatedRows is how many rows are multiplied with both matrices before their
// activations are computed, so that a portion of both products stays in the
// second-level cache.
const gatedRows = 66

// gated computes the outputs [lo,hi) of gate = activation(gate·x, up·x) for the rows
// [first,end), and rounds them.
func (p *pass) gated(worker int, f *feedForward, x *activations, first, end, lo, hi int) {
	width, gate, up := p.m.config.FF, &p.scratch.gate, p.scratch.up[worker]
	for ; first < end; first += gatedRows {
		n := min(gatedRows, end-first)
		p.multiply(gate.from(first).Numbers, &f.gate, x.from(first), n, lo, hi)
		p.multiply(up, &f.up, x.from(first), n, lo, hi)
		for i := range n {
			p.activate(gate.row(first + i)[lo:hi], row(up, i, width)[lo:hi])
			gate.round(first+i, lo, hi)
		}
	}
}

// activate replaces gate by activation(gate, up).
func (p *pass) activate(gate, up []float32) {
	switch p.m.config.Activation {
	case GELU:
		p.m.set.GELUMul(gate, gate, up)
	case ClampedSiLU:
		p.m.set.ClampedSiLUMul(gate, gate, up, activationLimit)
	default:
		p.m.set.SiLUMul(gate, gate, up)
	}
}

func (p *pass) down(int) {
	p.multiplySum(&p.m.weights.layers[p.layer].down, &p.scratch.gate)
}

func (p *pass) outputLogits(int) {
	w := p.m.weights.output
	for lo, hi := range p.portions(w.Rows) {
		p.m.set.MatMul(p.logits, w.Rows, w, p.scratch.normed.from(0), p.rows, lo, hi)
		for i := range p.rows {
			logits := p.logits[i*w.Rows+lo : i*w.Rows+hi]
			scale(logits, p.m.config.LogitScale)
			if p.m.config.LogitSoftCap > 0 {
				p.m.set.SoftCap(logits, p.m.config.LogitSoftCap)
			}
		}
	}
}
