package ref

import "math"

// BlockLen is how many activations share a scale in a Block.
const BlockLen = 32

// GroupLen is how many neighbouring activations a lane of an integer dot product takes.
const GroupLen = 4

// Block is 32 activations rounded to integers: number i is Scale·Q[i], and in one
// group of four Scale·(Q[i] + 256·Top[i%4]). It carries the sums that offsets and
// minima of weights are multiplied with, and fills a cache line.
type Block struct {
	Q        [BlockLen]int8
	Scale    float32
	Sum      float32 // of the numbers
	Less     int32   // −Sum/Scale
	HalfLess int32   // the same of the first 16
	Group    int32   // which group Top belongs to, times 16
	Top      [GroupLen]int8
	HalfTop  [2][GroupLen]int8 // Top, in the half that the group lies in
}

const (
	// roundTopMin is the smallest magnitude that gets a scale: below it the inverse might
	// overflow.
	roundTopMin = 1e-30

	byteTop  = 127
	highTops = 257 // what two bytes hold at most, over byteTop
)

// Round writes x, BlockLen numbers for each block of dst, rounded to integers, ties to even.
// The aligned group of four that holds the block's largest value keeps two bytes each, the
// others get one, so an outlier does not make the steps of all of them large. 127 steps are
// the largest number of the other groups, or a 257th of the block's largest if that is more.
// Where the largest is below 1e-30 the block is zero. Where a number is not finite, the
// block's scale and sum are NaN, so every product is NaN too.
func Round(dst []Block, x []float32) {
	for b := range dst {
		dst[b] = roundBlock(x[b*BlockLen:][:BlockLen])
	}
}

func roundBlock(x []float32) (b Block) {
	group, top, second := largestGroup(x)
	switch {
	case !(top <= math.MaxFloat32):
		b.Scale = float32(math.NaN())
		b.Sum = b.Scale
		return b
	case top < roundTopMin:
		return b
	}
	base := max(top*(1.0/highTops), second)
	per := byteTop / base
	b.Scale, b.Group = base*(1.0/byteTop), int32(16*group)
	for i, v := range x {
		q := int32(math.RoundToEven(float64(v * per)))
		b.Q[i] = int8(q)
		if i/GroupLen == group {
			b.Top[i%GroupLen] = int8((q - int32(b.Q[i])) / 256)
		}
		b.Less -= q
		if i == BlockLen/2-1 {
			b.HalfLess = b.Less
		}
	}
	b.Sum = float32(-b.Less) * b.Scale
	b.HalfTop[group/4] = b.Top
	return b
}

// Number is the value of number i.
func (b *Block) Number(i int) float32 {
	q := int(b.Q[i])
	if i/GroupLen == int(b.Group/16) {
		q += 256 * int(b.Top[i%GroupLen])
	}
	return b.Scale * float32(q)
}

// largestGroup finds the first group with the largest size, NaN being above all, and
// the largest size of the other groups.
func largestGroup(x []float32) (group int, top, second float32) {
	var most, others uint32 // bits of sizes are ordered as sizes are
	for g := range BlockLen / GroupLen {
		size := uint32(0)
		for _, v := range x[g*GroupLen:][:GroupLen] {
			size = max(size, math.Float32bits(v)&^(1<<31))
		}
		if g == 0 || size > most {
			group, most, others = g, size, most
		} else {
			others = max(others, size)
		}
	}
	return group, math.Float32frombits(most), math.Float32frombits(others)
}
