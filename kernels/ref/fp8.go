package ref

import "math"

// fp8Max is the largest number of e4m3.
const fp8Max = 448

// FP8 is the number of e4m3's bits: a sign, four bits of exponent, three of fraction. A float32 of the same exponent and
// fraction is 2^120 times smaller.
func FP8(code byte) float32 {
	return math.Float32frombits(uint32(code&0x7f)<<20|uint32(code&0x80)<<24) * 0x1p120
}

// ToFP8 is the nearest number of e4m3, ties to even, for x up to ±448, and of those beyond too.
func ToFP8(x float32) byte {
	bits := math.Float32bits(x)
	small := math.Float32bits(math.Float32frombits(bits&^(1<<31)) * 0x1p-120)
	return byte(min((small+0x7ffff+small>>20&1)>>20, 0x7e)) | byte(bits>>24&0x80)
}
