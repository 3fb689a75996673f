package kerneltest

import (
	"math"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

// lengths are all up to a few vectors, then some odd long ones.
func lengths() []int {
	var all []int
	for n := 1; n <= 200; n++ {
		all = append(all, n)
	}
	return append(all, 576, 1000, 2049, 4096)
}

// elementwise compares Add and RMSNorm on every length, in place and into another
// slice, and looks for writes past the end.
func (c *checker) elementwise(t *testing.T) {
	for _, n := range lengths() {
		r := random(uint64(n))
		a, b := normal(r, n), normal(r, n)
		ops := []struct {
			name string
			run  func(s *kernels.Set, dst []float32)
			ulps float64
		}{
			{"Add", func(s *kernels.Set, dst []float32) { copy(dst, a); s.Add(dst, b) }, 0},
			{"MulAdd", func(s *kernels.Set, dst []float32) { copy(dst, a); s.MulAdd(dst, b, a) }, 8},
			{"RMSNorm", func(s *kernels.Set, dst []float32) { s.RMSNorm(dst, a, b, 1e-5) }, 4},
			{"RMSNorm in place", func(s *kernels.Set, dst []float32) { copy(dst, a); s.RMSNorm(dst, dst, b, 1e-5) }, 4},
		}
		for _, op := range ops {
			want, got := make([]float32, n), make([]float32, n+16)
			op.run(c.ref, want)
			op.run(c.set, got[:n])
			for i, w := range want {
				if !near(got[i], w, op.ulps*u*math.Abs(float64(w))) {
					t.Fatalf("%s of %d: [%d] is %v, ref %v", op.name, n, i, got[i], w)
				}
			}
			if !slices.Equal(got[n:], make([]float32, 16)) {
				t.Fatalf("%s of %d writes past its end: %v", op.name, n, got[n:])
			}
		}
	}
}

// rotate compares bits for every number of pairs, in heads that are longer than them, and
// checks that the numbers behind the pairs and behind the last head stay.
func (c *checker) rotate(t *testing.T) {
	r := random(9)
	for pairs := range 140 {
		for round := range 8 {
			heads, dim := 1+r.IntN(20), 2*pairs+r.IntN(1+20*(round/4))
			angles, want := normal(r, 2*pairs), normal(r, heads*max(dim, 1)+16)
			for i := range want {
				want[i] *= float32(math.Exp2(float64(r.IntN(60) - 30)))
			}
			if pairs > 0 {
				angles[r.IntN(len(angles))], want[r.IntN(len(want))] = 0, float32(math.Copysign(0, -1))
			}
			got := slices.Clone(want)
			c.set.Rotate(got[:len(want)-16], angles, max(dim, 1), round%2 == 1)
			c.ref.Rotate(want[:len(want)-16], angles, max(dim, 1), round%2 == 1)
			if i := sameBits(got, want); i >= 0 {
				t.Fatalf("Rotate of %d pairs in %d heads of %d, round %d: [%d] is %v, ref %v", pairs, heads, dim, round, i, got[i], want[i])
			}
		}
	}
}

// rmsNormRange uses numbers whose squares leave float32's range.
func (c *checker) rmsNormRange(t *testing.T) {
	for _, size := range []float32{1e-30, 1e-20, 1, 1e20, 1e30, float32(math.Inf(1)), float32(math.NaN()), 0} {
		x := normal(random(2), 77)
		for i := range x {
			x[i] *= size
		}
		w, want, got := normal(random(3), 77), make([]float32, 77), make([]float32, 77)
		c.ref.RMSNorm(want, x, w, 1e-5)
		c.set.RMSNorm(got, x, w, 1e-5)
		for i := range want {
			if !near(got[i], want[i], 4*u*math.Abs(float64(want[i]))) {
				t.Fatalf("size %v: [%d] is %v, ref %v", size, i, got[i], want[i])
			}
		}
	}
}

func (c *checker) softmax(t *testing.T) {
	for _, n := range lengths() {
		for _, spread := range []float32{0, 1, 20, 300} {
			want := normal(random(uint64(n)), n)
			for i := range want {
				want[i] *= spread
			}
			if n%3 == 0 && n > 3 {
				want[n/2] = float32(math.Inf(-1))
			}
			x, top := slices.Clone(want), slices.Max(want)
			got := append(slices.Clone(want), 7)
			c.ref.Softmax(want)
			c.set.Softmax(got[:n])
			for i, w := range want {
				if !near(got[i], w, (16+2*float64(top-x[i]))*u*float64(w)+0x1p-148) {
					t.Fatalf("Softmax of %d, spread %v: [%d] is %v, ref %v", n, spread, i, got[i], w)
				}
			}
			if got[n] != 7 {
				t.Fatalf("Softmax of %d writes past its end", n)
			}
		}
	}
}

// softmaxNonFinite: NaN, +∞ and all −∞ make the whole row NaN.
func (c *checker) softmaxNonFinite(t *testing.T) {
	for n := 1; n <= 70; n++ {
		for at := range n {
			for _, bad := range []float64{math.NaN(), math.Inf(1)} {
				x := normal(random(1), n)
				x[at] = float32(bad)
				c.set.Softmax(x)
				allNaN(t, x)
			}
		}
		x := slices.Repeat([]float32{float32(math.Inf(-1))}, n)
		c.set.Softmax(x)
		allNaN(t, x)
	}
}

func allNaN(t *testing.T, x []float32) {
	t.Helper()
	for i, v := range x {
		if v == v {
			t.Fatalf("Softmax of a bad row of %d: [%d] is %v, want NaN", len(x), i, v)
		}
	}
}

// peaks compares the largest number of each group; a NaN is seen at every place.
func (c *checker) peaks(t *testing.T) {
	r := random(17)
	for _, n := range append(lengths(), 511, 512, 513, 1024, 1700) {
		x := normal(r, n)
		got, want := make([]float32, kernels.Peaks(n)), make([]float32, kernels.Peaks(n))
		check := func() {
			t.Helper()
			c.set.Peaks(got, x)
			c.ref.Peaks(want, x)
			if at := sameBits(got, want); at >= 0 {
				t.Fatalf("peak %d of %d is %v, ref %v", at, n, got[at], want[at])
			}
		}
		check()
		for _, other := range []float64{math.NaN(), math.Inf(-1), math.Inf(1)} {
			for at := 0; at < n; at += 1 + n/100 {
				before := x[at]
				x[at] = float32(other)
				check()
				x[at] = before
			}
		}
	}
}

// weigh allows a unit in the last place for each unit of the exponent, and demands 1 for the
// top and 0 for −∞.
func (c *checker) weigh(t *testing.T) {
	r := random(19)
	for _, n := range lengths() {
		if n == 0 {
			continue
		}
		for _, scale := range []float32{0, 1e-3, 1, 1.37, 80, 1e4} {
			x := normal(r, n)
			top := slices.Max(x)
			x = append(x, top, float32(math.Inf(-1)))
			if scale == 0 {
				x = x[:n+1] // −∞·0 is no number
			}
			got, want := slices.Clone(x), slices.Clone(x)
			sum := c.set.Weigh(got, top, scale)
			if ref := c.ref.Weigh(want, top, scale); !near(sum, ref, 64*u*float64(ref)) {
				t.Fatalf("the sum of %d by %v is %v, ref %v", n, scale, sum, ref)
			}
			for i, w := range want {
				if !near(got[i], w, (16+2*float64(top-x[i])*float64(scale))*u*float64(w)+0x1p-148) {
					t.Fatalf("weight %d of %d by %v is %v, ref %v", i, n, scale, got[i], w)
				}
			}
			if got[n] != 1 || scale > 0 && got[n+1] != 0 {
				t.Fatalf("by %v the top weighs %v and −∞ %v", scale, got[n], got[len(got)-1])
			}
		}
	}
}
