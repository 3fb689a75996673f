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

// BFloat gives the value of a bfloat16, which is the upper half of a float32.
func BFloat(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }
