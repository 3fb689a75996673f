package main

import (
	"fmt"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// heldTables is how many vectors of a codes' table stay in registers.
const heldTables = 8

// heldOfCodes is what unpacking needs in registers.
type heldOfCodes struct {
	table   []reg.VecVirtual
	numbers reg.VecVirtual    // bytes of the magnitudes
	twice   reg.VecVirtual    // twice the byte of 0
	shifts  []reg.VecVirtual  // of a code's word, to each group of four columns
	signs   [2]reg.VecVirtual // which bit of a sign's byte, in the groups of even and odd numbers
	words   [2]reg.VecVirtual // orders of bytes: a row's first word, twice, and its second
	field   reg.VecVirtual    // a magnitude's bits
}

// everyRow is a constant with the same words in each four rows.
func everyRow(name string, words ...uint32) Mem { return table(name, slices.Repeat(words, 4)...) }

// everyWord is one with the same word in each row.
func everyWord(word uint32) Mem { return avx512.bits(word) }

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

func loaded(m Mem) reg.VecVirtual {
	v := ZMM()
	VMOVDQU32(m, v)
	return v
}

// hold loads the block's scale and what unpacking needs. A code's word has column j in field
// j/2 of byte j%2.
func (t *tileOfCodes) hold() {
	h := &t.held
	h.table = nil
	for i := range heldTables {
		h.table = append(h.table, loaded(t.tableAt(i)))
	}
	h.numbers = ZMM()
	VBROADCASTI32X4(Mem{Base: t.book}, h.numbers)
	h.twice = loaded(everyWord(0x80808080))
	h.words = [2]reg.VecVirtual{loaded(ofRow("firstWord", 0, 1, 0, 1)), loaded(ofRow("secondWord", 2, 3, 2, 3))}
	h.signs = [2]reg.VecVirtual{loaded(everyWord(0x08040201)), loaded(everyWord(0x80402010))}
	if t.columns == 8 {
		h.field = loaded(everyWord(0x03030303))
		h.shifts = []reg.VecVirtual{loaded(everyWord(2 << 16)), loaded(everyWord(6<<16 | 4))}
	} else {
		h.field = loaded(everyWord(0x07070707))
		h.shifts = []reg.VecVirtual{loaded(everyWord(4 << 16))}
	}
	rows, ones, k := ZMM(), GP32(), K()
	VPBROADCASTD(t.step.As32(), rows)
	VPMULLD(table("rows", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), rows, rows)
	MOVL(I32(-1), ones)
	KMOVW(ones, k)
	t.scale = zero(ZMM())
	VPGATHERDD(Mem{Base: t.src, Index: rows, Scale: 1}, k, t.scale)
	VPMOVDW(t.scale, t.scale.AsY())
	VCVTPH2PS(t.scale.AsY(), t.scale)
}

func (t *tileOfCodes) tableAt(i int) Mem { return Mem{Base: t.book, Disp: bookWords + 64*i} }

// loadRows puts the words of the rows into the frame, a vector for each.
func (t *tileOfCodes) loadRows() {
	for _, part := range []struct{ from, to int }{{2, fromFirst}, {t.blockBytes - 64, fromLast}} {
		if part.to == fromFirst || part.from > 2 {
			t.transpose(part.from, part.to)
		}
	}
}

// transpose loads 16 words of each row and stores a vector for each word. It exchanges words, then
// pairs of them, and then fours.
func (t *tileOfCodes) transpose(from, to int) {
	var by [16]reg.VecVirtual // of four rows, by four: words i, 4+i, 8+i and 12+i
	row, third := GP64(), GP64()
	LEAQ(Mem{Base: t.step, Index: t.step, Scale: 2}, third)
	LEAQ(Mem{Base: t.src, Disp: from}, row)
	for four := range 4 {
		var r, p [4]reg.VecVirtual
		for i, m := range []Mem{{Base: row}, {Base: row, Index: t.step, Scale: 1}, {Base: row, Index: t.step, Scale: 2}, {Base: row, Index: third, Scale: 1}} {
			r[i] = loaded(m)
		}
		LEAQ(Mem{Base: row, Index: t.step, Scale: 4}, row)
		for i := range p {
			p[i], by[4*four+i] = ZMM(), ZMM()
		}
		VPUNPCKLDQ(r[1], r[0], p[0])
		VPUNPCKHDQ(r[1], r[0], p[1])
		VPUNPCKLDQ(r[3], r[2], p[2])
		VPUNPCKHDQ(r[3], r[2], p[3])
		VPUNPCKLQDQ(p[2], p[0], by[4*four])
		VPUNPCKHQDQ(p[2], p[0], by[4*four+1])
		VPUNPCKLQDQ(p[3], p[1], by[4*four+2])
		VPUNPCKHQDQ(p[3], p[1], by[4*four+3])
	}
	for i := range 4 {
		pairs := [2][2]reg.VecVirtual{} // of the words i and 4+i, and of 8+i and 12+i
		for j := range 2 {
			for h, order := range []uint8{0x44, 0xee} {
				pairs[h][j] = ZMM()
				VSHUFI32X4(U8(order), by[8*j+4+i], by[8*j+i], pairs[h][j])
			}
		}
		for h, p := range pairs {
			for k, order := range []uint8{0x88, 0xdd} {
				out := ZMM()
				VSHUFI32X4(U8(order), p[1], p[0], out)
				VMOVDQA32(out, Mem{Base: t.frame, Disp: to + 64*(8*h+4*k+i)})
			}
		}
	}
}

// topScale makes d·(½+s)·by, where s is the upper four bits of words.
func (t *tileOfCodes) topScale(words reg.VecVirtual, by float64) {
	s := ZMM()
	VPSRLD(U8(28), words, s)
	t.halvesAbove(s, by)
	t.storeScales(s, s)
}

// nibbleScales makes d·(½+s)/4 of the next two nibbles.
func (t *tileOfCodes) nibbleScales() {
	first, second := ZMM(), ZMM()
	VPANDD(everyWord(15), t.scales, first)
	VPSRLD(U8(4), t.scales, second)
	VPANDD(everyWord(15), second, second)
	VPSRLD(U8(8), t.scales, t.scales)
	t.halvesAbove(first, 0.25)
	t.halvesAbove(second, 0.25)
	t.storeScales(first, second)
}

// halvesAbove makes d·(½+s)·by of s.
func (t *tileOfCodes) halvesAbove(s reg.VecVirtual, by float64) {
	VCVTDQ2PS(s, s)
	VADDPS(avx512.num(0.5), s, s)
	VMULPS(t.scale, s, s)
	VMULPS(avx512.num(by), s, s)
}

func (t *tileOfCodes) storeScales(first, second reg.VecVirtual) {
	VMOVUPS(first, Mem{Base: t.dst})
	VMOVUPS(second, Mem{Base: t.dst, Disp: 64})
}

// splitBytes makes the indices of four codes of a byte each in a word.
func (t *tileOfCodes) splitBytes(all ...reg.VecVirtual) {
	t.index, t.order = nil, nil
	for i, bytes := range all {
		even, odd := ZMM(), ZMM()
		VPANDD(everyWord(0x00ff00ff), bytes, even)
		VPSRLW(U8(8), bytes, odd)
		t.index = append(t.index, even, odd)
		t.order = append(t.order, 4*i, 4*i+2, 4*i+1, 4*i+3)
	}
}

// addUpper adds bits of the next byte of upper to the indices: those of mask, after a shift to the
// right for the code in each half of a row's word.
func (t *tileOfCodes) addUpper(mask uint32, shifts [][2]int) {
	bits := ZMM()
	VPSHUFB(everyRow("nextByte", 0x00800080, 0x04800480, 0x08800880, 0x0c800c80), t.upper, bits)
	VPSRLD(U8(8), t.upper, t.upper)
	for i, by := range shifts {
		own := ZMM()
		VPSRLVW(everyWord(uint32(by[0]|by[1]<<16)), bits, own)
		merge(mask, own, t.index[i])
	}
}

// merge adds the bits of mask.
func merge(mask uint32, bits, into reg.VecVirtual) {
	const orMasked = 0xf8 // into | bits & mask
	VPTERNLOGD(U8(orMasked), everyWord(mask), bits, into)
}

// sevens makes signs of the lower 28 bits of words: seven for eight columns.
func (t *tileOfCodes) sevens(words reg.VecVirtual) {
	t.signs, t.signsOf = ZMM(), inOrder
	high := ZMM()
	VPSLLD(U8(2), words, high)
	VPANDD(everyWord(0x00003fff), words, t.signs)
	merge(0x3fff0000, high, t.signs)
	VPSLLD(U8(1), t.signs, high)
	VPANDD(everyWord(0x007f007f), t.signs, t.signs)
	merge(0x7f007f00, high, t.signs)
	t.even()
}

// even adds an eighth sign to seven, so that the number of minus signs is even.
func (t *tileOfCodes) even() {
	parities := ZMM()
	VMOVDQU32(everyRow("parities", 0x00808000, 0x80000080, 0x80000080, 0x00808000), parities)
	low, high := ZMM(), ZMM()
	VPANDD(everyWord(0x0f0f0f0f), t.signs, low)
	VPSRLD(U8(4), t.signs, high)
	VPANDD(everyWord(0x0f0f0f0f), high, high)
	VPSHUFB(low, parities, low)
	VPSHUFB(high, parities, high)
	const orDifferent = 0xf6 // signs | low ^ high
	VPTERNLOGD(U8(orDifferent), high, low, t.signs)
}

// find looks up 32 codes of a table's vectors from the first on, which are a power of two: words
// of two vectors by an instruction, and the upper bits of the indices choose among these.
func (t *tileOfCodes) find(index reg.VecVirtual, by map[int]reg.OpmaskVirtual, first, vectors int) reg.VecVirtual {
	if vectors == 2 {
		out := ZMM()
		VMOVDQA32(index, out)
		if first < len(t.held.table) {
			VPERMI2W(t.held.table[first+1], t.held.table[first], out)
		} else {
			VPERMI2W(t.tableAt(first+1), loaded(t.tableAt(first)), out)
		}
		return out
	}
	half := vectors / 2
	low, high := t.find(index, by, first, half), t.find(index, by, first+half, half)
	VMOVDQU16(high, by[half*32], low)
	return low
}

// unpack looks up the codes and writes their numbers: 64 and more, or less by as much.
func (t *tileOfCodes) unpack() {
	for i, index := range t.index {
		by := map[int]reg.OpmaskVirtual{}
		for bit := 64; bit < t.codes; bit *= 2 {
			by[bit] = K()
			VPTESTMW(everyWord(uint32(bit|bit<<16)), index, by[bit])
		}
		words := t.find(index, by, 0, t.codes/32)
		for half := range 2 {
			t.write(t.order[2*i+half], half, words)
		}
	}
}

// write writes the columns of a code, of whose words half is the row's.
func (t *tileOfCodes) write(code, half int, words reg.VecVirtual) {
	h := &t.held
	both, signs := ZMM(), ZMM()
	VPSHUFB(h.words[half], words, both)
	sign := t.signsOf[code*t.columns/8]
	VPSHUFB(ofRow(fmt.Sprintf("byte%d", sign), sign, sign, sign, sign), t.signs, signs)
	for i, shift := range h.shifts {
		g, bytes, k := code*t.columns/4+i, ZMM(), K()
		VPSRLVW(shift, both, bytes)
		VPANDD(h.field, bytes, bytes)
		VPSHUFB(bytes, h.numbers, bytes)
		VPTESTMB(h.signs[g%2], signs, k)
		VPSUBB(bytes, h.twice, k, bytes)
		VMOVDQU32(bytes, Mem{Base: t.dst, Disp: 128 + 64*g})
	}
}
