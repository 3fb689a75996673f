package main

import (
	"fmt"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// narrowCodes is the state of a body that unpacks 16 rows in AVX2. First each row puts words of 32
// columns into the frame: the nibbles of eight columns, that it loads from the codebook by index, and
// what vectors read besides. Vectors of eight rows make bytes of them one turn later, so
// that both kinds of work run at the same time.
type narrowCodes struct {
	*coding
	scaledCodes
	book, step     reg.GPVirtual
	frame, four    reg.GPVirtual     // four is four times block
	put, made      reg.GPVirtual     // in the frame: what is put there, and what was put before
	from, block    reg.GPVirtual     // the row's block, and the number of its 32 columns
	row            int               // its number
	word, index    reg.GPVirtual     // that are made
	numbers, fours reg.VecVirtual    // of nibbles, and bytes of 15
	bits           [2]reg.VecVirtual // of signs, for four columns and the next four
}

// A part of the frame has vectors of 16 words: of four times eight columns, and of three words
// besides. Behind two parts are 16 halves, and the indices of each row's codes where
// these are more than bytes.
const (
	besides      = 4
	narrowPart   = (besides + 3) * 64
	frameHalves  = 2 * narrowPart
	frameIndices = frameHalves + 32
	narrowFrame  = frameIndices + 16*128
)

// A codebook's place for AVX2: 16 bytes, a number for each nibble; and words for codes. Codes of
// four have two words, with their nibbles in the lower and in the upper halves of bytes.
const (
	bookNibbles = bookWords + 2*1024
	nibbleWords = bookNibbles + 64
	upperWords  = nibbleWords + 4*512
)

// narrowIndices makes a row's indices, narrowRows are what a row puts into the frame for 32 columns,
// and narrowScales makes scales and signs of what it put besides.
var (
	narrowIndices = map[string]func(*narrowCodes){
		"IQ1_S": (*narrowCodes).indicesIQ1_S, "IQ1_M": (*narrowCodes).indicesIQ1_M,
		"IQ2_XS": (*narrowCodes).indicesIQ2_XS, "IQ2_S": (*narrowCodes).indicesIQ2_S, "IQ3_S": (*narrowCodes).indicesIQ3_S,
	}
	narrowRows = map[string]func(*narrowCodes){
		"IQ1_S": (*narrowCodes).rowIQ1_S, "IQ1_M": (*narrowCodes).rowIQ1_M,
		"IQ2_XXS": (*narrowCodes).rowIQ2_XXS, "IQ2_XS": (*narrowCodes).rowIQ2_XS, "IQ2_S": (*narrowCodes).rowIQ2_S,
		"IQ3_XXS": (*narrowCodes).rowIQ3_XXS, "IQ3_S": (*narrowCodes).rowIQ3_S,
	}
	narrowScales = map[string]func(*narrowCodes){
		"IQ1_S": (*narrowCodes).scalesIQ1_S, "IQ1_M": (*narrowCodes).scalesIQ1_M,
		"IQ2_XXS": func(t *narrowCodes) { t.topScaleAndSevens(0.25) },
		"IQ2_XS": func(t *narrowCodes) {
			t.scales = t.beside(2)
			t.nibbleScales()
			t.upperSevens(t.beside(0), t.beside(1))
		},
		"IQ2_S": func(t *narrowCodes) {
			t.scales = t.beside(1)
			t.nibbleScales()
			t.signs, t.signsOf = t.beside(0), inOrder
		},
		"IQ3_XXS": func(t *narrowCodes) { t.topScaleAndSevens(0.5) },
		"IQ3_S": func(t *narrowCodes) {
			t.scales = t.beside(1) // of all columns
			by := XMM()
			LEAL(Mem{Base: t.four, Disp: -4}, t.index.As32())
			VMOVD(t.index.As32(), by)
			VPSRLD(by, t.scales, t.scales)
			t.oddScale()
			t.signs, t.signsOf = t.beside(0), inOrder
		},
	}
)

// unpackAllNarrow writes the functions of AVX2.
func unpackAllNarrow() {
	for _, f := range slices.Concat(format.Codes, format.CodesOfAVX2) {
		if _, digits := ternaries[f.Name]; digits {
			unpackTernary(f)
		} else {
			unpackNarrow(f)
		}
	}
}

// unpackNarrow writes the function that makes bytes of a tile of codes.
func unpackNarrow(f format.Format) {
	unpackText(f)
	t := &narrowCodes{coding: codings[f.Name], scaledCodes: scaledCodes{g: avx2, dst: val("dst")}, book: val("book"), step: val("rowBytes")}
	src, ahead, frame := val("src"), GP64(), GP64()
	t.frame, t.four = frame, GP64()
	LEAQ(AllocLocal(narrowFrame+vectorBytes).Offset(vectorBytes-1), frame)
	ANDQ(I8(-vectorBytes), frame)
	MOVQ(t.step, ahead)
	SHLQ(U8(4), ahead)
	ADDQ(src, ahead)
	t.hold()
	Label("block")
	askAhead(ahead, 16*t.blockBytes)
	t.from, t.block, t.word, t.index, t.put, t.made = GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(src, t.from)
	XORQ(t.index, t.index)
	MOVQ(frame, t.put)
	Label("row")
	if f.Name == "IQ1_M" {
		t.halfOfNibbles(48)
	} else {
		MOVWLZX(Mem{Base: t.from}, t.word.As32())
	}
	MOVW(t.word.As16(), Mem{Base: frame, Index: t.index, Scale: 2, Disp: frameHalves})
	if indices := narrowIndices[f.Name]; indices != nil {
		indices(t)
		ADDQ(I32(t.indexBytes()), t.put)
	}
	ADDQ(t.step, t.from)
	INCQ(t.index)
	CMPQ(t.index, I8(16))
	JNE(LabelRef("row"))
	MOVQ(frame, t.put)
	LEAQ(Mem{Base: frame, Disp: narrowPart}, t.made)
	XORQ(t.block, t.block)
	XORQ(t.four, t.four)
	Label("columns")
	CMPQ(t.block, I8(8))
	JE(LabelRef("vectors"))
	MOVQ(src, t.from)
	for t.row = range 16 {
		narrowRows[f.Name](t)
		ADDQ(t.step, t.from)
	}
	TESTQ(t.block, t.block)
	JZ(LabelRef("next"))
	Label("vectors")
	for half := range 2 {
		t.vectors(half, frame, narrowScales[f.Name])
	}
	ADDQ(I32(numbersBytes), t.dst)
	Label("next")
	XCHGQ(t.put, t.made)
	ADDQ(I8(4), t.four)
	INCQ(t.block)
	CMPQ(t.block, I8(8))
	JLE(LabelRef("columns"))
	ADDQ(I32(t.blockBytes), src)
	DECQ(t.left())
	JNZ(LabelRef("block"))
	ret()
}

// left is the parameter that counts the blocks.
func (t *narrowCodes) left() Mem {
	b, err := Param("blocks").Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// hold loads what vectors need.
func (t *narrowCodes) hold() {
	t.numbers, t.fours, t.bits = YMM(), YMM(), [2]reg.VecVirtual{YMM(), YMM()}
	VBROADCASTI128(Mem{Base: t.book, Disp: bookNibbles}, t.numbers)
	VMOVDQU(t.g.bytesOf(15), t.fours)
	VMOVDQU(t.g.bits(0x08040201), t.bits[0])
	VMOVDQU(t.g.bits(0x80402010), t.bits[1])
}

// vectors makes the bytes and scales of 32 columns, of rows 0–7 or of the others.
func (t *narrowCodes) vectors(half int, frame reg.GPVirtual, scales func(*narrowCodes)) {
	t.half, t.scale = half, YMM()
	VCVTPH2PS(Mem{Base: frame, Disp: frameHalves + 16*half}, t.scale)
	scales(t)
	for i := range 4 {
		t.eightColumns(i)
	}
}

// eightColumns makes the bytes of a vector of the frame. A nibble is one more than twice a
// magnitude's number; where the sign is a minus it is one less than that.
func (t *narrowCodes) eightColumns(i int) {
	words, signs := YMM(), YMM()
	VMOVDQU(t.wasPut(i), words)
	by := t.signsOf[i]
	VPSHUFB(ofRow(fmt.Sprintf("byte%d", by), by, by, by, by), t.signs, signs)
	for h, bits := range t.bits {
		nibbles, minus := YMM(), YMM()
		if h == 0 {
			VPAND(t.fours, words, nibbles)
		} else {
			VPSRLD(U8(4), words, nibbles)
			VPAND(t.fours, nibbles, nibbles)
		}
		VPAND(bits, signs, minus)
		VPCMPEQB(bits, minus, minus)
		VPADDB(minus, nibbles, nibbles)
		VPSHUFB(nibbles, t.numbers, nibbles)
		VMOVDQU(nibbles, Mem{Base: t.dst, Disp: 128 + 64*(2*i+h) + vectorBytes*t.half})
	}
}

// wasPut is the address of a vector that the rows put.
func (t *narrowCodes) wasPut(i int) Mem {
	return Mem{Base: t.made, Disp: 64*i + vectorBytes*t.half}
}

// beside reads a vector of what the rows put besides.
func (t *narrowCodes) beside(i int) reg.VecVirtual {
	v := YMM()
	VMOVDQU(t.wasPut(besides+i), v)
	return v
}

// topScaleAndSevens reads four times seven signs with a scale.
func (t *narrowCodes) topScaleAndSevens(by float64) {
	words := t.beside(0)
	t.topScale(words, by)
	t.sevens(words)
}

// read is an address in the row's block, each bytes on for each 32 columns.
func (t *narrowCodes) read(at, each int) Mem {
	m := Mem{Base: t.from, Disp: at}
	if each > 0 {
		m.Index, m.Scale = t.block, uint8(each)
	}
	return m
}

// write puts a word of the row.
func (t *narrowCodes) write(i int) { MOVL(t.word.As32(), Mem{Base: t.put, Disp: 64*i + 4*t.row}) }

// beside writes four bytes of the row, or one.
func (t *narrowCodes) writeBeside(i, at, each int) {
	if each == 1 {
		MOVBLZX(t.read(at, each), t.word.As32())
	} else {
		MOVL(t.read(at, each), t.word.As32())
	}
	t.write(besides + i)
}

// code is the address of a code's word.
func (t *narrowCodes) code(words int) Mem {
	return Mem{Base: t.book, Index: t.index, Scale: 4, Disp: words}
}

func (t *narrowCodes) rowIQ2_XXS() {
	for i := range 4 {
		MOVBLZX(t.read(2+i, 8), t.index.As32())
		MOVL(t.code(nibbleWords), t.word.As32())
		t.write(i)
	}
	t.writeBeside(0, 6, 8)
}

// indexBytes is the size of a row's indices.
func (t *narrowCodes) indexBytes() int { return 2 * 256 / t.columns }

// keepIndices writes 16 of them.
func (t *narrowCodes) keepIndices(i int, indices reg.VecVirtual) {
	VMOVDQU(indices, Mem{Base: t.put, Disp: frameIndices + 32*i})
}

// loadIndex reads code i of the row's 32 columns.
func (t *narrowCodes) loadIndex(i int) {
	MOVWLZX(Mem{Base: t.frame, Index: t.four, Scale: uint8(t.indexBytes() / 32), Disp: frameIndices + t.indexBytes()*t.row + 2*i}, t.index.As32())
}

// indicesIQ2_XS: the lower nine bits of words.
func (t *narrowCodes) indicesIQ2_XS() {
	for i := range 2 {
		v := YMM()
		VMOVDQU(Mem{Base: t.from, Disp: 2 + 32*i}, v)
		VPAND(t.g.bits(511<<16|511), v, v)
		t.keepIndices(i, v)
	}
}

// indicesIQ2_S: bytes, with two upper bits each from another byte for four of them.
func (t *narrowCodes) indicesIQ2_S() {
	const first, second = 0x80008000, 0x80018001
	byFour := table("byFour", first, first, second, second, first|0x00020002, first|0x00020002, second|0x00020002, second|0x00020002)
	for i := range 2 {
		low, high := YMM(), YMM()
		VPMOVZXBW(Mem{Base: t.from, Disp: 2 + 16*i}, low)
		VPBROADCASTD(Mem{Base: t.from, Disp: 66 + 4*i}, high)
		VPSHUFB(byFour, high, high)
		VPMULLW(table("shiftsOfFour", 64<<16|256, 4<<16|16, 64<<16|256, 4<<16|16, 64<<16|256, 4<<16|16, 64<<16|256, 4<<16|16), high, high)
		t.merge(0x03000300, high, low)
		t.keepIndices(i, low)
	}
}

// indicesIQ3_S: bytes, with an upper bit each from another byte for eight of them.
func (t *narrowCodes) indicesIQ3_S() {
	var bits []uint32
	for i := range 8 {
		bits = append(bits, 1<<(2*i)|2<<(2*i+16))
	}
	own := table("bitsOfWords", bits...)
	for i := range 4 {
		low, high := YMM(), YMM()
		VPMOVZXBW(Mem{Base: t.from, Disp: 2 + 16*i}, low)
		VPBROADCASTW(Mem{Base: t.from, Disp: 66 + 2*i}, high)
		VPAND(own, high, high)
		VPCMPEQW(own, high, high)
		t.merge(0x01000100, high, low)
		t.keepIndices(i, low)
	}
}

func (t *narrowCodes) rowIQ2_XS() {
	t.wordsByIndices()
	t.writeBeside(0, 2, 8)
	t.writeBeside(1, 6, 8)
	t.writeBeside(2, 66, 1)
}

func (t *narrowCodes) rowIQ2_S() {
	t.wordsByIndices()
	t.writeBeside(0, 34, 4)
	t.writeBeside(1, 74, 1)
}

// wordsByIndices puts the words of four codes.
func (t *narrowCodes) wordsByIndices() {
	for i := range 4 {
		t.loadIndex(i)
		MOVL(t.code(nibbleWords), t.word.As32())
		t.write(i)
	}
}

func (t *narrowCodes) rowIQ3_XXS() {
	for i := range 4 {
		MOVBLZX(t.read(2+2*i, 8), t.index.As32())
		MOVL(t.code(nibbleWords), t.word.As32())
		MOVBLZX(t.read(3+2*i, 8), t.index.As32())
		ORL(t.code(upperWords), t.word.As32())
		t.write(i)
	}
	t.writeBeside(0, 66, 4)
}

func (t *narrowCodes) rowIQ3_S() {
	for i := range 4 {
		t.loadIndex(2 * i)
		MOVL(t.code(nibbleWords), t.word.As32())
		t.loadIndex(2*i + 1)
		ORL(t.code(upperWords), t.word.As32())
		t.write(i)
	}
	t.writeBeside(0, 74, 4)
	t.writeBeside(1, 106, 0)
}
