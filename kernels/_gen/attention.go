package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// three addresses rows base, base+step and base+2·step; rows 3 to 5 are the same from next.
type three struct{ base, next, step reg.GPVirtual }

// rowsAt makes addresses of rows rows at base, step bytes between; both are registers of the caller's.
func rowsAt(base, step reg.GPVirtual, rows int) three {
	t := three{base: base, step: step}
	if rows > 3 {
		t.next = GP64()
		LEAQ(Mem{Base: base, Index: step, Scale: 2}, t.next)
		ADDQ(step, t.next)
	}
	return t
}

func (t three) row(i, disp int) Mem {
	m := Mem{Base: t.base, Index: t.step, Scale: uint8(i % 3), Disp: disp}
	if i >= 3 {
		m.Base = t.next
	}
	if i%3 == 0 {
		m.Index, m.Scale = nil, 0
	}
	return m
}

func (t three) advance(bytes Op) {
	ADDQ(bytes, t.base)
	if t.next != nil {
		ADDQ(bytes, t.next)
	}
}

// byRows runs body for as many rows at a time as the registers hold and for what is left.
func (g *isa) byRows(rows reg.GPVirtual, body func(name string, rows int)) {
	most := g.rowsMax()
	CMPQ(rows, I8(most))
	JLT(LabelRef("remainder"))
	Label("whole")
	body(label("rows", most), most)
	SUBQ(I8(most), rows)
	CMPQ(rows, I8(most))
	JGE(LabelRef("whole"))
	Label("remainder")
	for n := 1; n < most; n++ {
		CMPQ(rows, I8(n))
		JE(LabelRef(label("rows_of", n)))
	}
	ret()
	for n := 1; n < most; n++ {
		Label(label("rows_of", n))
		body(label("rows", n), n)
		ret()
	}
}

// cached is a type that pages hold keys and values in.
type cached struct {
	suffix string // of the loops' names
	shift  uint8  // log₂ of a number's bytes
}

var cachedTypes = []cached{{"F32", 2}, {"F16", 1}, {"Int8", 0}}

// load makes float32 numbers of a vector at m. The wide set reads no more than the
// part; the other one reads whole vectors of the narrow types: the lanes behind the
// part hold anything.
func (c cached) load(g *isa, m Mem, p *part, v reg.VecVirtual) {
	masked := p != nil && g.wide
	switch {
	case c.shift == 2:
		g.load(m, p, v)
	case c.shift == 1 && masked:
		VCVTPH2PS_Z(m, p.k, v)
	case c.shift == 1:
		VCVTPH2PS(m, v)
	case masked:
		VPMOVSXBD_Z(m, p.k, v)
	default:
		VPMOVSXBD(m, v)
	}
	if c.shift == 0 {
		VCVTDQ2PS(v, v)
	}
}

// scale makes bytes of a count of numbers.
func (c cached) scale(n reg.GPVirtual) {
	if c.shift > 0 {
		SHLQ(U8(c.shift), n)
	}
}

// bytes is the size of n vectors of this type.
func (c cached) bytes(g *isa, n int) int { return n * g.lanes << c.shift }

// dots: a lane is a position. One score is the sum of the accumulators of its
// lane, which take the columns by turns and are added in a fixed order.
func (g *isa) dots(c cached) {
	text("Dots"+c.suffix, "func(dst *float32, dstStride int, q *float32, dim, rows int, k *byte, kStride, count int, scale float32, ahead *byte)",
		"Dots"+c.suffix+" computes dst[i·dstStride+t] = scale·Σ_d q[i·dim+d]·k[d·kStride+t] for i in [0,rows) and t in [0,count). It prefetches at ahead.")
	d := &dotting{g: g, c: c, dst: val("dst"), q: val("q"), kStep: val("kStride"), qStep: val("dim"), turns: 2}
	c.scale(d.kStep)
	SHLQ(U8(2), d.qStep)
	if g.wide { // one vector a page, so more sums for the same number of chains
		d.turns, d.kStep3 = 4, GP64()
		LEAQ(Mem{Base: d.kStep, Index: d.kStep, Scale: 2}, d.kStep3)
	}
	prefetchAhead()
	g.byRows(val("rows"), d.rows)
}

// dotting is the state of Dots.
type dotting struct {
	g             *isa
	c             cached
	dst, q        reg.GPVirtual
	kStep, kStep3 reg.GPVirtual // bytes from a column to the next, and to the third
	qStep         reg.GPVirtual // bytes from a query to the next
	turns         int           // accumulators of a score
}

// rows computes the scores of rows queries and moves q and dst on.
func (d *dotting) rows(name string, rows int) {
	g := d.g
	vectors := 2
	if g.wide {
		vectors = 1
	}
	k, dst, left := val("k"), GP64(), val("count")
	MOVQ(d.dst, dst)
	q := rowsAt(d.q, d.qStep, rows)
	SUBQ(I8(vectors*g.lanes), left)
	JLT(LabelRef(name + "_part"))
	Label(name + "_whole")
	d.scores(name+"_whole", q, k, dst, rows, vectors, nil)
	ADDQ(I32(d.c.bytes(g, vectors)), k)
	ADDQ(I32(vectors*g.bytes()), dst)
	SUBQ(I8(vectors*g.lanes), left)
	JGE(LabelRef(name + "_whole"))
	Label(name + "_part")
	ADDQ(I8(vectors*g.lanes), left)
	JLE(LabelRef(name + "_end"))
	Label(name + "_parts")
	lanes := GP64()
	MOVQ(I32(g.lanes), lanes)
	CMPQ(left, lanes)
	CMOVQLT(left, lanes)
	p := g.part(lanes)
	d.scores(name+"_parts", q, k, dst, rows, 1, &p)
	ADDQ(I32(d.c.bytes(g, 1)), k)
	ADDQ(I32(g.bytes()), dst)
	SUBQ(I8(g.lanes), left)
	JG(LabelRef(name + "_parts"))
	Label(name + "_end")
	step := val("dstStride")
	IMUL3Q(I32(4*rows), step, step)
	ADDQ(step, d.dst)
	IMUL3Q(I32(rows), d.qStep, step)
	ADDQ(step, d.q)
}

