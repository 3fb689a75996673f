package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Where the parts of a ref.Block lie, in words.
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

// byteCoding is how elements become unsigned bytes for the integer dot product.
// Group g of a block is its columns 4g … 4g+3: a vector has four bytes of each of 16 rows.
type byteCoding struct {
	bytes  int    // of a block over 16 rows
	offset int    // bytes are 1<<offset above their numbers; not at all if negative
	held   []byte // registers of equal bytes
	table  []int  // of 16 numbers, which nibbles index
	places func(g int) places
	unpack func(t *dots, g group, v int) reg.VecVirtual
	alone  bool // there are no upper bits and no table
	plane  bool // upper bits are in a plane
	max    int  // the largest byte
}

// places is where a block's elements have the bits of a group.
type places [4]int

const (
	lowAt  = iota // bytes to its vector
	lowBy         // bits to shift that right
	highAt        // bytes to the vector, or the mask, of upper bits
	highBy        // bits to rotate that left

	// Where there are no upper bits, an element may be left in its place.
	placeMask = highAt // the bytes' bits of the group
	placeRest = highBy // bits from its place to eight
)

const noOffset = -1

var (
	bytes128   = &byteCoding{bytes: 512, max: 255, offset: 7, places: bytewise, unpack: (*dots).whole}
	nibbles    = &byteCoding{bytes: 256, max: 15, offset: noOffset, held: []byte{15}, places: nibblesAlone, unpack: (*dots).nibble, alone: true}
	nibblesBy8 = &byteCoding{bytes: 256, max: 15, offset: 3, held: []byte{15}, places: nibblesAlone, unpack: (*dots).nibble, alone: true}
	fives      = &byteCoding{bytes: 320, max: 31, offset: noOffset, held: []byte{15, 16}, places: nibblewise, plane: true, unpack: (*dots).five}
	fivesBy16  = &byteCoding{bytes: 320, max: 31, offset: 4, held: []byte{15, 16}, places: nibblewise, plane: true, unpack: (*dots).five}
	nibblesIQ4 = &byteCoding{bytes: 256, max: 255, offset: 7, held: []byte{15}, table: iq4Numbers, places: nibblewise, unpack: (*dots).lookUp}
	nibblesFP4 = &byteCoding{bytes: 256, max: 28, offset: 4, held: []byte{15}, table: e2m1Numbers, places: nibblewise, unpack: (*dots).lookUp}
	quads      = &byteCoding{bytes: 128, max: 3, offset: noOffset, held: []byte{3}, places: quadwise, unpack: (*dots).quad}
	threesBy4  = &byteCoding{bytes: 192, max: 7, offset: 2, held: []byte{3, 4}, places: quadwise, plane: true, unpack: (*dots).three}
	sixesBy32  = &byteCoding{bytes: 384, max: 63, offset: 5, held: []byte{15, 48}, places: sixwise, unpack: (*dots).six}
)

func bytewise(g int) places { return places{lowAt: 64 * g} }

// nibblewise: byte j has columns j and j+16. A plane of bits may follow.
func nibblewise(g int) places {
	return places{lowAt: 64 * (g % 4), lowBy: g / 4 * 4, highAt: 256 + 8*g}
}

// nibblesAlone: no plane follows.
func nibblesAlone(g int) places {
	p := nibblewise(g)
	p[placeMask], p[placeRest] = 0x0f0f0f0f<<p[lowBy], 8-p[lowBy]
	return p
}

// quadwise: byte j has two bits of each of the columns j, j+8, j+16 and j+24. A plane of bits may follow.
func quadwise(g int) places { return places{lowAt: 64 * (g % 2), lowBy: g / 2 * 2, highAt: 128 + 8*g} }

// sixwise: nibbles, and then quads of their upper bits, which go to bits 4 and 5.
func sixwise(g int) places {
	p := nibblewise(g)
	p[highAt], p[highBy] = 256+64*(g%2), (4-g/2*2)&31
	return p
}

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
	ints   [2][]reg.VecVirtual // [v][i]: of a block, or of half of one
	places reg.GPVirtual       // the eight groups'
	held   map[byte]reg.VecVirtual
	table  reg.VecVirtual
}

