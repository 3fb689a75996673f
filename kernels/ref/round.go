package ref

import "math"

// BlockLen is how many activations share a scale in a Block.
const BlockLen = 32

// Block is 32 activations rounded to 8 bits: number i is about Scale·Q[i]. It
// carries the sums that offsets and minima of weights are multiplied with, and
// fills a cache line.
type Block struct {
	Q        [BlockLen]int8
	Sum      float32    // Scale·ΣQ
	HalfSums [2]float32 // the same of the first and the second 16
	Scale    float32
	Less     int32    // −ΣQ
	HalfLess [2]int32 // the same of the first and the second 16
	_        int32
}

// The sizes that have a scale: below, 127 over the largest number might
// overflow.
const (
	roundTopMin  = 1e-30
	roundTopBits = 0x7f800000 // of the least that is not finite
)

// Round writes x, BlockLen numbers for each block of dst, rounded to multiples
// of the largest over 127, ties to even. Where the largest is below 1e-30 the
// block is zero; where a number is not finite its scale and sums are NaN, so
// that no product looks sound.
func Round(dst []Block, x []float32) {
	for b := range dst {
		dst[b] = roundBlock(x[b*BlockLen:][:BlockLen])
	}
}

func roundBlock(x []float32) (b Block) {
	var top uint32 // bits of sizes are ordered as sizes are, NaN above all
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	switch {
	case top >= roundTopBits:
		nan := float32(math.NaN())
		b.Scale, b.Sum, b.HalfSums = nan, nan, [2]float32{nan, nan}
		return b
	case top < math.Float32bits(roundTopMin):
		return b
	}
	size := math.Float32frombits(top)
	b.Scale = size * (1.0 / 127)
	per := 127 / size
	for i, v := range x {
		b.Q[i] = int8(math.RoundToEven(float64(v * per)))
		b.HalfLess[i/16] -= int32(b.Q[i])
	}
	b.Less = b.HalfLess[0] + b.HalfLess[1]
	b.Sum = float32(-b.Less) * b.Scale
	for h, less := range b.HalfLess {
		b.HalfSums[h] = float32(-less) * b.Scale
	}
	return b
}
