package main

import "math"

func (a *asm) activations() {
	a.gated("SiLUMul", "", "SiLUMul computes dst[i] = gate[i]/(1+exp(−gate[i]))·up[i] over len(dst).", func() {}, func() {
		a.two("fneg", 2, 0)
	})
	// ½·(1+tanh z) is 1/(1+exp(−2z)), which keeps its precision where tanh is near −1.
	outer := -2 * math.Sqrt(2/math.Pi)
	a.gated("GELUMul", "", "GELUMul computes dst[i] = gelu(gate[i])·up[i] over len(dst), gelu in its tanh form.", func() {}, func() {
		a.three("fmul", 2, 0, 0)
		a.num(3, outer*0.044715)
		a.three("fmul", 2, 2, 3)
		a.num(3, outer)
		a.three("fadd", 2, 2, 3)
		a.three("fmul", 2, 2, 0)
	})
	a.gated("ClampedSiLUMul", ", limit float32",
		"ClampedSiLUMul computes dst[i] = a/(1+exp(−1.702·a))·(b+1) over len(dst), a = min(gate[i], limit), b = up[i] within ±limit.",
		func() {
			a.splat("limit", 31)
			a.two("fneg", 30, 31)
		}, func() { // fmin and fmax give NaN where one is NaN
			a.three("fmin", 0, 0, 31)
			a.three("fmin", 1, 1, 31)
			a.three("fmax", 1, 1, 30)
			a.num(3, 1)
			a.three("fadd", 1, 1, 3)
			a.num(3, -1.702)
			a.three("fmul", 2, 0, 3)
		})
	a.softCap()
}

// gated computes dst[i] = v0/(1+exp(v2))·v1 from v0 = gate[i] and v1 = up[i], which
// exponent may change, and v2, which it makes. It may use v3.
func (a *asm) gated(name, param, doc string, begin, exponent func()) {
	a.function(name, "dst []float32, gate []float32, up []float32"+param, "", doc, 0, opsPool)
	p := a.slices("dst", "gate", "up")
	begin()
	a.each(count, p, func(whole bool) {
		a.load(0, whole, p[1], 0)
		a.load(1, whole, p[2], 0)
		exponent()
		e := a.exp(2)
		a.num(3, 1)
		a.three("fadd", e, e, 3)
		a.three("fdiv", 0, 0, e)
		a.three("fmul", 0, 0, 1)
		a.store(0, whole, p[0], 0)
	})
	a.ret()
}

// softCap: tanh|z| is −m/(m+2) with m = exp(−2|z|)−1, which keeps its precision
// where z is near 0. The sign is x's.
func (a *asm) softCap() {
	a.function("SoftCap", "x []float32, limit float32", "", "SoftCap replaces x[i] by limit·tanh(x[i]/limit).", 0, opsPool)
	p := a.slices("x")
	a.splat("limit", 31)
	a.num(30, -2)
	a.three("fdiv", 30, 30, 31)
	a.bits(29, 1<<31)
	a.each(count, p, func(whole bool) {
		a.load(0, whole, p[0], 0)
		a.op("VAND V29.B16, V0.B16, V1.B16")
		a.op("VEOR V1.B16, V0.B16, V2.B16")
		a.three("fmul", 2, 2, 30)
		m := a.expMinus1(2)
		a.num(3, 2)
		a.three("fadd", 3, 3, m)
		a.three("fdiv", 0, m, 3)
		a.three("fmul", 0, 0, 31)
		a.three("bic", 0, 0, 29)
		a.op("VORR V1.B16, V0.B16, V0.B16")
		a.store(0, whole, p[0], 0)
	})
	a.ret()
}

// Registers of the exponential: x = n·ln 2 + r, and whole is n as a number.
const expN, expWhole, expR, expT, expY, expZ vreg = 16, 17, 18, 19, 20, 21

// exp gives e^x in a register of its own, as 2^n·e^r. The clamp keeps n in reach of
// the exponent bits: beyond it e^x is 0 or ∞.
func (a *asm) exp(x vreg) vreg {
	a.reduce(x, -104, 89)
	y, other := a.series()
	a.num(other, 1)
	a.three("fmla", other, y, expR)
	a.timesPower(other)
	return other
}

// expMinus1 gives e^x−1 for x ≤ 0, to a few units in its own last place:
// 2^n·(e^r−1) + (2^n−1), where nothing is lost for n = 0 and little for others.
// The clamp is where e^x−1 is −1.
func (a *asm) expMinus1(x vreg) vreg {
	a.reduce(x, -40, 0)
	y, power := a.series()
	a.three("fmul", y, y, expR)
	a.num(power, 1)
	a.timesPower(power)
	a.num(expT, 1)
	a.three("fsub", expT, power, expT)
	a.three("fmla", expT, power, y)
	return expT
}

// reduce gives n and r with |r| ≤ ln 2/2, after x is brought between low and high.
// A NaN passes through to r.
func (a *asm) reduce(x vreg, low, high float64) {
	a.num(expT, low)
	a.three("fmax", expR, x, expT)
	a.num(expT, high)
	a.three("fmin", expR, expR, expT)
	a.num(expT, math.Log2E)
	a.three("fmul", expN, expR, expT)
	a.two("fcvtns", expN, expN)
	a.two("scvtf", expWhole, expN)
	const ln2High = 0x1.62ep-1 // few enough bits that n·ln2High is exact
	a.num(expT, ln2High)
	a.three("fmls", expR, expWhole, expT)
	a.num(expT, math.Ln2-ln2High)
	a.three("fmls", expR, expWhole, expT)
}

// series is (e^r−1)/r by its Taylor series, whose remainder after r⁶ is far below the last
// place of a float32; it gives a free register too.
func (a *asm) series() (y, other vreg) {
	y, other = expY, expZ
	factorial := 5040.0
	a.num(y, 1/factorial)
	for k := 7; k > 1; k-- {
		factorial /= float64(k)
		a.num(other, 1/factorial)
		a.three("fmla", other, y, expR)
		y, other = other, y
	}
	return y, other
}

// timesPower multiplies y by 2^n in two steps, since n may be below the smallest exponent.
func (a *asm) timesPower(y vreg) {
	a.sshr(expWhole, expN, 1)
	a.op("VSUB %v.S4, %v.S4, %v.S4", expWhole, expN, expN)
	a.bits(expT, 127)
	for _, v := range []vreg{expWhole, expN} {
		a.op("VADD %v.S4, %v.S4, %v.S4", expT, v, v)
		a.op("VSHL $23, %v.S4, %v.S4", v, v)
		a.three("fmul", y, y, v)
	}
}
