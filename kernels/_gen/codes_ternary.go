package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// ternary is how a type of numbers −1, 0 and 1 becomes bytes in AVX2. A block has words of bytes with
// some digits each, and then a half.
type ternary struct {
	words  int
	digits func(*ternaryTile)
}

var ternaries = map[string]ternary{
	"TQ1_0": {13, (*ternaryTile).digitsTQ1_0},
	"TQ2_0": {16, (*ternaryTile).digitsTQ2_0},
}

// ternaryTile is the state of a body. The frame has a vector of 16 rows for each word of a block.
type ternaryTile struct{ frame, dst reg.GPVirtual }

// unpackTernary writes the function that makes bytes of a tile of digits.
func unpackTernary(f format.Format) {
	unpackText(f)
	c := ternaries[f.Name]
	size, halves := 4*c.words+2, 64*c.words
	t := &ternaryTile{frame: GP64(), dst: val("dst")}
	src, step, blocks, ahead := val("src"), val("rowBytes"), val("blocks"), GP64()
	LEAQ(AllocLocal(halves+32+vectorBytes).Offset(vectorBytes-1), t.frame)
	ANDQ(I8(-vectorBytes), t.frame)
	MOVQ(step, ahead)
	SHLQ(U8(4), ahead)
	ADDQ(src, ahead)
	Label("block")
	askAhead(ahead, 16*size)
	row, from, word := GP64(), GP64(), GP64()
	XORQ(row, row)
	MOVQ(src, from)
	Label("row")
	for k := range c.words {
		MOVL(Mem{Base: from, Disp: 4 * k}, word.As32())
		MOVL(word.As32(), Mem{Base: t.frame, Index: row, Scale: 4, Disp: 64 * k})
	}
	MOVWLZX(Mem{Base: from, Disp: size - 2}, word.As32())
	MOVW(word.As16(), Mem{Base: t.frame, Index: row, Scale: 2, Disp: halves})
	ADDQ(step, from)
	INCQ(row)
	CMPQ(row, I8(16))
	JNE(LabelRef("row"))
	scales, left := GP64(), GP64()
	LEAQ(Mem{Base: t.frame, Disp: halves}, scales)
	MOVQ(I32(2), left)
	Label("eight")
	scale := YMM()
	VCVTPH2PS(Mem{Base: scales}, scale)
	for b := range 16 {
		VMOVUPS(scale, Mem{Base: t.dst, Disp: b/2*numbersBytes + b%2*64})
	}
	c.digits(t)
	ADDQ(I8(16), scales)
	ADDQ(I8(vectorBytes), t.frame)
	ADDQ(I8(vectorBytes), t.dst)
	DECQ(left)
	JNZ(LabelRef("eight"))
	SUBQ(I8(2*vectorBytes), t.frame)
	ADDQ(I32(8*numbersBytes-2*vectorBytes), t.dst)
	ADDQ(I32(size), src)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	ret()
}

// word loads word k of eight rows.
func (t *ternaryTile) word(k int) reg.VecVirtual {
	v := YMM()
	VMOVDQU(Mem{Base: t.frame, Disp: 64 * k}, v)
	return v
}

// store writes group g of a block of 32 columns.
func (t *ternaryTile) store(v reg.VecVirtual, block, g int) {
	VMOVDQU(v, Mem{Base: t.dst, Disp: block*numbersBytes + 128 + 64*g})
}

// digitsTQ2_0: four digits of two bits, 32 columns apart.
func (t *ternaryTile) digitsTQ2_0() {
	three, under := YMM(), YMM()
	VMOVDQU(avx2.bytesOf(3), three)
	VMOVDQU(avx2.bytesOf(63), under)
	for k := range 16 {
		v := t.word(k)
		for f := range 4 {
			digits := YMM()
			if f == 0 {
				VPAND(three, v, digits)
			} else {
				VPSRLD(U8(2*f), v, digits)
				VPAND(three, digits, digits)
			}
			VPADDB(under, digits, digits)
			t.store(digits, k/8*4+f, k%8)
		}
	}
}

// digitsTQ1_0: digits of fractions of 256 in base 3, of which 86 is the first that begins with 1,
// and 171 with 2. Five of 32 bytes are 32 columns apart, then five of 16 bytes are 16 apart, and
// four of four bytes follow each other.
func (t *ternaryTile) digitsTQ1_0() {
	one, two, under := YMM(), YMM(), YMM()
	VMOVDQU(avx2.bytesOf(86), one)
	VMOVDQU(avx2.bytesOf(171), two)
	VMOVDQU(avx2.bytesOf(63), under)
	for k := range 13 {
		v := t.word(k)
		for n := range 5 {
			block, g := n, k
			switch {
			case k == 12 && n == 4:
				continue
			case k == 12:
				block, g = 7, 4+n
			case k >= 8:
				block, g = 5+n/2, n%2*4+k-8
			}
			digits, more := YMM(), YMM()
			VPMAXUB(one, v, more)
			VPCMPEQB(v, more, more)
			VPSUBB(more, under, digits)
			VPMAXUB(two, v, more)
			VPCMPEQB(v, more, more)
			VPSUBB(more, digits, digits)
			t.store(digits, block, g)
			VPADDB(v, v, more)
			VPADDB(more, v, v)
		}
	}
}
