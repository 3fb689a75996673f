package model

import (
	"iter"
	"sync/atomic"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// phases are the pieces of a step that run on the whole team, bound once so
// that a step allocates nothing.
type phases struct {
	embed, normAttention, project, place, attend, roundHeads, projectOut func(worker int)
	normFF, gateUp, down, normOutput, logits                             func(worker int)
	route, scatter, expertsGateUp, expertsDown, gatherExperts            func(worker int)
}

func (m *Model) bindPhases() {
	m.run = phases{
		embed: m.embed, normAttention: m.normAttention, project: m.project, place: m.place, attend: m.attend, roundHeads: m.roundHeads,
		projectOut: m.projectOut, normFF: m.normFF, gateUp: m.gateUp, down: m.down, normOutput: m.normOutput, logits: m.outputLogits,
		route: m.route, scatter: m.scatter, expertsGateUp: m.expertsGateUp, expertsDown: m.expertsDown, gatherExperts: m.gatherExperts,
	}
}

// Forward computes the spans together, writes their keys and values into their
// pages, and returns the logits asked for: rows of Config.Vocab, in span order.
// They belong to the model and are valid until the next Forward.
//
// A page that two spans write to, a token outside the vocabulary, or a batch
// over BatchTokensMax is a mistake of the caller's; all but the first panic.
func (m *Model) Forward(spans []Span) []float32 {
	logits, _ := m.ForwardUnless(nil, spans)
	return logits
}

// ForwardUnless is Forward that gives up between two layers once stop is true,
// as long as a good part of the work is still to be done. It then reports
// false: the pages hold nothing new that counts, and the same spans may be
// computed again, to the same bits. A nil stop never stops.
func (m *Model) ForwardUnless(stop *atomic.Bool, spans []Span) (logits []float32, whole bool) {
	m.gather(spans)
	m.byToken(m.run.embed)
	m.timer.Lap(wire.KernelEmbed, -1)
	for m.layer = range m.weights.layers {
		if stop != nil && m.layer < len(m.weights.layers)*3/4 && stop.Load() {
			return nil, false
		}
		m.byToken(m.run.normAttention)
		m.timer.Lap(wire.KernelNormRope, m.layer)
		m.shared(m.run.project)
		m.timer.Lap(wire.KernelQKV, m.layer)
		m.byToken(m.run.place)
		m.timer.Lap(wire.KernelNormRope, m.layer)
		if m.layer == len(m.weights.layers)-1 {
			m.dropRows()
		}
		if m.rows == 0 {
			return nil, true
		}
		m.batch.spans.begin(m.config.KVHeads)
		m.shared(m.run.attend)
		if !m.headBlocks {
			m.byToken(m.run.roundHeads)
		}
		m.timer.lapAttention(m.layer, m.batch.keys)
		m.shared(m.run.projectOut)
		m.timer.Lap(wire.KernelOutput, m.layer)
		m.byToken(m.run.normFF)
		m.timer.Lap(wire.KernelNormRope, m.layer)
		m.feedForward()
	}
	m.byToken(m.run.normOutput)
	m.timer.Lap(wire.KernelNormRope, -1)
	m.shared(m.run.logits)
	m.timer.Lap(wire.KernelLogits, -1)
	return m.logits[:m.rows*m.config.Vocab], true
}

// feedForward is the layer's second half.
func (m *Model) feedForward() {
	if m.config.Experts > 0 {
		m.forwardExperts()
		m.timer.Lap(wire.KernelMLP, m.layer)
		return
	}
	m.shared(m.run.gateUp)
	m.shared(m.run.down)
	m.timer.Lap(wire.KernelMLP, m.layer)
}

// forwardExperts is the feed-forward layer of a mixture.
func (m *Model) forwardExperts() {
	m.byToken(m.run.route)
	m.mixture.place(m.rows * m.config.ExpertsUsed)
	m.byToken(m.run.scatter)
	m.team.Run(m.run.expertsGateUp)
	m.team.Run(m.run.expertsDown)
	m.byToken(m.run.gatherExperts)
}

// serialNumbersMax is the work by token, in numbers of the residual stream,
// that costs less than a barrier.
const serialNumbersMax = 4096

// byToken runs a phase that splits its work by row.
func (m *Model) byToken(phase func(worker int)) {
	if m.serial = m.rows*m.config.Embed <= serialNumbersMax; m.serial {
		phase(0)
		return
	}
	m.team.Run(phase)
}

// shared runs a phase whose workers take one piece of the work after the other.
func (m *Model) shared(phase func(worker int)) {
	m.taken.Store(0)
	m.team.Run(phase)
}

// pieceRows is what a piece of a product is a multiple of: a kernel's two tiles, and a block
// of what the next product reads.
const pieceRows = 2 * kernels.RowTile

// pieces are a worker's parts [lo,hi) of the rows of weights that a shared phase has.
func (m *Model) pieces(rows int) iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		for {
			lo, hi, ok := kernels.Piece(rows, pieceRows, int(m.taken.Add(1))-1, m.team.Workers())
			if !ok || lo < hi && !yield(lo, hi) {
				return
			}
		}
	}
}

