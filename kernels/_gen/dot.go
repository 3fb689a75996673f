package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Where the parts of a ref.Block lie, in words behind its integers.
const (
	blockSums  = 8 // of all 32, of the first 16, of the second
	blockScale = 11
	blockLess  = 12 // the sums of integers, negated, in the same order
	blockFine  = 15
	blockLow   = 16
	lowLess    = 24
	blockBytes = 128
)

// byteCoding is how elements become unsigned bytes for the integer dot product.
// Group g of a block is its columns 4g … 4g+3: a vector has four bytes of each of 16 rows.
type byteCoding struct {
	bytes  int    // of a block over 16 rows
	offset int    // bytes are 1<<offset above their numbers; not at all if negative
	held   []byte // registers of equal bytes
	table  []int  // of 16 numbers, which nibbles index
	unpack func(t *dots, g, v int) reg.VecVirtual
}

const noOffset = -1

var (
	bytes128   = &byteCoding{bytes: 512, offset: 7, unpack: (*dots).whole}
	nibbles    = &byteCoding{bytes: 256, offset: noOffset, held: []byte{15}, unpack: (*dots).nibble}
	nibblesBy8 = &byteCoding{bytes: 256, offset: 3, held: []byte{15}, unpack: (*dots).nibble}
	fives      = &byteCoding{bytes: 320, offset: noOffset, held: []byte{15, 16}, unpack: (*dots).five}
	fivesBy16  = &byteCoding{bytes: 320, offset: 4, held: []byte{15, 16}, unpack: (*dots).five}
	nibblesIQ4 = &byteCoding{bytes: 256, offset: 7, held: []byte{15}, table: iq4Numbers, unpack: (*dots).lookUp}
	nibblesFP4 = &byteCoding{bytes: 256, offset: 4, held: []byte{15}, table: e2m1Numbers, unpack: (*dots).lookUp}
	quads      = &byteCoding{bytes: 128, offset: noOffset, held: []byte{3}, unpack: (*dots).quad}
	threesBy4  = &byteCoding{bytes: 192, offset: 2, held: []byte{3, 4}, unpack: (*dots).three}
	sixesBy32  = &byteCoding{bytes: 384, offset: 5, held: []byte{15, 48}, unpack: (*dots).six}
)

var byteFormats = []format{
	{name: "Q8_0", bytes: bytes128, scale: halfScale},
	{name: "Q4_0", bytes: nibblesBy8, scale: halfScale},
	{name: "Q4_1", bytes: nibbles, scale: halfScale, min: halfMin},
	{name: "Q5_0", bytes: fivesBy16, scale: halfScale},
	{name: "Q5_1", bytes: fives, scale: halfScale, min: halfMin},
	{name: "IQ4_NL", bytes: nibblesIQ4, scale: halfScale},
	{name: "MXFP4", bytes: nibblesFP4, scale: bfloatScale},
	{name: "Q2_K", bytes: quads, scale: nibbleScales, min: nibbleMins},
	{name: "Q3_K", bytes: threesBy4, scale: byteScales},
	{name: "Q4_K", bytes: nibbles, scale: byteScale, min: byteMin},
	{name: "Q5_K", bytes: fives, scale: byteScale, min: byteMin},
	{name: "Q6_K", bytes: sixesBy32, scale: byteScales},
	{name: "IQ4_XS", bytes: nibblesIQ4, scale: byteScale},
}

// dots is the state of a MatMul body on rounded activations.
type dots struct {
	tile
	ints  [2][]reg.VecVirtual // [v][i]: of a block, or of half of one
	fine  reg.GPVirtual       // not 0 where a row's lower bytes count
	ahead reg.GPVirtual       // says what to prefetch
	held  map[byte]reg.VecVirtual
	table reg.VecVirtual
}

// dotMatMul writes the product of up to two vectors of weight rows with n rows of
// blocks.
//
// The integers of a block, or of each half where halves have scales, are summed
// exactly; the sum starts at what the offsets of the weights' bytes are too much.
// It is multiplied with the activations' scale, and with the weights' scale joins
// the one accumulator of its output, block by block. A minimum times the block's
// sum joins it after that. So an output has one order of operations in every shape.
//
// Where a row's block has lower bytes, their sum is added to 256 times the upper
// bytes' for all rows, and a 256th of it goes on. For a row whose lower bytes are
// zero that changes no bit.
func (g *isa) dotMatMul(f format) {
	text("MatMul"+f.name, "func(dst *float32, dstStride, rows int, w, x *byte, cols, n, ahead int)",
		"MatMul"+f.name+" computes dst[i·dstStride+r] for i in [0,n) and r in [0,rows) from the tiles at w and the blocks at x. 1 ≤ n ≤ RowsMax, 1 ≤ rows ≤ 2·Lanes. It prefetches one tile's size ahead bytes from w; what it reads itself if ahead is 0, and nothing if negative.")
	count := val("n")
	for rows := 1; rows < g.scaledRows; rows++ {
		CMPQ(count, I8(rows))
		JE(LabelRef(label("rows", rows)))
	}
	for rows := g.scaledRows; rows >= 1; rows-- {
		Label(label("rows", rows))
		t := &dots{tile: tile{g: g, f: f, rows: rows}, held: map[byte]reg.VecVirtual{}}
		t.begin()
		t.walk(t.blocks)
		t.end()
		ret()
	}
}

