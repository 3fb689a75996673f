// Package probe asks a processor for the most that it can do: loops of vector
// arithmetic on registers, and loops that read memory and do nothing else.
//
// Goal: the roof that a kernel's speed is compared with. Not here: clocks, threads
// and buffers, which belong to the benchmark (bench/speed). Loops lacks instructions that
// the processor does not have; other architectures have only the read loop.
//
// impl_amd64.s and stubs.go are written by kernels/_gen.
package probe

const (
	// Chains is how many instructions a round of an arithmetic loop has.
	Chains = 12
	// ReadBytes is what a round of a read loop reads.
	ReadBytes = 512
)

// Loop is one kind of arithmetic.
type Loop struct {
	// Name is stable: the operation and its numbers, and the instruction set:
	// "fma_f32_avx2", "fma_f32_avx512", "dot_int8_avx512", "dot_bf16_avx512".
	Name string
	// RoundOps is how many operations a round has; a multiplication and an
	// addition are two.
	RoundOps int
	// Run does that many rounds, at least 1. It cannot be interrupted: keep it short.
	Run func(rounds int)
}

// Read reads whole rounds of b, one cache line after another.
func Read(b []byte) {
	if rounds := len(b) / ReadBytes; rounds > 0 {
		read(&b[0], rounds)
	}
}
