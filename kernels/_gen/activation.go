package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func (g *isa) siluMul() {
	text("SiLUMul", "func(dst, gate, up []float32)", "SiLUMul computes dst[i] = gate[i]/(1+exp(−gate[i]))·up[i] over len(dst).")
	g.gated(func(a, b reg.VecVirtual) reg.VecVirtual {
		minus := zero(g.vec())
		VSUBPS(a, minus, minus)
		return minus
	})
}

// geluMul writes ½·(1+tanh z) as 1/(1+exp(−2z)), which keeps its precision where tanh is near
// −1.
func (g *isa) geluMul() {
	text("GELUMul", "func(dst, gate, up []float32)", "GELUMul computes dst[i] = gelu(gate[i])·up[i] over len(dst), gelu in its tanh form.")
	outer := -2 * math.Sqrt(2/math.Pi)
	g.gated(func(a, b reg.VecVirtual) reg.VecVirtual {
		z := g.vec()
		VMULPS(a, a, z)
		VMULPS(g.num(outer*0.044715), z, z)
		VADDPS(g.num(outer), z, z)
		VMULPS(a, z, z)
		return z
	})
}

func (g *isa) clampedSiLUMul() {
	text("ClampedSiLUMul", "func(dst, gate, up []float32, limit float32)",
		"ClampedSiLUMul computes dst[i] = a/(1+exp(−1.702·a))·(b+1) over len(dst), a = min(gate[i], limit), b = up[i] within ±limit.")
	limit, below := g.splat("limit"), zero(g.vec())
	VSUBPS(limit, below, below)
	g.gated(func(a, b reg.VecVirtual) reg.VecVirtual {
		VMINPS(a, limit, a) // the second operand where one is NaN; Go's order has it first
		VMINPS(b, limit, b)
		VMAXPS(b, below, b)
		VADDPS(g.num(1), b, b)
		z := g.vec()
		VMULPS(g.num(-1.702), a, z)
		return z
	})
}

// gated computes dst[i] = a/(1+exp(z))·b from a = gate[i] and b = up[i], which
// exponent may change, and its z.
func (g *isa) gated(exponent func(a, b reg.VecVirtual) reg.VecVirtual) {
	dst, gate, up := ptr("dst"), ptr("gate"), ptr("up")
	g.each("gated", n("dst"), func(at reg.GPVirtual, p *mask) {
		a, b := g.vec(), g.vec()
		g.load(item(gate, at), p, a)
		g.load(item(up, at), p, b)
		e := g.exp(exponent(a, b))
		VADDPS(g.num(1), e, e)
		VDIVPS(e, a, a)
		VMULPS(b, a, a)
		g.store(a, p, item(dst, at))
	})
	ret()
}

// softCap writes tanh|z| as −m/(m+2) with m = exp(−2|z|)−1, which keeps its precision where z
// is near 0. The sign is x's.
func (g *isa) softCap() {
	text("SoftCap", "func(x []float32, limit float32)", "SoftCap replaces x[i] by limit·tanh(x[i]/limit).")
	x, limit, factor := ptr("x"), g.splat("limit"), g.vec()
	VMOVUPS(g.num(-2), factor)
	VDIVPS(limit, factor, factor)
	g.each("cap", n("x"), func(at reg.GPVirtual, p *mask) {
		a, z, sign := g.vec(), g.vec(), g.vec()
		g.load(item(x, at), p, a)
		VMOVUPS(g.bits(1<<31), sign)
		VANDPS(sign, a, sign)
		VXORPS(sign, a, z)
		VMULPS(factor, z, z)
		m := g.expMinus1(z)
		VADDPS(g.num(2), m, a)
		VDIVPS(a, m, a)
		VMULPS(limit, a, a)
		VANDPS(g.bits(1<<31-1), a, a)
		VORPS(sign, a, a)
		g.store(a, p, item(x, at))
	})
	ret()
}

// exp gives e^x in a new register, as 2^n·e^r. The clamp keeps n in reach of the
// exponent bits: beyond it e^x is 0 or ∞.
func (g *isa) exp(x reg.VecVirtual) reg.VecVirtual {
	n, whole, r := g.reduce(x, -104, 89)
	y := g.series(r)
	VFMADD213PS(g.num(1), r, y)
	return g.timesPower(y, n, whole)
}

// expMinus1 gives e^x−1 in a new register for x ≤ 0, to a few units in its own last
// place: 2^n·(e^r−1) + (2^n−1), where nothing is lost for n = 0 and little for others.
// The clamp is where e^x−1 is −1.
func (g *isa) expMinus1(x reg.VecVirtual) reg.VecVirtual {
	n, whole, r := g.reduce(x, -40, 0)
	y, power := g.series(r), g.vec()
	VMULPS(r, y, y)
	VMOVUPS(g.num(1), power)
	power = g.timesPower(power, n, whole)
	less := g.vec()
	VADDPS(g.num(-1), power, less)
	VFMADD213PS(less, power, y)
	return y
}

// reduce gives n and r with x = n·ln 2 + r and |r| ≤ ln 2/2, after x is brought
// between low and high; whole is n as a number. A NaN passes through to r, for
// MAXPS and MINPS give the second operand then.
func (g *isa) reduce(x reg.VecVirtual, low, high float64) (n, whole, r reg.VecVirtual) {
	n, whole, r = g.vec(), g.vec(), g.vec()
	VMOVUPS(g.num(low), n)
	VMAXPS(x, n, r)
	VMOVUPS(g.num(high), n)
	VMINPS(r, n, r)
	VMULPS(g.num(math.Log2E), r, n)
	VCVTPS2DQ(n, n)
	VCVTDQ2PS(n, whole)
	const ln2High = 0x1.62ep-1 // few enough bits that n·ln2High is exact
	VFNMADD231PS(g.num(ln2High), whole, r)
	VFNMADD231PS(g.num(math.Ln2-ln2High), whole, r)
	return n, whole, r
}

// series is (e^r−1)/r by its Taylor series, whose remainder after r⁶ is far below the last
// place of a float32.
func (g *isa) series(r reg.VecVirtual) reg.VecVirtual {
	y, factorial := g.vec(), 5040.0
	VMOVUPS(g.num(1/factorial), y)
	for k := 7; k > 1; k-- {
		factorial /= float64(k)
		VFMADD213PS(g.num(1/factorial), r, y)
	}
	return y
}

// timesPower multiplies y by 2^n, and may overwrite n.
func (g *isa) timesPower(y, n, whole reg.VecVirtual) reg.VecVirtual {
	if g.wide {
		VSCALEFPS(whole, y, y)
		return y
	}
	half := g.vec() // 2^n in two steps, for n may be below the smallest exponent
	VPSRAD(U8(1), n, half)
	VPSUBD(half, n, n)
	for _, v := range []reg.VecVirtual{half, n} {
		VPADDD(g.bits(127), v, v)
		VPSLLD(U8(23), v, v)
		VMULPS(v, y, y)
	}
	return y
}
