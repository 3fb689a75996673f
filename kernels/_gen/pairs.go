package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A pair is a word of two bfloat16 numbers. A dot product of pairs adds the product of
// the upper ones first, as a fused multiplication does, and then that of the lower ones,
// so that the number that comes first lies in the upper half: sums go on in order, and
// have the same bits wherever a row of numbers is cut. A number that is alone has −0
// times 0 beside it, which changes no sum.

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
	VMOVDQU32(table("turns", words...), p.order)
	return p
}

// pair rounds first and second, which stay, to pairs.
func (p pairer) pair(first, second, pairs reg.VecVirtual) {
	evex("VCVTNE2PS2BF16", false, second, first, pairs)
	VPERMW(pairs, p.order, pairs)
}

func bfloatLoops() {
	g := &isa{wide: true, lanes: 16}
	g.pairHalves()
	g.pairNumbers()
	g.dotsPairs()
	g.accumulatePairs()
}

// pairHalves goes down the rows for one vector of columns after the other.
func (g *isa) pairHalves() {
	text("PairHalves", "func(dst *float32, src *byte, stride, width, rows int, ahead *byte)",
		"PairHalves makes pairs of two rows of halves each, stride halves apart: word i of row j of dst, whose rows are whole vectors, is of the i-th halves of rows 2j and 2j+1 of src for i in [0,width), and behind that zero. A last row that has no other is alone. It prefetches as many bytes at ahead as it reads.")
	dst, src, stride, width, ahead := val("dst"), val("src"), val("stride"), val("width"), val("ahead")
	SHLQ(U8(1), stride)
	step := GP64()
	LEAQ(Mem{Base: width, Disp: g.lanes - 1}, step)
	ANDQ(I8(-g.lanes), step)
	SHLQ(U8(2), step)
	pr, low := newPairer(), ZMM()
	VMOVDQU32(g.bits(minusZero), low)
	Label("columns")
	to, at, left, lanes := GP64(), GP64(), val("rows"), GP64()
	MOVQ(dst, to)
	MOVQ(src, at)
	MOVQ(I32(g.lanes), lanes)
	CMPQ(width, lanes)
	CMOVQLT(width, lanes)
	p := g.part(lanes)
	first, second := ZMM(), ZMM()
	SUBQ(I8(2), left)
	JLT(LabelRef("alone"))
	Label("rows")
	VCVTPH2PS_Z(Mem{Base: at}, p.k, first)
	VCVTPH2PS_Z(Mem{Base: at, Index: stride, Scale: 1}, p.k, second)
	PREFETCHT0(Mem{Base: ahead})
	ADDQ(I8(64), ahead)
	pr.pair(first, second, first)
	VMOVDQU32(first, Mem{Base: to})
	LEAQ(Mem{Base: at, Index: stride, Scale: 2}, at)
	ADDQ(step, to)
	SUBQ(I8(2), left)
	JGE(LabelRef("rows"))
	Label("alone")
	ADDQ(I8(2), left)
	JZ(LabelRef("next"))
	VCVTPH2PS_Z(Mem{Base: at}, p.k, first)
	VXORPS(second, second, second)
	pr.pair(first, second, first)
	VPORD(low, first, first)
	VMOVDQU32(first, Mem{Base: to})
	Label("next")
	ADDQ(I8(64), dst)
	ADDQ(I8(2*g.lanes), src)
	SUBQ(I8(g.lanes), width)
	JG(LabelRef("columns"))
	ret()
}

// pairNumbers adds up what it rounded to.
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
func (g *isa) first16(n reg.GPVirtual) part {
	lanes := GP64()
	MOVQ(I32(g.lanes), lanes)
	CMPQ(n, lanes)
	CMOVQLT(n, lanes)
	return g.part(lanes)
}

// pairTurns are the accumulators of a score, which take the pairs by turns.
const pairTurns = 4

// dotsPairs: a lane is a position, as in dots.
func (g *isa) dotsPairs() {
	text("Dots", "func(dst *float32, dstStride int, q *float32, dim, rows int, k *float32, count int, scale float32)",
		"Dots computes dst[i·dstStride+t] = scale·Σ_d q[i·dim+d]·k[d][t] for i in [0,rows) and t in [0,count), count ≤ 16. PairNumbers made the rows of q, PairHalves those of k.")
	dst, qStep, lanes := val("dst"), val("dim"), val("count")
	q := val("q")
	SHLQ(U8(2), qStep)
	p := g.part(lanes)
	g.byRows(val("rows"), func(name string, rows int) {
		g.pairScores(name, rowsAt(q, qStep, rows), dst, rows, p)
		step := GP64()
		IMUL3Q(I32(rows), qStep, step)
		ADDQ(step, q)
		step = val("dstStride")
		IMUL3Q(I32(4*rows), step, step)
		ADDQ(step, dst)
	})
}

