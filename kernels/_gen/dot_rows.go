package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowDots is the state of a MatMul body on rounded activations in AVX2: registers hold
// some of a block's elements while the rows of x pass by one after the other, and a frame
// holds the sums. It multiplies bytes (byteDots) where the sum of two products fits 16 bits,
// else words (wordDots).
type rowDots struct {
	weights
	activations // x is the row that passes by
	coding      *byteCoding
	first       reg.GPVirtual // row 0 of x
	n           reg.GPVirtual
	frame       reg.GPVirtual
	sums        reg.GPVirtual     // in the frame, of the row that passes by
	factor      [2]reg.VecVirtual // the weights' scales, of each vector
}

// The frame has vectors: two sums of each row, two intermediate sums of each row, which one
// pass over the rows leaves for the next, and what the kind of product keeps.
const (
	passingRows = 12 // at most
	vectorBytes = 32
	rowSums     = 2 * vectorBytes
	allSums     = passingRows * rowSums
	frameRest   = 2 * allSums
)

// rowsMatMul writes the same product as dotMatMul, to the same bits: integer sums are
// exact in any order, and the floating point operations and their order are the same.
func (g *isa) rowsMatMul(f quantised) {
	dotText(f, 0)
	t := &rowDots{weights: weights{g: g, f: f.stored()}, activations: activations{rows: 1}, coding: f.elements}
	if f.elements.chain() > 0 {
		p := &byteDots{rowDots: t}
		t.begin(bytesFrame)
		t.walk("block1_0", p.blocks)
	} else {
		w := &wordDots{rowDots: t}
		t.begin(wordsFrame)
		t.walk("block1_0", w.blocks)
	}
	t.end()
	ret()
}

// chain is how many groups' sums of two products can be added in 16 bits.
func (c *byteCoding) chain() int { return 32767 / (2 * 128 * c.max) }

// begin aligns the frame and clears the sums.
func (t *rowDots) begin(frameBytes int) {
	t.w, t.first, t.step, t.n, t.ahead = val("w"), val("x"), val("cols"), val("n"), val("ahead")
	t.x, t.sums, t.frame = GP64(), GP64(), GP64()
	SHLQ(U8(1), t.step)
	LEAQ(AllocLocal(frameBytes+vectorBytes).Offset(vectorBytes-1), t.frame)
	ANDQ(I8(-vectorBytes), t.frame)
	none := zero(YMM())
	for at := 0; at < allSums; at += vectorBytes {
		VMOVUPS(none, t.inFrame(at))
	}
}

func (t *rowDots) inFrame(at int) Mem { return Mem{Base: t.frame, Disp: at} }

// sumAt and leftAt are the row's vectors in the frame.
func (t *rowDots) sumAt(v int) Mem  { return Mem{Base: t.sums, Disp: vectorBytes * v} }
func (t *rowDots) leftAt(v int) Mem { return Mem{Base: t.sums, Disp: allSums + vectorBytes*v} }

// eachBlock runs do for each of the blocks, with w behind it.
func (t *rowDots) eachBlock(name string, left reg.GPVirtual, do func()) {
	Label(name)
	t.prefetchAhead(name)
	ADDQ(I32(t.f.blockBytes()), t.w)
	do()
	ADDQ(I32(blockBytes), t.first)
	DECQ(left)
	JNZ(LabelRef(name))
}

// eachRow runs do for each row of x.
func (t *rowDots) eachRow(name string, do func()) {
	left := GP64()
	MOVQ(t.n, left)
	MOVQ(t.first, t.x)
	LEAQ(t.inFrame(0), t.sums)
	Label(name)
	do()
	ADDQ(t.step, t.x)
	ADDQ(I32(rowSums), t.sums)
	DECQ(left)
	JNZ(LabelRef(name))
}

// groupBytes makes the bytes of group g of vector v.
func (t *rowDots) groupBytes(v, g int) reg.VecVirtual {
	c, out := t.coding, YMM()
	p := c.places(g)
	VMOVDQU(t.weightsAt(v, p[lowAt]-c.bytes, 4), out)
	if p[lowBy] > 0 {
		VPSRLD(U8(p[lowBy]), out, out)
	}
	if len(c.held) > 0 {
		VPAND(t.g.bytesOf(c.held[0]), out, out)
	}
	switch {
	case c.table != nil:
		numbers := YMM()
		VBROADCASTI128(byteTable(c.above()), numbers)
		VPSHUFB(out, numbers, out)
	case c.plane:
		t.addBit(v, p[highAt]-c.bytes, c.held[1], out)
	case len(c.held) > 1:
		t.addUpper(t.weightsAt(v, p[highAt]-c.bytes, 4), p[highBy], c.held[1], out)
	}
	return out
}

// addBit adds worth to the bytes whose bits in the plane at disp are set.
func (t *rowDots) addBit(v, disp int, worth byte, out reg.VecVirtual) {
	const low, high = 0x08040201, 0x80402010
	spread := table("spread", 0, 0, 0x01010101, 0x01010101, 0x02020202, 0x02020202, 0x03030303, 0x03030303)
	bits := table("eight", low, high, low, high, low, high, low, high)
	set := YMM()
	VPBROADCASTD(Mem{Base: t.w, Disp: disp + 4*v}, set)
	VPSHUFB(spread, set, set)
	VPAND(bits, set, set)
	VPCMPEQB(bits, set, set)
	VPAND(t.g.bytesOf(worth), set, set)
	VPOR(set, out, out)
}

// addUpper adds the bits of mask in the bytes at m, rotated left.
func (t *rowDots) addUpper(m Mem, rotated int, mask byte, out reg.VecVirtual) {
	high := YMM()
	VMOVDQU(m, high)
	switch {
	case rotated >= 16:
		VPSRLD(U8(32-rotated), high, high)
	case rotated > 0:
		VPSLLD(U8(rotated), high, high)
	}
	VPAND(t.g.bytesOf(mask), high, high)
	VPOR(high, out, out)
}

// widen adds neighbouring 16-bit numbers.
func (t *rowDots) widen(words reg.VecVirtual) { VPMADDWD(t.g.bits(0x00010001), words, words) }

// scaleOfRow is the activations' scale.
func (t *rowDots) scaleOfRow() reg.VecVirtual {
	scale := YMM()
	VBROADCASTSS(t.activation(0, blockScale), scale)
	return scale
}

// scaleInts turns integer sums into the row's new sums, with both scales. It does not store
// them.
func (t *rowDots) scaleInts(v int, scale, n reg.VecVirtual) {
	VCVTDQ2PS(n, n)
	VMULPS(scale, n, n)
	VFMADD213PS(t.sumAt(v), t.factor[v], n)
}

// end stores the rows that exist.
func (t *rowDots) end() {
	dst, stride, rows := val("dst"), val("dstStride"), val("rows")
	SHLQ(U8(2), stride)
	exist := t.g.existing(rows)
	t.eachRow("store", func() {
		for v := range 2 {
			a := YMM()
			VMOVUPS(t.sumAt(v), a)
			t.g.store(a, &exist[v], Mem{Base: dst, Disp: vectorBytes * v})
		}
		ADDQ(stride, dst)
	})
}
