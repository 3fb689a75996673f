package kerneltest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/forebay-io/forebay/kernels"
)

// Weights makes the raw image of n random elements of type t, about normally
// distributed. Every seventh scale of a quantised type is subnormal.
func Weights(r *rand.Rand, t kernels.Type, n int) []byte {
	raw := make([]byte, 0, t.Bytes(n))
	for range n / t.BlockLen() {
		switch t {
		case kernels.F32:
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(r.NormFloat64())))
		case kernels.F16:
			raw = binary.LittleEndian.AppendUint16(raw, half(r))
		case kernels.BF16:
			raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(float32(r.NormFloat64()))>>16))
		default:
			raw = append(raw, block(r, t)...)
		}
	}
	return raw
}

// scalesAt is where a block has halves. Its other bytes may have any value.
var scalesAt = map[kernels.Type][]int{
	kernels.Q4_1: {0, 2}, kernels.Q5_1: {0, 2}, kernels.Q2_K: {80, 82}, kernels.Q3_K: {108},
	kernels.Q4_K: {0, 2}, kernels.Q5_K: {0, 2}, kernels.Q6_K: {208}, kernels.MXFP4: {},
	kernels.IQ1_M: {}, kernels.TQ1_0: {52}, kernels.TQ2_0: {64},
}

func scalesOf(t kernels.Type) []int {
	if at, ok := scalesAt[t]; ok {
		return at
	}
	return []int{0}
}

// block is a block of random bytes with scales of a usual size.
func block(r *rand.Rand, t kernels.Type) []byte {
	raw := make([]byte, t.BlockBytes())
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	for _, i := range scalesOf(t) {
		binary.LittleEndian.PutUint16(raw[i:], scale(r))
	}
	if t == kernels.IQ1_M { // has a half's nibbles in four places
		for i, s := 0, scale(r); i < 4; i++ {
			raw[49+2*i] = raw[49+2*i]&15 | byte(s>>(4*i)&15)<<4
		}
	}
	if t == kernels.MXFP4 { // an exponent: 2⁻¹⁷ to 2², or the smallest
		raw[0] = byte(110 + r.IntN(20))
		if r.IntN(7) == 0 {
			raw[0] = byte(r.IntN(3))
		}
	}
	return raw
}

// fillElements sets all bytes of the blocks at raw that are not scales.
func fillElements(raw []byte, t kernels.Type, fill byte) {
	for at := 0; at < len(raw); at += t.BlockBytes() {
		block := raw[at:][:t.BlockBytes()]
		whole := slices.Clone(block)
		for i := range block {
			block[i] = fill
		}
		for _, i := range scalesOf(t) {
			copy(block[i:i+2], whole[i:])
		}
		switch t {
		case kernels.MXFP4:
			block[0] = whole[0]
		case kernels.IQ1_M:
			for i := 49; i < 56; i += 2 {
				block[i] = block[i]&15 | whole[i]&^15
			}
		}
	}
}

// half is a random half between 2⁻⁷ and 2, or a subnormal one.
func half(r *rand.Rand) uint16 {
	if r.IntN(7) == 0 {
		return uint16(r.IntN(1<<10)) | uint16(r.IntN(2))<<15
	}
	return uint16(r.IntN(8<<10)) + 8<<10 | uint16(r.IntN(2))<<15
}

// scale is a half of the usual size of a scale, or a subnormal one.
func scale(r *rand.Rand) uint16 {
	if r.IntN(7) == 0 {
		return uint16(r.IntN(1 << 10))
	}
	return 0x2000 + uint16(r.IntN(0x800)) | uint16(r.IntN(2))<<15
}
