package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dots: one output is one accumulator vector over q, folded in a fixed order.
// Four rows of k at a time share the loads of q; the order is that of one row.
func (g *isa) dots() {
	text("Dots", "func(dst, q, k []float32, scale float32)", "Dots computes dst[t] = scale·Σ_d q[d]·k[t·len(q)+d] over len(dst).")
	dst, q, k := ptr("dst"), ptr("q"), ptr("k")
	count, dim, whole, stride := n("dst"), n("q"), GP64(), GP64()
	scale := XMM()
	Load(Param("scale"), scale)
	VBROADCASTSS(scale, scale)
	MOVQ(dim, stride)
	SHLQ(U8(2), stride)
	MOVQ(dim, whole)
	ANDQ(I8(g.lanes-1), dim)
	SUBQ(dim, whole)
	rest := g.part(dim)
	for _, rows := range []int{4, 1} {
		name := fmt.Sprintf("rows%d", rows)
		SUBQ(I8(rows), count)
		JLT(LabelRef(name + "_end"))
		Label(name)
		sums := g.dotRows(name, q, k, stride, whole, dim, rest, rows)
		if rows == 4 { // one row's four lanes are added in the same order as below
			VHADDPS(sums[1], sums[0], sums[0])
			VHADDPS(sums[3], sums[2], sums[2])
			VHADDPS(sums[2], sums[0], sums[0])
			VMULPS(scale, sums[0], sums[0])
			VMOVUPS(sums[0], Mem{Base: dst})
		} else {
			VHADDPS(sums[0], sums[0], sums[0])
			VHADDPS(sums[0], sums[0], sums[0])
			VMULPS(scale, sums[0], sums[0])
			VMOVSS(sums[0], Mem{Base: dst})
		}
		ADDQ(I8(4*rows), dst)
		SUBQ(I8(rows), count)
		JGE(LabelRef(name))
		Label(name + "_end")
		ADDQ(I8(rows), count)
	}
	ret()
}

// dotRows folds the products of q with rows rows at k to four lanes each and moves k on.
func (g *isa) dotRows(name string, q, k, stride, whole reg.GPVirtual, over reg.GPVirtual, rest part, rows int) []reg.Register {
	row := make([]reg.GPVirtual, rows)
	sums := make([]reg.VecVirtual, rows)
	for i := range rows {
		row[i], sums[i] = GP64(), zero(g.vec())
		MOVQ(k, row[i])
		ADDQ(stride, k)
	}
	at := GP64()
	XORQ(at, at)
	step := func(p *part) {
		a := g.vec()
		g.load(item(q, at), p, a)
		for i := range rows {
			if p == nil {
				VFMADD231PS(item(row[i], at), a, sums[i])
				continue
			}
			b := g.vec()
			g.load(item(row[i], at), p, b)
			VFMADD231PS(b, a, sums[i])
		}
	}
	CMPQ(at, whole)
	JGE(LabelRef(name + "_rest"))
	Label(name + "_vector")
	step(nil)
	ADDQ(I8(g.lanes), at)
	CMPQ(at, whole)
	JLT(LabelRef(name + "_vector"))
	Label(name + "_rest")
	TESTQ(over, over)
	JZ(LabelRef(name + "_fold"))
	step(&rest)
	Label(name + "_fold")
	out := make([]reg.Register, rows)
	for i := range rows {
		out[i] = g.fold(sums[i]).AsX()
	}
	return out
}

// accumulate: one output is one accumulator, in the order of t. It lies in out
// between calls, so the cut of the positions into pages leaves no trace.
func (g *isa) accumulate() {
	text("Accumulate", "func(out, v, p []float32)", "Accumulate computes out[d] += Σ_t p[t]·v[t·len(out)+d] over len(p) ≥ 1, in the order of t.")
	out, v, p := ptr("out"), ptr("v"), ptr("p")
	dim, stride := n("out"), n("out")
	SHLQ(U8(2), stride)
	for _, vectors := range []int{8, 4, 1} {
		name := fmt.Sprintf("vectors%d", vectors)
		SUBQ(I32(vectors*g.lanes), dim)
		JLT(LabelRef(name + "_end"))
		Label(name)
		g.weigh(name, out, v, p, stride, vectors, nil)
		ADDQ(I32(vectors*g.bytes()), out)
		ADDQ(I32(vectors*g.bytes()), v)
		SUBQ(I32(vectors*g.lanes), dim)
		JGE(LabelRef(name))
		Label(name + "_end")
		ADDQ(I32(vectors*g.lanes), dim)
	}
	JZ(LabelRef("end"))
	rest := g.part(dim)
	g.weigh("rest", out, v, p, stride, 1, &rest)
	Label("end")
	ret()
}

// weigh adds all positions to some vectors of out.
func (g *isa) weigh(name string, out, v, p, stride reg.GPVirtual, vectors int, m *part) {
	row, at, count := GP64(), GP64(), n("p")
	MOVQ(v, row)
	XORQ(at, at)
	acc := make([]reg.VecVirtual, vectors)
	for i := range acc {
		acc[i] = g.vec()
		g.load(Mem{Base: out, Disp: i * g.bytes()}, m, acc[i])
	}
	Label(name + "_position")
	weight := g.vec()
	VBROADCASTSS(item(p, at), weight)
	for i := range acc {
		if m == nil {
			VFMADD231PS(Mem{Base: row, Disp: i * g.bytes()}, weight, acc[i])
			continue
		}
		b := g.vec()
		g.load(Mem{Base: row}, m, b)
		VFMADD231PS(b, weight, acc[i])
	}
	ADDQ(stride, row)
	INCQ(at)
	CMPQ(at, count)
	JLT(LabelRef(name + "_position"))
	for i := range acc {
		g.store(acc[i], m, Mem{Base: out, Disp: i * g.bytes()})
	}
}
