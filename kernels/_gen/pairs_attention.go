package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pairTurns are the accumulators of a score, which take the pairs by turns.
const pairTurns = 4

// dotsPairs writes the products of pairs. A lane is a position, as in dots.
func (g *isa) dotsPairs(fused bool) {
	name, k, made := "Dots", "k *float32, count int, scale float32", "PairHalves those of k"
	if fused {
		name, k, made = "DotsHalves", "k *byte, kStride, count int, scale float32, ahead *byte", "k has halves, which become pairs once for each six rows; it prefetches as many bytes at ahead"
	}
	text(name, "func(dst *float32, dstStride int, q *float32, dim, rows int, "+k+")",
		name+" computes dst[i·dstStride+t] = scale·Σ_d q[i·dim+d]·k[d][t] for i in [0,rows) and t in [0,count), count ≤ 16. PairNumbers made the rows of q, "+made+".")
	s := &pairScores{g: g, dst: val("dst"), q: val("q"), qStep: val("dim")}
	SHLQ(U8(2), s.qStep)
	s.p = g.firstLanes(val("count"))
	if fused {
		s.halves = newHalfRows(GP64(), val("kStride"), val("ahead"))
	}
	g.byRows(val("rows"), s.rows)
}

// pairScores is the state of Dots and DotsHalves.
type pairScores struct {
	g             *isa
	dst, q, qStep reg.GPVirtual
	p             mask      // of the positions
	halves        *halfRows // nil where k has pairs
}

// rows computes the scores of rows queries and moves q and dst on.
func (s *pairScores) rows(name string, rows int) {
	s.scores(name, rowsAt(s.q, s.qStep, rows), rows)
	step := GP64()
	IMUL3Q(I32(rows), s.qStep, step)
	ADDQ(step, s.q)
	step = val("dstStride")
	IMUL3Q(I32(4*rows), step, step)
	ADDQ(step, s.dst)
	if s.halves != nil {
		Load(Param("k"), s.halves.ahead) // it has been asked for
	}
}

// pairScoring is the scores of one vector of positions for some queries.
type pairScoring struct {
	*pairScores
	q    rowAddresses
	rows int
	k    reg.GPVirtual // where it has pairs, the next ones
	acc  [pairTurns][]reg.VecVirtual
}

// scores leaves q where it was.
func (s *pairScores) scores(name string, q rowAddresses, rows int) {
	t := &pairScoring{pairScores: s, q: q, rows: rows}
	for turn := range t.acc {
		for range rows {
			t.acc[turn] = append(t.acc[turn], zero(ZMM()))
		}
	}
	t.k = val("k")
	left := val("dim")
	if s.halves != nil {
		MOVQ(t.k, s.halves.at)
	}
	SUBQ(I8(2*pairTurns), left)
	JLT(LabelRef(name + "_columns_end"))
	Label(name + "_columns")
	for turn := range pairTurns {
		t.add(turn, false)
	}
	if s.halves == nil {
		ADDQ(I32(64*pairTurns), t.k)
	}
	q.advance(I8(8 * pairTurns))
	SUBQ(I8(2*pairTurns), left)
	JGE(LabelRef(name + "_columns"))
	Label(name + "_columns_end")
	ADDQ(I8(2*pairTurns), left)
	t.rest(name, left)
	s.store(t.acc, rows)
	back := val("dim")
	ANDQ(I8(-2*pairTurns), back)
	SHLQ(U8(2), back)
	NEGQ(back)
	q.advance(back)
}

// rest adds the numbers that are left, fewer than a turn of all accumulators takes. A last
// number that has no other is alone in its pair.
func (t *pairScoring) rest(name string, left reg.GPVirtual) {
	for turn := range pairTurns {
		CMPQ(left, I8(2*turn+1))
		JLT(LabelRef(name + "_sum"))
		JEQ(LabelRef(fmt.Sprintf("%s_alone%d", name, turn)))
		if turn < pairTurns-1 {
			t.add(turn, false)
		}
	}
	for turn := range pairTurns {
		Label(fmt.Sprintf("%s_alone%d", name, turn))
		t.add(turn, true)
		if turn < pairTurns-1 {
			JMP(LabelRef(name + "_sum"))
		}
	}
	Label(name + "_sum")
}

// add adds the products of a pair of numbers, or of one that is alone.
func (t *pairScoring) add(turn int, alone bool) {
	keys := ZMM()
	switch h := t.halves; {
	case h == nil:
		VMOVDQU32(Mem{Base: t.k, Disp: 64 * turn}, keys)
	case alone:
		h.loadAlone(0, &t.p, keys)
		h.next(1)
	default:
		h.load(0, &t.p, keys)
		h.next(1)
	}
	for i := range t.rows {
		dotPairs(t.q.row(i, 8*turn), keys, t.acc[turn][i], "BCST")
	}
}

// store adds up the turns and stores the scores.
func (s *pairScores) store(acc [pairTurns][]reg.VecVirtual, rows int) {
	to, step, scale := GP64(), val("dstStride"), ZMM()
	factor, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(factor.Addr, scale)
	SHLQ(U8(2), step)
	MOVQ(s.dst, to)
	for i := range rows {
		VADDPS(acc[1][i], acc[0][i], acc[0][i])
		VADDPS(acc[3][i], acc[2][i], acc[2][i])
		VADDPS(acc[2][i], acc[0][i], acc[0][i])
		VMULPS(scale, acc[0][i], acc[0][i])
		s.g.store(acc[0][i], &s.p, Mem{Base: to})
		if i < rows-1 {
			ADDQ(step, to)
		}
	}
}