// row is row i of a buffer of rows of width numbers.
func row(x []float32, i, width int) []float32 { return x[i*width : (i+1)*width] }

// share is the rows that are worker's in a phase by token.
func (m *Model) share(worker int) (lo, hi int) {
	if m.serial {
		return 0, m.rows
	}
	return kernels.Split(m.rows, 1, worker, m.team.Workers())
}

// embed reads the tokens' embeddings and their positions' angles.
func (m *Model) embed(worker int) {
	e := m.weights.embedding
	width := m.config.Embed
	rowBytes := e.Type.Bytes(width)
	for i, hi := m.share(worker); i < hi; i++ {
		at := int(m.batch.tokens[i]) * rowBytes
		x := row(m.scratch.x, i, width)
		kernels.Dequantize(x, e.Type, e.Data[at:at+rowBytes])
		scale(x, m.config.EmbeddingScale)
		for r := range m.ropes {
			m.ropes[r].angles(row(m.scratch.angles[r], i, m.config.Ropes[r].Dims), m.batch.positions[i])
		}
	}
}

func (m *Model) normAttention(worker int) {
	layers := m.weights.layers
	for i, hi := m.share(worker); i < hi; i++ {
		if m.layer > 0 {
			m.addSum(i, layers[m.layer-1].postFF)
		}
		m.norm(i, layers[m.layer].attentionNorm)
	}
}

func (m *Model) normFF(worker int) {
	l := &m.weights.layers[m.layer]
	for i, hi := m.share(worker); i < hi; i++ {
		m.addSum(i, l.postAttention)
		m.norm(i, l.ffNorm)
	}
}

func (m *Model) normOutput(worker int) {
	for i, hi := m.share(worker); i < hi; i++ {
		m.addSum(i, m.weights.layers[m.layer].postFF)
		m.norm(i, m.weights.outputNorm)
	}
}

// addSum adds what half a layer gave to row i of x, normed where the model has a norm
// there. The norm that follows calls it, for then the row is at hand.
func (m *Model) addSum(i int, post []float32) {
	sum := row(m.scratch.sum, i, m.config.Embed)
	if post != nil {
		m.set.RMSNorm(sum, sum, post, m.config.NormEps)
	}
	scale(sum, m.config.ResidualScale)
	m.set.Add(row(m.scratch.x, i, m.config.Embed), sum)
}

