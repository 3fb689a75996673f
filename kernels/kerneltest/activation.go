package kerneltest

import (
	"math"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

// activation is an operation on each number, or on each gate with its up.
type activation struct {
	name      string
	run       func(s *kernels.Set, dst, gate, up []float32)
	tolerance func(gate, up, want float64) float64
}

// clampLimit and capLimit are limits that models have.
const clampLimit, capLimit = 7, 30

var activations = []activation{
	{"SiLUMul", func(s *kernels.Set, dst, gate, up []float32) { s.SiLUMul(dst, gate, up) },
		gatedTolerance(0, func(g float64) float64 { return -g })},
	{"GELUMul", func(s *kernels.Set, dst, gate, up []float32) { s.GELUMul(dst, gate, up) },
		gatedTolerance(4, func(g float64) float64 { return -2 * math.Sqrt(2/math.Pi) * (g + 0.044715*g*g*g) })},
	{"ClampedSiLUMul", func(s *kernels.Set, dst, gate, up []float32) { s.ClampedSiLUMul(dst, gate, up, clampLimit) },
		gatedTolerance(2, func(g float64) float64 { return -1.702 * g })},
	{"SoftCap", func(s *kernels.Set, dst, gate, up []float32) { copy(dst, gate); s.SoftCap(dst, capLimit) },
		func(_, _, want float64) float64 { return 8*u*math.Abs(want) + capLimit*0x1p-148 }},
}

// gatedTolerance is for a/(1+exp(z))·b: roundings of z count where exp(z) does, and from
// exp(87) on a quotient loses its last places, since it is subnormal.
func gatedTolerance(roundings float64, z func(gate float64) float64) func(gate, up, want float64) float64 {
	return func(gate, up, want float64) float64 {
		z := z(gate)
		if z > 87 {
			return 8*u*math.Abs(want) + 150*0x1p-126*max(1, math.Abs(up))
		}
		return (8+roundings*max(0, z))*u*math.Abs(want) + 0x1p-148
	}
}

func (c *checker) activationsEveryLength(t *testing.T) {
	for _, n := range lengths() {
		r := random(uint64(n))
		gate, up := normal(r, n), normal(r, n)
		for i := range gate {
			gate[i] *= 4
		}
		for _, op := range activations {
			want := make([]float32, n)
			op.run(c.ref, want, gate, up)
			got := append(make([]float32, n), 7)
			inGate, inUp := append(slices.Clone(gate), 7), append(slices.Clone(up), 7)
			op.run(c.set, got[:n], gate, up)
			op.run(c.set, inGate[:n], inGate[:n], up)
			op.run(c.set, inUp[:n], gate, inUp[:n])
			for i, w := range want {
				if !near(got[i], w, op.tolerance(float64(gate[i]), float64(up[i]), float64(w))) {
					t.Fatalf("%s of %d: [%d] of %v, %v is %v, ref %v", op.name, n, i, gate[i], up[i], got[i], w)
				}
			}
			if got[n] != 7 {
				t.Fatalf("%s of %d writes past its end", op.name, n)
			}
			if at := max(sameBits(got, inGate), sameBits(got, inUp)); at >= 0 {
				t.Fatalf("%s of %d: [%d] is %v, in place of gate %v, of up %v", op.name, n, at, got[at], inGate[at], inUp[at])
			}
		}
	}
}

// activationsWholeRange covers the range of the exponential and, by powers, that of float32.
func (c *checker) activationsWholeRange(t *testing.T) {
	infinite, nan := float32(math.Inf(1)), float32(math.NaN())
	special := []float32{0, infinite, nan, math.MaxFloat32, math.SmallestNonzeroFloat32, 87.3, 88, 88.7, 88.73, 89, 103.9, 104, 105}
	for e := -149; e < 128; e++ {
		special = append(special, float32(math.Ldexp(1+float64(e&7)/8, e)))
	}
	for g := float32(0.001); g < 120; g += 0.0137 {
		special = append(special, g)
	}
	var gate, up []float32
	for _, g := range special {
		for _, sign := range []float32{1, -1} {
			gate, up = append(gate, sign*g, sign*g, sign), append(up, 1.5, -0.25, sign*g)
		}
	}
	want, got := make([]float32, len(gate)), make([]float32, len(gate))
	for _, op := range activations {
		op.run(c.ref, want, gate, up)
		op.run(c.set, got, gate, up)
		for i, w := range want {
			if !near(got[i], w, op.tolerance(float64(gate[i]), float64(up[i]), float64(w))) {
				t.Errorf("%s(%v, %v) is %v, ref %v", op.name, gate[i], up[i], got[i], w)
			}
		}
	}
}
