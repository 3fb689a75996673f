package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// format is how one storage type lies in a tile of 16 rows: blocks of columns;
// in a block first the 16 scales, then the elements of one column side by side.
type format struct {
	name   string
	elem   int  // bytes of a column's element of one row
	scaled bool // a half per row goes before each block of 32 columns
	nibble bool // element j carries column j in its low half and j+16 in its high one
	load   func(m Mem, v reg.VecVirtual)
}

var formats = []format{
	{name: "F32", elem: 4, load: func(m Mem, v reg.VecVirtual) { VMOVUPS(m, v) }},
	{name: "F16", elem: 2, load: func(m Mem, v reg.VecVirtual) { VCVTPH2PS(m, v) }},
	{name: "BF16", elem: 2, load: func(m Mem, v reg.VecVirtual) {
		VPMOVZXWD(m, v)
		VPSLLD(U8(16), v, v)
	}},
	{name: "Q8_0", elem: 1, scaled: true, load: func(m Mem, v reg.VecVirtual) {
		VPMOVSXBD(m, v)
		VCVTDQ2PS(v, v)
	}},
	{name: "Q4_0", elem: 1, scaled: true, nibble: true, load: func(m Mem, v reg.VecVirtual) { VPMOVZXBD(m, v) }},
}

// rowsMax is how many rows of x the accumulators of a format leave room for:
// per row four, and two more for the sums of scaled blocks.
func (g *isa) rowsMax(f format) int {
	if f.scaled {
		return g.scaledRows
	}
	return g.rows
}

// tile is the state of a MatMul body: two vectors of weight rows, rows rows of x.
type tile struct {
	g          *isa
	f          format
	rows       int
	w, wNext   reg.GPVirtual  // wNext: from the first vector's tile to the second's
	x, x3, row reg.GPVirtual  // rows 0–2 at x, 3–5 at x3; row bytes between
	nibbles    reg.VecVirtual // AVX-512: n−8 for n in 0–15
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
	if f.scaled {
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
		t := &tile{g: g, f: f, rows: rows}
		t.begin()
		t.blocks()
		if !f.scaled {
			t.tail()
		}
		t.end()
		ret()
	}
}

func label(name string, rows int) string { return name + string(rune('0'+rows)) }

func (t *tile) begin() {
	t.w, t.x, t.row = val("w"), val("x"), val("cols")
	if t.g.wide { // the second vector is the next tile, or the first again where there is none
		t.wNext = val("rows")
		size, none := GP64(), GP64()
		t.tileBytes(size)
		XORQ(none, none)
		CMPQ(t.wNext, I8(16))
		MOVQ(size, t.wNext)
		CMOVQLE(none, t.wNext)
	}
	SHLQ(U8(2), t.row)
	if t.rows > 3 {
		t.x3 = GP64()
		LEAQ(Mem{Base: t.x, Index: t.row, Scale: 2}, t.x3)
		ADDQ(t.row, t.x3)
	}
	if t.f.nibble && t.g.wide {
		t.nibbles = t.g.vec()
		VMOVUPS(t.g.nibbles(), t.nibbles)
	}
	for v := range 2 {
		for range t.rows {
			for h := range 2 {
				t.acc[h][v] = append(t.acc[h][v], zero(t.g.vec()))
			}
			if t.f.scaled {
				t.sum[v] = append(t.sum[v], zero(t.g.vec()))
			}
		}
	}
}

// tileBytes is the size of 16 rows, from cols in row.
func (t *tile) tileBytes(size reg.GPVirtual) {
	MOVQ(t.row, size)
	if !t.f.scaled {
		IMUL3Q(U8(16*t.f.elem), size, size)
		return
	}
	SHRQ(U8(5), size)
	IMUL3Q(U32(t.blockBytes()), size, size)
}

// blockBytes is the size of 32 columns of 16 rows.
func (t *tile) blockBytes() int {
	n := 32 * 16 * t.f.elem
	if t.f.nibble {
		n /= 2
	}
	if t.f.scaled {
		n += 32
	}
	return n
}

// weights is the address of vector v, disp bytes on; each is the size of one element.
func (t *tile) weights(v, disp, elem int) Mem {
	if t.g.wide && v == 1 {
		return Mem{Base: t.w, Index: t.wNext, Scale: 1, Disp: disp}
	}
	return Mem{Base: t.w, Disp: disp + v*t.g.lanes*elem}
}

func (t *tile) activation(i, column int) Mem {
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
	ADDQ(I32(4*columns), t.x)
	if t.rows > 3 {
		ADDQ(I32(4*columns), t.x3)
	}
}

