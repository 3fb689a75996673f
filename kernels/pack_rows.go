package kernels

import (
	"encoding/binary"
	"math"

	"github.com/forebay-io/forebay/kernels/ref"
)

// A row function makes one row's bytes of a tile from a stored block, whose layout package
// ref documents. These functions work on eight bytes at a time.

func putWord(dst []byte, at int, w uint64) { binary.LittleEndian.PutUint64(dst[at:], w) }

// nibblesOf packs the low nibbles of 32 bytes, or for a shift of 4 the high ones, into 16:
// byte j gets those of the columns j and j+16. It gives the first and the second eight bytes.
func nibblesOf(bytes []byte, shift int) (first, second uint64) {
	const nibbles = 0x0f0f0f0f0f0f0f0f
	eight := func(j int) uint64 {
		return word(bytes, j)>>shift&nibbles | word(bytes, j+16)>>shift&nibbles<<4
	}
	return eight(0), eight(8)
}

// quadsOf packs two bits of each of 32 bytes, those at shift, into eight bytes: byte j gets
// those of the columns j, j+8, j+16 and j+24.
func quadsOf(bytes []byte, shift int) (quads uint64) {
	for i := range 4 {
		quads |= word(bytes, 8*i) >> shift & 0x0303030303030303 << (2 * i)
	}
	return quads
}

// highBits gives, for each bit b of 32 bytes, the word whose bit j is bit b of byte j.
func highBits(bytes []byte) (words [8]uint32) {
	for i := range 4 {
		square := transposeBits(word(bytes, 8*i))
		for b := range words {
			words[b] |= uint32(square>>(8*b)&0xff) << (8 * i)
		}
	}
	return words
}

// rowMXFP4 writes half the scale as bfloat16, which holds it exactly, since the table of
// numbers is doubled.
func rowMXFP4(dst, block []byte) {
	binary.LittleEndian.PutUint16(dst, uint16(math.Float32bits(ref.HalfPower(block[0]))>>16))
	copy(dst[2:], block[1:])
}

// rowQ2_K keeps the bytes of scale and minimum, one for each half of a block of 32.
func rowQ2_K(dst, block []byte) {
	copy(dst, block[80:84])
	for b := range 8 {
		at := 4 + 10*b
		dst[at], dst[at+1] = block[2*b], block[2*b+1]
		putWord(dst, at+2, quadsOf(block[16+b/4*32:], b%4*2))
	}
}

func rowQ3_K(dst, block []byte) {
	copy(dst, block[108:110])
	high := highBits(block[:32])
	for b, bits := range high {
		at := 2 + 14*b
		dst[at] = byte(ref.ScaleQ3_K(block[96:108], 2*b))
		dst[at+1] = byte(ref.ScaleQ3_K(block[96:108], 2*b+1))
		binary.LittleEndian.PutUint32(dst[at+2:], bits)
		putWord(dst, at+6, quadsOf(block[32+b/4*32:], b%4*2))
	}
}

func rowQ4_K(dst, block []byte) {
	copy(dst, block[:4])
	for b := range 8 {
		at := 4 + 18*b
		dst[at], dst[at+1] = ref.ScaleMin(block[4:16], b)
		low, high := nibblesOf(block[16+b/2*32:], b%2*4)
		putWord(dst, at+2, low)
		putWord(dst, at+10, high)
	}
}

func rowQ5_K(dst, block []byte) {
	copy(dst, block[:4])
	high := highBits(block[16:48])
	for b, bits := range high {
		at := 4 + 22*b
		dst[at], dst[at+1] = ref.ScaleMin(block[4:16], b)
		first, second := nibblesOf(block[48+b/2*32:], b%2*4)
		binary.LittleEndian.PutUint32(dst[at+2:], bits)
		putWord(dst, at+6, first)
		putWord(dst, at+14, second)
	}
}

func rowQ6_K(dst, block []byte) {
	copy(dst, block[208:210])
	for b := range 8 {
		at := 2 + 26*b
		dst[at], dst[at+1] = block[192+2*b], block[193+2*b]
		first, second := nibblesOf(block[b/4*64+b%2*32:], b/2%2*4)
		putWord(dst, at+2, first)
		putWord(dst, at+10, second)
		putWord(dst, at+18, quadsOf(block[128+b/4*32:], b%4*2))
	}
}

func rowIQ4_XS(dst, block []byte) {
	copy(dst, block[:2])
	for b := range 8 {
		at := 2 + 17*b
		dst[at] = byte(ref.ScaleIQ4_XS(block, b))
		copy(dst[at+1:at+17], block[8+16*b:])
	}
}
