package quant

import (
	"encoding/binary"
	"math"

	"github.com/forebay-io/forebay/kernels"
)

// Types are the types that Encode writes.
var Types = []kernels.Type{kernels.Q8_0, kernels.Q4_0, kernels.Q4_K, kernels.Q6_K}

// Encode appends x as type t. The length of x must be a multiple of t's block,
// and the numbers finite. F32, F16 and BF16 are supported too, rounded to nearest,
// ties to even.
func Encode(dst []byte, t kernels.Type, x []float32) []byte {
	var block func(dst []byte, x []float32) []byte
	switch t {
	case kernels.F32:
		block = func(dst []byte, x []float32) []byte {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(x[0]))
		}
	case kernels.F16:
		block = func(dst []byte, x []float32) []byte { return appendHalf(dst, x[0]) }
	case kernels.BF16:
		block = func(dst []byte, x []float32) []byte {
			b := math.Float32bits(x[0])
			return binary.LittleEndian.AppendUint16(dst, uint16((b+0x7fff+b>>16&1)>>16))
		}
	case kernels.Q8_0:
		block = encodeQ8_0
	case kernels.Q4_0:
		block = encodeQ4_0
	case kernels.Q4_K:
		block = encodeQ4_K
	case kernels.Q6_K:
		block = encodeQ6_K
	default:
		panic("quant: " + t.String() + " cannot be written")
	}
	for n := t.BlockLen(); len(x) > 0; x = x[n:] {
		dst = block(dst, x[:n])
	}
	return dst
}

// half converts x to an IEEE 754 half, rounded to nearest, ties to even. It is
// infinite from 65520 on.
func half(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	size := b & 0x7fffffff
	switch {
	case size > 0x7f800000:
		return sign | 0x7e00
	case size >= 0x477ff000:
		return sign | 0x7c00
	case size >= 0x38800000: // normal: drop 13 bits, and lower the exponent's bias by 112
		return sign | uint16((size+0xfff+size>>13&1)>>13-112<<10)
	}
	return sign | uint16(math.RoundToEven(float64(math.Float32frombits(size))*0x1p24))
}

func appendHalf(dst []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint16(dst, half(x))
}

// rounded converts x to a half and back.
func rounded(x float32) float32 {
	var out [1]float32
	kernels.Dequantize(out[:], kernels.F16, binary.LittleEndian.AppendUint16(nil, half(x)))
	return out[0]
}

// extreme returns the number in x with the largest magnitude, with its sign.
func extreme(x []float32) float32 {
	most := float32(0)
	for _, v := range x {
		if abs(v) > abs(most) {
			most = v
		}
	}
	return most
}

func abs(x float32) float32 { return max(x, -x) }

// inverse returns 1/x, or 0 if that is not finite.
func inverse(x float32) float32 {
	if r := 1 / x; x != 0 && r-r == 0 {
		return r
	}
	return 0
}

// nearest rounds x, halves away from 0, and clamps it to [lo,hi].
func nearest(x float32, lo, hi int) int {
	x = min(max(x, float32(lo)), float32(hi))
	if x < 0 {
		return int(x - 0.5)
	}
	return int(x + 0.5)
}

// encodeQ8_0 and the other encoders write the layouts that kernels/ref documents.
func encodeQ8_0(dst []byte, x []float32) []byte {
	d := abs(extreme(x)) / 127
	dst = appendHalf(dst, d)
	by := inverse(d)
	for _, v := range x {
		dst = append(dst, byte(int8(nearest(v*by, -128, 127))))
	}
	return dst
}

// encodeQ4_0 tries scales around the one that maps the extreme number to −8, and
// keeps the one with the least error.
func encodeQ4_0(dst []byte, x []float32) []byte {
	var q [32]int8
	d := rounded(fit(x, -8, 7))
	by := inverse(d)
	dst = appendHalf(dst, d)
	for i, v := range x {
		q[i] = int8(nearest(v*by, -8, 7) + 8)
	}
	for j := range 16 {
		dst = append(dst, byte(q[j])|byte(q[j+16])<<4)
	}
	return dst
}
