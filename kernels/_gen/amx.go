package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// amxRows is how many rows of blocks and of weights an AMX tile has.
const amxRows = 16

// Sizes in bytes: of a block's unpacked elements, and of the sums of a tile product.
const (
	amxElements = 512
	amxSums     = amxRows * 64
)

// amxDots is the state of a body whose lower bytes are multiplied by AMX. The elements of
// a block of 32 columns, unpacked, are a tile as they lie: a row for each group, with four
// bytes of each of 16 weight rows. Those of a half are four rows of it.
type amxDots struct {
	dots
	left        reg.GPVirtual     // blocks that are not added up
	now, next   reg.GPVirtual     // in the frame: sums and elements of the block that is added up, and of the one after it
	tile        reg.GPVirtual     // the elements of the first one, if they are not in the frame
	factor, low [2]reg.VecVirtual // its scales and minima
}

// sixteenRows addresses 16 rows: multiples of their distance from the first and the ninth.
type sixteenRows struct {
	ninth reg.GPVirtual
	by    [8]Mem // indices with scales
}

// row is the address of row i, disp bytes on, where the first row is at x.
func (s *sixteenRows) row(x reg.GPVirtual, i, disp int) Mem {
	m := s.by[i%8]
	m.Base, m.Disp = x, disp
	if i >= 8 {
		m.Base = s.ninth
	}
	return m
}

// amxProduct writes the product of 16 rows of blocks with 16 weight rows.
//
// It does what dotMatMul does, to the same bits: the sum of a block, or of a half, is made
// of the same integers, which is exact in any order, and what follows are the same floating
// point operations in the same order. While vectors add up one block, the tiles multiply
// the next one.
func (g *isa) amxProduct(f quantised) {
	textWith(0, "Tiles"+f.Name, "func(dst *float32, dstStride int, w, x *byte, cols, ahead int)",
		"Tiles"+f.Name+" computes dst[i·dstStride+r] for i and r in [0,Rows) from the tile at w and the blocks at x. cols is over 0. It prefetches the same size ahead bytes from w, or nothing if ahead is negative.")
	t := &amxDots{dots: *newDots(g, f, amxRows, 1)}
	t.begin()
	t.stage("first")
	Label("block")
	t.take()
	DECQ(t.left)
	JZ(LabelRef("last"))
	t.stage("then")
	Label("last")
	for i := range t.rows {
		t.addRow(i)
	}
	TESTQ(t.left, t.left)
	JNZ(LabelRef("block"))
	t.end()
}

// inFrame reports whether the elements must be unpacked: whole bytes are a tile already.
func (t *amxDots) inFrame() bool { return t.dots.elements.bytes != amxElements }

// sumBytes is the size of a block's sums.
func (t *amxDots) sumBytes() int { return t.f.ScaleHalves() * amxSums }

// begin finds the places, clears the sums and makes the tiles' shapes.
func (t *amxDots) begin() {
	t.w, t.x, t.step, t.left = val("w"), val("x"), val("cols"), GP64()
	MOVQ(t.step, t.left)
	SHRQ(U8(5), t.left)
	t.findRows()
	size := t.sumBytes() + amxElements
	t.now, t.next = GP64(), GP64()
	LEAQ(AllocLocal(2*size+64).Offset(63), t.now)
	ANDQ(I8(-64), t.now)
	LEAQ(Mem{Base: t.now, Disp: size}, t.next)
	for range t.rows {
		t.sum[0] = append(t.sum[0], zero(t.g.vec()))
	}
	t.hold()
	shapes := GP64()
	LEAQ(amxShapes(t.f.ScaleHalves()), shapes)
	onTiles("LDTILECFG", Mem{Base: shapes})
	if t.f.Super() {
		t.head = GP64()
	}
	t.tile = t.now
	if !t.inFrame() {
		t.tile = GP64()
	}
}

// findRows makes the multiples of the rows' distance; x begins a block before the first.
func (t *amxDots) findRows() {
	ADDQ(t.step, t.step)
	SUBQ(I8(blockBytes), t.x)
	s := &sixteenRows{ninth: GP64()}
	LEAQ(Mem{Base: t.x, Index: t.step, Scale: 8}, s.ninth)
	var odd [4]reg.GPVirtual // 1, 3, 5 and 7 of them
	odd[0] = t.step
	for k := 1; k < 4; k++ {
		odd[k] = GP64()
		LEAQ(Mem{Base: odd[k-1], Index: t.step, Scale: 2}, odd[k])
	}
	for i := range s.by {
		switch {
		case i%2 == 1:
			s.by[i] = Mem{Index: odd[i/2], Scale: 1}
		case i%4 == 2:
			s.by[i] = Mem{Index: odd[i/4], Scale: 2}
		case i == 4:
			s.by[i] = Mem{Index: t.step, Scale: 4}
		}
	}
	t.sixteen = s
}

// The tiles of half h: the sums, the blocks' lower bytes and the elements.
func sumsTile(h int) tmm     { return tmm(3 * h) }
func bytesTile(h int) tmm    { return tmm(3*h + 1) }
func elementsTile(h int) tmm { return tmm(3*h + 2) }

