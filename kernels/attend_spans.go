package kernels

import "math"

// AttendSpan is how many positions have a softmax of their own; a span starts at a
// multiple of it. The reading of one takes many times what it takes to share it out.
const AttendSpan = 1024

// PartLen is the length of Attention.Part for rows = Queries·Group.
func PartLen(rows, headDim int) int { return rows * (headDim + 2) }

// partial is the attention of some rows to some positions.
type partial struct {
	out []float32 // [rows][HeadDim], not yet divided by sum
	top []float32 // the largest score, no less than −MaxFloat32
	sum []float32 // Σ exp(score−top)
}

// newPartial is no positions' attention, in memory.
func newPartial(memory []float32, rows int) partial {
	p := partialIn(memory, rows)
	p.clear()
	return p
}

// partialIn is what an earlier partial of so many rows has left in memory.
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

// scaled brings row r to another top, which is no less.
func (v *vector) scaled(p *partial, r int, top float32) {
	if by := float32(math.Exp(float64(p.top[r]) - float64(top))); by != 1 {
		dim := len(p.out) / len(p.top)
		v.scale(p.out[r*dim:][:dim], by)
		p.sum[r] *= by
	}
	p.top[r] = top
}

// addPartial adds the attention to other positions, which is used up.
func (v *vector) addPartial(p, other *partial) {
	for r := range p.top {
		top := max(p.top[r], other.top[r])
		v.scaled(p, r, top)
		v.scaled(other, r, top)
		p.sum[r] += other.sum[r]
	}
	v.add(p.out, other.out)
}

// endAttention writes the outputs: sinks take part, and all is divided by the sums.
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
func (v *vector) merge(a *Attention, parts []float32) {
	rows := a.Queries * a.Group
	size := PartLen(rows, a.HeadDim)
	checkMerge(a, parts, size)
	all := partialIn(parts[:size], rows)
	for parts = parts[size:]; len(parts) > 0; parts = parts[size:] {
		next := partialIn(parts[:size], rows)
		v.addPartial(&all, &next)
	}
	v.endAttention(a, &all)
}
