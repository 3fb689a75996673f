package model

import (
	"math"

	"github.com/forebay-io/forebay/kernels"
)

// This file is attention of a layer: queries, keys and values, where they are stored, and what
// the queries find.

// attention computes what the queries find, and counts it by who asked.
func (p *pass) attention() {
	p.batch.contexts.begin()
	p.run(p.phases.attend)
	if !p.m.shapes[p.layer].headBlocks && p.m.config.Latent.Rank == 0 {
		p.run(p.phases.roundHeads)
	}
	p.timer.lapAttention(p.layer, p.batch.keys)
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
			scale(q, c.Temperature.At(position))
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
		p.m.set.Place(&shape.layout, pages.keys, pages.values, int(p.table(p.layer, i)[position/pageTokens]), position%pageTokens, k, v)
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
	a.Pages, a.To = p.table(p.layer, t.row)[first/a.PageTokens:], position-first+1
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
		scale(heads.row(i), p.m.config.Multipliers.Attention)
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
