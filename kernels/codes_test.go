package kernels

import (
	"math"
	"testing"
)

// TestCodesUnpackExactly: a scale times a number is what ref makes of the code, to the bit, but
// for the sign of zero. Blocks of random bytes have all codes, signs and scales.
func TestCodesUnpackExactly(t *testing.T) {
	for typ, c := range codedTypes {
		const blocks = 2000
		p := newTrial(typ, RowTile, blocks/RowTile*256, 1)
		var got [8]numbers
		want := make([]float32, 256)
		for i := range blocks / RowTile * RowTile {
			block := p.raw[i*typ.BlockBytes():][:typ.BlockBytes()]
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
