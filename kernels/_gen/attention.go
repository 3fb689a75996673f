package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowAddresses addresses rows 0 to 2 at base, base+step and base+2·step, and rows 3 to 5 at
// next and so on.
type rowAddresses struct{ base, next, step reg.GPVirtual }

// rowsAt addresses rows rows from base on, step bytes apart. Both registers stay the caller's.
func rowsAt(base, step reg.GPVirtual, rows int) rowAddresses {
	t := rowAddresses{base: base, step: step}
	if rows > 3 {
		t.next = GP64()
		LEAQ(Mem{Base: base, Index: step, Scale: 2}, t.next)
		ADDQ(step, t.next)
	}
	return t
}

func (t rowAddresses) row(i, disp int) Mem {
	m := Mem{Base: t.base, Index: t.step, Scale: uint8(i % 3), Disp: disp}
	if i >= 3 {
		m.Base = t.next
	}
	if i%3 == 0 {
		m.Index, m.Scale = nil, 0
	}
	return m
}

func (t rowAddresses) advance(bytes Op) {
	ADDQ(bytes, t.base)
	if t.next != nil {
		ADDQ(bytes, t.next)
	}
}

// byRows runs body for rowsMax rows at a time, and then for the rows that are left.
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

// cached is a type of keys and values in pages.
type cached struct {
	suffix string // of the loops' names
	shift  uint8  // log₂ of a number's bytes
}

var cachedTypes = []cached{{"F32", 2}, {"F16", 1}, {"Int8", 0}}

// load makes float32 numbers of a vector at m. AVX-512 reads only the lanes of p. AVX2
// reads whole vectors of the narrow types: the lanes behind those of p have any value.
func (c cached) load(g *isa, m Mem, p *mask, v reg.VecVirtual) {
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

// scale turns a count of numbers into bytes.
func (c cached) scale(n reg.GPVirtual) {
	if c.shift > 0 {
		SHLQ(U8(c.shift), n)
	}
}

// bytes is the size of n vectors of this type.
func (c cached) bytes(g *isa, n int) int { return n * g.lanes << c.shift }

// dots writes Dots. A lane is a position. A score is the sum of the accumulators of its lane,
// which take the columns by turns and are added in a fixed order.
func (g *isa) dots(c cached) {
	text("Dots"+c.suffix, "func(dst *float32, dstStride int, q *float32, dim, rows int, k *byte, kStride, count int, scale float32, ahead *byte)",
		"Dots"+c.suffix+" computes dst[i·dstStride+t] = scale·Σ_d q[i·dim+d]·k[d·kStride+t] for i in [0,rows) and t in [0,count). It prefetches at ahead.")
	d := &dotting{g: g, c: c, dst: val("dst"), q: val("q"), kStep: val("kStride"), qStep: val("dim"), turns: 2}
	c.scale(d.kStep)
	SHLQ(U8(2), d.qStep)
	if g.wide { // a page is one vector, so more accumulators make as many independent sums
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
	p := g.firstLanes(lanes)
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

// scoring is the scores of some vectors of positions for some queries.
type scoring struct {
	*dotting
	q             rowAddresses
	rows, vectors int
	p             *mask
	acc           [][][]reg.VecVirtual // [turn][vector][row]
	column        reg.GPVirtual        // the address of the next columns
}

// scores computes the scores of some vectors of positions at k. q is where it was afterwards.
func (d *dotting) scores(name string, q rowAddresses, k, dst reg.GPVirtual, rows, vectors int, p *mask) {
	s := &scoring{dotting: d, q: q, rows: rows, vectors: vectors, p: p}
	s.acc = make([][][]reg.VecVirtual, d.turns)
	for t := range s.acc {
		s.acc[t] = make([][]reg.VecVirtual, vectors)
		for v := range s.acc[t] {
			for range rows {
				s.acc[t][v] = append(s.acc[t][v], zero(d.g.vec()))
			}
		}
	}
	s.column = GP64()
	left := val("dim")
	MOVQ(k, s.column)
	delta := toNext("k")
	SUBQ(I8(d.turns), left)
	JLT(LabelRef(name + "_columns_end"))
	Label(name + "_columns")
	for turn := range d.turns {
		s.add(turn)
	}
	d.g.prefetchBeside(s.column, delta, rows, d.turns*d.c.bytes(d.g, vectors))
	LEAQ(Mem{Base: s.column, Index: d.kStep, Scale: uint8(d.turns)}, s.column)
	q.advance(I8(4 * d.turns))
	SUBQ(I8(d.turns), left)
	JGE(LabelRef(name + "_columns"))
	Label(name + "_columns_end")
	ADDQ(I8(d.turns), left)
	for turn := range d.turns - 1 {
		CMPQ(left, I8(turn+1))
		JLT(LabelRef(name + "_sum"))
		s.add(turn)
	}
	Label(name + "_sum")
	d.store(s.acc, dst, rows, vectors, p)
	back := val("dim")
	ANDQ(I8(-d.turns), back)
	SHLQ(U8(2), back)
	NEGQ(back)
	q.advance(back)
}

// add adds the products of the column that is turn after the next one.
func (s *scoring) add(turn int) {
	m := Mem{Base: s.column}
	switch turn {
	case 1, 2:
		m.Index, m.Scale = s.kStep, uint8(turn)
	case 3:
		m.Index, m.Scale = s.kStep3, 1
	}
	keys := make([]reg.VecVirtual, s.vectors)
	for v := range keys {
		keys[v] = s.g.vec()
		m.Disp = s.c.bytes(s.g, v)
		s.c.load(s.g, m, s.p, keys[v])
	}
	for i := range s.rows {
		if s.g.wide {
			VFMADD231PS_BCST(s.q.row(i, 4*turn), keys[0], s.acc[turn][0][i])
			continue
		}
		x := s.g.vec()
		VBROADCASTSS(s.q.row(i, 4*turn), x)
		for v := range keys {
			VFMADD231PS(x, keys[v], s.acc[turn][v][i])
		}
	}
}

// store adds up the turns and stores the scores.
func (d *dotting) store(acc [][][]reg.VecVirtual, dst reg.GPVirtual, rows, vectors int, p *mask) {
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

// prefetchAhead asks for the first lines of the page that the next call reads.
func prefetchAhead() {
	at := val("ahead")
	for line := range 8 {
		ask(Mem{Base: at, Disp: 64 * line})
	}
}

// toNext is the distance from what a call reads to what the next call reads.
func toNext(from string) reg.GPVirtual {
	next, now := val("ahead"), val(from)
	SUBQ(now, next)
	return next
}

// prefetchBeside asks for the bytes of the next page at the place that at has in this one: a
// page is too short for the hardware to find its stride. Bodies of rowsMax rows do not,
// since many rows run them several times on the same page.
func (g *isa) prefetchBeside(at, toNext reg.GPVirtual, rows, bytes int) {
	if rows == g.rowsMax() {
		return
	}
	for line := 0; line < bytes; line += 64 {
		ask(Mem{Base: at, Index: toNext, Scale: 1, Disp: line})
	}
}
