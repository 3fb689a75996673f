package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// probeChains are the sums that a loop of a probe goes on with by turns: enough
// that none waits for the one before it.
const probeChains = 12

// readLines are the cache lines that a round of a reading probe reads.
const readLines = 8

// probes writes kernels/probe.
func probes() {
	avx2.probe("FMA256", "float32 FMA, 8 lanes", func(sum, a, b reg.VecVirtual) { VFMADD231PS(a, b, sum) })
	avx512.probe("FMA512", "float32 FMA, 16 lanes", func(sum, a, b reg.VecVirtual) { VFMADD231PS(a, b, sum) })
	avx512.probe("DotInt8", "VPDPBUSD, 16 lanes of four products", func(sum, a, b reg.VecVirtual) { VPDPBUSD(a, b, sum) })
	probeDotBF16()
	avx2.read("Read256")
	avx512.read("Read512")
}

// rounds is the loop around a probe's body.
func rounds(body func()) {
	n := val("rounds")
	Label("round")
	body()
	DECQ(n)
	JNZ(LabelRef("round"))
	ret()
}

func probeText(name, what string) {
	text(name, "func(rounds int)", fmt.Sprintf("%s does Chains times %s in each round; rounds is at least 1.", name, what))
}

func (g *isa) probe(name, what string, step func(sum, a, b reg.VecVirtual)) {
	probeText(name, what)
	a, b := zero(g.vec()), zero(g.vec())
	sums := make([]reg.VecVirtual, probeChains)
	for i := range sums {
		sums[i] = zero(g.vec())
	}
	rounds(func() {
		for _, sum := range sums {
			step(sum, a, b)
		}
	})
}

// probeDotBF16 writes VDPBF16PS by its bytes, which neither avo nor the Go
// assembler knows: Z30 and Z31 into Z0, Z1 and so on.
func probeDotBF16() {
	probeText("DotBF16", "VDPBF16PS, 16 lanes of two products")
	all := []reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z30, reg.Z31,
	}
	for _, z := range all {
		VPXORD(z, z, z)
	}
	rounds(func() {
		for sum := range probeChains {
			high := byte(0x92) // the prefix's second byte: the inverted bit 3 of sum, Z31, opcode map 0F38
			if sum >= 8 {
				high = 0x12
			}
			emit(0x62, high, 0x0e, 0x40, 0x52, 0xc7|byte(sum&7)<<3)
		}
	})
}

// emit writes an instruction by its bytes.
func emit(code ...byte) {
	for _, b := range code {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(b)}})
	}
}

// read asks for lines ahead of those that it loads, as the kernels do.
func (g *isa) read(name string) {
	text(name, "func(p *byte, rounds int)", name+" reads ReadBytes in each round, one after another from p on; rounds is at least 1.")
	p := val("p")
	rounds(func() {
		for line := range readLines {
			ask(Mem{Base: p, Disp: 64*line + 4096})
			for at := 0; at < 64; at += g.bytes() {
				VMOVUPS(Mem{Base: p, Disp: 64*line + at}, g.vec())
			}
		}
		ADDQ(I32(64*readLines), p)
	})
}
