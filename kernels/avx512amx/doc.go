// Package avx512amx holds matrix products with AMX, the tile registers of bytes, for as many
// rows as tiles have. kernels composes it, with packages avx512, avx512vnni and avx512bf16, into the
// set "avx512amx"; this package knows nothing of matrices. The caller has asked Allow,
// checks that the processor has AVX-512 F, BW, DQ and VNNI, and every shape: nothing here
// looks at a bound.
//
// impl_amd64.s and stubs.go are written by kernels/_gen. On other architectures
// and under the build tag purego the package has Allow alone.
package avx512amx

// Rows is how many rows of weights, and how many of activations, one call takes.
const Rows = 16