// blocks adds up all whole blocks of 32 columns.
func (t *tile) blocks() {
	name := label("block", t.rows)
	left, j := val("cols"), GP64()
	SHRQ(U8(5), left)
	JZ(LabelRef(name + "_end"))
	Label(name)
	t.prefetch()
	if t.f.scaled {
		ADDQ(I8(32), t.w)
	}
	unroll := max(1, 4/t.rows)
	MOVQ(I32(16/unroll), j)
	Label(name + "_column")
	for u := range unroll {
		if t.f.nibble {
			t.nibbleColumns(16*u, u)
			continue
		}
		t.multiply(t.load(16*t.f.elem*u), u, 0)
		t.multiply(t.load(16*t.f.elem*(u+16)), u+16, 1)
	}
	t.advance(16*t.f.elem*unroll, unroll)
	DECQ(j)
	JNZ(LabelRef(name + "_column"))
	if t.f.scaled {
		t.addBlock()
	}
	skip := 16 * 16 * t.f.elem
	if t.f.nibble {
		skip = 0
	}
	t.advance(skip, 16)
	DECQ(left)
	JNZ(LabelRef(name))
	Label(name + "_end")
}

// prefetch asks for the block that lies ahead by the way memory needs for its
// answer; past the end it asks for what nobody reads, which does no harm.
func (t *tile) prefetch() {
	const ahead = 2048
	for at := 0; at < t.blockBytes(); at += 64 {
		PREFETCHT0(t.weights(0, ahead+at, 0))
		if t.g.wide {
			PREFETCHT0(t.weights(1, ahead+at, 0))
		}
	}
}

// load reads one column of both weight vectors.
func (t *tile) load(disp int) (w [2]reg.VecVirtual) {
	for v := range w {
		w[v] = t.g.vec()
		t.f.load(t.weights(v, disp, t.f.elem), w[v])
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

// nibbleColumns multiplies the columns j and j+16, which share their bytes.
// Where registers are few, the bytes are read twice.
func (t *tile) nibbleColumns(disp, column int) {
	keep := t.g.wide || t.rows == 1
	bytes := t.load(disp)
	low := bytes
	if keep {
		low = [2]reg.VecVirtual{t.g.vec(), t.g.vec()}
	}
	for v := range 2 {
		if !t.g.wide { // VPERMPS looks at the low four bits only
			VPAND(t.g.bits(15), bytes[v], low[v])
			t.centre(low[v], low[v])
		} else {
			t.centre(bytes[v], low[v])
		}
	}
	t.multiply(low, column, 0)
	if !keep {
		bytes = t.load(disp)
	}
	for v := range 2 {
		VPSRLD(U8(4), bytes[v], bytes[v])
		t.centre(bytes[v], bytes[v])
	}
	t.multiply(bytes, column+16, 1)
}

// centre makes the number n−8 of the integer n.
func (t *tile) centre(n, out reg.VecVirtual) {
	if t.g.wide {
		VPERMPS(t.nibbles, n, out)
		return
	}
	VPADDD(t.g.bits(0xfffffff8), n, out) // −8
	VCVTDQ2PS(out, out)
}

// addBlock adds scale times the block's sum to sum, when w stands behind the
// first half of the block, and begins anew.
func (t *tile) addBlock() {
	scale := t.g.vec()
	for v := range 2 {
		VCVTPH2PS(t.weights(v, -32-16*16*t.f.elem, 2), scale)
		for i := range t.rows {
			low, high := t.acc[0][v][i], t.acc[1][v][i]
			VADDPS(high, low, low)
			VFMADD231PS(low, scale, t.sum[v][i])
			zero(low)
			zero(high)
		}
	}
}

// tail adds the columns after the last whole 32.
func (t *tile) tail() {
	name := label("tail", t.rows)
	left := val("cols")
	ANDQ(I8(31), left)
	JZ(LabelRef(name + "_end"))
	Label(name)
	t.multiply(t.load(0), 0, 0)
	t.advance(16*t.f.elem, 1)
	DECQ(left)
	JNZ(LabelRef(name))
	Label(name + "_end")
}

// end adds the halves and stores the rows that exist.
func (t *tile) end() {
	dst, stride, rows := val("dst"), val("dstStride"), val("rows")
	SHLQ(U8(2), stride)
	first, second := GP64(), GP64()
	lanes := GP64()
	MOVQ(I32(t.g.lanes), lanes)
	MOVQ(rows, first)
	CMPQ(first, lanes)
	CMOVQGT(lanes, first)
	MOVQ(rows, second)
	SUBQ(first, second)
	parts := [2]part{t.g.part(first), t.g.part(second)}
	for i := range t.rows {
		for v := range 2 {
			a := t.acc[0][v][i]
			if t.f.scaled {
				a = t.sum[v][i]
			} else {
				VADDPS(t.acc[1][v][i], a, a)
			}
			t.g.store(a, &parts[v], Mem{Base: dst, Disp: v * t.g.bytes()})
		}
		ADDQ(stride, dst)
	}
}
