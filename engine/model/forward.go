package model

import (
	"math"
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
	p.do(KernelNormRope, p.phases.normAttention)
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

// attention computes what the queries find, and counts it by who asked.
func (p *pass) attention() {
	p.batch.contexts.begin()
	p.run(p.phases.attend)
	if !p.m.shapes[p.layer].headBlocks && p.m.config.Latent.Rank == 0 {
		p.run(p.phases.roundHeads)
	}
	p.timer.lapAttention(p.layer, p.batch.keys)
}

// feedForward is the layer's second half, dense or a mixture of experts, or both.
func (p *pass) feedForward() {
	f, l := &p.phases, &p.m.weights.layers[p.layer]
	defer p.wait(&l.postFF, l.outputScale)
	if l.experts == nil {
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
		p.encode(x, p.batch.positions[i])
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

// project computes queries, keys and values. The rows of the three matrices are
// one line of tiles, so that workers share them evenly.
func (p *pass) project(int) {
	l, s := &p.m.weights.layers[p.layer], &p.scratch
	q := s.q
	if p.m.config.GatedAttention {
		q = s.gatedQ
	}
	for lo, hi := range p.portions(kernels.RowTile * (tiles(&l.q) + tiles(&l.k) + tiles(&l.v))) {
		lo, hi = p.multiplyPart(q, &l.q, lo, hi)
		lo, hi = p.multiplyPart(s.k, &l.k, lo, hi)
		p.multiplyPart(s.v, &l.v, lo, hi)
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

// place norms and rotates queries and keys, and stores keys and values in their
// pages, if the layer has its own.
func (p *pass) place(worker int) {
	c, s, shape := &p.m.config, &p.scratch, &p.m.shapes[p.layer]
	l, d, pages := &p.m.weights.layers[p.layer], &c.Layers[p.layer], &p.m.pools[p.layer]
	kvWidth, pageTokens := d.KVHeads*d.HeadDim, shape.layout.PageTokens
	for i, hi := p.share(worker); i < hi; i++ {
		position := p.batch.positions[i]
		q := row(s.q, i, c.Heads*d.HeadDim)
		if c.GatedAttention {
			for h := range c.Heads { // each head's gate follows its query
				copy(row(q, h, d.HeadDim), row(s.gatedQ[2*i*len(q):], 2*h, d.HeadDim))
			}
		}
		p.turn(q, l.qNorm, i)
		if d.Tempered {
			scale(q, c.Temperature.at(position))
		}
		if !c.stores(p.layer) {
			continue
		}
		k, v := row(s.k, i, kvWidth), row(s.v, i, kvWidth)
		if d.KeysAsValues {
			copy(v, k)
		}
		if l.vNorm != nil {
			p.normHeads(v, l.vNorm)
		}
		p.turn(k, l.kNorm, i)
		p.m.set.Place(&shape.layout, pages.keys, pages.values, int(p.batch.pages[i][position/pageTokens]), position%pageTokens, k, v)
	}
}

// turn norms and rotates row i's queries or keys.
func (p *pass) turn(x, norm []float32, i int) {
	c, d := &p.m.config, &p.m.config.Layers[p.layer]
	if norm != nil && !c.QKNormLast {
		p.normHeads(x, norm)
	}
	if d.Rope != NoRope {
		r := &c.Ropes[d.Rope]
		p.m.set.Rotate(x, row(p.scratch.angles[d.Rope], i, r.Dims), d.HeadDim, r.Pairing == PairNeighbours)
	}
	if norm != nil && c.QKNormLast && (c.QKNorm != NormPlain || d.Rope != NoRope) {
		p.normHeads(x, norm)
	}
}

// normHeads norms each run of x that is as long as weight.
func (p *pass) normHeads(x, weight []float32) {
	for ; len(x) > 0; x = x[len(weight):] {
		head := x[:len(weight)]
		p.m.set.RMSNorm(head, head, weight, p.m.config.NormEps)
	}
}

// attend takes items until none is left: each is one tile and one KV head, or a
// piece of their context.
func (p *pass) attend(worker int) {
	d, shape := &p.m.config.Layers[p.layer], &p.m.shapes[p.layer]
	a, b := &p.workers[worker], &p.batch
	a.K, a.V = p.m.pools[d.KeysOf].keys, p.m.pools[d.KeysOf].values
	a.KVLayout, a.Group, a.Stride, a.Window = shape.layout, shape.group, p.m.config.Heads*d.HeadDim, d.WindowTokens
	items, inPieces := len(b.tiles)*d.KVHeads, len(b.contexts.items) > 0 && shape.inPieces
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
		head := item % d.KVHeads
		t := p.aim(a, item/d.KVHeads, head)
		p.m.set.Attend(a)
		p.roundHead(t, head)
	}
}

// aim points a at a tile and KV head of the layer.
func (p *pass) aim(a *kernels.Attention, at, head int) tile {
	d := &p.m.config.Layers[p.layer]
	t, heads, width := p.batch.tiles[at], d.KVHeads, a.Group*d.HeadDim
	from, to := (t.row*heads+head)*width, ((t.row+t.rows-1)*heads+head+1)*width
	a.KVHead, a.Queries = head, t.rows
	a.Q, a.Out = p.scratch.q[from:to], p.scratch.heads.numbers[from:to]
	position := p.batch.positions[t.row]
	first := 0 // position that the tile's context begins at
	if d.Chunked {
		first = position - position%p.m.config.ChunkTokens
	}
	a.Pages, a.To = p.batch.pages[t.row][first/a.PageTokens:], position-first+1
	if p.m.config.Encoder.On {
		a.To, a.Window = p.sees(t.row)
	}
	if sinks := p.m.weights.layers[p.layer].sinks; sinks != nil {
		a.Sinks = row(sinks, head, a.Group)
	}
	return t
}

// roundHead rounds attention's output for a tile and KV head, where that is a
// multiple of BlockLen.
func (p *pass) roundHead(t tile, head int) {
	width, heads := p.m.shapes[p.layer].group*p.m.config.Layers[p.layer].HeadDim, p.heads()
	for i := t.row; i < t.row+t.rows && p.m.shapes[p.layer].headBlocks; i++ {
		heads.round(i, head*width, (head+1)*width)
	}
}

// roundHeads rounds attention's output, where KV heads share blocks, or a gate comes first.
func (p *pass) roundHeads(worker int) {
	heads := p.heads()
	for i, hi := p.share(worker); i < hi; i++ {
		if p.m.config.GatedAttention {
			p.gateHeads(heads.row(i), i)
		}
		heads.round(i, 0, heads.width)
	}
}

// gateHeads multiplies what row i's heads have found by their gates.
func (p *pass) gateHeads(heads []float32, i int) {
	dim := p.m.config.Layers[p.layer].HeadDim
	for h := range p.m.config.Heads {
		out := row(heads, h, dim)
		for j, gate := range row(p.scratch.gatedQ[2*i*len(heads):], 2*h+1, dim) {
			out[j] *= float32(1 / (1 + math.Exp(-float64(gate))))
		}
	}
}

func (p *pass) projectOut(int) {
	heads := p.heads()
	p.multiplySum(&p.m.weights.layers[p.layer].out, &heads)
}

// heads is attention's output in the layer.
func (p *pass) heads() activations {
	return p.scratch.heads.of(p.m.config.Heads * p.m.config.Layers[p.layer].HeadDim)
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
			p.activate(gate.row(first + i)[lo:hi], row(up, i, width)[lo:hi])
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
