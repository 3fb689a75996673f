package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A pair is a word of two bfloat16 numbers. A dot product of pairs first adds the product of
// the upper numbers, as a fused multiplication does, and then that of the lower ones. So the
// earlier number lies in the upper half: sums stay in order and have the same bits wherever
// a row of numbers is cut. A value that is alone has 0 beside it, and its weight has −0:
// their product, −0, changes no sum.

const (
	upperHalf = 0xffff0000
	minusZero = 0x8000 // in the lower half
)

// dotPairs adds the products of pairs to sum.
func dotPairs(pairs Op, with, sum reg.VecVirtual, suffixes ...string) {
	evex("VDPBF16PS", true, pairs, with, sum, suffixes...)
}

// pairer makes pairs of vectors of float32 numbers.
type pairer struct{ order reg.VecVirtual }

func newPairer() pairer {
	p := pairer{ZMM()}
	var words []uint32
	for i := range uint32(16) {
		words = append(words, (16+i)<<16|i)
	}
	VMOVDQU32(table("interleave", words...), p.order)
	return p
}

// pair rounds first and second, which stay, to pairs.
func (p pairer) pair(first, second, pairs reg.VecVirtual) {
	evex("VCVTNE2PS2BF16", false, second, first, pairs)
	VPERMW(pairs, p.order, pairs)
}

// bfloatLoops is the program of attention with bfloat16.
func (g *isa) bfloatLoops() {
	g.pairHalves()
	g.pairNumbers()
	for _, fused := range []bool{false, true} {
		g.dotsPairs(fused)
		g.accumulatePairs(fused)
	}
}

// halfRows makes pairs of two rows of halves, which are not kept.
type halfRows struct {
	pairer
	at, stride, ahead reg.GPVirtual
	first, second     reg.VecVirtual
}

// newHalfRows reads rows from at on, which it moves, stride halves apart.
func newHalfRows(at, stride, ahead reg.GPVirtual) *halfRows {
	h := &halfRows{newPairer(), at, stride, ahead, ZMM(), ZMM()}
	SHLQ(U8(1), stride)
	return h
}

// load makes pairs of the j-th vectors of the two rows, and asks for as many bytes ahead.
func (h *halfRows) load(j int, p *mask, pairs reg.VecVirtual) {
	h.widen(Mem{Base: h.at, Disp: 32 * j}, p, h.first)
	h.widen(Mem{Base: h.at, Index: h.stride, Scale: 1, Disp: 32 * j}, p, h.second)
	ask(Mem{Base: h.ahead, Disp: 64 * j})
	h.pair(h.first, h.second, pairs)
}

// loadAlone is load for a row that has no other.
func (h *halfRows) loadAlone(j int, p *mask, pairs reg.VecVirtual) {
	h.widen(Mem{Base: h.at, Disp: 32 * j}, p, h.first)
	VXORPS(h.second, h.second, h.second)
	h.pair(h.first, h.second, pairs)
}

func (h *halfRows) widen(m Mem, p *mask, v reg.VecVirtual) {
	cached{shift: 1}.load(avx512, m, p, v)
}

// next goes on to the next two rows.
func (h *halfRows) next(vectors int) {
	LEAQ(Mem{Base: h.at, Index: h.stride, Scale: 2}, h.at)
	ADDQ(I32(64*vectors), h.ahead)
}

// pairHalves goes down the rows for one vector of columns after the other.
func (g *isa) pairHalves() {
	text("PairHalves", "func(dst *float32, src *byte, stride, width, rows int, ahead *byte)",
		"PairHalves makes pairs of two rows of halves each, stride halves apart: word i of row j of dst, whose rows are whole vectors, is of the i-th halves of rows 2j and 2j+1 of src for i in [0,width), and behind that zero. A last row that has no other has zero beside it. It prefetches as many bytes at ahead as it reads.")
	dst, src, width, step := val("dst"), val("src"), val("width"), GP64()
	h := newHalfRows(GP64(), val("stride"), val("ahead"))
	LEAQ(Mem{Base: width, Disp: g.lanes - 1}, step)
	ANDQ(I8(-g.lanes), step)
	SHLQ(U8(2), step)
	Label("columns")
	to, left, lanes, pairs := GP64(), val("rows"), GP64(), ZMM()
	MOVQ(dst, to)
	MOVQ(src, h.at)
	MOVQ(width, lanes)
	p := g.first16(lanes)
	SUBQ(I8(2), left)
	JLT(LabelRef("alone"))
	Label("rows")
	h.load(0, &p, pairs)
	VMOVDQU32(pairs, Mem{Base: to})
	h.next(1)
	ADDQ(step, to)
	SUBQ(I8(2), left)
	JGE(LabelRef("rows"))
	Label("alone")
	ADDQ(I8(2), left)
	JZ(LabelRef("next"))
	h.loadAlone(0, &p, pairs)
	VMOVDQU32(pairs, Mem{Base: to})
	Label("next")
	ADDQ(I8(64), dst)
	ADDQ(I8(2*g.lanes), src)
	SUBQ(I8(g.lanes), width)
	JG(LabelRef("columns"))
	ret()
}

// pairNumbers also sums the rounded numbers.
func (g *isa) pairNumbers() {
	text("PairNumbers", "func(dst, x *float32, n int) float32",
		"PairNumbers makes a pair of each number and the one after it: word i of dst is of x[i] and x[i+1] for i in [0,n), of the last and zero. It gives the sum of the rounded numbers. dst may be x. 1 ≤ n.")
	dst, x, left := val("dst"), val("x"), val("n")
	pr, sum, upper := newPairer(), zero(ZMM()), ZMM()
	VMOVDQU32(g.bits(upperHalf), upper)
	Label("vector")
	lanes, after := GP64(), GP64()
	MOVQ(left, lanes)
	LEAQ(Mem{Base: left, Disp: -1}, after)
	p, pAfter := g.first16(lanes), g.first16(after)
	first, second := ZMM(), ZMM()
	VMOVUPS_Z(Mem{Base: x}, p.k, first)
	VMOVUPS_Z(Mem{Base: x, Disp: 4}, pAfter.k, second)
	pr.pair(first, second, first)
	VMOVDQU32(first, p.k, Mem{Base: dst})
	VPANDD(upper, first, second)
	VADDPS(second, sum, sum)
	ADDQ(I8(64), x)
	ADDQ(I8(64), dst)
	SUBQ(I8(g.lanes), left)
	JG(LabelRef("vector"))
	s := g.fold(sum).AsX()
	VHADDPS(s, s, s)
	VHADDPS(s, s, s)
	Store(s, ReturnIndex(0))
	ret()
}

// first16 is the part of the first n lanes, of all where n is more; n is overwritten.
func (g *isa) first16(n reg.GPVirtual) mask {
	lanes := GP64()
	MOVQ(I32(g.lanes), lanes)
	CMPQ(n, lanes)
	CMOVQLT(n, lanes)
	return g.firstLanes(lanes)
}
