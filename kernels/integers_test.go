package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/kerneltest"
)

// TestRoundingSetsAgree: with rounded activations the sets sum a block's integers exactly and
// do the same floating-point operations in the same order, so their products have the same
// bits.
func TestRoundingSetsAgree(t *testing.T) {
	var sets []*kernels.Set
	for _, s := range kernels.Sets() {
		if s.Round != nil {
			sets = append(sets, s)
		}
	}
	if len(sets) < 2 {
		t.Skipf("%d sets round activations here", len(sets))
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, typ := range benchTypes {
		if typ.BlockLen() == 1 {
			continue
		}
		for range 40 {
			rows, cols, n := 1+r.IntN(70), (1+r.IntN(3))*256, 1+r.IntN(40)
			raw, x := kerneltest.Weights(r, typ, rows*cols), make([]float32, n*cols)
			for i := range x {
				x[i] = float32(r.NormFloat64() * math.Exp2(8*r.Float64())) // outliers too
			}
			want := make([]float32, n*rows)
			sets[0].MatMul(want, rows, sets[0].Pack(typ, rows, cols, raw), sets[0].Input(x), n, 0, rows)
			for _, s := range sets[1:] {
				got := make([]float32, n*rows)
				s.MatMul(got, rows, s.Pack(typ, rows, cols, raw), s.Input(x), n, 0, rows)
				for i := range got {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%v %d×%d, n %d: output %d of row %d is %v with %s, %v with %s", typ, rows, cols, n, i%rows, i/rows, got[i], s.Name, want[i], sets[0].Name)
					}
				}
			}
		}
	}
}
