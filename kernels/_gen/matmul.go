package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// format is how one storage type lies in a tile of 16 rows; kernels/pack.go has
// the picture. Columns come in blocks of 32. A type in blocks has scales before
// each block, and one in super-blocks a header before every eight of them.
type format struct {
	name   string
	coding *coding     // for float32 activations
	bytes  *byteCoding // for rounded ones
	scale  scale
	min    minimum
}

// scale is the factor of a block's sum.
type scale int

const (
	noScale      scale = iota
	halfScale          // a half before each block
	bfloatScale        // a bfloat16 before each block
	byteScale          // a half in the header times a signed byte before each block
	byteScales         // the same with a byte for each half of the block
	nibbleScales       // the same with the low nibble of a byte for each half
)

// minimum is what a block's numbers begin at: its product with Σx joins the sum.
type minimum int

const (
	noMin      minimum = iota
	halfMin            // a half after the scale, added
	byteMin            // a half in the header times a byte after the scale, taken away
	nibbleMins         // a half in the header times the high nibble of the scales' bytes, taken away
)

func (f format) super() bool { return f.scale >= byteScale }

// headerBytes is the size of a super-block's header, over 16 rows.
func (f format) headerBytes() int {
	switch {
	case !f.super():
		return 0
	case f.min == noMin:
		return 32
	}
	return 64
}

// scaleBytes is the size of what stands before a block's elements, over 16 rows.
func (f format) scaleBytes() int {
	n := [...]int{noScale: 0, halfScale: 32, bfloatScale: 32, byteScale: 16, byteScales: 32, nibbleScales: 32}[f.scale]
	return n + [...]int{noMin: 0, halfMin: 32, byteMin: 16, nibbleMins: 0}[f.min]
}

// scaleHalves is two where the halves of a block have scales of their own.
func (f format) scaleHalves() int {
	if f.scale == byteScales || f.scale == nibbleScales {
		return 2
	}
	return 1
}

// turns is how many turns of the loop a block takes.
func (f format) turns() int { return 32 / len(f.coding.columns) }

// elementBytes is the size of a block's elements, over 16 rows.
func (f format) elementBytes() int {
	if f.bytes != nil {
		return f.bytes.bytes
	}
	if f.coding.elem > 0 {
		return 32 * 16 * f.coding.elem
	}
	return f.turns() * f.coding.bytes
}

func (f format) blockBytes() int { return f.scaleBytes() + f.elementBytes() }

func (f format) scaled() bool { return f.scale != noScale }

var formats = []format{
	{name: "F32", coding: float32s},
	{name: "F16", coding: halves},
	{name: "BF16", coding: bfloats},
	{name: "Q8_0", coding: int8s, scale: halfScale},
	{name: "Q4_0", coding: nibbles8, scale: halfScale},
	{name: "Q4_1", coding: nibbles0, scale: halfScale, min: halfMin},
	{name: "Q5_0", coding: fives16, scale: halfScale},
	{name: "Q5_1", coding: fives0, scale: halfScale, min: halfMin},
	{name: "IQ4_NL", coding: iq4, scale: halfScale},
	{name: "MXFP4", coding: e2m1, scale: bfloatScale},
	{name: "Q2_K", coding: twos, scale: nibbleScales, min: nibbleMins},
	{name: "Q3_K", coding: threes, scale: byteScales},
	{name: "Q4_K", coding: nibbles0, scale: byteScale, min: byteMin},
	{name: "Q5_K", coding: fives0, scale: byteScale, min: byteMin},
	{name: "Q6_K", coding: sixes, scale: byteScales},
	{name: "IQ4_XS", coding: iq4, scale: byteScale},
}

// rowsMax is how many rows of x the accumulators of a format leave room for:
// per row four, and two more for the sums of scaled blocks.
func (g *isa) rowsMax(f format) int {
	if f.scaled() {
		return g.scaledRows
	}
	return g.rows
}