// pairScores computes the scores of rows queries. q is where it was afterwards.
func (g *isa) pairScores(name string, q three, dst reg.GPVirtual, rows int, p part) {
	var acc [pairTurns][]reg.VecVirtual
	for t := range acc {
		for range rows {
			acc[t] = append(acc[t], zero(ZMM()))
		}
	}
	k, left := val("k"), val("dim")
	INCQ(left)
	SHRQ(U8(1), left)
	step := func(turn int) {
		keys := ZMM()
		VMOVDQU32(Mem{Base: k, Disp: 64 * turn}, keys)
		for i := range rows {
			dotPairs(q.row(i, 8*turn), keys, acc[turn][i], "BCST")
		}
	}
	SUBQ(I8(pairTurns), left)
	JLT(LabelRef(name + "_columns_end"))
	Label(name + "_columns")
	for turn := range pairTurns {
		step(turn)
	}
	ADDQ(I32(64*pairTurns), k)
	q.advance(I8(8 * pairTurns))
	SUBQ(I8(pairTurns), left)
	JGE(LabelRef(name + "_columns"))
	Label(name + "_columns_end")
	ADDQ(I8(pairTurns), left)
	for turn := range pairTurns - 1 {
		CMPQ(left, I8(turn+1))
		JLT(LabelRef(name + "_sum"))
		step(turn)
	}
	Label(name + "_sum")
	g.storeScores(acc, dst, rows, p)
	back := val("dim")
	INCQ(back)
	SHRQ(U8(1), back)
	ANDQ(I8(-pairTurns), back)
	SHLQ(U8(3), back)
	NEGQ(back)
	q.advance(back)
}

// storeScores adds up the turns and stores the scores.
func (g *isa) storeScores(acc [pairTurns][]reg.VecVirtual, dst reg.GPVirtual, rows int, p part) {
	to, step, scale := GP64(), val("dstStride"), ZMM()
	factor, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(factor.Addr, scale)
	SHLQ(U8(2), step)
	MOVQ(dst, to)
	for i := range rows {
		VADDPS(acc[1][i], acc[0][i], acc[0][i])
		VADDPS(acc[3][i], acc[2][i], acc[2][i])
		VADDPS(acc[2][i], acc[0][i], acc[0][i])
		VMULPS(scale, acc[0][i], acc[0][i])
		g.store(acc[0][i], &p, Mem{Base: to})
		if i < rows-1 {
			ADDQ(step, to)
		}
	}
}

// accumulatePairs: one output is one accumulator, in the order of t, as in accumulate.
func (g *isa) accumulatePairs() {
	text("Accumulate", "func(out *float32, dim, rows int, v, p *float32, pStride, skip, count int)",
		"Accumulate computes out[i·dim+d] += Σ_t p[i·pStride+t]·v[skip+t][d] over t in [0,count), in the order of t, for i in [0,rows). PairHalves made the rows of v, PairNumbers those of p. skip is 0 or 1; 1 ≤ count.")
	out, p, step := val("out"), val("p"), val("dim")
	SHLQ(U8(2), step)
	g.byRows(val("rows"), func(name string, rows int) {
		w := &weighing{g: g, rows: rows, c: cached{shift: 2}, step: step, column: GP64(), v: val("v"), p: p, body: (*weighing).pairs}
		w.walk(name, out)
		next := GP64()
		IMUL3Q(I32(rows), step, next)
		ADDQ(next, out)
		next = val("pStride")
		IMUL3Q(I32(4*rows), next, next)
		ADDQ(next, p)
	})
}

// pairs adds all positions to some vectors of out, two at a time, and a first and a last
// one alone where their others do not count.
func (w *weighing) pairs(name string, vectors int, m *part) {
	g, at, from, left, vStep := w.g, GP64(), GP64(), val("count"), val("dim")
	MOVQ(w.v, at)
	MOVQ(w.p, from)
	pStep := val("pStride")
	SHLQ(U8(2), pStep)
	p := rowsAt(from, pStep, w.rows)
	ADDQ(I8(g.lanes-1), vStep)
	ANDQ(I8(-g.lanes), vStep)
	SHLQ(U8(2), vStep)
	acc := w.outputs(vectors, func(v reg.VecVirtual, to Mem) { g.load(to, m, v) }, nil)
	add := func(weigh, value func(reg.VecVirtual)) {
		weights := make([]reg.VecVirtual, w.rows)
		for i := range weights {
			weights[i] = ZMM()
			VPBROADCASTD(p.row(i, 0), weights[i])
			weigh(weights[i])
		}
		for j := range vectors {
			values := ZMM()
			VMOVDQU32(Mem{Base: at, Disp: 64 * j}, values)
			value(values)
			for i := range weights {
				dotPairs(values, weights[i], acc[i][j])
			}
		}
		ADDQ(vStep, at)
	}
	alone := func(v reg.VecVirtual) {
		VPANDD(g.bits(upperHalf), v, v)
		VPORD(g.bits(minusZero), v, v)
	}
	skip := val("skip")
	TESTQ(skip, skip)
	JZ(LabelRef(name + "_begin"))
	add(alone, func(v reg.VecVirtual) { VPSLLD(U8(16), v, v) })
	p.advance(I8(4))
	DECQ(left)
	Label(name + "_begin")
	SUBQ(I8(2), left)
	JLT(LabelRef(name + "_last"))
	Label(name + "_pair")
	add(func(reg.VecVirtual) {}, func(reg.VecVirtual) {})
	p.advance(I8(8))
	SUBQ(I8(2), left)
	JGE(LabelRef(name + "_pair"))
	Label(name + "_last")
	ADDQ(I8(2), left)
	JZ(LabelRef(name + "_store"))
	add(alone, func(v reg.VecVirtual) { VPANDD(g.bits(upperHalf), v, v) })
	Label(name + "_store")
	w.outputs(vectors, func(v reg.VecVirtual, to Mem) { g.store(v, m, to) }, acc)
}
