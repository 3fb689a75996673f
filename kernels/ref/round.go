package ref

import "math"

// BlockLen is how many activations share a scale in a Block.
const BlockLen = 32

// Block is 32 activations rounded to integers: number i is about
// Scale·(Q[i] + Low[i]/256). It carries the sums that offsets and minima of
// weights are multiplied with. What a product without Low reads fills one cache line.
type Block struct {
	Q        [BlockLen]int8
	Sum      float32    // of the numbers
	HalfSums [2]float32 // of the first and the second 16
	Scale    float32
	Less     int32    // −ΣQ
	HalfLess [2]int32 // the same of the first and the second 16
	Fine     int32    // −1 where Low counts, else 0
	Low      [BlockLen]int8
	LowLess  [3]int32 // −ΣLow, and of the first and the second 16
	_        [5]int32
}

// The sizes that have a scale: below, the scale's inverse might overflow.
const (
	roundTopMin  = 1e-30
	roundTopBits = 0x7f800000 // of the least that is not finite

	coarseTop = 127
	fineTop   = 127*256 + 127
)

// Round writes x, BlockLen numbers for each block of dst, rounded to multiples
// of the block's largest over 127, ties to even; where the largest is over
// fineAbove, to multiples of the largest over 32,639, in two bytes. Where the
// largest is below 1e-30 the block is zero; where a number is not finite its
// scale and sums are NaN, so that no product looks sound.
func Round(dst []Block, x []float32, fineAbove float32) {
	for b := range dst {
		dst[b] = roundBlock(x[b*BlockLen:][:BlockLen], fineAbove)
	}
}

func roundBlock(x []float32, fineAbove float32) (b Block) {
	var bits uint32 // bits of sizes are ordered as sizes are, NaN above all
	for _, v := range x {
		bits = max(bits, math.Float32bits(v)&^(1<<31))
	}
	switch {
	case bits >= roundTopBits:
		nan := float32(math.NaN())
		b.Scale, b.Sum, b.HalfSums = nan, nan, [2]float32{nan, nan}
		return b
	case bits < math.Float32bits(roundTopMin):
		return b
	}
	top := math.Float32frombits(bits)
	b.Scale = top * (1.0 / coarseTop)
	per := coarseTop / top
	if top > fineAbove {
		b.Fine, b.Scale, per = -1, top*(256.0/fineTop), fineTop/top
	}
	for i, v := range x {
		q := int32(math.RoundToEven(float64(v * per)))
		if b.Fine != 0 {
			low := int8(q) // the nearest multiple of 256 is taken away
			b.Low[i] = low
			b.LowLess[1+i/16] -= int32(low)
			q = (q - int32(low)) / 256
		}
		b.Q[i] = int8(q)
		b.HalfLess[i/16] -= q
	}
	b.Less, b.LowLess[0] = b.HalfLess[0]+b.HalfLess[1], b.LowLess[1]+b.LowLess[2]
	sum := func(high, low int32) float32 { return float32(-256*high-low) * (b.Scale / 256) }
	b.Sum = sum(b.Less, b.LowLess[0])
	b.HalfSums = [2]float32{sum(b.HalfLess[0], b.LowLess[1]), sum(b.HalfLess[1], b.LowLess[2])}
	return b
}
