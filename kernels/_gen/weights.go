package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// aheadBytes is how far ahead a call asks for what it reads.
const aheadBytes = 8192

// stored is a format with the size of its elements.
type stored struct {
	format.Format
	elementBytes int // of a block's 32 columns, over 16 rows
}

func (f stored) blockBytes() int { return f.ScaleBytes() + f.elementBytes }

// weights is where a product reads weights: one vector of weight rows or two, block by block.
type weights struct {
	g       *isa
	f       stored
	vectors int
	w       reg.GPVirtual // the next block of the first vector
	wNext   reg.GPVirtual // from the first vector's tile to the second's, in AVX-512
	stop    reg.GPVirtual // the end of the first vector's tile, in AVX-512
	head    reg.GPVirtual // the super-block's header
	ahead   reg.GPVirtual // of rounded activations: says what to prefetch
}

// secondTile finds the second vector's tile: the next one, or the first again
// where there is none. cols is the number of columns.
func (t *weights) secondTile(cols reg.GPVirtual) {
	t.wNext = val("rows")
	size, none := GP64(), GP64()
	t.tileBytes(cols, size)
	t.stop = GP64()
	LEAQ(Mem{Base: t.w, Index: size, Scale: 1}, t.stop)
	XORQ(none, none)
	CMPQ(t.wNext, I8(16))
	MOVQ(size, t.wNext)
	CMOVQLE(none, t.wNext)
}

// tileBytes is the size of 16 rows.
func (t *weights) tileBytes(cols, size reg.GPVirtual) {
	MOVQ(cols, size)
	switch {
	case !t.f.Scaled():
		IMUL3Q(U8(t.f.elementBytes/32), size, size)
	case t.f.Super():
		SHRQ(U8(8), size)
		IMUL3Q(U32(t.f.HeaderBytes()+8*t.f.blockBytes()), size, size)
	default:
		SHRQ(U8(5), size)
		IMUL3Q(U32(t.f.blockBytes()), size, size)
	}
}

// weightsAt is the address of vector v, disp bytes on; elem is the size of one element.
func (t *weights) weightsAt(v, disp, elem int) Mem {
	if t.g.wide && v == 1 {
		return Mem{Base: t.w, Index: t.wNext, Scale: 1, Disp: disp}
	}
	return Mem{Base: t.w, Disp: disp + v*t.g.lanes*elem}
}

// walk adds up all whole blocks, or all super-blocks of eight: blocks adds up as many blocks
// as left says. name is for its labels.
func (t *weights) walk(name string, blocks func(name string, left reg.GPVirtual)) {
	left := val("cols")
	if t.f.Super() {
		t.head = GP64()
		SHRQ(U8(8), left)
		Label(name + "_super")
		MOVQ(t.w, t.head)
		t.prefetchHeader()
		ADDQ(I32(t.f.HeaderBytes()), t.w)
		eight := GP64()
		MOVQ(I32(8), eight)
		blocks(name, eight)
		DECQ(left)
		JNZ(LabelRef(name + "_super"))
		return
	}
	SHRQ(U8(5), left)
	JZ(LabelRef(name + "_end"))
	blocks(name, left)
	Label(name + "_end")
}

// ask fetches a line into the second-level cache. The first can wait for few lines at a
// time, too few for the way to memory; from the second the rest is short.
func ask(m Mem) { PREFETCHT1(m) }

// prefetchHeader asks for the line that lies as far ahead as the blocks that are asked for,
// which leave out a line for each header. Where nothing is asked for, it is a line that was
// just read.
func (t *weights) prefetchHeader() {
	far := GP64()
	MOVQ(I32(aheadBytes), far)
	if t.ahead != nil {
		TESTQ(t.ahead, t.ahead)
		CMOVQNE(t.ahead, far)
	}
	ask(Mem{Base: t.w, Index: far, Scale: 1})
	if t.g.wide && t.vectors == 2 {
		ADDQ(t.wNext, far)
		ask(Mem{Base: t.w, Index: far, Scale: 1})
	}
}

// prefetch asks for the block aheadBytes on, which memory delivers by the time it is read.
// Behind a tile's end that is in the next tiles: the next one, or, where two are read side
// by side, each in the one after the other. Past the last tile it asks for lines that nobody
// reads, which does no harm.
func (t *weights) prefetch() {
	if !t.g.wide {
		for at := 0; at < t.f.blockBytes(); at += 64 {
			ask(t.weightsAt(0, aheadBytes+at, 0))
		}
		return
	}
	from, behind := GP64(), GP64()
	LEAQ(Mem{Base: t.w, Disp: aheadBytes}, from)
	LEAQ(Mem{Base: from, Index: t.wNext, Scale: 1}, behind)
	CMPQ(from, t.stop)
	CMOVQGE(behind, from)
	for at := 0; at < t.f.blockBytes(); at += 64 {
		ask(Mem{Base: from, Disp: at})
		if t.vectors == 2 {
			ask(Mem{Base: from, Index: t.wNext, Scale: 1, Disp: at})
		}
	}
}

// prefetchAhead asks for what is read next, as ahead says.
func (t *weights) prefetchAhead(name string) {
	TESTQ(t.ahead, t.ahead)
	JZ(LabelRef(name + "_own"))
	JS(LabelRef(name + "_fetched"))
	for at := 0; at < t.f.blockBytes(); at += 64 {
		ask(Mem{Base: t.w, Index: t.ahead, Scale: 1, Disp: at})
	}
	JMP(LabelRef(name + "_fetched"))
	Label(name + "_own")
	t.prefetch()
	Label(name + "_fetched")
}

// existing selects the weight rows that exist in each of two vectors, rows in all.
func (g *isa) existing(rows reg.GPVirtual) [2]mask {
	first, second := GP64(), GP64()
	lanes := GP64()
	MOVQ(I32(g.lanes), lanes)
	MOVQ(rows, first)
	CMPQ(first, lanes)
	CMOVQGT(lanes, first)
	MOVQ(rows, second)
	SUBQ(first, second)
	return [2]mask{g.firstLanes(first), g.firstLanes(second)}
}