// scores computes the scores of some vectors of positions at k. q is where it was afterwards.
func (d *dotting) scores(name string, q three, k, dst reg.GPVirtual, rows, vectors int, p *part) {
	g := d.g
	acc := make([][][]reg.VecVirtual, d.turns) // [turn][vector][row]
	for t := range acc {
		acc[t] = make([][]reg.VecVirtual, vectors)
		for v := range acc[t] {
			for range rows {
				acc[t][v] = append(acc[t][v], zero(g.vec()))
			}
		}
	}
	column, left := GP64(), val("dim")
	MOVQ(k, column)
	delta := toNext("k")
	step := func(turn int) { // column turn from the one that column is at
		m := Mem{Base: column}
		switch turn {
		case 1, 2:
			m.Index, m.Scale = d.kStep, uint8(turn)
		case 3:
			m.Index, m.Scale = d.kStep3, 1
		}
		keys := make([]reg.VecVirtual, vectors)
		for v := range keys {
			keys[v] = g.vec()
			m.Disp = d.c.bytes(g, v)
			d.c.load(g, m, p, keys[v])
		}
		for i := range rows {
			if g.wide {
				VFMADD231PS_BCST(q.row(i, 4*turn), keys[0], acc[turn][0][i])
				continue
			}
			x := g.vec()
			VBROADCASTSS(q.row(i, 4*turn), x)
			for v := range keys {
				VFMADD231PS(x, keys[v], acc[turn][v][i])
			}
		}
	}
	SUBQ(I8(d.turns), left)
	JLT(LabelRef(name + "_columns_end"))
	Label(name + "_columns")
	for turn := range d.turns {
		step(turn)
	}
	g.prefetchBeside(column, delta, rows, d.turns*d.c.bytes(g, vectors))
	LEAQ(Mem{Base: column, Index: d.kStep, Scale: uint8(d.turns)}, column)
	q.advance(I8(4 * d.turns))
	SUBQ(I8(d.turns), left)
	JGE(LabelRef(name + "_columns"))
	Label(name + "_columns_end")
	ADDQ(I8(d.turns), left)
	for turn := range d.turns - 1 {
		CMPQ(left, I8(turn+1))
		JLT(LabelRef(name + "_sum"))
		step(turn)
	}
	Label(name + "_sum")
	d.store(acc, dst, rows, vectors, p)
	back := val("dim")
	ANDQ(I8(-d.turns), back)
	SHLQ(U8(2), back)
	NEGQ(back)
	q.advance(back)
}

// store adds up the turns and stores the scores.
func (d *dotting) store(acc [][][]reg.VecVirtual, dst reg.GPVirtual, rows, vectors int, p *part) {
	g, scale, to, step := d.g, d.g.vec(), GP64(), val("dstStride")
	factor, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(factor.Addr, scale)
	SHLQ(U8(2), step)
	MOVQ(dst, to)
	for i := range rows {
		for v := range vectors {
			sum := acc[0][v][i]
			VADDPS(acc[1][v][i], sum, sum)
			if d.turns == 4 {
				VADDPS(acc[3][v][i], acc[2][v][i], acc[2][v][i])
				VADDPS(acc[2][v][i], sum, sum)
			}
			VMULPS(scale, sum, sum)
			g.store(sum, p, Mem{Base: to, Disp: v * g.bytes()})
		}
		if i < rows-1 {
			ADDQ(step, to)
		}
	}
}

// accumulate: one output is one accumulator, in the order of t. It lies in out
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
	body   func(w *weighing, name string, vectors int, m *part) // adds all positions to some vectors of out
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
	rest := g.part(left)
	w.body(w, name+"_rest", 1, &rest)
	Label(name + "_end")
}

// positions adds all positions to some vectors of out.
func (w *weighing) positions(name string, vectors int, m *part) {
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

// outputs does something with the vectors of each row of out; nil acc are new registers.
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

// prefetchAhead asks for the first lines of the page that the next call reads.
func prefetchAhead() {
	at := val("ahead")
	for line := range 8 {
		ask(Mem{Base: at, Disp: 64 * line})
	}
}

// toNext is the distance from what a call reads to what the next one will.
func toNext(from string) reg.GPVirtual {
	next, now := val("ahead"), val(from)
	SUBQ(now, next)
	return next
}

// prefetchBeside asks for the bytes of the next page that lie where at is in this
// one: a page is too short for hardware to find its stride. Bodies of the most rows
// do without, since tiles run them many times on the same page.
func (g *isa) prefetchBeside(at, toNext reg.GPVirtual, rows, bytes int) {
	if rows == g.rowsMax() {
		return
	}
	for line := 0; line < bytes; line += 64 {
		ask(Mem{Base: at, Index: toNext, Scale: 1, Disp: line})
	}
}
