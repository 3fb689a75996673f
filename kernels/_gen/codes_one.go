package main

import (
	"fmt"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// This file has the types IQ1 in AVX2. Their numbers are eight times ref's, so that δ is 1 or −1,
// which has the place of a sign: a byte of signs is alike for all eight columns of a code.

// halfOfNibbles makes a half of the upper nibbles of four words.
func (t *narrowCodes) halfOfNibbles(at int) {
	nibble := GP64()
	for i := range 4 {
		MOVBLZX(Mem{Base: t.from, Disp: at + 2*i + 1}, nibble.As32())
		SHRL(U8(4), nibble.As32())
		if i == 0 {
			MOVL(nibble.As32(), t.word.As32())
			continue
		}
		SHLL(U8(4*i), nibble.As32())
		ORL(nibble.As32(), t.word.As32())
	}
}

// indicesOfWords: bytes, with three upper bits each, which begin each bits after the code's before,
// from a word for four of them.
func (t *narrowCodes) indicesOfWords(low, words, each int) {
	byWord := table("byWord", 0x01000100, 0x01000100, 0x03020302, 0x03020302, 0x05040504, 0x05040504, 0x07060706, 0x07060706)
	up := slices.Repeat([]uint32{256>>each<<16 | 256, 256 >> (2 * each)}, 4)
	for i := range 2 {
		v, high, last := YMM(), YMM(), YMM()
		VPMOVZXBW(Mem{Base: t.from, Disp: low + 16*i}, v)
		VPBROADCASTQ(Mem{Base: t.from, Disp: words + 8*i}, high)
		VPSHUFB(byWord, high, high)
		VPSRLW(U8(3*each-8), high, last)
		VPAND(table("lastOfFour", 0, 0x07000000, 0, 0x07000000, 0, 0x07000000, 0, 0x07000000), last, last)
		VPOR(last, v, v)
		VPMULLW(table(fmt.Sprintf("upBy%d", each), up...), high, high)
		t.merge(0x07000700, high, v)
		t.keepIndices(i, v)
	}
}

func (t *narrowCodes) indicesIQ1_S() { t.indicesOfWords(2, 34, 3) }
func (t *narrowCodes) indicesIQ1_M() { t.indicesOfWords(0, 32, 4) }

func (t *narrowCodes) rowIQ1_S() {
	t.wordsByIndices()
	MOVWLZX(t.read(34, 2), t.word.As32())
	t.write(besides)
}

// rowIQ1_M: a word has the scales of two blocks of 32 columns.
func (t *narrowCodes) rowIQ1_M() {
	t.wordsByIndices()
	MOVWLZX(t.read(32, 2), t.word.As32())
	t.write(besides)
	MOVQ(t.block, t.index)
	ANDQ(I8(-2), t.index)
	MOVWLZX(Mem{Base: t.from, Index: t.index, Scale: 1, Disp: 48}, t.word.As32())
	t.write(besides + 1)
}

// scalesIQ1_S: bit 15 of a word is the sign of δ, and bits 12–14 are a scale.
func (t *narrowCodes) scalesIQ1_S() {
	words, s := t.beside(0), YMM()
	VPSRLD(U8(12), words, s)
	t.oddEighths(s)
	t.storeScales(s, s)
	t.signs, t.signsOf = words, inOrder
	VPSLLD(U8(16), words, words)
	VPSRAD(U8(31), words, words)
}

// scalesIQ1_M: bits 3, 7, 11 and 15 of a word are signs of δ, and three bits and the next three of
// another are scales, which for odd blocks are six bits further up.
func (t *narrowCodes) scalesIQ1_M() {
	first, second, by := t.beside(1), YMM(), XMM()
	MOVL(t.block.As32(), t.index.As32())
	DECL(t.index.As32())
	ANDL(I8(1), t.index.As32())
	IMUL3L(I8(6), t.index.As32(), t.index.As32())
	VMOVD(t.index.As32(), by)
	VPSRLD(by, first, first)
	VPSRLD(U8(3), first, second)
	t.oddEighths(first)
	t.oddEighths(second)
	t.storeScales(first, second)
	t.signs, t.signsOf = YMM(), inOrder
	deltas := t.g.bits(0x80088008)
	VPSHUFB(ofRow("twice", 0, 0, 1, 1), t.beside(0), t.signs)
	VPAND(deltas, t.signs, t.signs)
	VPCMPEQB(deltas, t.signs, t.signs)
}

// oddEighths makes d·(1+2s)/8 of the lower three bits.
func (t *narrowCodes) oddEighths(s reg.VecVirtual) {
	VPAND(t.g.bits(7), s, s)
	VPADDD(s, s, s)
	VPADDD(t.g.bits(1), s, s)
	VCVTDQ2PS(s, s)
	VMULPS(t.scale, s, s)
	VMULPS(t.g.num(0.125), s, s)
}
