// Package avx512 holds the hot loops in AVX-512 assembly. kernels composes them into the
// set "avx512"; this package knows nothing of matrices, pages or processors. The
// caller checks that the processor has AVX-512 F, DQ and BMI2, and every shape: nothing
// here checks a bound.
//
// impl_amd64.s and stubs.go are written by kernels/_gen. On other architectures
// and under the build tag purego the package has no functions.
package avx512

const (
	// Lanes is how many float32 numbers a vector holds.
	Lanes = 16
	// RowsMax is how many rows of activations one MatMul call takes.
	RowsMax = 6
)
