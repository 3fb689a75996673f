package main

import (
	"fmt"

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
	h.twice = loaded(avx512.bits(0x80808080))
	h.words = [2]reg.VecVirtual{loaded(ofRow("firstWord", 0, 1, 0, 1)), loaded(ofRow("secondWord", 2, 3, 2, 3))}
	h.signs = [2]reg.VecVirtual{loaded(avx512.bits(0x08040201)), loaded(avx512.bits(0x80402010))}
	if t.columns == 8 {
		h.field = loaded(avx512.bits(0x03030303))
		h.shifts = []reg.VecVirtual{loaded(avx512.bits(2 << 16)), loaded(avx512.bits(6<<16 | 4))}
	} else {
		h.field = loaded(avx512.bits(0x07070707))
		h.shifts = []reg.VecVirtual{loaded(avx512.bits(4 << 16))}
	}
	t.loadScale()
}

// loadScale reads the halves of 16 rows.
func (t *tileOfCodes) loadScale() {
	row := GP64()
	MOVQ(t.src, row)
	var eight [2]reg.VecVirtual
	for half := range eight {
		eight[half] = XMM()
		VPXORD(eight[half], eight[half], eight[half])
		for i := range 8 {
			VPINSRW(U8(i), Mem{Base: row}, eight[half], eight[half])
			ADDQ(t.step, row)
		}
	}
	t.scale = ZMM()
	VINSERTI32X4(U8(1), eight[1], eight[0].AsY(), eight[0].AsY())
	VCVTPH2PS(eight[0].AsY(), t.scale)
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
// pairs of them, and then fours. It asks for the end of the same words of the next block, whose begin
// is near: from the second-level cache they would come too late.
func (t *tileOfCodes) transpose(from, to int) {
	var by [16]reg.VecVirtual // of four rows, by four: words i, 4+i, 8+i and 12+i
	row, third := GP64(), GP64()
	LEAQ(Mem{Base: t.step, Index: t.step, Scale: 2}, third)
	LEAQ(Mem{Base: t.src, Disp: from}, row)
	for four := range 4 {
		var r, p [4]reg.VecVirtual
		for i, m := range []Mem{{Base: row}, {Base: row, Index: t.step, Scale: 1}, {Base: row, Index: t.step, Scale: 2}, {Base: row, Index: third, Scale: 1}} {
			r[i] = loaded(m)
			PREFETCHT0(m.Offset(t.blockBytes + 63))
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

// splitBytes makes the indices of four codes of a byte each in a word.
func (t *tileOfCodes) splitBytes(all ...reg.VecVirtual) {
	t.index, t.order = nil, nil
	for i, bytes := range all {
		even, odd := ZMM(), ZMM()
		VPANDD(avx512.bits(0x00ff00ff), bytes, even)
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
		VPSRLVW(avx512.bits(uint32(by[0]|by[1]<<16)), bits, own)
		t.merge(mask, own, t.index[i])
	}
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
			VPTESTMW(avx512.bits(uint32(bit|bit<<16)), index, by[bit])
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
