package kerneltest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

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
		default: // a scale, then bytes
			raw = binary.LittleEndian.AppendUint16(raw, scale(r))
			for range t.BlockBytes() - 2 {
				raw = append(raw, byte(r.Uint32()))
			}
		}
	}
	return raw
}

// half is a random half between 2⁻⁷ and 2, or a subnormal one.
func half(r *rand.Rand) uint16 {
	if r.IntN(7) == 0 {
		return uint16(r.IntN(1<<10)) | uint16(r.IntN(2))<<15
	}
	return uint16(r.IntN(8<<10)) + 8<<10 | uint16(r.IntN(2))<<15
}

// scale is a half of the size that scales have, or a subnormal one.
func scale(r *rand.Rand) uint16 {
	if r.IntN(7) == 0 {
		return uint16(r.IntN(1 << 10))
	}
	return 0x2000 + uint16(r.IntN(0x800)) | uint16(r.IntN(2))<<15
}
