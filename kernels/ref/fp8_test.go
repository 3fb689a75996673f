package ref

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestFP8: every number of e4m3 comes back, and others become the nearest, of which there is none nearer.
func TestFP8(t *testing.T) {
	if FP8(0x7e) != 448 || FP8(0x38) != 1 || FP8(1) != 0x1p-9 || FP8(0x88) != -0x1p-6 {
		t.Errorf("0x7e, 0x38, 1 and 0x88 are %g, %g, %g and %g", FP8(0x7e), FP8(0x38), FP8(1), FP8(0x88))
	}
	var all []float64
	for code := range 256 {
		if code&0x7f == 0x7f { // NaN
			continue
		}
		x := FP8(byte(code))
		all = append(all, float64(x))
		if got := ToFP8(x); got != byte(code) {
			t.Errorf("%#x is %g, which becomes %#x", code, x, got)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		x := (2*r.Float64() - 1) * 448 * math.Exp2(-20*r.Float64())
		x = float64(float32(x))
		got, least := float64(FP8(ToFP8(float32(x)))), math.Inf(1)
		for _, y := range all {
			least = min(least, math.Abs(y-x))
		}
		if math.Abs(got-x) > least {
			t.Fatalf("%g becomes %g, %g away; the nearest is %g away", x, got, math.Abs(got-x), least)
		}
	}
	// Ties: between 16 and 18 is 17, between 18 and 20 is 19; half of the least number becomes 0.
	for x, want := range map[float32]float32{17: 16, 19: 20, 0x1p-10: 0, 3 * 0x1p-10: 0x1p-8, 1000: 448} {
		if got, minus := FP8(ToFP8(x)), FP8(ToFP8(-x)); got != want || minus != -want {
			t.Errorf("±%g become %g and %g, want ±%g", x, got, minus, want)
		}
	}
}

func TestToBFloat(t *testing.T) {
	for x, want := range map[float32]uint16{1: 0x3f80, -2: 0xc000, 1 + 0x1p-8: 0x3f80, 1 + 3*0x1p-8: 0x3f82, 1 + 0x1.8p-8: 0x3f81, math.MaxFloat32: 0x7f80} {
		if got := ToBFloat(x); got != want {
			t.Errorf("%g becomes %#x, want %#x", x, got, want)
		}
	}
	for _, bits := range []uint32{0x7f800001, 0xffffffff} {
		if h := ToBFloat(math.Float32frombits(bits)); h&0x7fff != 0x7fff {
			t.Errorf("NaN %#x becomes %#x", bits, h)
		}
	}
}
