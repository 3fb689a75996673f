package gguftest

import (
	"fmt"
	"math"

	"github.com/forebay-io/forebay/kernels"
)

// Encode stores numbers as type t; len(x) is a multiple of the block length.
func Encode(t kernels.Type, x []float32) []byte {
	out := make([]byte, 0, t.Bytes(len(x)))
	switch t {
	case kernels.F32:
		for _, v := range x {
			out = le.AppendUint32(out, math.Float32bits(v))
		}
	case kernels.F16:
		for _, v := range x {
			out = le.AppendUint16(out, half(v))
		}
	case kernels.BF16:
		for _, v := range x {
			out = le.AppendUint16(out, uint16(math.Float32bits(v)>>16))
		}
	case kernels.Q8_0:
		for i := 0; i < len(x); i += 32 {
			out = appendQ8(out, x[i:i+32])
		}
	case kernels.Q4_0:
		for i := 0; i < len(x); i += 32 {
			out = appendQ4(out, x[i:i+32])
		}
	default:
		panic(fmt.Sprintf("gguftest: cannot encode %s", t))
	}
	return out
}

func largest(x []float32) float32 {
	most := float32(0)
	for _, v := range x {
		most = max(most, max(v, -v))
	}
	return most
}

func nearest(v, d float32) int {
	if d == 0 {
		return 0
	}
	return int(math.RoundToEven(float64(v / d)))
}

func appendQ8(out []byte, x []float32) []byte {
	d := largest(x) / 127
	out = le.AppendUint16(out, half(d))
	for _, v := range x {
		out = append(out, byte(int8(nearest(v, d))))
	}
	return out
}

func appendQ4(out []byte, x []float32) []byte {
	d := largest(x) / 7
	out = le.AppendUint16(out, half(d))
	for i := range 16 {
		out = append(out, byte(nearest(x[i], d)+8)|byte(nearest(x[i+16], d)+8)<<4)
	}
	return out
}

// half rounds v towards zero to an IEEE half; v is in its normal range or
// becomes zero.
func half(v float32) uint16 {
	b := math.Float32bits(v)
	e := int(b>>23&0xff) - 127 + 15
	if e <= 0 {
		return uint16(b >> 16 & 0x8000)
	}
	return uint16(b>>16&0x8000) | uint16(e)<<10 | uint16(b>>13&0x3ff)
}
