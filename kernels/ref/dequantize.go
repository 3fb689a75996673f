package ref

import (
	"encoding/binary"
	"math"
)

// The storage types, numbered as in GGUF files.
const (
	F32  = 0
	F16  = 1
	Q4_0 = 2
	Q8_0 = 8
	BF16 = 30
)

// BlockLenMax is a multiple of every type's block length.
const BlockLenMax = 256

// Dequantize writes the len(dst) values stored in src as type t. len(dst) is a
// multiple of the type's block length; src may lie at any address. The values
// are exact: a half times a small integer fits a float32.
func Dequantize(dst []float32, t uint32, src []byte) {
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = Half(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = BFloat(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case Q8_0:
		for b := 0; 32*b < len(dst); b++ {
			dequantizeQ8_0(dst[32*b:32*b+32], src[34*b:34*b+34])
		}
	case Q4_0:
		for b := 0; 32*b < len(dst); b++ {
			dequantizeQ4_0(dst[32*b:32*b+32], src[18*b:18*b+18])
		}
	default:
		panic("ref: no dequantiser for this type")
	}
}

// dequantizeQ8_0: a half d, then 32 signed bytes q; w = d·q.
func dequantizeQ8_0(dst []float32, block []byte) {
	d := Half(binary.LittleEndian.Uint16(block))
	for j := range dst {
		dst[j] = d * float32(int8(block[2+j]))
	}
}

// dequantizeQ4_0: a half d, then 16 bytes; byte j holds n of element j in its
// low nibble and of element j+16 in its high one; w = d·(n−8).
func dequantizeQ4_0(dst []float32, block []byte) {
	d := Half(binary.LittleEndian.Uint16(block))
	for j := range 16 {
		n := int(block[2+j])
		dst[j] = d * float32(n&15-8)
		dst[j+16] = d * float32(n>>4-8)
	}
}
