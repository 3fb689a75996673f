// Package neon holds the hot loops in Advanced SIMD assembly for arm64. kernels
// composes them into the set "neon"; this package knows nothing of matrices, pages
// or processors. It needs what every arm64 processor has, no extension. The caller
// checks every shape: nothing here checks a bound.
//
// impl_arm64.s and stubs.go are written by kernels/_gen/neon. On other architectures
// and under the build tag purego the package has no functions.
package neon

const (
	// Lanes is half of the weight rows that MatMul takes: it works on two vectors of
	// four side by side, so that two times Lanes is a tile.
	Lanes = 8
	// RowsMax is how many rows of activations one MatMul call takes.
	RowsMax = 4
)
