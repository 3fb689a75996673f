// Package avx2int8 holds matrix products with AVX2's products of bytes, and the rounding
// of activations that they need. kernels composes them, with package avx2, into the set
// "avx2int8"; this package knows nothing of matrices or processors. The caller checks
// that the processor has AVX2, FMA and F16C, and every shape: nothing here checks a
// bound.
//
// impl_amd64.s and stubs.go are written by kernels/_gen. On other architectures
// and under the build tag purego the package has no functions.
package avx2int8

const (
	// Lanes is how many rows of weights a vector holds.
	Lanes = 8
	// RowsMax is how many rows of activations one MatMul call takes. Its frame has room for
	// no more (passingRows in kernels/_gen).
	RowsMax = 12
)
