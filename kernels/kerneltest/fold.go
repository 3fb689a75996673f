package kerneltest

import (
	"math"
	"slices"
	"testing"
)

// fold compares the new state and what is read from it, over several steps, for every
// number of columns; and demands that columns do not depend on each other, nor numbers
// behind the state change.
func (c *checker) fold(t *testing.T) {
	for cols := 1; cols <= 150; cols++ {
		r := random(uint64(cols))
		rows := 1 + r.IntN(40)
		want, left, right, out := normal(r, rows*cols), normal(r, rows), make([]float32, cols), make([]float32, cols)
		got := append(slices.Clone(want), make([]float32, 16)...)
		alone := make([]float32, rows)
		for i := range alone {
			alone[i] = want[i*cols+cols-1]
		}
		one := make([]float32, 1)
		for step := range 4 {
			decay, a, b := float32(r.Float64()), normal(r, rows), normal(r, cols)
			c.ref.Fold(want, decay, a, b, left, right)
			c.set.Fold(got[:rows*cols], decay, a, b, left, out)
			c.set.Fold(alone, decay, a, b[cols-1:], left, one)
			for i, w := range want {
				size := math.Abs(float64(w)) + 8
				if !near(got[i], w, float64(step+1)*4*u*size) {
					t.Fatalf("Fold of %d×%d: state [%d] is %v, ref %v", rows, cols, i, got[i], w)
				}
			}
			for j, w := range right {
				size := 0.0
				for i := range rows {
					size += math.Abs(float64(left[i])) * (math.Abs(float64(want[i*cols+j])) + 8)
				}
				if !near(out[j], w, float64(rows+8)*4*u*size) {
					t.Fatalf("Fold of %d×%d: out [%d] is %v, ref %v", rows, cols, j, out[j], w)
				}
			}
			if math.Float32bits(one[0]) != math.Float32bits(out[cols-1]) {
				t.Fatalf("Fold of %d×%d: the last column is %v, alone %v", rows, cols, out[cols-1], one[0])
			}
			if !slices.Equal(got[rows*cols:], make([]float32, 16)) {
				t.Fatalf("Fold of %d×%d writes past its end: %v", rows, cols, got[rows*cols:])
			}
		}
	}
}
