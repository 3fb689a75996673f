package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// coding is how a type whose blocks are codes from tables becomes bytes, in AVX-512. Package
// ref documents the blocks.
type coding struct {
	blockBytes int // of 256 columns
	codes      int // in the table
	columns    int // of a code: 8 or 4
	// begin loads what the four blocks of 32 columns of a half of the block share.
	begin func(t *tileOfCodes, half int)
	// read makes scales, indices and signs of a block of 32 columns.
	read func(t *tileOfCodes)
}

var codings = map[string]*coding{
	"IQ2_XXS": {66, 256, 8, nil, (*tileOfCodes).readIQ2_XXS},
	"IQ2_XS":  {74, 512, 8, (*tileOfCodes).beginIQ2_XS, (*tileOfCodes).readIQ2_XS},
	"IQ2_S":   {82, 1024, 8, (*tileOfCodes).beginIQ2_S, (*tileOfCodes).readIQ2_S},
	"IQ3_XXS": {98, 256, 4, nil, (*tileOfCodes).readIQ3_XXS},
	"IQ3_S":   {110, 512, 4, (*tileOfCodes).beginIQ3_S, (*tileOfCodes).readIQ3_S},

	// These in AVX2 only.
	"IQ1_S": {50, 2048, 8, nil, nil},
	"IQ1_M": {56, 2048, 8, nil, nil},
}

// tileOfCodes is the state of a body that unpacks 16 rows, a lane of a vector each. The frame has
// words of a block: its 16 words from byte 2 on, and then its last 16.
type tileOfCodes struct {
	*coding
	scaledCodes
	src, step, book, frame reg.GPVirtual
	at                     reg.GPVirtual  // atStep times the block of 32 columns
	upper                  reg.VecVirtual // upper bits of indices, the next ones lowest
	held                   heldOfCodes

	index []reg.VecVirtual // of codes, in words: two of a row
	order []int            // index[i] is of the codes order[2i] and order[2i+1]
}

const (
	fromFirst    = 0       // the parts of the frame
	fromLast     = 16 * 64 //
	bookWords    = 64      // where the codes of a codebook begin
	atStep       = 16      // what at moves by for 32 columns
	numbersBytes = 10 * 64 // of 32 columns of 16 rows, with scales
)

// unpackAllCodes writes the functions of AVX-512.
func unpackAllCodes() {
	for _, f := range format.Codes {
		unpackCodes(f)
	}
}

// unpackCodes writes the function that makes bytes of a tile of codes.
func unpackCodes(f format.Format) {
	unpackText(f)
	t := &tileOfCodes{coding: codings[f.Name], scaledCodes: scaledCodes{g: avx512, dst: val("dst")}, src: val("src"), step: val("rowBytes"), book: val("book"), frame: GP64(), at: GP64()}
	blocks, ahead := val("blocks"), GP64()
	LEAQ(AllocLocal(2*16*64+64).Offset(63), t.frame)
	ANDQ(I8(-64), t.frame)
	MOVQ(t.step, ahead)
	SHLQ(U8(4), ahead)
	ADDQ(t.src, ahead)
	Label("block")
	t.loadRows()
	t.hold()
	XORQ(t.at, t.at)
	for half := range 2 {
		if t.begin != nil {
			t.begin(t, half)
		}
		name := []string{"first", "second"}[half]
		Label(name)
		askAhead(ahead, 2*t.blockBytes)
		t.read(t)
		t.unpack()
		ADDQ(I32(numbersBytes), t.dst)
		ADDQ(I8(atStep), t.at)
		CMPQ(t.at, I32(4*atStep*(half+1)))
		JNE(LabelRef(name))
	}
	ADDQ(I32(t.blockBytes), t.src)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	ret()
}

// unpackText begins a function that unpacks.
func unpackText(f format.Format) {
	textWith(0, "Unpack"+f.Name, "func(dst, src *byte, rowBytes, blocks int, book *byte)",
		"Unpack"+f.Name+" makes bytes with scales of 16 rows at src, rowBytes apart, of that many blocks of 256 columns, with the codebook at book. blocks is over 0. It prefetches the next 16 rows.")
}

// askAhead asks for some of the next 16 rows, and moves on. Where it asks for much at once, the block's
// own loads wait.
func askAhead(ahead reg.GPVirtual, bytes int) {
	for at := 0; at < bytes; at += 64 {
		ask(Mem{Base: ahead, Disp: at})
	}
	ADDQ(I32(bytes), ahead)
}

// load reads a vector with a word of each row: word first of a part of the frame, and so many on
// for each block of 32 columns.
func (t *tileOfCodes) load(part, first, each int) reg.VecVirtual {
	v, m := ZMM(), Mem{Base: t.frame, Disp: part + 64*first}
	if each > 0 {
		m.Index, m.Scale = t.at, uint8(64/atStep*each)
	}
	VMOVDQU32(m, v)
	return v
}

// readIQ2_XXS: four bytes of codes, and four times seven signs with a scale.
func (t *tileOfCodes) readIQ2_XXS() {
	codes, signs := t.load(fromFirst, 0, 2), t.load(fromFirst, 1, 2)
	t.topScale(signs, 0.25)
	t.splitBytes(codes)
	t.sevens(signs)
}

// beginIQ2_XS loads four bytes of scales.
func (t *tileOfCodes) beginIQ2_XS(half int) { t.scales = t.load(fromLast, 14+half, 0) }

// readIQ2_XS: four times nine bits of a code and seven signs.
func (t *tileOfCodes) readIQ2_XS() {
	a, b := t.load(fromFirst, 0, 2), t.load(fromFirst, 1, 2)
	t.nibbleScales()
	t.index, t.order = []reg.VecVirtual{a, b}, []int{0, 1, 2, 3}
	t.upperSevens(a, b)
}

// beginIQ2_S loads four bytes of upper bits of codes and four bytes of scales.
func (t *tileOfCodes) beginIQ2_S(half int) {
	t.upper, t.scales = t.load(fromLast, 12+half, 0), t.load(fromLast, 14+half, 0)
}

// readIQ2_S: four bytes of codes, with two upper bits each, and four bytes of signs.
func (t *tileOfCodes) readIQ2_S() {
	codes := t.load(fromFirst, 0, 1)
	t.signs, t.signsOf = t.load(fromFirst, 8, 1), inOrder
	t.nibbleScales()
	t.splitBytes(codes)
	t.addUpper(0x03000300, [][2]int{{0, 4}, {2, 6}})
}

// readIQ3_XXS: eight bytes of codes, and elsewhere four times seven signs with a scale.
func (t *tileOfCodes) readIQ3_XXS() {
	a, b, signs := t.load(fromFirst, 0, 2), t.load(fromFirst, 1, 2), t.load(fromLast, 8, 1)
	t.topScale(signs, 0.5)
	t.splitBytes(a, b)
	t.sevens(signs)
}

// beginIQ3_S loads four bytes of upper bits of codes, and once the nibbles of all scales.
func (t *tileOfCodes) beginIQ3_S(half int) {
	t.upper = t.load(fromLast, 5+half, 0)
	if half == 0 {
		t.scales = t.load(fromLast, 15, 0)
	}
}

// readIQ3_S: eight bytes of codes, with an upper bit each, and four bytes of signs.
func (t *tileOfCodes) readIQ3_S() {
	a, b := t.load(fromFirst, 0, 2), t.load(fromFirst, 1, 2)
	t.signs, t.signsOf = t.load(fromLast, 7, 1), inOrder
	t.oddScale()
	t.splitBytes(a, b)
	t.addUpper(0x01000100, [][2]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}})
}
