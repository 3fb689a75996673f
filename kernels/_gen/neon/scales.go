package main

import (
	"slices"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// weightType is a type of weights with how its elements become numbers.
type weightType struct {
	format.Format
	coding *coding
}

// weightTypes are all that there are products for.
var weightTypes = func() (all []weightType) {
	of := map[string]*coding{
		"F32": float32s, "F16": halves, "BF16": bfloats, "Q8_0": int8s,
		"Q4_0": nibbles(from(-8)), "Q4_1": nibbles(nil), "Q5_0": fives(-16), "Q5_1": fives(0), "IQ4_NL": iq4, "MXFP4": e2m1,
		"Q2_K": twos, "Q3_K": threes, "Q4_K": nibbles(nil), "Q5_K": fives(0), "Q6_K": sixes, "IQ4_XS": iq4,
	}
	for _, f := range slices.Concat(format.Floats, format.Quantised) {
		all = append(all, weightType{f, of[f.Name]})
	}
	return all
}()

// blockBytes is the size of a block with its scales, over 16 rows.
func (f weightType) blockBytes() int { return f.ScaleBytes() + f.coding.bytes*f.coding.turns }

// scaleOf puts the scales of half h of the block into the weights' registers.
func (t *product) scaleOf(h int) {
	switch t.f.Scale {
	case format.HalfScale:
		t.halves(weight, wBlock, 0)
	case format.BFloatScale:
		t.bfloats(weight, wBlock, 0)
	case format.ByteScale:
		t.headTimes(0, func(v vreg) { t.load(v, true, wBlock, 0) })
	case format.ByteScales:
		t.headTimes(0, func(v vreg) { t.load(v, true, wBlock, 16*h) })
	case format.NibbleScales:
		t.headTimes(0, func(v vreg) {
			t.load(v, true, wBlock, 16*h)
			t.op("VSHL $4, %v.B16, %v.B16", v, v)
			t.op("VUSHR $4, %v.B16, %v.B16", v, v)
		})
	}
}

// halves makes the numbers of 16 halves in v to v+3.
func (t *product) halves(v vreg, at gpr, disp int) {
	t.load(v, true, at, disp)
	t.load(v+2, true, at, disp+16)
	for _, v := range []vreg{v, v + 2} {
		t.two("fcvtl2", v+1, v)
		t.two("fcvtl", v, v)
	}
}

// bfloats makes the numbers of 16 bfloat16 in v to v+3.
func (t *product) bfloats(v vreg, at gpr, disp int) {
	t.load(v, true, at, disp)
	t.load(v+2, true, at, disp+16)
	for _, v := range []vreg{v, v + 2} {
		t.shll16(v+1, v, true)
		t.shll16(v, v, false)
	}
}

// widen makes the numbers of the 16 signed bytes of v in v to v+3.
func (t *product) widen(v vreg) {
	t.two("sxtl2.8h", v+2, v)
	t.two("sxtl.8h", v, v)
	for _, v := range []vreg{v, v + 2} {
		t.two("sxtl2", v+1, v)
		t.two("sxtl", v, v)
	}
	for i := range vreg(4) {
		t.two("scvtf", v+i, v+i)
	}
}

// headTimes makes the products of halves in the header and of 16 signed bytes. Unsigned scales
// and minima of K-quants are under 64.
func (t *product) headTimes(disp int, read func(v vreg)) {
	read(xAt)
	t.widen(xAt)
	t.halves(weight, head, disp)
	for v := range vreg(4) {
		t.three("fmul", weight+v, weight+v, xAt+v)
	}
}

// addMinimum adds the minima times the sums of the block's x, or subtracts them in K-quants. The
// accumulators are free by now.
func (t *product) addMinimum() {
	switch t.f.Minimum {
	case format.HalfMinimum:
		t.sumX(0, 32)
		t.halves(weight, wBlock, 32)
		t.joinMinimum("fmla")
	case format.ByteMinimum:
		t.sumX(0, 32)
		t.headTimes(32, func(v vreg) { t.load(v, true, wBlock, 16) })
		t.joinMinimum("fmls")
	case format.NibbleMinimums:
		for h := range 2 {
			t.sumX(16*h, 16)
			t.headTimes(32, func(v vreg) {
				t.load(v, true, wBlock, 16*h)
				t.op("VUSHR $4, %v.B16, %v.B16", v, v)
			})
			t.joinMinimum("fmls")
		}
	}
}

func (t *product) joinMinimum(name string) {
	for i := range t.rows {
		for v := range 4 {
			t.join(v, i, func(sum vreg) { t.three(name, sum, vreg(i), weight+vreg(v)) })
		}
	}
}

// sumX fills vector i with the sum of n numbers of row i of x, from the block's
// column first on; x is behind the block.
func (t *product) sumX(first, n int) {
	const sums vreg = 8
	for i := range t.rows {
		for j := range n / 4 {
			t.load(sums+vreg(j), true, xFirst+gpr(i), 4*first-128+16*j)
		}
		for width := n / 8; width > 0; width /= 2 {
			for j := range vreg(width) {
				t.three("fadd", sums+j, sums+j, sums+j+vreg(width))
			}
		}
		t.three("faddp", sums, sums, sums)
		t.three("faddp", vreg(i), sums, sums)
	}
}
