package main

import "math"

// each goes over n numbers: body runs for vectors, and then for one number at a time, in the
// first lane; the others do not count.
func (a *asm) each(n gpr, pointers []gpr, body func(whole bool)) {
	advance := func(bytes int) {
		for _, p := range pointers {
			a.op("ADD $%d, %v", bytes, p)
		}
	}
	a.op("SUBS $4, %v", n)
	a.op("BLT rest")
	a.label("vector")
	body(true)
	advance(16)
	a.op("SUBS $4, %v", n)
	a.op("BGE vector")
	a.label("rest")
	a.op("ADDS $4, %v", n)
	a.op("BEQ end")
	a.label("one")
	body(false)
	advance(4)
	a.op("SUBS $1, %v", n)
	a.op("BNE one")
	a.label("end")
}

// sliceRegisters hold the addresses in functions on slices.
var sliceRegisters = []gpr{0, 1, 2}

const (
	count, opsPool gpr = 3, 4
)

// slices loads the bases of slices and the length of the first.
func (a *asm) slices(names ...string) []gpr {
	for i, name := range names {
		a.param(name+"_base", sliceRegisters[i])
	}
	a.param(names[0]+"_len", count)
	return sliceRegisters[:len(names)]
}

func (a *asm) elementwise() {
	a.function("Add", "dst []float32, x []float32", "", "Add computes dst[i] += x[i] over len(dst).", 0, opsPool)
	p := a.slices("dst", "x")
	a.each(count, p, func(whole bool) {
		a.load(0, whole, p[0], 0)
		a.load(1, whole, p[1], 0)
		a.three("fadd", 0, 0, 1)
		a.store(0, whole, p[0], 0)
	})
	a.ret()

	a.function("Scale", "x []float32, s float32", "", "Scale computes x[i] *= s.", 0, opsPool)
	p = a.slices("x")
	a.splat("s", 31)
	a.each(count, p, func(whole bool) {
		a.load(0, whole, p[0], 0)
		a.three("fmul", 0, 0, 31)
		a.store(0, whole, p[0], 0)
	})
	a.ret()

	a.function("ScaleMul", "dst []float32, x []float32, w []float32, s float32", "", "ScaleMul computes dst[i] = x[i]·s·w[i] over len(dst).", 0, opsPool)
	p = a.slices("dst", "x", "w")
	a.splat("s", 31)
	a.each(count, p, func(whole bool) {
		a.load(0, whole, p[1], 0)
		a.load(1, whole, p[2], 0)
		a.three("fmul", 0, 0, 31)
		a.three("fmul", 0, 0, 1)
		a.store(0, whole, p[0], 0)
	})
	a.ret()
}

func (a *asm) reductions() {
	a.sumSquares()

	a.function("Max", "x []float32", "float32", "Max gives the largest x[i], or −∞; what it gives for a NaN is not defined.", 0, opsPool)
	p := a.slices("x")
	a.num(1, math.Inf(-1))
	a.each(count, p, func(whole bool) {
		a.load(0, whole, p[0], 0)
		if !whole {
			a.op("VDUP V0.S[0], V0.S4")
		}
		a.three("fmax", 1, 1, 0)
	})
	a.three("fmaxp", 1, 1, 1)
	a.three("fmaxp", 1, 1, 1)
	a.op("FMOVS F1, ret+%d(FP)", a.offsets["ret"])
	a.ret()

	a.function("ExpSum", "x []float32, top float32", "float32", "ExpSum replaces x[i] by exp(x[i]−top) and gives their sum.", 0, opsPool)
	a.exponentials(func(vreg) {})

	a.function("Weigh", "x []float32, top float32, scale float32", "float32", "Weigh replaces x[i] by exp((x[i]−top)·scale) and gives their sum.", 0, opsPool)
	a.splat("scale", 29)
	a.exponentials(func(v vreg) { a.three("fmul", v, v, 29) })
}

// exponentials replaces x by exp(x−top), whose exponent change may change, and returns the sum.
func (a *asm) exponentials(change func(v vreg)) {
	p := a.slices("x")
	a.splat("top", 31)
	a.zero(30)
	a.each(count, p, func(whole bool) {
		a.load(0, whole, p[0], 0)
		a.three("fsub", 0, 0, 31)
		change(0)
		e := a.exp(0)
		a.store(e, whole, p[0], 0)
		if !whole {
			a.op("FMOVS F%d, F%d", e, e) // the other lanes become 0
		}
		a.three("fadd", 30, 30, e)
	})
	a.three("faddp", 30, 30, 30)
	a.three("faddp", 30, 30, 30)
	a.op("FMOVS F30, ret+%d(FP)", a.offsets["ret"])
	a.ret()
}

// sumSquares works in float64, where no square of a float32 overflows.
func (a *asm) sumSquares() {
	a.function("SumSquares", "x []float32", "float64", "SumSquares gives Σ x[i]², summed in float64.", 0, opsPool)
	p := a.slices("x")
	a.zero(3)
	a.zero(4)
	a.each(count, p, func(whole bool) {
		a.load(0, whole, p[0], 0)
		a.two("fcvtl.2d", 1, 0)
		a.three("fmla.2d", 3, 1, 1)
		if whole {
			a.two("fcvtl2.2d", 2, 0)
			a.three("fmla.2d", 4, 2, 2)
		}
	})
	a.three("fadd.2d", 3, 3, 4)
	a.three("faddp.2d", 3, 3, 3)
	a.op("FMOVD F3, ret+%d(FP)", a.offsets["ret"])
	a.ret()
}
