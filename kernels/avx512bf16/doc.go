// Package avx512bf16 holds attention with AVX-512's dot product of bfloat16 pairs, for pages of
// halves. kernels composes it, with packages avx512 and avx512vnni, into the set "avx512bf16";
// this package knows nothing of pages or processors. The caller checks that the processor
// has AVX-512 F, BW, DQ and BF16, and BMI2, and every shape: nothing here checks a bound.
//
// impl_amd64.s and stubs.go are written by kernels/_gen. On other architectures
// and under the build tag purego the package has no functions.
package avx512bf16

const (
	// Lanes is how many pairs a vector holds and how many positions one Dots call takes.
	Lanes = 16
	// RowsMax is how many rows DotsHalves and AccumulateHalves compute at once.
	RowsMax = 6
)