// group is a group of columns of the block before w: with places known here, or where
// index says, the group's number times 16.
type group struct {
	places
	index reg.GPVirtual
}

// dotMatMul writes the product of up to two vectors of weight rows with n rows of
// blocks.
//
// The integers of a block, or of each half where halves have scales, are summed
// exactly: first the products with the upper bytes, which each row has in a group of its
// own, 256 times; then what the offsets of the weights' bytes are too much, and the
// products with the lower bytes. The sum is multiplied with the
// activations' scale, and with the weights' scale joins the one accumulator of its
// output, block by block. A minimum times the block's sum joins it after that. So an
// output has one order of operations in every shape.
func (g *isa) dotMatMul(f format) {
	dotText(f, NOSPLIT)
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

// dotText begins the function for rounded activations. One with a large frame grows the
// stack first, so it has no attribute.
func dotText(f format, attributes attr.Attribute) {
	textWith(attributes, "MatMul"+f.name, "func(dst *float32, dstStride, rows int, w, x *byte, cols, n, ahead int)",
		"MatMul"+f.name+" computes dst[i·dstStride+r] for i in [0,n) and r in [0,rows) from the tiles at w and the blocks at x. 1 ≤ n ≤ RowsMax, 1 ≤ rows ≤ 2·Lanes. It prefetches one tile's size ahead bytes from w; what it reads itself if ahead is 0, and nothing if negative.")
}

// begin finds the places and clears the sums. A row of blocks takes two bytes a column.
func (t *dots) begin() {
	t.w, t.x, t.row = val("w"), val("x"), val("cols")
	t.secondTile()
	SHLQ(U8(1), t.row)
	t.fourthRow()
	for v := range 2 {
		for range t.rows {
			t.sum[v] = append(t.sum[v], zero(t.g.vec()))
			t.ints[v] = append(t.ints[v], t.g.vec())
		}
	}
	c := t.f.bytes
	t.ahead, t.places = val("ahead"), GP64()
	LEAQ(placesTable(t.f.name, c), t.places)
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
	halves := t.f.scaleHalves()
	for h := range halves {
		t.dotTops(halves, h)
		t.takeOffsets(halves, h)
		t.dotGroups(halves, h)
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
func (t *tile) prefetchAhead(name string) {
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

// each calls do for every integer sum.
func (t *dots) each(do func(n reg.VecVirtual)) {
	for v := range 2 {
		for i := range t.rows {
			do(t.ints[v][i])
		}
	}
}

// dotTops makes the sums 256 times the products of each row's own group with its upper
// bytes; in the half that the group does not lie in these are zero.
func (t *dots) dotTops(halves, h int) {
	top := blockTop
	if halves == 2 {
		top = halfTop + h
	}
	t.each(func(n reg.VecVirtual) { VPXORD(n, n, n) })
	for i := range t.rows {
		g := group{index: GP64()}
		MOVL(t.activation(i, blockGroup), g.index.As32())
		x, mask := t.g.vec(), t.g.vec()
		VPBROADCASTD(t.activation(i, top), x)
		if t.f.bytes.alone {
			VPBROADCASTD(t.placed(g, placeMask), mask)
		}
		for v := range 2 {
			n := t.ints[v][i]
			if t.f.bytes.alone { // as many times too large as its place is high
				w := t.g.vec()
				VPANDD(t.at(g, v, lowAt), mask, w)
				VPDPBUSD(x, w, n)
				VPSLLVD_BCST(t.placed(g, placeRest), n, n)
				continue
			}
			VPDPBUSD(x, t.f.bytes.unpack(t, g, v), n)
			VPSLLD(U8(8), n, n)
		}
	}
}

// dotGroups adds the products of a half's groups with the lower bytes.
func (t *dots) dotGroups(halves, h int) {
	for g := 8 / halves * h; g < 8/halves*(h+1); g++ {
		static := group{places: t.f.bytes.places(g)}
		first, second := t.f.bytes.unpack(t, static, 0), t.f.bytes.unpack(t, static, 1)
		x := t.g.vec()
		for i := range t.rows {
			VPBROADCASTD(t.activation(i, g), x)
			VPDPBUSD(x, first, t.ints[0][i])
			VPDPBUSD(x, second, t.ints[1][i])
		}
	}
}

// takeOffsets takes away what the weights' bytes are above their numbers.
func (t *dots) takeOffsets(halves, h int) {
	if t.f.bytes.offset == noOffset {
		return
	}
	for i := range t.rows {
		less := t.g.vec()
		t.lessOf(halves, h, i, less)
		VPSLLD(U8(t.f.bytes.offset), less, less)
		VPADDD(less, t.ints[0][i], t.ints[0][i])
		VPADDD(less, t.ints[1][i], t.ints[1][i])
	}
}

// scaleInts adds the integer sums of half h, times both scales.
func (t *dots) scaleInts(h int) {
	for v := range 2 {
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
	if t.f.min == noMin {
		return
	}
	lows := [2]reg.VecVirtual{t.minOf(0, h), t.minOf(1, h)}
	for i := range t.rows {
		x := t.sumOf(halves, h, i)
		for v, low := range lows {
			if t.f.min == halfMin {
				VFMADD231PS(x, low, t.sum[v][i])
			} else {
				VFNMADD231PS(x, low, t.sum[v][i])
			}
		}
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

// at is the address of a group's vector or mask, whose place is at that index of places.
func (t *dots) at(g group, v, place int) Mem {
	elements := -t.f.bytes.bytes // w stands behind the block
	if g.index == nil {
		return t.weights(v, elements+g.places[place], 0)
	}
	at := GP64()
	MOVL(t.placed(g, place), at.As32())
	if v == 1 {
		ADDQ(t.wNext, at)
	}
	return Mem{Base: t.w, Index: at, Scale: 1, Disp: elements}
}

// placed is the entry of places for a group that index names.
func (t *dots) placed(g group, place int) Mem {
	return Mem{Base: t.places, Index: g.index, Scale: 1, Disp: 4 * place}
}

// vector loads a group's bytes.
func (t *dots) vector(g group, v, place int) reg.VecVirtual {
	out := t.g.vec()
	VMOVDQU32(t.at(g, v, place), out)
	return out
}

// whole: a byte an element.
func (t *dots) whole(g group, v int) reg.VecVirtual { return t.vector(g, v, lowAt) }

// nibble: four bits an element.
func (t *dots) nibble(g group, v int) reg.VecVirtual { return t.field(g, v, 15) }

// quad: two bits an element.
func (t *dots) quad(g group, v int) reg.VecVirtual { return t.field(g, v, 3) }

// field takes the bits of mask out of each byte.
func (t *dots) field(g group, v int, mask byte) reg.VecVirtual {
	out := t.vector(g, v, lowAt)
	switch {
	case g.index != nil:
		VPSRLVD_BCST(t.placed(g, lowBy), out, out)
	case g.places[lowBy] > 0:
		VPSRLD(U8(g.places[lowBy]), out, out)
	}
	VPANDD(t.held[mask], out, out)
	return out
}

// lookUp: nibbles, and a number for each in a table.
func (t *dots) lookUp(g group, v int) reg.VecVirtual {
	out := t.nibble(g, v)
	VPSHUFB(out, t.table, out)
	return out
}

// five: nibbles, and a plane of their upper bits.
func (t *dots) five(g group, v int) reg.VecVirtual { return t.addBit(t.nibble(g, v), 16, g, v) }

// three: quads, and a plane of their upper bits.
func (t *dots) three(g group, v int) reg.VecVirtual { return t.addBit(t.quad(g, v), 4, g, v) }

// addBit adds worth to the bytes whose bits in the plane are set.
func (t *dots) addBit(out reg.VecVirtual, worth byte, g group, v int) reg.VecVirtual {
	k := K()
	KMOVQ(t.at(g, v, highAt), k)
	VPADDB(t.held[worth], out, k, out)
	return out
}

// six: nibbles, and then quads of their upper bits.
func (t *dots) six(g group, v int) reg.VecVirtual {
	low, high := t.nibble(g, v), t.vector(g, v, highAt)
	switch {
	case g.index != nil:
		VPROLVD_BCST(t.placed(g, highBy), high, high)
	case g.places[highBy] > 0:
		VPROLD(U8(g.places[highBy]), high, high)
	}
	const lowOrMasked = 0xf8 // low | high & mask
	VPTERNLOGD(U8(lowOrMasked), t.held[48], high, low)
	return low
}
