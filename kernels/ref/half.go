package ref

import "math"

// Half gives the value of an IEEE 754 half: 1 sign, 5 exponent (bias 15) and
// 10 fraction bits. Every half, subnormals included, is exact in float32.
func Half(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exponent := uint32(h>>10) & 31
	fraction := uint32(h) & 0x3ff
	switch exponent {
	case 0: // zero and subnormals: fraction · 2⁻²⁴
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 31: // infinities and NaN
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// ToHalf gives the half nearest to x, ties to the even one. Numbers beyond the largest half,
// ±65504, become ±65504; a NaN keeps its upper bits.
func ToHalf(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, size := uint16(bits>>16)&0x8000, bits&^(1<<31)
	switch {
	case size > 0x7f800000:
		return sign | 0x7e00 | uint16(size>>13)&0x3ff
	case size >= 0x477fe000: // 65504
		return sign | 0x7bff
	case size < 0x38800000: // below 2⁻¹⁴, a subnormal: a multiple of 2⁻²⁴
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(size))*0x1p24))
	}
	size += 0xfff + size>>13&1 // to even; a carry goes into the exponent, as it should
	return sign | uint16((size-0x38000000)>>13)
}

// BFloat gives the value of a bfloat16, which is the upper half of a float32.
func BFloat(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBFloat is the nearest bfloat16, ties to even; a NaN stays one.
func ToBFloat(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 0x7fff
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
