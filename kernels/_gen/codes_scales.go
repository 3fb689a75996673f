package main

import (
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// scaledCodes is what a block of 32 columns has beside its codes, of rows that are lanes of a vector.
type scaledCodes struct {
	g       *isa
	dst     reg.GPVirtual
	half    int            // of 16 rows, in AVX2
	scale   reg.VecVirtual // the half at the block's begin
	scales  reg.VecVirtual // bits of it, the next ones lowest
	signs   reg.VecVirtual // a byte for eight columns
	signsOf [4]int         // which byte
}

// everyRow is a constant with the same words in each four rows.
func everyRow(name string, words ...uint32) Mem { return table(name, slices.Repeat(words, 4)...) }

// ofRow is an order of bytes, where a row has the bytes at from of its own word.
func ofRow(name string, from ...int) Mem {
	var words []uint32
	for row := range uint32(4) {
		var w uint32
		for i, b := range from {
			w |= (uint32(b) + 4*row) << (8 * i)
		}
		words = append(words, w)
	}
	return everyRow(name, words...)
}

var inOrder = [4]int{0, 1, 2, 3}

// topScale makes d·(½+s)·by, where s is the upper four bits of words.
func (t *scaledCodes) topScale(words reg.VecVirtual, by float64) {
	s := t.g.vec()
	VPSRLD(U8(28), words, s)
	t.halvesAbove(s, by)
	t.storeScales(s, s)
}

// nibbleScales makes d·(½+s)/4 of the next two nibbles.
func (t *scaledCodes) nibbleScales() {
	first, second := t.g.vec(), t.g.vec()
	t.and(t.g.bits(15), t.scales, first)
	VPSRLD(U8(4), t.scales, second)
	t.and(t.g.bits(15), second, second)
	VPSRLD(U8(8), t.scales, t.scales)
	t.halvesAbove(first, 0.25)
	t.halvesAbove(second, 0.25)
	t.storeScales(first, second)
}

// oddScale makes d·(1+2s) of the next nibble.
func (t *scaledCodes) oddScale() {
	s := t.g.vec()
	t.and(t.g.bits(15), t.scales, s)
	VPSRLD(U8(4), t.scales, t.scales)
	VPADDD(s, s, s)
	VPADDD(t.g.bits(1), s, s)
	VCVTDQ2PS(s, s)
	VMULPS(t.scale, s, s)
	t.storeScales(s, s)
}

// halvesAbove makes d·(½+s)·by of s.
func (t *scaledCodes) halvesAbove(s reg.VecVirtual, by float64) {
	VCVTDQ2PS(s, s)
	VADDPS(t.g.num(0.5), s, s)
	VMULPS(t.scale, s, s)
	VMULPS(t.g.num(by), s, s)
}

func (t *scaledCodes) storeScales(first, second reg.VecVirtual) {
	VMOVUPS(first, Mem{Base: t.dst, Disp: vectorBytes * t.half})
	VMOVUPS(second, Mem{Base: t.dst, Disp: 64 + vectorBytes*t.half})
}

// merge adds the bits of mask, of bits that are not kept.
func (t *scaledCodes) merge(mask uint32, bits, into reg.VecVirtual) {
	if t.g.wide {
		const orMasked = 0xf8 // into | bits & mask
		VPTERNLOGD(U8(orMasked), t.g.bits(mask), bits, into)
		return
	}
	VPAND(t.g.bits(mask), bits, bits)
	VPOR(bits, into, into)
}

// and makes out of the bits of mask.
func (t *scaledCodes) and(mask Mem, bits, out reg.VecVirtual) {
	if t.g.wide {
		VPANDD(mask, bits, out)
	} else {
		VPAND(mask, bits, out)
	}
}

// sevens makes signs of the lower 28 bits of words: seven for eight columns.
func (t *scaledCodes) sevens(words reg.VecVirtual) {
	t.signs, t.signsOf = t.g.vec(), inOrder
	high := t.g.vec()
	VPSLLD(U8(2), words, high)
	t.and(t.g.bits(0x00003fff), words, t.signs)
	t.merge(0x3fff0000, high, t.signs)
	VPSLLD(U8(1), t.signs, high)
	t.and(t.g.bits(0x007f007f), t.signs, t.signs)
	t.merge(0x7f007f00, high, t.signs)
	t.even()
}

// upperSevens makes signs of the upper seven bits of four halves of words.
func (t *scaledCodes) upperSevens(a, b reg.VecVirtual) {
	t.signs, t.signsOf = t.g.vec(), [4]int{0, 2, 1, 3}
	high := t.g.vec()
	VPSRLW(U8(9), a, t.signs)
	VPSRLW(U8(1), b, high)
	t.merge(0x7f007f00, high, t.signs)
	t.even()
}

// even adds an eighth sign to seven, so that the number of minus signs is even.
func (t *scaledCodes) even() {
	parities := t.g.vec()
	t.g.load(everyRow("parities", 0x00808000, 0x80000080, 0x80000080, 0x00808000), nil, parities)
	low, high := t.g.vec(), t.g.vec()
	t.and(t.g.bits(0x0f0f0f0f), t.signs, low)
	VPSRLD(U8(4), t.signs, high)
	t.and(t.g.bits(0x0f0f0f0f), high, high)
	VPSHUFB(low, parities, low)
	VPSHUFB(high, parities, high)
	if t.g.wide {
		const orDifferent = 0xf6 // signs | low ^ high
		VPTERNLOGD(U8(orDifferent), high, low, t.signs)
		return
	}
	VPXOR(high, low, low)
	VPOR(low, t.signs, t.signs)
}
