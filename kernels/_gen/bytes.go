package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// byteCoding is how elements become unsigned bytes for the integer dot product. Group g of a
// block is its columns 4g … 4g+3: a vector has four bytes of each of 16 rows.
type byteCoding struct {
	bytes  int    // of a block over 16 rows
	offset int    // a byte is its number plus 1<<offset, or the number itself if negative
	held   []byte // bytes that fill a register each
	table  []int  // of 16 numbers, which nibbles index
	places func(g int) places
	unpack func(t *dots, g group, v int) reg.VecVirtual
	alone  bool // no upper bits and no table
	plane  bool // the upper bits are in a plane
	max    int  // the largest byte
}

// whole reports whether elements are bytes already.
func (c *byteCoding) whole() bool { return c.bytes == bytes128.bytes }

// places is where the bits of a group lie in a block's elements.
type places [4]int

const (
	lowAt  = iota // offset of its vector, in bytes
	lowBy         // how far the vector is shifted right, in bits
	highAt        // offset of the vector, or of the plane, of upper bits
	highBy        // how far that is rotated left, in bits

	// Where there are no upper bits, an element may stay in its place.
	placeMask = highAt // the group's bits in each byte
	placeRest = highBy // how far from its place to bit 8
)

const noOffset = -1

var (
	bytes128   = &byteCoding{bytes: 512, max: 255, offset: 7, places: bytewise, unpack: (*dots).whole}
	bytes64    = &byteCoding{bytes: 512, max: 127, offset: 6, places: bytewise, unpack: (*dots).whole}
	nibbles    = &byteCoding{bytes: 256, max: 15, offset: noOffset, held: []byte{15}, places: nibblesAlone, unpack: (*dots).nibble, alone: true}
	nibblesBy8 = &byteCoding{bytes: 256, max: 15, offset: 3, held: []byte{15}, places: nibblesAlone, unpack: (*dots).nibble, alone: true}
	fives      = &byteCoding{bytes: 320, max: 31, offset: noOffset, held: []byte{15, 16}, places: nibblewise, plane: true, unpack: (*dots).five}
	fivesBy16  = &byteCoding{bytes: 320, max: 31, offset: 4, held: []byte{15, 16}, places: nibblewise, plane: true, unpack: (*dots).five}
	nibblesIQ4 = &byteCoding{bytes: 256, max: 255, offset: 7, held: []byte{15}, table: format.IQ4Numbers, places: nibblewise, unpack: (*dots).lookUp}
	nibblesFP4 = &byteCoding{bytes: 256, max: 28, offset: 4, held: []byte{15}, table: format.DoubledE2M1, places: nibblewise, unpack: (*dots).lookUp}
	quads      = &byteCoding{bytes: 128, max: 3, offset: noOffset, held: []byte{3}, places: quadwise, unpack: (*dots).quad}
	threesBy4  = &byteCoding{bytes: 192, max: 7, offset: 2, held: []byte{3, 4}, places: quadwise, plane: true, unpack: (*dots).three}
	sixesBy32  = &byteCoding{bytes: 384, max: 63, offset: 5, held: []byte{15, 48}, places: sixwise, unpack: (*dots).six}
)

func bytewise(g int) places { return places{lowAt: 64 * g} }

// nibblewise: byte j has the columns j and j+16. A plane of bits may follow.
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

// quantised is a type in blocks, with how its elements become bytes.
type quantised struct {
	format.Format
	elements *byteCoding
}

// stored is the format with the size of its elements.
func (f quantised) stored() stored { return stored{f.Format, f.elements.bytes} }

var quantisedFormats = func() (all []quantised) {
	of := map[string]*byteCoding{
		"Q8_0": bytes128, "Q4_0": nibblesBy8, "Q4_1": nibbles, "Q5_0": fivesBy16, "Q5_1": fives,
		"IQ4_NL": nibblesIQ4, "MXFP4": nibblesFP4, "IQ4_XS": nibblesIQ4,
		"Q2_K": quads, "Q3_K": threesBy4, "Q4_K": nibbles, "Q5_K": fives, "Q6_K": sixesBy32,
		"Bytes32": bytes64, "Bytes16": bytes64,
	}
	for _, f := range integerFormats {
		all = append(all, quantised{f, of[f.Name]})
	}
	return all
}()

// at is the address of a group's vector or plane; place is its index in places.
func (t *dots) at(g group, v, place int) Mem {
	elements := -t.elements.bytes // w stands behind the block
	if g.index == nil {
		return t.weightsAt(v, elements+g.places[place], 0)
	}
	at := GP64()
	MOVL(t.placed(g, place), at.As32())
	if v == 1 {
		ADDQ(t.wNext, at)
	}
	return Mem{Base: t.w, Index: at, Scale: 1, Disp: elements}
}

// placed is the entry of places of a group that is in a register.
func (t *dots) placed(g group, place int) Mem {
	return Mem{Base: t.places, Index: g.index, Scale: 1, Disp: 4 * place}
}

// vector loads a group's bytes.
func (t *dots) vector(g group, v, place int) reg.VecVirtual {
	out := t.g.vec()
	VMOVDQU32(t.at(g, v, place), out)
	return out
}

// whole unpacks a byte an element.
func (t *dots) whole(g group, v int) reg.VecVirtual { return t.vector(g, v, lowAt) }

// nibble unpacks four bits an element.
func (t *dots) nibble(g group, v int) reg.VecVirtual { return t.field(g, v, 15) }

// quad unpacks two bits an element.
func (t *dots) quad(g group, v int) reg.VecVirtual { return t.field(g, v, 3) }

// field unpacks the bits of mask in each byte.
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

// lookUp unpacks nibbles that index a table.
func (t *dots) lookUp(g group, v int) reg.VecVirtual {
	out := t.nibble(g, v)
	VPSHUFB(out, t.table, out)
	return out
}

// five unpacks nibbles and a plane of their upper bits.
func (t *dots) five(g group, v int) reg.VecVirtual { return t.addBit(t.nibble(g, v), 16, g, v) }

// three unpacks quads and a plane of their upper bits.
func (t *dots) three(g group, v int) reg.VecVirtual { return t.addBit(t.quad(g, v), 4, g, v) }

// addBit adds worth to the bytes whose bits in the plane are set.
func (t *dots) addBit(out reg.VecVirtual, worth byte, g group, v int) reg.VecVirtual {
	k := K()
	KMOVQ(t.at(g, v, highAt), k)
	VPADDB(t.held[worth], out, k, out)
	return out
}

// six unpacks nibbles, and then quads of their upper bits.
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

// byteTable has 16 numbers in memory, a byte each.
func byteTable(numbers []int) Mem {
	words := make([]uint32, 4)
	for i, n := range numbers {
		words[i/4] |= uint32(uint8(n)) << (i % 4 * 8)
	}
	return table("b"+tableName(numbers), words...)
}

func tableName(numbers []int) string {
	name := "t"
	for _, n := range numbers {
		name += string(rune('a'+(n+128)/16)) + string(rune('a'+(n+128)%16))
	}
	return name
}
