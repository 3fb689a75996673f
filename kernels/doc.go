// Package kernels is arithmetic on slices: the matrix products, attention, norms
// and activations of a decoder. It knows no model, no sequence and no file.
//
// # Use
//
// Best gives the Set for this processor, Lookup one by name, Sets all of them.
// Pack each weight matrix once at load; then call the operations with Go slices.
// A Team spreads a step over threads: Split gives each worker whole tiles of rows,
// and it calls MatMul with that range. Operations start no goroutine, keep no
// state and allocate nothing, so several workers may call them on disjoint outputs.
//
//	team.Run(func(worker int) {
//		lo, hi := kernels.Split(m.Rows, kernels.RowTile, worker, team.Workers())
//		set.MatMul(dst, m.Rows, m, x, n, lo, hi)
//	})
//
// Piece gives shares that workers take by turns, for those who may be slowed.
//
// # Shapes
//
// A matrix is rows×cols with a row for each output, as a GGUF file stores it: cols
// is the length of the input. Activations are rows of float32, one token each. A set
// that has Round multiplies matrices in blocks with what Round makes of a row, so
// that who writes a row rounds it too. The fields and functions of Set say which
// operands may be the same slice; others must not overlap. A wrong shape is a mistake
// of the caller and panics with the operation's name.
//
// # Bit invariance
//
// The same token gives the same bits alone, in any batch, with any chunking of
// its prompt, in any pages and on any number of workers. In the vector sets this
// comes from the layout: a lane of a vector is one row of weights (see layout.pack),
// so an output of MatMul never crosses lanes, and it has two accumulators, for the
// first and the second half of every 32 columns (and a third for the sums of
// scaled blocks, in neon of all), whatever the shape of the call is. Of rounded
// activations a block's products are summed as integers, exactly, and blocks in their
// order; how a block is rounded depends on its numbers alone. In Attend a lane is a
// position for the scores and a number of the head for the values: a score is one dot
// product of fixed order, an output is summed in the order of the positions, and the
// softmax runs over spans and chunks that begin at fixed positions. Sets may differ
// from each other in the last bits; products of rounded activations do not.
//
// # Types
//
// MatMul dequantises in registers, to float32 or, for rounded activations, to bytes.
// A scaled block is summed before it is multiplied with its scale; a minimum is
// multiplied with the sum of the block's activations. So a result differs from ref's,
// of the same activations, in the last bits only.
//
// # Keys and values
//
// Attend reads pages of float32, halves or bytes (KVLayout says how they lie) and makes
// float32 of them in registers, or bfloat16 of halves where it may round; sums are float32 in each. The scales of bytes are
// multiplied once for each position: a key's with the score, a value's with its weight.
//
// # Sets
//
//	ref         plain Go, the specification, everywhere
//	avx2        AVX2, FMA and F16C
//	avx2int8    the same: it rounds activations
//	avx512      AVX-512 F and DQ, BMI2, and all of avx2's
//	avx512vnni  AVX-512 BW, VL and VNNI, and all of avx512's: it rounds activations
//	avx512bf16  AVX-512 BF16, and all of avx512vnni's: it rounds in attention to halves
//	avx512amx   AMX for bytes, and all of avx512bf16's: the same bits, many rows by tiles
//	neon        Advanced SIMD, which every arm64 processor has
//
// They are switched off by name in the environment, FOREBAY_KERNELS_DISABLE=avx512,avx2int8,
// or at build time with the tag purego, which leaves ref alone. Every set differs
// from ref by no more than the table in package kerneltest allows, on every length.
//
// # To add
//
// A type, in this order:
//
//   - a row in typeTable, which takes it out of foreignTypes; a case in
//     ref.Dequantize, and reference values in ref/testdata/dequantize.jsonl;
//   - where its blocks have halves, in kerneltest.scalesAt, and whether it has minima,
//     in withMinimum: its other bytes will be random;
//   - its images in pack.go, for numbers and for blocks, no more than 6 % over what is stored. Most are made of
//     fields that stand there; a block in another order needs a row function;
//   - a format in _gen/matmul.go: how its elements become numbers (coding.go), where
//     its scales and minima are (block.go), one in _gen/dot.go: how they become bytes,
//     which rowDots.groupBytes does anew in AVX2, and one in _gen/neon/format.go; then go generate in both, and its functions in the dispatch tables (dispatch_<arch>.go).
//
// Until the last step the tests of the vector sets fail for it, for they try all types.
//
// A set: a package of loops with the four files doc.go, stubs.go, impl_<arch>.s and
// impl_test.go, and a row in the dispatch table. An operation starts in ref, then in
// kerneltest, then in the sets.
package kernels
