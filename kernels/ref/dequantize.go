package ref

import (
	"encoding/binary"
	"math"
)

// The storage types, numbered as in GGUF files.
const (
	F32    = 0
	F16    = 1
	Q4_0   = 2
	Q4_1   = 3
	Q5_0   = 6
	Q5_1   = 7
	Q8_0   = 8
	Q2_K   = 10
	Q3_K   = 11
	Q4_K   = 12
	Q5_K   = 13
	Q6_K   = 14
	IQ4_NL = 20
	IQ4_XS = 23
	BF16   = 30
	MXFP4  = 39

	IQ2_XXS = 16
	IQ2_XS  = 17
	IQ3_XXS = 18
	IQ1_S   = 19
	IQ3_S   = 21
	IQ2_S   = 22
	IQ1_M   = 29
	TQ1_0   = 34
	TQ2_0   = 35
)

// BlockLenMax is a multiple of every type's block length.
const BlockLenMax = 256

// blocks are the elements and bytes of a block, for the types that have blocks.
var blocks = map[uint32]struct{ elements, bytes int }{
	Q4_0: {32, 18}, Q4_1: {32, 20}, Q5_0: {32, 22}, Q5_1: {32, 24}, Q8_0: {32, 34}, IQ4_NL: {32, 18}, MXFP4: {32, 17},
	Q2_K: {256, 84}, Q3_K: {256, 110}, Q4_K: {256, 144}, Q5_K: {256, 176}, Q6_K: {256, 210}, IQ4_XS: {256, 136},
	IQ2_XXS: {256, 66}, IQ2_XS: {256, 74}, IQ2_S: {256, 82}, IQ3_XXS: {256, 98}, IQ3_S: {256, 110}, IQ1_S: {256, 50}, IQ1_M: {256, 56},
	TQ1_0: {256, 54}, TQ2_0: {256, 66},
}

// Dequantize writes the len(dst) values stored in src as type t. len(dst) is a
// multiple of the type's block length; src may lie at any address.
//
// The values are ggml's, bit for bit: products and sums are rounded to float32
// one by one, in its order. (The conversions keep a compiler from fusing them.)
func Dequantize(dst []float32, t uint32, src []byte) {
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = half(src[2*i:])
		}
	case BF16:
		for i := range dst {
			dst[i] = BFloat(binary.LittleEndian.Uint16(src[2*i:]))
		}
	default:
		b, ok := blocks[t]
		if !ok {
			panic("ref: no dequantiser for this type")
		}
		for ; len(dst) > 0; dst, src = dst[b.elements:], src[b.bytes:] {
			dequantizeBlock(dst[:b.elements], t, src[:b.bytes])
		}
	}
}

func dequantizeBlock(dst []float32, t uint32, block []byte) {
	switch t {
	case Q4_0:
		dequantizeQ4_0(dst, block)
	case Q4_1:
		dequantizeQ4_1(dst, block)
	case Q5_0:
		dequantizeQ5_0(dst, block)
	case Q5_1:
		dequantizeQ5_1(dst, block)
	case Q8_0:
		dequantizeQ8_0(dst, block)
	case Q2_K:
		dequantizeQ2_K(dst, block)
	case Q3_K:
		dequantizeQ3_K(dst, block)
	case Q4_K:
		dequantizeQ4_K(dst, block)
	case Q5_K:
		dequantizeQ5_K(dst, block)
	case Q6_K:
		dequantizeQ6_K(dst, block)
	case IQ4_NL:
		dequantizeIQ4_NL(dst, block)
	case IQ4_XS:
		dequantizeIQ4_XS(dst, block)
	case MXFP4:
		dequantizeMXFP4(dst, block)
	default:
		dequantizeCodes(dst, t, block)
	}
}

func half(b []byte) float32 { return Half(binary.LittleEndian.Uint16(b)) }

// dequantizeQ8_0: half d; 32 signed bytes q; w = d·q.
func dequantizeQ8_0(dst []float32, block []byte) {
	d := half(block)
	for j := range dst {
		dst[j] = d * float32(int8(block[2+j]))
	}
}

// dequantizeQ4_0: half d; 16 bytes, of which byte j holds n of element j in its
// low nibble and of element j+16 in its high one; w = d·(n−8).
func dequantizeQ4_0(dst []float32, block []byte) {
	d := half(block)
	for j, b := range block[2:18] {
		dst[j] = d * float32(int(b&15)-8)
		dst[j+16] = d * float32(int(b>>4)-8)
	}
}

// dequantizeQ4_1: half d, half m; nibbles as in Q4_0; w = d·n + m.
func dequantizeQ4_1(dst []float32, block []byte) {
	d, m := half(block), half(block[2:])
	for j, b := range block[4:20] {
		dst[j] = float32(d*float32(b&15)) + m
		dst[j+16] = float32(d*float32(b>>4)) + m
	}
}

// fifth is bit i of a word of high bits, in its place above a nibble.
func fifth(high uint32, i int) byte { return byte(high>>i&1) << 4 }

// dequantizeQ5_0: half d; a word with bit 4 of each element; nibbles; w = d·(n−16).
func dequantizeQ5_0(dst []float32, block []byte) {
	d, high := half(block), binary.LittleEndian.Uint32(block[2:])
	for j, b := range block[6:22] {
		dst[j] = d * float32(int(b&15|fifth(high, j))-16)
		dst[j+16] = d * float32(int(b>>4|fifth(high, j+16))-16)
	}
}

// dequantizeQ5_1: half d, half m; a word with bit 4 of each element; nibbles; w = d·n + m.
func dequantizeQ5_1(dst []float32, block []byte) {
	d, m, high := half(block), half(block[2:]), binary.LittleEndian.Uint32(block[4:])
	for j, b := range block[8:24] {
		dst[j] = float32(d*float32(b&15|fifth(high, j))) + m
		dst[j+16] = float32(d*float32(b>>4|fifth(high, j+16))) + m
	}
}

// iq4 are the values of a nibble in IQ4_NL and IQ4_XS.
var iq4 = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// dequantizeIQ4_NL: half d; nibbles as in Q4_0; w = d·iq4[n].
func dequantizeIQ4_NL(dst []float32, block []byte) { nibbles(dst, block[2:18], half(block), &iq4) }

// nibbles writes d·table[n] for 32 elements.
func nibbles(dst []float32, bytes []byte, d float32, table *[16]float32) {
	for j, b := range bytes {
		dst[j] = d * table[b&15]
		dst[j+16] = d * table[b>>4]
	}
}

// e2m1 are the values of MXFP4's nibbles (OCP Microscaling Formats 1.0), doubled.
var e2m1 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// dequantizeMXFP4: a byte e; nibbles as in Q4_0; w = 2^(e−127)·e2m1[n]/2.
func dequantizeMXFP4(dst []float32, block []byte) {
	nibbles(dst, block[1:17], HalfPower(block[0]), &e2m1)
}

// HalfPower is 2^(e−128), subnormal for e under 2: half of MXFP4's scale, since
// its table has doubled values. The scale of e = 255, NaN in the specification,
// is 2^127 here as in ggml.
func HalfPower(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}
