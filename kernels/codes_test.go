package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// randomBlocks have all codes, signs and scales, of which none is NaN or ∞.
func randomBlocks(typ Type, n int) []byte {
	r, size := rand.New(rand.NewPCG(1, uint64(typ))), typ.BlockBytes()
	exponent := map[Type]int{IQ1_M: 55, TQ1_0: 53, TQ2_0: 65}[typ] // the byte with the upper bits of d's
	if exponent == 0 {
		exponent = 1
	}
	raw := make([]byte, n*size)
	for i := range raw {
		raw[i] = byte(r.Uint32())
		if i%size == exponent {
			raw[i] &^= 0x40
		}
	}
	return raw
}

// TestCodesUnpackExactly: a scale times a number is what ref makes of the code, to the bit, but
// for the sign of zero.
func TestCodesUnpackExactly(t *testing.T) {
	for typ, c := range codedTypes {
		const blocks = 2000
		raw := randomBlocks(typ, blocks)
		var got [8]numbers
		want := make([]float32, 256)
		for i := range blocks {
			block := raw[i*typ.BlockBytes():][:typ.BlockBytes()]
			Dequantize(want, typ, block)
			r := i % RowTile
			c.unpack(&got, r, block)
			for j, w := range want {
				n := &got[j/32]
				first, second := math.Float32frombits(n[0][r]), math.Float32frombits(n[1][r])
				if c.bytes == bytes32 && n[0][r] != n[1][r] {
					t.Fatalf("%v: block %d has the scales %g and %g", typ, i, first, second)
				}
				s := first
				if j%32 >= 16 {
					s = second
				}
				number := int(byte(n[scaleWords+j%32/4][r]>>(j%4*8))) - bytesOver
				if g := s * float32(number); g != w && (g == g || w == w) || number < -63 || number > 63 {
					t.Fatalf("%v: block %d, column %d: %g·%d, ref %g", typ, i, j, s, number, w)
				}
			}
		}
	}
}