// tile is the state of a MatMul body: two vectors of weight rows, rows rows of x.
type tile struct {
	g          *isa
	f          format
	rows       int
	vectors    int           // of weight rows
	w, wNext   reg.GPVirtual // wNext: from the first vector's tile to the second's
	stop       reg.GPVirtual // the end of the first vector's tile, in AVX-512
	head       reg.GPVirtual // the super-block's header
	ahead      reg.GPVirtual // says what to prefetch, for rounded activations
	x, x3, row reg.GPVirtual // rows 0–2 at x, 3–5 at x3; row bytes between
	sixteen    *sixteen      // where rows are more than that
	tables     map[string]reg.VecVirtual
	bytes      [2][3]reg.VecVirtual // of a turn, for its other columns
	planes     [2]reg.VecVirtual    // of two columns
	looked     reg.VecVirtual       // a column's bytes, in AVX2
	// acc[h][v][i]: half h of each block of 32 columns, weight vector v, row i of x.
	acc [2][2][]reg.VecVirtual
	// sum[v][i]: of the scaled blocks.
	sum [2][]reg.VecVirtual
}

// matMul writes the product of up to two vectors of weight rows with n rows of x.
//
// One output has two accumulators: one takes the columns 0–15 of every 32, the
// other the columns 16–31; columns after the last whole 32 go to the first. They
// are added at the end, or for scaled types after every block, whose sum then
// goes times the scale to a third accumulator. The order is the same in every
// shape, which is what makes the product bit-invariant.
func (g *isa) matMul(f format) {
	limit := "RowsMax"
	if f.scaled() {
		limit = "ScaledRowsMax"
	}
	text("MatMul"+f.name, "func(dst *float32, dstStride, rows int, w *byte, x *float32, cols, n int)",
		"MatMul"+f.name+" computes dst[i·dstStride+r] for i in [0,n) and r in [0,rows) from the tiles at w. 1 ≤ n ≤ "+limit+", 1 ≤ rows ≤ 2·Lanes.")
	count := val("n")
	for rows := 1; rows < g.rowsMax(f); rows++ {
		CMPQ(count, I8(rows))
		JE(LabelRef(label("rows", rows)))
	}
	for rows := g.rowsMax(f); rows >= 1; rows-- {
		Label(label("rows", rows))
		t := &tile{g: g, f: f, rows: rows, vectors: 2, tables: map[string]reg.VecVirtual{}}
		t.begin()
		t.walk(t.blocks)
		if !f.scaled() {
			t.tail()
		}
		t.end()
		ret()
	}
}

func label(name string, rows int) string { return name + string(rune('0'+rows)) }

func (t *tile) begin() {
	t.w, t.x, t.row = val("w"), val("x"), val("cols")
	if t.g.wide {
		t.secondTile()
	}
	SHLQ(U8(2), t.row)
	t.fourthRow()
	t.loadTables()
	for v := range 2 {
		for range t.rows {
			for h := range 2 {
				t.acc[h][v] = append(t.acc[h][v], zero(t.g.vec()))
			}
			if t.f.scaled() {
				t.sum[v] = append(t.sum[v], zero(t.g.vec()))
			}
		}
	}
}

// secondTile finds the second vector's tile: the next one, or the first again
// where there is none.
func (t *tile) secondTile() {
	t.wNext = val("rows")
	size, none := GP64(), GP64()
	t.tileBytes(size)
	t.stop = GP64()
	LEAQ(Mem{Base: t.w, Index: size, Scale: 1}, t.stop)
	XORQ(none, none)
	CMPQ(t.wNext, I8(16))
	MOVQ(size, t.wNext)
	CMOVQLE(none, t.wNext)
}

// fourthRow finds rows 3–5 of x.
func (t *tile) fourthRow() {
	if t.rows > 3 {
		t.x3 = GP64()
		LEAQ(Mem{Base: t.x, Index: t.row, Scale: 2}, t.x3)
		ADDQ(t.row, t.x3)
	}
}

