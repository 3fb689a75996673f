package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// accumulate writes Accumulate. An output is one accumulator, in the order of t. It lies in out
// between calls, so the cut of the positions into pages leaves no trace.
func (g *isa) accumulate(c cached) {
	text("Accumulate"+c.suffix, "func(out *float32, dim, rows int, v *byte, p *float32, pStride, count int, ahead *byte)",
		"Accumulate"+c.suffix+" computes out[i·dim+d] += Σ_t p[i·pStride+t]·v[t·dim+d] over t in [0,count), in the order of t, for i in [0,rows). 1 ≤ count. It prefetches at ahead.")
	out, p, step := val("out"), val("p"), val("dim")
	SHLQ(U8(2), step)
	prefetchAhead()
	g.byRows(val("rows"), func(name string, rows int) {
		w := &weighing{g: g, c: c, rows: rows, step: step, column: GP64(), v: val("v"), p: p, body: (*weighing).positions}
		w.walk(name, out)
		next := GP64()
		IMUL3Q(I32(rows), step, next)
		ADDQ(next, out)
		next = val("pStride")
		IMUL3Q(I32(4*rows), next, next)
		ADDQ(next, p)
	})
}

// weighing is the state of Accumulate for some rows.
type weighing struct {
	g      *isa
	c      cached
	rows   int
	step   reg.GPVirtual // bytes of a row of out
	column reg.GPVirtual // of out, in the first row
	v, p   reg.GPVirtual
	halves *halfRows                                            // where pairs are made of halves
	body   func(w *weighing, name string, vectors int, m *mask) // adds all positions to some vectors of out
}

// walk goes over the vectors of a row.
func (w *weighing) walk(name string, out reg.GPVirtual) {
	g, left := w.g, val("dim")
	MOVQ(out, w.column)
	counts := []int{4, 1}
	if w.rows == 1 {
		counts = []int{8, 4, 1}
	}
	if w.halves != nil && w.rows == w.g.rowsMax() { // making pairs takes registers
		counts = []int{2, 1}
	}
	for _, vectors := range counts {
		name := fmt.Sprintf("%s_vectors%d", name, vectors)
		SUBQ(I32(vectors*g.lanes), left)
		JLT(LabelRef(name + "_end"))
		Label(name)
		w.body(w, name, vectors, nil)
		ADDQ(I32(vectors*g.bytes()), w.column)
		ADDQ(I32(w.c.bytes(g, vectors)), w.v)
		SUBQ(I32(vectors*g.lanes), left)
		JGE(LabelRef(name))
		Label(name + "_end")
		ADDQ(I32(vectors*g.lanes), left)
	}
	JZ(LabelRef(name + "_end"))
	rest := g.firstLanes(left)
	w.body(w, name+"_rest", 1, &rest)
	Label(name + "_end")
}

// positions adds all positions to some vectors of out.
func (w *weighing) positions(name string, vectors int, m *mask) {
	g, at, from, count := w.g, GP64(), GP64(), val("count")
	MOVQ(w.v, at)
	MOVQ(w.p, from)
	pStep := val("pStride")
	SHLQ(U8(2), pStep)
	p := rowsAt(from, pStep, w.rows)
	delta := toNext("v")
	step := w.step
	if w.c.shift != 2 {
		step = val("dim")
		w.c.scale(step)
	}
	acc := w.outputs(vectors, func(v reg.VecVirtual, to Mem) { g.load(to, m, v) }, nil)
	Label(name + "_position")
	weights := make([]reg.VecVirtual, w.rows)
	for i := range weights {
		weights[i] = g.vec()
		VBROADCASTSS(p.row(i, 0), weights[i])
	}
	for j := range vectors {
		value := g.vec()
		w.c.load(g, Mem{Base: at, Disp: w.c.bytes(g, j)}, m, value)
		for i := range weights {
			VFMADD231PS(value, weights[i], acc[i][j])
		}
	}
	if m == nil {
		g.prefetchBeside(at, delta, w.rows, w.c.bytes(g, vectors))
	}
	ADDQ(step, at)
	p.advance(I8(4))
	DECQ(count)
	JNZ(LabelRef(name + "_position"))
	w.outputs(vectors, func(v reg.VecVirtual, to Mem) { g.store(v, m, to) }, acc)
}

// outputs calls each for the vectors of each row of out, in acc or in new registers.
func (w *weighing) outputs(vectors int, each func(v reg.VecVirtual, to Mem), acc [][]reg.VecVirtual) [][]reg.VecVirtual {
	if acc == nil {
		acc = make([][]reg.VecVirtual, w.rows)
		for i := range acc {
			for range vectors {
				acc[i] = append(acc[i], w.g.vec())
			}
		}
	}
	rows := rowsAt(w.column, w.step, w.rows)
	for i := range acc {
		for j, v := range acc[i] {
			each(v, rows.row(i, j*w.g.bytes()))
		}
	}
	return acc
}