// begin finds the places and clears the sums. A row of blocks takes four bytes a column.
func (t *dots) begin() {
	t.w, t.x, t.row = val("w"), val("x"), val("cols")
	t.secondTile()
	SHLQ(U8(2), t.row)
	t.fourthRow()
	for v := range 2 {
		for range t.rows {
			t.sum[v] = append(t.sum[v], zero(t.g.vec()))
			t.ints[v] = append(t.ints[v], t.g.vec())
		}
	}
	c := t.f.bytes
	t.fine, t.ahead = GP64(), val("ahead")
	for _, b := range c.held {
		t.held[b] = t.g.vec()
		VMOVDQU32(t.g.bits(uint32(b)*0x01010101), t.held[b])
	}
	if c.table != nil {
		var above []int
		for _, n := range c.table {
			above = append(above, n+1<<c.offset)
		}
		t.table = t.g.vec()
		VBROADCASTI32X4(byteTable(above), t.table)
	}
}

// blocks adds up that many blocks of 32 columns.
func (t *dots) blocks(name string, left reg.GPVirtual) {
	Label(name)
	t.prefetchAhead(name)
	ADDQ(I32(t.f.blockBytes()), t.w)
	halves := 1
	if t.f.scale == byteScales || t.f.scale == nibbleScales {
		halves = 2
	}
	MOVL(t.activation(0, blockFine), t.fine.As32())
	for i := 1; i < t.rows; i++ {
		ORL(t.activation(i, blockFine), t.fine.As32())
	}
	for h := range halves {
		t.start(halves, h)
		t.dotGroups(halves, h, 0)
		fine, scaled := label(name+"_fine", h), label(name+"_scaled", h)
		TESTL(t.fine.As32(), t.fine.As32())
		JNZ(LabelRef(fine))
		t.each(func(n reg.VecVirtual) { VCVTDQ2PS(n, n) })
		JMP(LabelRef(scaled))
		Label(fine)
		t.dotLow(halves, h)
		Label(scaled)
		t.scaleInts(h)
	}
	for h := range halves {
		t.addMin(halves, h)
	}
	ADDQ(I32(blockBytes), t.x)
	if t.rows > 3 {
		ADDQ(I32(blockBytes), t.x3)
	}
	DECQ(left)
	JNZ(LabelRef(name))
}

// prefetchAhead asks for what is read next.
func (t *dots) prefetchAhead(name string) {
	TESTQ(t.ahead, t.ahead)
	JZ(LabelRef(name + "_own"))
	JS(LabelRef(name + "_fetched"))
	for at := 0; at < t.f.blockBytes(); at += 64 {
		PREFETCHT0(Mem{Base: t.w, Index: t.ahead, Scale: 1, Disp: at})
	}
	JMP(LabelRef(name + "_fetched"))
	Label(name + "_own")
	t.prefetch()
	Label(name + "_fetched")
}

// place is the index of half h of halves among a block's sums.
func place(halves, h int) int {
	if halves == 1 {
		return 0
	}
	return 1 + h
}

// start gives the integer sums their first values.
func (t *dots) start(halves, h int) {
	for i := range t.rows {
		first, second := t.ints[0][i], t.ints[1][i]
		if t.f.bytes.offset == noOffset {
			VPXORD(first, first, first)
			VPXORD(second, second, second)
			continue
		}
		VPSLLD_BCST(U8(t.f.bytes.offset), t.activation(i, blockLess+place(halves, h)), first)
		VMOVDQA32(first, second)
	}
}

// each calls do for every integer sum.
func (t *dots) each(do func(n reg.VecVirtual)) {
	for v := range 2 {
		for i := range t.rows {
			do(t.ints[v][i])
		}
	}
}