// tileBytes is the size of 16 rows, from cols in row.
func (t *tile) tileBytes(size reg.GPVirtual) {
	MOVQ(t.row, size)
	switch {
	case !t.f.scaled():
		IMUL3Q(U8(16*t.f.coding.elem), size, size)
	case t.f.super():
		SHRQ(U8(8), size)
		IMUL3Q(U32(t.f.headerBytes()+8*t.f.blockBytes()), size, size)
	default:
		SHRQ(U8(5), size)
		IMUL3Q(U32(t.f.blockBytes()), size, size)
	}
}

// weights is the address of vector v, disp bytes on; each is the size of one element.
func (t *tile) weights(v, disp, elem int) Mem {
	if t.g.wide && v == 1 {
		return Mem{Base: t.w, Index: t.wNext, Scale: 1, Disp: disp}
	}
	return Mem{Base: t.w, Disp: disp + v*t.g.lanes*elem}
}

func (t *tile) activation(i, column int) Mem {
	if t.sixteen != nil {
		return t.sixteen.row(t, i, 4*column)
	}
	m := Mem{Base: t.x, Index: t.row, Scale: uint8(i % 3), Disp: 4 * column}
	if i >= 3 {
		m.Base = t.x3
	}
	if i%3 == 0 {
		m.Index, m.Scale = nil, 0
	}
	return m
}

func (t *tile) advance(wBytes, columns int) {
	if wBytes > 0 {
		ADDQ(I32(wBytes), t.w)
	}
	if columns == 0 {
		return
	}
	ADDQ(I32(4*columns), t.x)
	if t.rows > 3 {
		ADDQ(I32(4*columns), t.x3)
	}
}

// label is a name of this body's own.
func (t *tile) label(name string) string { return label(label(name, t.rows)+"_", t.vectors) }

// walk adds up all whole blocks, or all super-blocks of eight.
func (t *tile) walk(blocks func(name string, left reg.GPVirtual)) {
	name := t.label("block")
	left := val("cols")
	if t.f.super() {
		t.head = GP64()
		SHRQ(U8(8), left)
		Label(name + "_super")
		MOVQ(t.w, t.head)
		t.askHeader()
		ADDQ(I32(t.f.headerBytes()), t.w)
		eight := GP64()
		MOVQ(I32(8), eight)
		blocks(name, eight)
		DECQ(left)
		JNZ(LabelRef(name + "_super"))
		return
	}
	SHRQ(U8(5), left)
	JZ(LabelRef(name + "_end"))
	blocks(name, left)
	Label(name + "_end")
}

// blocks adds up that many blocks of 32 columns.
func (t *tile) blocks(name string, left reg.GPVirtual) {
	c, turns := t.f.coding, t.f.turns()
	unroll := max(1, min(turns, 4/t.rows))
	step := c.bytes
	if c.unpack == nil {
		step = 16 * c.elem
	}
	j := GP64()
	Label(name)
	t.prefetch()
	if n := t.f.scaleBytes(); n > 0 {
		ADDQ(I8(n), t.w)
	}
	MOVQ(I32(turns/unroll), j)
	Label(name + "_column")
	for u := range unroll {
		for i, column := range c.columns {
			t.multiply(t.load(step*u, i), column+u, column/16)
		}
	}
	t.advance(step*unroll, unroll)
	DECQ(j)
	JNZ(LabelRef(name + "_column"))
	if c.unpack == nil {
		t.advance(t.f.elementBytes()-step*turns, 0)
	}
	if t.f.scaled() {
		t.addBlock()
	}
	t.advance(0, 32-turns)
	DECQ(left)
	JNZ(LabelRef(name))
}

// ask fetches a line into the second-level cache. The first can wait for few lines at a
// time, too few for the way to memory; from the second the rest is short.
func ask(m Mem) { PREFETCHT1(m) }

// aheadBytes is how far ahead what a call reads is asked for.
const aheadBytes = 8192

