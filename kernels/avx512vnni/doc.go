// Package avx512vnni holds matrix products with AVX-512's integer dot product, and the
// rounding of activations that they need. kernels composes them, with package avx512,
// into the set "avx512vnni"; this package knows nothing of matrices or processors. The
// caller checks that the processor has AVX-512 F, BW, DQ and VNNI, and every shape:
// nothing here checks a bound.
//
// impl_amd64.s and stubs.go are written by kernels/_gen. On other architectures
// and under the build tag purego the package has no functions.
package avx512vnni

const (
	// Lanes is how many rows of weights a vector holds.
	Lanes = 16
	// RowsMax is how many rows of activations one MatMul call takes.
	RowsMax = 6
	// FewRows is the number of rows up to which a call with one vector of weight rows is
	// faster than a call with two. Two need at least three rows.
	FewRows = 4
)