// accumulatePairs writes the sums of pairs. An output is one accumulator, in the order of t, as
// in accumulate.
func (g *isa) accumulatePairs(fused bool) {
	name, with, what := "Accumulate", "v, p *float32, pStride, skip, count int", "v[skip+t][d]"
	made := "PairHalves made the rows of v, PairNumbers those of p. skip is 0 or 1; 1 ≤ count."
	if fused {
		name, with, what = "AccumulateHalves", "v *byte, p *float32, pStride, count int, ahead *byte", "v[t·dim+d]"
		made = "PairNumbers made the rows of p; v has halves, which become pairs once for each six rows; it prefetches as many bytes at ahead. 1 ≤ count."
	}
	text(name, "func(out *float32, dim, rows int, "+with+")",
		name+" computes out[i·dim+d] += Σ_t p[i·pStride+t]·"+what+" over t in [0,count), in the order of t, for i in [0,rows). "+made)
	out, p, step, c := val("out"), val("p"), val("dim"), cached{shift: 2}
	var h *halfRows
	if fused {
		c.shift, h = 1, newHalfRows(GP64(), val("dim"), val("ahead"))
	}
	SHLQ(U8(2), step)
	g.byRows(val("rows"), func(name string, rows int) {
		w := &weighing{g: g, rows: rows, c: c, step: step, column: GP64(), v: val("v"), p: p, halves: h, body: (*weighing).pairs}
		w.walk(name, out)
		next := GP64()
		IMUL3Q(I32(rows), step, next)
		ADDQ(next, out)
		next = val("pStride")
		IMUL3Q(I32(4*rows), next, next)
		ADDQ(next, p)
		if fused {
			Load(Param("v"), h.ahead) // it has been asked for
		}
	})
}

// pairs adds all positions to some vectors of out, two at a time. A first or last one is alone
// where the other of its pair does not count.
func (w *weighing) pairs(name string, vectors int, m *mask) {
	g, from, left := w.g, GP64(), val("count")
	MOVQ(w.p, from)
	pStep := val("pStride")
	SHLQ(U8(2), pStep)
	p := rowsAt(from, pStep, w.rows)
	acc := w.outputs(vectors, func(v reg.VecVirtual, to Mem) { g.load(to, m, v) }, nil)
	add := func(load func(j int, values reg.VecVirtual), prepare ...func(weights reg.VecVirtual)) {
		weights := make([]reg.VecVirtual, w.rows)
		for i := range weights {
			weights[i] = ZMM()
			VPBROADCASTD(p.row(i, 0), weights[i])
			for _, f := range prepare {
				f(weights[i])
			}
		}
		for j := range vectors {
			values := ZMM()
			load(j, values)
			for i := range weights {
				dotPairs(values, weights[i], acc[i][j])
			}
		}
	}
	alone := func(v reg.VecVirtual) {
		VPANDD(g.bits(upperHalf), v, v)
		VPORD(g.bits(minusZero), v, v)
	}
	rows := w.pairRows(m)
	if w.halves == nil {
		skip := val("skip")
		TESTQ(skip, skip)
		JZ(LabelRef(name + "_begin"))
		add(func(j int, values reg.VecVirtual) { VPSLLD(U8(16), rows.at(j), values) }, alone)
		rows.next(vectors)
		p.advance(I8(4))
		DECQ(left)
		Label(name + "_begin")
	}
	SUBQ(I8(2), left)
	JLT(LabelRef(name + "_last"))
	Label(name + "_pair")
	add(rows.both)
	rows.next(vectors)
	p.advance(I8(8))
	SUBQ(I8(2), left)
	JGE(LabelRef(name + "_pair"))
	Label(name + "_last")
	ADDQ(I8(2), left)
	JZ(LabelRef(name + "_store"))
	add(rows.first, alone)
	Label(name + "_store")
	w.outputs(vectors, func(v reg.VecVirtual, to Mem) { g.store(v, m, to) }, acc)
}

// pairRows are the rows of values that weighing.pairs reads as pairs.
type pairRows struct {
	at          func(j int) Mem
	both, first func(j int, values reg.VecVirtual) // of a row of pairs both, or the upper ones
	next        func(vectors int)
}

// pairRows begins at the first row of pairs, or of halves that become pairs; m is a part of a vector.
func (w *weighing) pairRows(m *mask) pairRows {
	if h := w.halves; h != nil {
		MOVQ(w.v, h.at)
		return pairRows{
			both:  func(j int, values reg.VecVirtual) { h.load(j, m, values) },
			first: func(j int, values reg.VecVirtual) { h.loadAlone(j, m, values) },
			next:  h.next,
		}
	}
	base, step := GP64(), val("dim")
	MOVQ(w.v, base)
	ADDQ(I8(w.g.lanes-1), step)
	ANDQ(I8(-w.g.lanes), step)
	SHLQ(U8(2), step)
	at := func(j int) Mem { return Mem{Base: base, Disp: 64 * j} }
	return pairRows{
		at:   at,
		both: func(j int, values reg.VecVirtual) { VMOVDQU32(at(j), values) },
		first: func(j int, values reg.VecVirtual) {
			VMOVDQU32(w.g.bits(upperHalf), values)
			VPANDD(at(j), values, values)
		},
		next: func(int) { ADDQ(step, base) },
	}
}