// amxShapes is the operand of LDTILECFG: bytes of a row from byte 16 on, two bytes a tile,
// and rows from byte 48 on.
func amxShapes(halves int) Mem {
	var b [64]byte
	b[0] = 1 // the palette
	shape := func(t tmm, rows, rowBytes int) { b[16+2*t], b[48+t] = byte(rowBytes), byte(rows) }
	for h := range halves {
		shape(sumsTile(h), amxRows, 64)
		shape(bytesTile(h), amxRows, 32/halves)
		shape(elementsTile(h), 8/halves, 64)
	}
	var words []uint32
	for i := 0; i < len(b); i += 4 {
		words = append(words, uint32(b[i])|uint32(b[i+1])<<8|uint32(b[i+2])<<16|uint32(b[i+3])<<24)
	}
	return table([]string{"shapes", "halfShapes"}[halves-1], words...)
}

// stage lets the tiles multiply the block at w. It leaves w behind the block, and its sums and
// elements at next. A block begins behind a header where whole super-blocks are left.
func (t *amxDots) stage(name string) {
	if t.f.Super() {
		TESTQ(U32(7), t.left)
		JNZ(LabelRef(name + "_inside"))
		MOVQ(t.w, t.head)
		ADDQ(I32(t.f.HeaderBytes()), t.w)
		Label(name + "_inside")
	}
	t.prefetchNext(name)
	ADDQ(I32(t.f.blockBytes()), t.w)
	from := Mem{Base: t.w, Disp: -amxElements}
	if t.inFrame() {
		from = Mem{Base: t.next, Disp: t.sumBytes()}
		for g := range 8 {
			VMOVDQU32(t.dots.elements.unpack(&t.dots, group{places: t.dots.elements.places(g)}, 0), from.Offset(64*g))
		}
	}
	from.Index, from.Scale = GP64(), 1
	MOVQ(U32(64), from.Index)
	to := Mem{Base: t.next, Index: from.Index, Scale: 1}
	halves := t.f.ScaleHalves()
	for h := range halves {
		onTiles("TILEZERO", sumsTile(h))
		onTiles("TILELOADD", from.Offset(h*amxElements/2), elementsTile(h))
		onTiles("TILELOADD", Mem{Base: t.x, Index: t.step, Scale: 1, Disp: blockBytes + 16*h}, bytesTile(h))
		onTiles("TDPBSUD", elementsTile(h), bytesTile(h), sumsTile(h))
		onTiles("TILESTORED", sumsTile(h), to.Offset(h*amxSums))
	}
}

// prefetchNext asks for the lines that a later call reads at this block's place, and for a
// header behind it.
func (t *amxDots) prefetchNext(name string) {
	ahead := val("ahead")
	TESTQ(ahead, ahead)
	JS(LabelRef(name + "_fetched"))
	for at := 0; at < t.f.blockBytes()+t.f.HeaderBytes(); at += 64 {
		ask(Mem{Base: t.w, Index: ahead, Scale: 1, Disp: at})
	}
	Label(name + "_fetched")
}

// take swaps now and next: the block that was multiplied last is added up next.
func (t *amxDots) take() {
	for h := range t.f.ScaleHalves() {
		t.factor[h] = t.g.vec()
		t.scaleOf(0, h, t.factor[h])
		if t.f.Minimum != format.NoMinimum {
			t.low[h] = t.minOf(0, h)
		}
	}
	if !t.inFrame() {
		LEAQ(Mem{Base: t.w, Disp: -amxElements}, t.tile)
	}
	XCHGQ(t.now, t.next)
	ADDQ(I32(blockBytes), t.x)
	ADDQ(I32(blockBytes), t.sixteen.ninth)
}

// addRow adds the block to the sums of row i.
func (t *amxDots) addRow(i int) {
	halves := t.f.ScaleHalves()
	index, w := GP64(), t.g.vec()
	MOVL(t.activation(i, blockGroup), index.As32())
	own := Mem{Base: t.tile, Index: index, Scale: 4}
	if t.inFrame() {
		own.Disp = t.sumBytes()
	}
	VMOVDQU32(own, w)
	for h := range halves {
		n := zero(t.g.vec())
		VPDPBUSD_BCST(t.activation(i, topAt(halves, h)), w, n)
		VPSLLD(U8(8), n, n)
		VPADDD(Mem{Base: t.now, Disp: h*amxSums + 64*i}, n, n)
		if t.dots.elements.offset != noOffset {
			less := t.g.vec()
			t.lessOf(halves, h, i, less)
			VPSLLD(U8(t.dots.elements.offset), less, less)
			VPADDD(less, n, n)
		}
		VCVTDQ2PS(n, n)
		VMULPS_BCST(t.activation(i, blockScale), n, n)
		VFMADD231PS(n, t.factor[h], t.sum[0][i])
	}
	if t.f.Minimum == format.NoMinimum {
		return
	}
	for h := range halves {
		t.addLow(t.sumOf(halves, h, i), t.low[h], t.sum[0][i])
	}
}

// end stores the sums and releases the tiles, so that no thread switch saves them.
func (t *amxDots) end() {
	dst, stride := val("dst"), val("dstStride")
	SHLQ(U8(2), stride)
	for i := range t.rows {
		VMOVUPS(t.sum[0][i], Mem{Base: dst})
		if i+1 < t.rows {
			ADDQ(stride, dst)
		}
	}
	onTiles("TILERELEASE")
	ret()
}