// norm writes row i of x to normed, normed, and rounds it.
func (m *Model) norm(i int, weight []float32) {
	m.set.RMSNorm(m.scratch.normed.row(i), row(m.scratch.x, i, m.config.Embed), weight, m.config.NormEps)
	m.scratch.normed.round(i, 0, m.config.Embed)
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

// project computes queries, keys and values. The three matrices' rows are one
// line of tiles, so that workers share them evenly.
func (m *Model) project(int) {
	l, s := &m.weights.layers[m.layer], &m.scratch
	for lo, hi := range m.pieces(kernels.RowTile * (tiles(&l.q) + tiles(&l.k) + tiles(&l.v))) {
		lo, hi = m.multiplyPart(s.q, &l.q, lo, hi)
		lo, hi = m.multiplyPart(s.k, &l.k, lo, hi)
		m.multiplyPart(s.v, &l.v, lo, hi)
	}
}

func tiles(w *linear) int { return (w.Rows + kernels.RowTile - 1) / kernels.RowTile }

// multiplyPart computes the part of dst = w·normed that [lo,hi) covers, and
// returns the range as the matrix after w sees it.
func (m *Model) multiplyPart(dst []float32, w *linear, lo, hi int) (nextLo, nextHi int) {
	if from, to := max(lo, 0), min(hi, w.Rows); from < to {
		m.multiply(dst, w, m.scratch.normed.from(0), m.rows, from, to)
	}
	length := kernels.RowTile * tiles(w)
	return lo - length, hi - length
}

// multiply computes the outputs [lo,hi) of dst = w·from + bias for n rows.
func (m *Model) multiply(dst []float32, w *linear, from kernels.Input, n, lo, hi int) {
	m.set.MatMul(dst, w.Rows, w.Matrix, from, n, lo, hi)
	if w.bias == nil {
		return
	}
	for i := range n {
		m.set.Add(dst[i*w.Rows+lo:i*w.Rows+hi], w.bias[lo:hi])
	}
}

// place norms and turns queries and keys and stores keys and values in their pages.
func (m *Model) place(worker int) {
	c, s, p := &m.config, &m.scratch, &m.pools[m.layer]
	l, which := &m.weights.layers[m.layer], c.Attention[m.layer].Rope
	kvWidth, dim, pageTokens := c.KVHeads*c.HeadDim, c.HeadDim, m.layout.PageTokens
	for i, hi := m.share(worker); i < hi; i++ {
		q, k, v := row(s.q, i, c.Heads*dim), row(s.k, i, kvWidth), row(s.v, i, kvWidth)
		if c.QKNorm {
			m.normHeads(q, l.qNorm)
			m.normHeads(k, l.kNorm)
		}
		if which != NoRope {
			angles := row(s.angles[which], i, c.Ropes[which].Dims)
			neighbours := c.Ropes[which].Pairing == PairNeighbours
			m.set.Rotate(q, angles, dim, neighbours)
			m.set.Rotate(k, angles, dim, neighbours)
		}
		position := m.batch.positions[i]
		m.set.Place(&m.layout, p.keys, p.values, int(m.batch.pages[i][position/pageTokens]), position%pageTokens, k, v)
	}
}

func (m *Model) normHeads(x, weight []float32) {
	for ; len(x) > 0; x = x[len(weight):] {
		head := x[:len(weight)]
		m.set.RMSNorm(head, head, weight, m.config.NormEps)
	}
}

// attend takes items, one tile and one KV head each, or a span of them, until none is left.
func (m *Model) attend(worker int) {
	c, a, b := &m.config, &m.workers[worker], &m.batch
	a.K, a.V = m.pools[m.layer].keys, m.pools[m.layer].values
	a.Window = c.Attention[m.layer].WindowTokens
	items, inSpans := len(b.tiles)*c.KVHeads, len(b.spans.items) > 0 && a.Window == 0
	if inSpans {
		items = len(b.spans.items)
	}
	for item := int(m.taken.Add(1)) - 1; item < items; item = int(m.taken.Add(1)) - 1 {
		if inSpans {
			i := b.spans.items[item]
			t := m.aim(a, i.tile, i.head)
			if m.attendSpan(a, i) {
				m.roundHead(t, i.head)
			}
			continue
		}
		head := item % c.KVHeads
		t := m.aim(a, item/c.KVHeads, head)
		m.set.Attend(a)
		m.roundHead(t, head)
	}
}

// aim points a at a tile and KV head of the layer.
func (m *Model) aim(a *kernels.Attention, at, head int) tile {
	t, heads, width := m.batch.tiles[at], m.config.KVHeads, m.group*m.config.HeadDim
	from, to := (t.row*heads+head)*width, ((t.row+t.rows-1)*heads+head+1)*width
	a.KVHead, a.Queries = head, t.rows
	a.Q, a.Out = m.scratch.q[from:to], m.scratch.heads.numbers[from:to]
	a.Pages, a.To = m.batch.pages[t.row], m.batch.positions[t.row]+1
	if sinks := m.weights.layers[m.layer].sinks; sinks != nil {
		a.Sinks = row(sinks, head, m.group)
	}
	return t
}

// roundHead rounds what attention found for a tile and KV head, where that is whole blocks.
func (m *Model) roundHead(t tile, head int) {
	width := m.group * m.config.HeadDim
	for i := t.row; i < t.row+t.rows && m.headBlocks; i++ {
		m.scratch.heads.round(i, head*width, (head+1)*width)
	}
}

// roundHeads rounds what attention found, where KV heads share blocks.
func (m *Model) roundHeads(worker int) {
	for i, hi := m.share(worker); i < hi; i++ {
		m.scratch.heads.round(i, 0, m.scratch.heads.width)
	}
}

func (m *Model) projectOut(int) {
	m.multiplySum(&m.weights.layers[m.layer].out, &m.scratch.heads)
}

// multiplySum computes sum = w·from, which the next norm adds to x.
func (m *Model) multiplySum(w *linear, from *activations) {
	for lo, hi := range m.pieces(w.Rows) {
		m.multiply(m.scratch.sum, w, from.from(0), m.rows, lo, hi)
	}
}

// gateUp computes the gated feed-forward activation into gate.
func (m *Model) gateUp(worker int) {
	for lo, hi := range m.pieces(m.config.FF) {
		m.gated(worker, &m.weights.layers[m.layer].feedForward, &m.scratch.normed, 0, m.rows, lo, hi)
	}
}

// gatedRows is how many rows are multiplied with both matrices before their activations
// are computed: a piece of both products stays in the second-level cache that long.
const gatedRows = 66

// gated computes the outputs [lo,hi) of gate = activation(gate·x, up·x) for the rows
// [first,end), and rounds them.
func (m *Model) gated(worker int, f *feedForward, x *activations, first, end, lo, hi int) {
	width, gate, up := m.config.FF, &m.scratch.gate, m.scratch.up[worker]
	for ; first < end; first += gatedRows {
		n := min(gatedRows, end-first)
		m.multiply(gate.from(first).Numbers, &f.gate, x.from(first), n, lo, hi)
		m.multiply(up, &f.up, x.from(first), n, lo, hi)
		for i := range n {
			m.activate(gate.row(first + i)[lo:hi], row(up, i, width)[lo:hi])
			gate.round(first+i, lo, hi)
		}
	}
}

// activate replaces gate by activation(gate, up).
func (m *Model) activate(gate, up []float32) {
	switch m.config.Activation {
	case GELU:
		m.set.GELUMul(gate, gate, up)
	case ClampedSiLU:
		m.set.ClampedSiLUMul(gate, gate, up, activationLimit)
	default:
		m.set.SiLUMul(gate, gate, up)
	}
}

func (m *Model) down(int) {
	m.multiplySum(&m.weights.layers[m.layer].down, &m.scratch.gate)
}

func (m *Model) outputLogits(int) {
	w := m.weights.output
	for lo, hi := range m.pieces(w.Rows) {
		m.set.MatMul(m.logits, w.Rows, w, m.scratch.normed.from(0), m.rows, lo, hi)
		for i := range m.rows {
			logits := m.logits[i*w.Rows+lo : i*w.Rows+hi]
			scale(logits, m.config.LogitScale)
			if m.config.LogitSoftCap > 0 {
				m.set.SoftCap(logits, m.config.LogitSoftCap)
			}
		}
	}
}