// dotGroups adds the products of a half's groups with the bytes from that word of the blocks on.
func (t *dots) dotGroups(halves, h, word int) {
	for g := 8 / halves * h; g < 8/halves*(h+1); g++ {
		first, second := t.f.bytes.unpack(t, g, 0), t.f.bytes.unpack(t, g, 1)
		x := t.g.vec()
		for i := range t.rows {
			VPBROADCASTD(t.activation(i, word+g), x)
			VPDPBUSD(x, first, t.ints[0][i])
			VPDPBUSD(x, second, t.ints[1][i])
		}
	}
}

// dotLow adds the products with the lower bytes, and makes numbers of the sums.
func (t *dots) dotLow(halves, h int) {
	t.each(func(n reg.VecVirtual) { VPSLLD(U8(8), n, n) })
	if t.f.bytes.offset != noOffset {
		less := t.g.vec()
		for i := range t.rows {
			VPSLLD_BCST(U8(t.f.bytes.offset), t.activation(i, lowLess+place(halves, h)), less)
			VPADDD(less, t.ints[0][i], t.ints[0][i])
			VPADDD(less, t.ints[1][i], t.ints[1][i])
		}
	}
	t.dotGroups(halves, h, blockLow)
	t.each(func(n reg.VecVirtual) {
		VCVTDQ2PS(n, n)
		VMULPS(t.g.num(1.0/256), n, n)
	})
}

// scaleInts adds the integer sums of half h, times both scales.
func (t *dots) scaleInts(h int) {
	for v := range 2 {
		factor := t.g.vec()
		t.scaleOf(v, h, factor)
		for i := range t.rows {
			n := t.ints[v][i]
			VMULPS_BCST(t.activation(i, blockScale), n, n)
			VFMADD231PS(n, factor, t.sum[v][i])
		}
	}
}

// addMin adds the minimum of half h times the activations' sum.
func (t *dots) addMin(halves, h int) {
	if t.f.min == noMin {
		return
	}
	for v := range 2 {
		low := t.minOf(v, h)
		for i := range t.rows {
			m := t.activation(i, blockSums+place(halves, h))
			if t.f.min == halfMin {
				VFMADD231PS_BCST(m, low, t.sum[v][i])
			} else {
				VFNMADD231PS_BCST(m, low, t.sum[v][i])
			}
		}
	}
}

// element is an address disp bytes into the block's elements.
func (t *dots) element(v, disp int) Mem { return t.weights(v, disp-t.f.bytes.bytes, 0) }

// whole: a byte an element.
func (t *dots) whole(g, v int) reg.VecVirtual {
	out := t.g.vec()
	VMOVDQU32(t.element(v, 64*g), out)
	return out
}

// nibble: byte j has columns j and j+16.
func (t *dots) nibble(g, v int) reg.VecVirtual {
	out := t.whole(g%4, v)
	if g >= 4 {
		VPSRLD(U8(4), out, out)
	}
	VPANDD(t.held[15], out, out)
	return out
}

// lookUp: nibbles, and a number for each in a table.
func (t *dots) lookUp(g, v int) reg.VecVirtual {
	out := t.nibble(g, v)
	VPSHUFB(out, t.table, out)
	return out
}

// five: nibbles, and a plane of their upper bits.
func (t *dots) five(g, v int) reg.VecVirtual { return t.addBit(t.nibble(g, v), 256, 16, g, v) }

// three: quads, and a plane of their upper bits.
func (t *dots) three(g, v int) reg.VecVirtual { return t.addBit(t.quad(g, v), 128, 4, g, v) }

// addBit adds worth to the bytes whose bits in the planes at that place are set.
func (t *dots) addBit(out reg.VecVirtual, planes int, worth byte, g, v int) reg.VecVirtual {
	k := K()
	KMOVQ(t.element(v, planes+8*g), k)
	VPADDB(t.held[worth], out, k, out)
	return out
}

// quad: byte j has two bits of each of the columns j, j+8, j+16 and j+24.
func (t *dots) quad(g, v int) reg.VecVirtual {
	out := t.whole(g%2, v)
	if g >= 2 {
		VPSRLD(U8(g/2*2), out, out)
	}
	VPANDD(t.held[3], out, out)
	return out
}

// six: nibbles, and then quads of their upper bits.
func (t *dots) six(g, v int) reg.VecVirtual {
	low, high := t.nibble(g, v), t.whole(4+g%2, v)
	switch field := g / 2; {
	case field < 2:
		VPSLLD(U8(4-2*field), high, high)
	case field > 2:
		VPSRLD(U8(2), high, high)
	}
	const lowOrMasked = 0xf8 // low | high & mask
	VPTERNLOGD(U8(lowOrMasked), t.held[48], high, low)
	return low
}