// askHeader asks for the line that lies as far ahead as the blocks that are asked for, which
// leave one out for each header. Where nothing is asked for it is a line that was just read.
func (t *tile) askHeader() {
	far := GP64()
	MOVQ(I32(aheadBytes), far)
	if t.ahead != nil {
		TESTQ(t.ahead, t.ahead)
		CMOVQNE(t.ahead, far)
	}
	ask(Mem{Base: t.w, Index: far, Scale: 1})
	if t.g.wide && t.vectors == 2 {
		ADDQ(t.wNext, far)
		ask(Mem{Base: t.w, Index: far, Scale: 1})
	}
}

// prefetch asks for the block that lies ahead by the way memory needs for its
// answer. Behind a tile's end that is in the next tiles: the next one, or, where
// two are read side by side, each in the one after the other. Past the last it
// asks for what nobody reads, which does no harm.
func (t *tile) prefetch() {
	if !t.g.wide {
		for at := 0; at < t.f.blockBytes(); at += 64 {
			ask(t.weights(0, aheadBytes+at, 0))
		}
		return
	}
	from, behind := GP64(), GP64()
	LEAQ(Mem{Base: t.w, Disp: aheadBytes}, from)
	LEAQ(Mem{Base: from, Index: t.wNext, Scale: 1}, behind)
	CMPQ(from, t.stop)
	CMOVQGE(behind, from)
	for at := 0; at < t.f.blockBytes(); at += 64 {
		ask(Mem{Base: from, Disp: at})
		if t.vectors == 2 {
			ask(Mem{Base: from, Index: t.wNext, Scale: 1, Disp: at})
		}
	}
}

// load gives the turn's column i of both weight vectors.
func (t *tile) load(disp, i int) (w [2]reg.VecVirtual) {
	c := t.f.coding
	for v := range w {
		w[v] = t.g.vec()
		if c.unpack != nil {
			c.unpack(t, disp, i, v, w[v])
		} else {
			c.load(t.weights(v, disp+16*c.elem*c.columns[i], c.elem), w[v])
		}
	}
	return w
}

// multiply adds the products of one column to half h of the accumulators.
func (t *tile) multiply(w [2]reg.VecVirtual, column, h int) {
	x := t.g.vec()
	for i := range t.rows {
		VBROADCASTSS(t.activation(i, column), x)
		VFMADD231PS(x, w[0], t.acc[h][0][i])
		VFMADD231PS(x, w[1], t.acc[h][1][i])
	}
}

// tail adds the columns after the last whole 32.
func (t *tile) tail() {
	name := label("tail", t.rows)
	left := val("cols")
	ANDQ(I8(31), left)
	JZ(LabelRef(name + "_end"))
	Label(name)
	t.multiply(t.load(0, 0), 0, 0)
	t.advance(16*t.f.coding.elem, 1)
	DECQ(left)
	JNZ(LabelRef(name))
	Label(name + "_end")
}

// end adds the halves and stores the rows that exist.
func (t *tile) end() {
	dst, stride, rows := val("dst"), val("dstStride"), val("rows")
	SHLQ(U8(2), stride)
	parts := t.parts(rows)
	for i := range t.rows {
		for v := range t.vectors {
			var a reg.VecVirtual
			if t.f.scaled() {
				a = t.sum[v][i]
			} else {
				a = t.acc[0][v][i]
				VADDPS(t.acc[1][v][i], a, a)
			}
			t.g.store(a, &parts[v], Mem{Base: dst, Disp: v * t.g.bytes()})
		}
		ADDQ(stride, dst)
	}
}

// parts are the weight rows of each vector that exist.
func (t *tile) parts(rows reg.GPVirtual) [2]part {
	first, second := GP64(), GP64()
	lanes := GP64()
	MOVQ(I32(t.g.lanes), lanes)
	MOVQ(rows, first)
	CMPQ(first, lanes)
	CMOVQGT(lanes, first)
	MOVQ(rows, second)
	SUBQ(first, second)
	return [2]part{t.g.part(first), t.g.part(second)}
}
