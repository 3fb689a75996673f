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
// Portion gives shares that workers take one after another, for workers that may be slowed.
//
// # Shapes
//
// A matrix is rows×cols with a row for each output, as a GGUF file stores it: cols
// is the length of the input. Activations are rows of float32, one token each. A set
// that has Round multiplies quantised matrices with the blocks that Round makes of a row,
// so the code that writes a row rounds it too. The fields and functions of Set say which
// operands may be the same slice; others must not overlap. A wrong shape is a mistake
// of the caller and panics with the operation's name.
//
// # Bit invariance
//
// The same token gives the same bits alone, in any batch, with any chunking of
// its prompt, in any pages and on any number of workers. In the vector sets this
// comes from the layout: a lane of a vector is one row of weights (see layout.pack),
// so an output of MatMul never crosses lanes. It has two accumulators, for the first
// and the second half of every 32 columns, whatever the shape of the call is; neon has
// a third one for the sums of blocks. With rounded activations, a block's products are
// summed as integers, exactly, and blocks are added in their order; how a block is
// rounded depends only on its numbers. In Attend a lane is a position for the scores and
// a number of the head for the values: a score is one dot product of fixed order, an
// output is summed in the order of the positions, and the softmax runs over pieces and
// chunks that begin at fixed positions. Sets may differ from each other in the last
// bits; products of rounded activations do not.
//
// # Types
//
// MatMul dequantises in registers, to bytes for rounded activations, in neon to float32.
// A block is summed before it is multiplied with its scale; a minimum is multiplied with
// the sum of the block's activations. So a result differs from ref's, with the same
// activations, only in the last bits. The float sets avx2 and avx512 have no products of
// quantised weights: they compute these in plain Go, to ref's bits. The types IQ1, IQ2, IQ3 and
// TQ (Type.Coded), whose blocks are codes from tables, are kept as stored. Rows of them become
// bytes for rounded activations, a tile at a time, and go through a product of bytes; in the sets
// that round nothing they become float32 numbers and go through the product of F32.
//
// # Keys and values
//
// Attend reads pages of float32, halves or bytes (KVLayout describes them) and widens them
// to float32 in registers, or halves to bfloat16 where it may round. Sums are float32. The
// scales of bytes are applied once for each position: a key's to the score, a value's to
// its weight.
//
// # Sets
//
//	ref         plain Go, the specification, everywhere
//	avx2        AVX2, FMA and F16C
//	avx2int8    the same; rounds activations for quantised weights
//	avx512      AVX-512 F and DQ, BMI2, and all of avx2's
//	avx512vnni  AVX-512 BW, VL and VNNI, and all of avx512's; rounds activations
//	avx512bf16  AVX-512 BF16, and all of avx512vnni's; rounds in attention to halves too
//	avx512amx   AMX for bytes, and all of avx512bf16's; the same bits, many rows by AMX tiles
//	neon        Advanced SIMD, which every arm64 processor has
//
// They are switched off by name in the environment, FOREBAY_KERNELS_DISABLE=avx512,avx2int8,
// or at build time with the tag purego, which leaves only ref. Every set differs
// from ref by no more than the table in package kerneltest allows, on every length.
//
// Nobody has timed AMX, so avx512amx has an Alternative that gives the same bits with
// vectors, and Faster times both on the machine at hand.
//
// # To add
//
// A type, in this order:
//
//   - a row in typeTable, which takes it out of foreignTypes; a case in
//     ref.Dequantize, and reference values in ref/testdata/dequantize.jsonl;
//   - where its blocks have halves, in kerneltest.scalesAt, and whether it has minima,
//     in withMinimum: its other bytes will be random;
//   - its images in pack.go, for numbers and for blocks, at most 6 % over what is stored.
//     Most are made of the fields there; a block in another order needs a row function;
//   - a row in the table of _gen/format; how its elements become bytes in _gen/bytes.go,
//     which rowDots.groupBytes repeats for AVX2, and how they become numbers in
//     _gen/neon/coding.go; then go generate in both, which writes the functions and the
//     tables that find them (products_<arch>.go).
//   - one whose blocks are codes from tables has a function in codes_unpack.go and a row in
//     codedTypes instead of the last two, and one in _gen/codes_narrow.go, if it is to be fast.
//
// Until the last step the tests of the vector sets fail for it, since they try all types.
//
// A set: a package of loops, named as the set, with the files doc.go, stubs.go,
// impl_<arch>.s and impl_test.go; a program in the table of _gen/main.go; and a row in the
// dispatch table. An operation starts in ref, then in kerneltest, then in the sets.
package kernels
