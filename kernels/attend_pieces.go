package kernels

import "math"

// PieceLen is the number of positions in a piece of the context, which has a softmax of its
// own and starts at a multiple of it. Reading a piece takes many times as long as handing
// it to a worker.
const PieceLen = 1024

// PartialLen is the length of Attention.Partial for rows = Queries·Group.
func PartialLen(rows, headDim int) int { return rows * (headDim + 2) }

// partial is the attention of some rows to some positions.
type partial struct {
	out []float32 // [rows][HeadDim], not yet divided by sum
	top []float32 // the largest score, no less than −MaxFloat32
	sum []float32 // Σ exp(score−top)
}

// newPartial is the attention to no positions, kept in memory.
func newPartial(memory []float32, rows int) partial {
	p := partialIn(memory, rows)
	p.clear()
	return p
}

// partialIn is the partial of that many rows that lies in memory.
func partialIn(memory []float32, rows int) partial {
	n := len(memory) - 2*rows
	return partial{memory[:n], memory[n:][:rows], memory[n+rows:][:rows]}
}

func (p *partial) clear() {
	clear(p.out)
	clear(p.sum)
	for r := range p.top {
		p.top[r] = -math.MaxFloat32
	}
}

// scaled scales row r to another top, which is no less.
func (v *vector) scaled(p *partial, r int, top float32) {
	if by := float32(math.Exp(float64(p.top[r]) - float64(top))); by != 1 {
		dim := len(p.out) / len(p.top)
		v.scale(p.out[r*dim:][:dim], by)
		p.sum[r] *= by
	}
	p.top[r] = top
}

// addPartial adds the attention to other positions, and overwrites other.
func (v *vector) addPartial(p, other *partial) {
	for r := range p.top {
		top := max(p.top[r], other.top[r])
		v.scaled(p, r, top)
		v.scaled(other, r, top)
		p.sum[r] += other.sum[r]
	}
	v.add(p.out, other.out)
}

// endAttention adds the sinks, divides by the sums and writes the outputs.
func (v *vector) endAttention(a *Attention, p *partial) {
	for r := range p.top {
		if a.Sinks != nil {
			sink := a.Sinks[r%a.Group]
			v.scaled(p, r, max(p.top[r], sink))
			p.sum[r] += float32(math.Exp(float64(sink) - float64(p.top[r])))
		}
		out := a.Out[r/a.Group*a.Stride+r%a.Group*a.HeadDim:][:a.HeadDim]
		copy(out, p.out[r*a.HeadDim:])
		v.scale(out, 1/p.sum[r])
	}
}

// merge is Set.Merge.
func (v *vector) merge(a *Attention, partials []float32) {
	rows := a.Queries * a.Group
	size := PartialLen(rows, a.HeadDim)
	checkMerge(a, partials, size)
	all := partialIn(partials[:size], rows)
	for partials = partials[size:]; len(partials) > 0; partials = partials[size:] {
		next := partialIn(partials[:size], rows)
		v.addPartial(&all, &next)
	}
	v.endAttention(a, &all)
}
