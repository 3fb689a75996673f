package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// The fields of a ref.Block, in words.
const (
	blockScale = 8 + iota
	blockSum
	blockLess
	halfLess // of the first half
	blockGroup
	blockTop
	halfTop
	blockWords = halfTop + 2
	blockBytes = 4 * blockWords
)

// dots is the state of a MatMul body on rounded activations.
type dots struct {
	weights
	activations
	elements *byteCoding
	sum      [2][]reg.VecVirtual // [v][i]: of all blocks
	ints     [2][]reg.VecVirtual // [v][i]: of a block, or of half of one
	places   reg.GPVirtual       // the eight groups'
	held     map[byte]reg.VecVirtual
	table    reg.VecVirtual
}

// group is a group of columns of the block before w. Its places are known here, or index is a
// register with the group's number times 16.
type group struct {
	places
	index reg.GPVirtual
}

// Up to fewRows rows of blocks are multiplied with one vector of weight rows: memory is the
// limit then, and one sequential read is faster than two by turns. There are bodies with two
// vectors from pairedRows rows on.
const fewRows, pairedRows = 4, 3

// dotRows is how many rows of blocks there is a body for.
const dotRows = 6

// dotMatMul writes the product of up to two vectors of weight rows with n rows of
// blocks.
//
// The integers of a block, or of each half where halves have scales, are summed exactly:
// first 256 times the products with the upper bytes, which each row has in a group of its
// own; then the correction for the offsets of the weights' bytes, and the products with the
// lower bytes. The sum is multiplied with the activations' scale, and times the weights'
// scale it is added to the one accumulator of its output, block by block. A minimum times
// the block's sum is added after that. So an output has one order of operations in every
// shape.
func (g *isa) dotMatMul(f quantised) {
	dotText(f, NOSPLIT)
	count := val("n")
	CMPQ(val("rows"), I8(g.lanes))
	JGT(LabelRef("two_vectors"))
	for rows := 1; rows <= fewRows; rows++ {
		CMPQ(count, I8(rows))
		JE(LabelRef(label("few", rows)))
	}
	Label("two_vectors")
	for rows := pairedRows; rows < dotRows; rows++ {
		CMPQ(count, I8(rows))
		JE(LabelRef(label("rows", rows)))
	}
	for rows := dotRows; rows >= pairedRows; rows-- {
		g.dotBody(f, label("rows", rows), rows, 2)
	}
	for rows := 1; rows <= fewRows; rows++ {
		g.dotBody(f, label("few", rows), rows, 1)
	}
}

// dotBody is the product of some vectors of weight rows with some rows of blocks.
func (g *isa) dotBody(f quantised, name string, rows, vectors int) {
	Label(name)
	t := newDots(g, f, rows, vectors)
	t.begin()
	t.walk(label(label("block", rows)+"_", vectors), t.blocks)
	t.end()
	ret()
}

// end stores the rows that exist.
func (t *dots) end() {
	dst, stride, rows := val("dst"), val("dstStride"), val("rows")
	SHLQ(U8(2), stride)
	exist := t.g.existing(rows)
	for i := range t.rows {
		for v := range t.vectors {
			t.g.store(t.sum[v][i], &exist[v], Mem{Base: dst, Disp: v * t.g.bytes()})
		}
		ADDQ(stride, dst)
	}
}

func newDots(g *isa, f quantised, rows, vectors int) *dots {
	return &dots{weights: weights{g: g, f: f.stored(), vectors: vectors}, activations: activations{rows: rows}, elements: f.elements}
}

// dotText begins the function for rounded activations. One with a large frame grows the
// stack first, so it has no attribute.
func dotText(f quantised, attributes attr.Attribute) {
	textWith(attributes, "MatMul"+f.Name, "func(dst *float32, dstStride, rows int, w, x *byte, cols, n, ahead int)",
		"MatMul"+f.Name+" computes dst[i·dstStride+r] for i in [0,n) and r in [0,rows) from the tiles at w and the blocks at x. 1 ≤ n ≤ RowsMax, 1 ≤ rows ≤ 2·Lanes. It prefetches one tile's size ahead bytes from w; what it reads itself if ahead is 0, and nothing if negative.")
}

// begin loads the addresses and clears the sums. A row of blocks takes two bytes a column.
func (t *dots) begin() {
	t.w, t.x, t.step = val("w"), val("x"), val("cols")
	t.secondTile(t.step)
	SHLQ(U8(1), t.step)
	t.fourthRow()
	for v := range t.vectors {
		for range t.rows {
			t.sum[v] = append(t.sum[v], zero(t.g.vec()))
			t.ints[v] = append(t.ints[v], t.g.vec())
		}
	}
	t.ahead, t.places = val("ahead"), GP64()
	LEAQ(placesTable(t.f.Name, t.elements), t.places)
	t.hold()
}

// hold loads what unpacking needs in registers.
func (t *dots) hold() {
	c := t.elements
	t.held = map[byte]reg.VecVirtual{}
	for _, b := range c.held {
		t.held[b] = t.g.vec()
		VMOVDQU32(t.g.bytesOf(b), t.held[b])
	}
	if c.table != nil {
		t.table = t.g.vec()
		VBROADCASTI32X4(byteTable(c.above()), t.table)
	}
}

// above is the table above the offset.
func (c *byteCoding) above() (numbers []int) {
	for _, n := range c.table {
		numbers = append(numbers, n+1<<c.offset)
	}
	return numbers
}

// bytesOf is a vector of equal bytes in memory.
func (g *isa) bytesOf(b byte) Mem { return g.bits(uint32(b) * 0x01010101) }

