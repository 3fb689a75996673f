// Package avx512amx holds matrix products with AMX, for as many rows as its tiles have. kernels composes it, with packages avx512, avx512vnni and avx512bf16, into the
// set "avx512amx"; this package knows nothing of matrices. The caller has asked Allow, and checks
// every shape and that the processor has AVX-512 F, BW, DQ and VNNI: nothing here checks a
// bound.
//
// impl_amd64.s and stubs.go are written by kernels/_gen. On other architectures
// and under the build tag purego the package has only Allow.
package avx512amx

// Rows is how many rows of weights, and how many of activations, one call takes.
const Rows = 16
