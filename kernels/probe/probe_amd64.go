//go:build amd64 && !purego

package probe

import "golang.org/x/sys/cpu"

// Loops lists what this processor has.
func Loops() (loops []Loop) {
	x := &cpu.X86
	add := func(has bool, name string, lanes, products int, run func(rounds int)) {
		if has {
			loops = append(loops, Loop{name, 2 * lanes * products * Chains, run})
		}
	}
	wide := x.HasAVX512F && x.HasAVX512DQ
	add(x.HasAVX2 && x.HasFMA, "fma_f32_avx2", 8, 1, FMA256)
	add(wide, "fma_f32_avx512", 16, 1, FMA512)
	add(wide && x.HasAVX512VNNI, "dot_int8_avx512", 16, 4, DotInt8)
	add(wide && x.HasAVX512BF16, "dot_bf16_avx512", 16, 2, DotBF16)
	return loops
}

func read(p *byte, rounds int) {
	switch x := &cpu.X86; {
	case x.HasAVX512F:
		Read512(p, rounds)
	case x.HasAVX:
		Read256(p, rounds)
	default:
		readWords(p, rounds)
	}
}
