package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// foldTogether is how many vectors of columns go through the rows together, so that
// the sums of one need not wait for each other.
const foldTogether = 4

// foldRows goes through all rows for some columns, whose sums and whose part of b stay
// in registers.
func (g *isa) foldRows() {
	text("Fold", "func(state *float32, decay float32, rows int, a, b, c, out *float32, cols int)",
		"Fold computes state[i,j] = decay·state[i,j] + a[i]·b[j] for i in [0,rows) and j in [0,cols), and out[j] = Σ_i c[i]·state[i,j] of the new numbers. rows and cols are at least 1.")
	state, rows, a, b, c, out, cols := val("state"), val("rows"), val("a"), val("b"), val("c"), val("out"), val("cols")
	decay := g.splat("decay")
	stride := GP64()
	MOVQ(cols, stride)
	SHLQ(U8(2), stride)
	columns := func(name string, vectors int, p *mask) {
		sums, adds := make([]reg.VecVirtual, vectors), make([]reg.VecVirtual, vectors)
		for v := range sums {
			sums[v], adds[v] = zero(g.vec()), g.vec()
			g.load(Mem{Base: b, Disp: v * g.bytes()}, p, adds[v])
		}
		row, at, left, s, ai, ci := GP64(), GP64(), GP64(), g.vec(), g.vec(), g.vec()
		MOVQ(state, row)
		XORQ(at, at)
		MOVQ(rows, left)
		Label(name)
		VBROADCASTSS(item(a, at), ai)
		VBROADCASTSS(item(c, at), ci)
		for v := range sums {
			m := Mem{Base: row, Disp: v * g.bytes()}
			g.load(m, p, s)
			VMULPS(decay, s, s)
			VFMADD231PS(ai, adds[v], s)
			g.store(s, p, m)
			VFMADD231PS(ci, s, sums[v])
		}
		ADDQ(stride, row)
		INCQ(at)
		DECQ(left)
		JNZ(LabelRef(name))
		for v := range sums {
			g.store(sums[v], p, Mem{Base: out, Disp: v * g.bytes()})
		}
		for _, pointer := range []reg.GPVirtual{state, b, out} {
			ADDQ(I32(vectors*g.bytes()), pointer)
		}
	}
	blocks := func(name string, vectors int) {
		SUBQ(I32(vectors*g.lanes), cols)
		JLT(LabelRef(name + "_rest"))
		Label(name + "_block")
		columns(name+"_row", vectors, nil)
		SUBQ(I32(vectors*g.lanes), cols)
		JGE(LabelRef(name + "_block"))
		Label(name + "_rest")
		ADDQ(I32(vectors*g.lanes), cols)
	}
	blocks("many", foldTogether)
	blocks("one", 1)
	JZ(LabelRef("end"))
	p := g.firstLanes(cols)
	columns("last_row", 1, &p)
	Label("end")
	ret()
}