// placesTable has the places of the eight groups, 16 bytes each.
func placesTable(name string, c *byteCoding) Mem {
	var words []uint32
	for g := range 8 {
		for _, place := range c.places(g) {
			words = append(words, uint32(place))
		}
	}
	return table("places"+name, words...)
}

// blocks adds up that many blocks of 32 columns.
func (t *dots) blocks(name string, left reg.GPVirtual) {
	Label(name)
	t.prefetchAhead(name)
	ADDQ(I32(t.f.blockBytes()), t.w)
	halves := t.f.ScaleHalves()
	for h := range halves {
		t.dotTops(halves, h)
		t.takeOffsets(halves, h)
		t.dotGroups(halves, h)
		t.scaleInts(h)
	}
	for h := range halves {
		t.addMin(halves, h)
	}
	t.advance(blockWords)
	DECQ(left)
	JNZ(LabelRef(name))
}

// each calls do for every integer sum.
func (t *dots) each(do func(n reg.VecVirtual)) {
	for v := range t.vectors {
		for i := range t.rows {
			do(t.ints[v][i])
		}
	}
}

// dotTops starts the sums with 256 times the products of each row's own group with its upper
// bytes, which are zero in the half that the group does not lie in.
func (t *dots) dotTops(halves, h int) {
	top := topAt(halves, h)
	t.each(func(n reg.VecVirtual) { VPXORD(n, n, n) })
	for i := range t.rows {
		g := group{index: GP64()}
		MOVL(t.activation(i, blockGroup), g.index.As32())
		x, mask := t.g.vec(), t.g.vec()
		VPBROADCASTD(t.activation(i, top), x)
		if t.elements.alone {
			VPBROADCASTD(t.placed(g, placeMask), mask)
		}
		for v := range t.vectors {
			n := t.ints[v][i]
			if t.elements.alone { // shifted left by its place, so the rest up to 8 is missing
				w := t.g.vec()
				VPANDD(t.at(g, v, lowAt), mask, w)
				VPDPBUSD(x, w, n)
				VPSLLVD_BCST(t.placed(g, placeRest), n, n)
				continue
			}
			VPDPBUSD(x, t.elements.unpack(t, g, v), n)
			VPSLLD(U8(8), n, n)
		}
	}
}

// topAt is the field with the upper bytes of half h, or of the whole block.
func topAt(halves, h int) int {
	if halves == 2 {
		return halfTop + h
	}
	return blockTop
}

// dotGroups adds the products of a half's groups with the lower bytes.
func (t *dots) dotGroups(halves, h int) {
	for g := 8 / halves * h; g < 8/halves*(h+1); g++ {
		static := group{places: t.elements.places(g)}
		var weights []reg.VecVirtual
		for v := range t.vectors {
			weights = append(weights, t.elements.unpack(t, static, v))
		}
		x := t.g.vec()
		for i := range t.rows {
			VPBROADCASTD(t.activation(i, g), x)
			for v, w := range weights {
				VPDPBUSD(x, w, t.ints[v][i])
			}
		}
	}
}

// takeOffsets corrects for the offset between the weights' bytes and their numbers.
func (t *dots) takeOffsets(halves, h int) {
	if t.elements.offset == noOffset {
		return
	}
	for i := range t.rows {
		less := t.g.vec()
		t.lessOf(halves, h, i, less)
		VPSLLD(U8(t.elements.offset), less, less)
		for v := range t.vectors {
			VPADDD(less, t.ints[v][i], t.ints[v][i])
		}
	}
}

// scaleInts adds the integer sums of half h, times both scales.
func (t *dots) scaleInts(h int) {
	for v := range t.vectors {
		factor := t.g.vec()
		t.scaleOf(v, h, factor)
		for i := range t.rows {
			n := t.ints[v][i]
			VCVTDQ2PS(n, n)
			VMULPS_BCST(t.activation(i, blockScale), n, n)
			VFMADD231PS(n, factor, t.sum[v][i])
		}
	}
}

// addMin adds the minimum of half h times the activations' sum.
func (t *dots) addMin(halves, h int) {
	if t.f.Minimum == format.NoMinimum {
		return
	}
	var lows []reg.VecVirtual
	for v := range t.vectors {
		lows = append(lows, t.minOf(v, h))
	}
	for i := range t.rows {
		x := t.sumOf(halves, h, i)
		for v, low := range lows {
			t.addLow(x, low, t.sum[v][i])
		}
	}
}

// addLow adds a minimum times the activations' sum.
func (t *dots) addLow(x, low, sum reg.VecVirtual) {
	if t.f.Minimum == format.HalfMinimum {
		VFMADD231PS(x, low, sum)
	} else {
		VFNMADD231PS(x, low, sum)
	}
}

// sumOf is the sum of row i's numbers in half h.
func (t *dots) sumOf(halves, h, i int) reg.VecVirtual {
	x := t.g.vec()
	if halves == 1 {
		VBROADCASTSS(t.activation(i, blockSum), x)
		return x
	}
	t.lessOf(halves, h, i, x)
	VPSUBD(x, zero(t.g.vec()), x)
	VCVTDQ2PS(x, x)
	VMULPS_BCST(t.activation(i, blockScale), x, x)
	return x
}

// lessOf is the negated sum of row i's integers in half h.
func (t *dots) lessOf(halves, h, i int, less reg.VecVirtual) {
	place := blockLess
	if halves == 2 && h == 0 {
		place = halfLess
	}
	VPBROADCASTD(t.activation(i, place), less)
	if h == 1 {
		VPSUBD_BCST(t.activation(i, halfLess), less, less)
	}
}
