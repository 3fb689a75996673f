package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func (g *isa) add() {
	text("Add", "func(dst, x []float32)", "Add computes dst[i] += x[i] over len(dst).")
	dst, x := ptr("dst"), ptr("x")
	g.each("add", n("dst"), func(at reg.GPVirtual, p *mask) {
		a, b := g.vec(), g.vec()
		g.load(item(dst, at), p, a)
		g.load(item(x, at), p, b)
		VADDPS(b, a, a)
		g.store(a, p, item(dst, at))
	})
	ret()
}

func (g *isa) mulAdd() {
	text("MulAdd", "func(dst, x, w []float32)", "MulAdd computes dst[i] += x[i]·w[i] over len(dst).")
	dst, x, w := ptr("dst"), ptr("x"), ptr("w")
	g.each("mul", n("dst"), func(at reg.GPVirtual, p *mask) {
		a, b, c := g.vec(), g.vec(), g.vec()
		g.load(item(dst, at), p, a)
		g.load(item(x, at), p, b)
		g.load(item(w, at), p, c)
		VFMADD231PS(b, c, a)
		g.store(a, p, item(dst, at))
	})
	ret()
}

func (g *isa) scale() {
	text("Scale", "func(x []float32, s float32)", "Scale computes x[i] *= s.")
	x, s := ptr("x"), g.splat("s")
	g.each("scale", n("x"), func(at reg.GPVirtual, p *mask) {
		a := g.vec()
		g.load(item(x, at), p, a)
		VMULPS(s, a, a)
		g.store(a, p, item(x, at))
	})
	ret()
}

func (g *isa) scaleMul() {
	text("ScaleMul", "func(dst, x, w []float32, s float32)", "ScaleMul computes dst[i] = x[i]·s·w[i] over len(dst).")
	dst, x, w, s := ptr("dst"), ptr("x"), ptr("w"), g.splat("s")
	g.each("scale", n("dst"), func(at reg.GPVirtual, p *mask) {
		a, b := g.vec(), g.vec()
		g.load(item(x, at), p, a)
		g.load(item(w, at), p, b)
		VMULPS(s, a, a)
		VMULPS(b, a, a)
		g.store(a, p, item(dst, at))
	})
	ret()
}

// splat is a vector of a float32 parameter.
func (g *isa) splat(name string) reg.VecVirtual {
	v := g.vec()
	x := XMM()
	Load(Param(name), x)
	VBROADCASTSS(x, v)
	return v
}

// sumSquares works in float64, where no square of a float32 overflows.
func (g *isa) sumSquares() {
	text("SumSquares", "func(x []float32) float64", "SumSquares gives Σ x[i]², summed in float64.")
	x := ptr("x")
	sums := [2]reg.VecVirtual{zero(g.vec()), zero(g.vec())}
	g.each("squares", n("x"), func(at reg.GPVirtual, p *mask) {
		a, half, wide := g.vec(), YMM(), g.vec()
		g.load(item(x, at), p, a)
		low := reg.Register(a.AsY())
		if g.wide {
			VEXTRACTF64X4(U8(1), a, half)
			VCVTPS2PD(half, wide)
		} else {
			low = a.AsX()
			VEXTRACTF128(U8(1), a, half.AsX())
			VCVTPS2PD(half.AsX(), wide)
		}
		VFMADD231PD(wide, wide, sums[1])
		VCVTPS2PD(low.(Op), wide)
		VFMADD231PD(wide, wide, sums[0])
	})
	s, half := sums[0], YMM()
	VADDPD(sums[1], s, s)
	if g.wide {
		VEXTRACTF64X4(U8(1), s, half)
		VADDPD(half, s.AsY(), s.AsY())
	}
	VEXTRACTF128(U8(1), s.AsY(), half.AsX())
	VADDPD(half.AsX(), s.AsX(), s.AsX())
	VHADDPD(s.AsX(), s.AsX(), s.AsX())
	Store(s.AsX(), ReturnIndex(0))
	ret()
}

// max may miss a NaN; the exponential after it does not.
func (g *isa) max() {
	text("Max", "func(x []float32) float32", "Max gives the largest x[i], or −∞; what it gives for a NaN is not defined.")
	x, count, at := ptr("x"), n("x"), GP64()
	top, half := g.vec(), YMM()
	VMOVUPS(g.num(math.Inf(-1)), top)
	XORQ(at, at)
	SUBQ(I32(g.lanes), count)
	JLT(LabelRef("fold"))
	Label("vector")
	VMAXPS(item(x, at), top, top)
	ADDQ(I32(g.lanes), at)
	SUBQ(I32(g.lanes), count)
	JGE(LabelRef("vector"))
	Label("fold")
	if g.wide {
		VEXTRACTF64X4(U8(1), top, half)
		VMAXPS(half, top.AsY(), top.AsY())
	}
	s, h := top.AsX(), half.AsX()
	VEXTRACTF128(U8(1), top.AsY(), h)
	VMAXPS(h, s, s)
	VMOVHLPS(s, s, h)
	VMAXPS(h, s, s)
	VMOVSHDUP(s, h)
	VMAXSS(h, s, s)
	ADDQ(I32(g.lanes), count)
	JZ(LabelRef("end"))
	Label("one")
	VMAXSS(item(x, at), s, s)
	INCQ(at)
	DECQ(count)
	JNZ(LabelRef("one"))
	Label("end")
	Store(s, ReturnIndex(0))
	ret()
}

func (g *isa) expSum() {
	text("ExpSum", "func(x []float32, top float32) float32", "ExpSum replaces x[i] by exp(x[i]−top) and gives their sum.")
	g.exponentials(func(reg.VecVirtual) {})
}

func (g *isa) weigh() {
	text("Weigh", "func(x []float32, top float32, scale float32) float32", "Weigh replaces x[i] by exp((x[i]−top)·scale) and gives their sum.")
	scale := g.splat("scale")
	g.exponentials(func(a reg.VecVirtual) { VMULPS(scale, a, a) })
}

// exponentials replaces x by exp(x−top), whose exponent change may change, and returns the sum.
func (g *isa) exponentials(change func(a reg.VecVirtual)) {
	x, top := ptr("x"), g.splat("top")
	sum := zero(g.vec())
	g.each("exp", n("x"), func(at reg.GPVirtual, p *mask) {
		a := g.vec()
		g.load(item(x, at), p, a)
		VSUBPS(top, a, a)
		change(a)
		e := g.exp(a)
		g.store(e, p, item(x, at))
		switch {
		case p == nil:
			VADDPS(e, sum, sum)
		case g.wide:
			VADDPS(e, sum, p.k, sum)
		default:
			VANDPS(p.v, e, e)
			VADDPS(e, sum, sum)
		}
	})
	s := g.fold(sum).AsX()
	VHADDPS(s, s, s)
	VHADDPS(s, s, s)
	Store(s, ReturnIndex(0))
	ret()
}
