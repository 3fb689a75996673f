package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// floats is a type whose elements are numbers, one behind the other.
type floats struct {
	format.Format
	elem int // bytes of an element
	load func(m Mem, v reg.VecVirtual)
}

var floatFormats = func() (all []floats) {
	of := map[string]floats{
		"F32":  {elem: 4, load: func(m Mem, v reg.VecVirtual) { VMOVUPS(m, v) }},
		"F16":  {elem: 2, load: func(m Mem, v reg.VecVirtual) { VCVTPH2PS(m, v) }},
		"BF16": {elem: 2, load: loadBFloat},
	}
	for _, f := range format.Floats {
		c := of[f.Name]
		c.Format = f
		all = append(all, c)
	}
	return all
}()

func loadBFloat(m Mem, v reg.VecVirtual) {
	VPMOVZXWD(m, v)
	VPSLLD(U8(16), v, v)
}

// columnBytes is the size of a column over 16 rows.
func (f floats) columnBytes() int { return 16 * f.elem }

// floatProduct is the state of a MatMul body: two vectors of weight rows, some rows of x.
type floatProduct struct {
	weights
	activations
	f floats
	// acc[h][v][i]: half h of each block of 32 columns, weight vector v, row i of x.
	acc [2][2][]reg.VecVirtual
}

// matMul writes the product of up to two vectors of weight rows with n rows of x.
//
// One output has two accumulators: one takes the columns 0–15 of every 32, the
// other the columns 16–31; columns after the last whole 32 go to the first. They
// are added at the end. The order is the same in every shape, which is what makes
// the product bit-invariant.
func (g *isa) matMul(f floats) {
	text("MatMul"+f.Name, "func(dst *float32, dstStride, rows int, w *byte, x *float32, cols, n int)",
		"MatMul"+f.Name+" computes dst[i·dstStride+r] for i in [0,n) and r in [0,rows) from the tiles at w. 1 ≤ n ≤ RowsMax, 1 ≤ rows ≤ 2·Lanes.")
	count := val("n")
	for rows := 1; rows < g.rowsMax(); rows++ {
		CMPQ(count, I8(rows))
		JE(LabelRef(label("rows", rows)))
	}
	for rows := g.rowsMax(); rows >= 1; rows-- {
		Label(label("rows", rows))
		t := &floatProduct{
			weights: weights{g: g, f: stored{f.Format, 32 * f.columnBytes()}, vectors: 2}, activations: activations{rows: rows}, f: f,
		}
		t.begin()
		t.walk(label(label("block", rows)+"_", 2), t.blocks)
		t.tail()
		t.end()
		ret()
	}
}

func label(name string, rows int) string { return name + string(rune('0'+rows)) }

func (t *floatProduct) begin() {
	t.w, t.x, t.step = val("w"), val("x"), val("cols")
	if t.g.wide {
		t.secondTile(t.step)
	}
	SHLQ(U8(2), t.step)
	t.fourthRow()
	for v := range 2 {
		for range t.rows {
			for h := range 2 {
				t.acc[h][v] = append(t.acc[h][v], zero(t.g.vec()))
			}
		}
	}
}

// advanceColumns moves both operands on.
func (t *floatProduct) advanceColumns(n int) {
	ADDQ(I32(n*t.f.columnBytes()), t.w)
	t.activations.advance(n)
}

// blocks adds up that many blocks of 32 columns.
func (t *floatProduct) blocks(name string, left reg.GPVirtual) {
	const turns = 16 // each has a column of either half
	unroll := max(1, 4/t.rows)
	j := GP64()
	Label(name)
	t.prefetch()
	MOVQ(I32(turns/unroll), j)
	Label(name + "_column")
	for u := range unroll {
		for h := range 2 {
			t.multiply(t.load(u+16*h), u+16*h, h)
		}
	}
	t.advanceColumns(unroll)
	DECQ(j)
	JNZ(LabelRef(name + "_column"))
	ADDQ(I32(turns*t.f.columnBytes()), t.w) // over the second half
	t.activations.advance(turns)
	DECQ(left)
	JNZ(LabelRef(name))
}

// load gives a column of both weight vectors.
func (t *floatProduct) load(column int) (w [2]reg.VecVirtual) {
	for v := range w {
		w[v] = t.g.vec()
		t.f.load(t.weightsAt(v, column*t.f.columnBytes(), t.f.elem), w[v])
	}
	return w
}

// multiply adds the products of one column to half h of the accumulators.
func (t *floatProduct) multiply(w [2]reg.VecVirtual, column, h int) {
	x := t.g.vec()
	for i := range t.rows {
		VBROADCASTSS(t.activation(i, column), x)
		VFMADD231PS(x, w[0], t.acc[h][0][i])
		VFMADD231PS(x, w[1], t.acc[h][1][i])
	}
}

// tail adds the columns after the last whole 32.
func (t *floatProduct) tail() {
	name := label("tail", t.rows)
	left := val("cols")
	ANDQ(I8(31), left)
	JZ(LabelRef(name + "_end"))
	Label(name)
	t.multiply(t.load(0), 0, 0)
	t.advanceColumns(1)
	DECQ(left)
	JNZ(LabelRef(name))
	Label(name + "_end")
}

// end adds the halves and stores the rows that exist.
func (t *floatProduct) end() {
	dst, stride, rows := val("dst"), val("dstStride"), val("rows")
	SHLQ(U8(2), stride)
	exist := t.g.existing(rows)
	for i := range t.rows {
		for v := range 2 {
			a := t.acc[0][v][i]
			VADDPS(t.acc[1][v][i], a, a)
			t.g.store(a, &exist[v], Mem{Base: dst, Disp: v * t.g.bytes()})
		}
		ADDQ(stride, dst)
	}
}
