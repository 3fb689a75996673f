package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pairDots is the state of a MatMul body on rounded activations in AVX2, whose integer
// product adds pairs only, in 16 bits. Registers hold a block's elements of one vector
// of weight rows while the rows of x pass by; the frame holds them too, for the group
// that each row looks up, and the sums.
type pairDots struct {
	tile
	first     reg.GPVirtual // row 0 of x; tile.x is the row that passes by
	n         reg.GPVirtual
	frame     reg.GPVirtual
	sum       reg.GPVirtual // the row's, of the first vector
	ones      reg.VecVirtual
	elements  [8]reg.VecVirtual // of each group, without a sign
	factors   [2]reg.VecVirtual // of each half, or one
	lows      [2]reg.VecVirtual
	signBytes bool // elements have signs, which are in the frame
}

const (
	pairRows   = 6      // of x in one call
	vectorSize = 32     // bytes
	frameSums  = 8 * 32 // where the sums lie in the frame, behind eight groups' bytes
)

// pairMatMul writes the same product as dotMatMul, to the same bits: integer sums are
// exact in any order, and the floating point operations and their order are the same.
func (g *isa) pairMatMul(f format) {
	dotText(f)
	t := &pairDots{tile: tile{g: g, f: f, rows: 1}, signBytes: f.bytes.chain() == 0}
	t.begin()
	t.walk(t.blocks)
	t.end()
	ret()
}

// chain is how many groups' pairs can be added in 16 bits; none where not even one
// fits without a sign.
func (c *byteCoding) chain() int { return 32767 / (2 * 128 * c.max) }

// begin aligns the frame and clears the sums.
func (t *pairDots) begin() {
	t.w, t.first, t.row, t.n, t.ahead = val("w"), val("x"), val("cols"), val("n"), val("ahead")
	t.x, t.sum, t.frame, t.ones = GP64(), GP64(), GP64(), YMM()
	SHLQ(U8(1), t.row)
	LEAQ(AllocLocal(frameSums+2*vectorSize*pairRows+vectorSize).Offset(vectorSize-1), t.frame)
	ANDQ(I8(-vectorSize), t.frame)
	none := zero(YMM())
	for i := range 2 * pairRows {
		VMOVUPS(none, Mem{Base: t.frame, Disp: frameSums + vectorSize*i})
	}
	VMOVDQU(t.g.bits(0x00010001), t.ones)
}

// blocks adds up that many blocks of 32 columns.
func (t *pairDots) blocks(name string, left reg.GPVirtual) {
	Label(name)
	t.prefetchAhead(name)
	ADDQ(I32(t.f.blockBytes()), t.w)
	for v := range 2 {
		t.unpack(v)
		for h := range t.f.scaleHalves() {
			t.factors[h] = YMM()
			t.scaleOf(v, h, t.factors[h])
			if t.f.min != noMin {
				t.lows[h] = t.minOf(v, h)
			}
		}
		t.eachRow(name+"_rows"+string(rune('0'+v)), func() { t.addBlock(v) })
	}
	ADDQ(I32(blockBytes), t.first)
	DECQ(left)
	JNZ(LabelRef(name))
}

// eachRow runs do once for each row of x.
func (t *pairDots) eachRow(name string, do func()) {
	left := GP64()
	MOVQ(t.n, left)
	MOVQ(t.first, t.x)
	LEAQ(Mem{Base: t.frame, Disp: frameSums}, t.sum)
	Label(name)
	do()
	ADDQ(t.row, t.x)
	ADDQ(I32(2*vectorSize), t.sum)
	DECQ(left)
	JNZ(LabelRef(name))
}

// unpack makes the bytes of vector v's eight groups.
func (t *pairDots) unpack(v int) {
	c := t.f.bytes
	for g := range t.elements {
		p, out := c.places(g), YMM()
		VMOVDQU(t.weights(v, p[lowAt]-c.bytes, 4), out)
		if p[lowBy] > 0 {
			VPSRLD(U8(p[lowBy]), out, out)
		}
		if len(c.held) > 0 {
			VPAND(t.g.bytesOf(c.held[0]), out, out)
		}
		switch {
		case c.table != nil:
			t.lookUp(c, out)
		case c.plane:
			t.addBit(v, p[highAt]-c.bytes, c.held[1], out)
		case len(c.held) > 1:
			t.addUpper(t.weights(v, p[highAt]-c.bytes, 4), p[highBy], c.held[1], out)
		case t.signBytes:
			VPXOR(t.g.bytesOf(1<<c.offset), out, out)
		}
		VMOVDQU(out, Mem{Base: t.frame, Disp: vectorSize * g})
		if t.signBytes {
			VPABSB(out, out)
		}
		t.elements[g] = out
	}
}

// lookUp replaces nibbles by numbers of the table, above their offset if they have no sign.
func (t *pairDots) lookUp(c *byteCoding, nibbles reg.VecVirtual) {
	numbers, table := c.table, YMM()
	if !t.signBytes {
		numbers = c.above()
	}
	VBROADCASTI128(byteTable(numbers), table)
	VPSHUFB(nibbles, table, nibbles)
}

// addBit adds worth to the bytes whose bits in the plane at disp are set.
func (t *pairDots) addBit(v, disp int, worth byte, out reg.VecVirtual) {
	set := YMM()
	VPBROADCASTD(Mem{Base: t.w, Disp: disp + 4*v}, set)
	spread := table("spread", 0, 0, 0x01010101, 0x01010101, 0x02020202, 0x02020202, 0x03030303, 0x03030303)
	eight := []uint32{0x08040201, 0x80402010}
	bits := table("eight", eight[0], eight[1], eight[0], eight[1], eight[0], eight[1], eight[0], eight[1])
	VPSHUFB(spread, set, set)
	VPAND(bits, set, set)
	VPCMPEQB(bits, set, set)
	VPAND(t.g.bytesOf(worth), set, set)
	VPOR(set, out, out)
}

// addUpper adds the bits of mask in the bytes at m, rotated left.
func (t *pairDots) addUpper(m Mem, rotated int, mask byte, out reg.VecVirtual) {
	high := YMM()
	VMOVDQU(m, high)
	switch {
	case rotated >= 16:
		VPSRLD(U8(32-rotated), high, high)
	case rotated > 0:
		VPSLLD(U8(rotated), high, high)
	}
	VPAND(t.g.bytesOf(mask), high, high)
	VPOR(high, out, out)
}

// addBlock adds a block's products of the row at x to its sum.
func (t *pairDots) addBlock(v int) {
	halves, sum := t.f.scaleHalves(), Mem{Base: t.sum, Disp: vectorSize * v}
	group, scale := GP64(), YMM()
	MOVL(t.activation(0, blockGroup), group.As32())
	var out reg.VecVirtual
	for h := range halves {
		n := t.groups(halves, h)
		t.addTop(halves, h, group, n)
		t.takeOffset(halves, h, n)
		VCVTDQ2PS(n, n)
		VBROADCASTSS(t.activation(0, blockScale), scale)
		VMULPS(scale, n, n)
		if h == 0 {
			VFMADD213PS(sum, t.factors[h], n)
			out = n
		} else {
			VFMADD231PS(n, t.factors[h], out)
		}
	}
	for h := range halves {
		switch t.f.min {
		case noMin:
		case halfMin:
			VFMADD231PS(t.sumOf(halves, h), t.lows[h], out)
		default:
			VFNMADD231PS(t.sumOf(halves, h), t.lows[h], out)
		}
	}
	VMOVUPS(out, sum)
}

// groups makes the sum of a half's products with the lower bytes.
func (t *pairDots) groups(halves, h int) (sum reg.VecVirtual) {
	chain := min(max(t.f.bytes.chain(), 1), 8/halves)
	for first := 8 / halves * h; first < 8/halves*(h+1); first += chain {
		var pairs reg.VecVirtual
		for g := first; g < first+chain; g++ {
			x := YMM()
			VPBROADCASTD(t.activation(0, g), x)
			if t.signBytes {
				VPSIGNB(Mem{Base: t.frame, Disp: vectorSize * g}, x, x)
			}
			VPMADDUBSW(x, t.elements[g], x)
			if pairs == nil {
				pairs = x
			} else {
				VPADDW(x, pairs, pairs)
			}
		}
		VPMADDWD(t.ones, pairs, pairs)
		if sum == nil {
			sum = pairs
		} else {
			VPADDD(pairs, sum, sum)
		}
	}
	return sum
}

// addTop adds 256 times the products of the group with its upper bytes, which in the
// half that it does not lie in are zero.
func (t *pairDots) addTop(halves, h int, group reg.GPVirtual, n reg.VecVirtual) {
	top := blockTop
	if halves == 2 {
		top = halfTop + h
	}
	w, x := YMM(), YMM()
	VMOVDQU(Mem{Base: t.frame, Index: group, Scale: vectorSize / 16}, w)
	VPBROADCASTD(t.activation(0, top), x)
	if t.signBytes {
		VPSIGNB(w, x, x)
		t.countLowest(group, w, x)
		VPABSB(w, w)
	}
	VPMADDUBSW(x, w, w)
	VPMADDWD(t.g.bits(0x01000100), w, w)
	VPADDD(w, n, n)
}

// countLowest adds one to the bytes at x where the lower byte is −128 and the weight is
// negative: there the sign made −128 of it again, 256 too little.
func (t *pairDots) countLowest(group reg.GPVirtual, w, x reg.VecVirtual) {
	at, lowest, negative := GP64(), YMM(), zero(YMM())
	MOVL(group.As32(), at.As32())
	SHRL(U8(2), at.As32())
	VPBROADCASTD(Mem{Base: t.x, Index: at, Scale: 1}, lowest)
	VPCMPEQB(t.g.bytesOf(0x80), lowest, lowest)
	VPCMPGTB(w, negative, negative)
	VPAND(negative, lowest, lowest)
	VPSUBB(lowest, x, x)
}

// takeOffset takes away what the weights' bytes are above their numbers.
func (t *pairDots) takeOffset(halves, h int, n reg.VecVirtual) {
	if t.f.bytes.offset == noOffset || t.signBytes {
		return
	}
	less := t.lessOf(halves, h)
	VPSLLD(U8(t.f.bytes.offset), less, less)
	VPADDD(less, n, n)
}

// lessOf is the negated sum of the row's integers in half h.
func (t *pairDots) lessOf(halves, h int) reg.VecVirtual {
	less, place := YMM(), blockLess
	if halves == 2 && h == 0 {
		place = halfLess
	}
	VPBROADCASTD(t.activation(0, place), less)
	if h == 1 {
		first := YMM()
		VPBROADCASTD(t.activation(0, halfLess), first)
		VPSUBD(first, less, less)
	}
	return less
}

// sumOf is the sum of the row's numbers in half h.
func (t *pairDots) sumOf(halves, h int) reg.VecVirtual {
	x := YMM()
	if halves == 1 {
		VBROADCASTSS(t.activation(0, blockSum), x)
		return x
	}
	scale := YMM()
	VPSUBD(t.lessOf(halves, h), zero(x), x)
	VCVTDQ2PS(x, x)
	VBROADCASTSS(t.activation(0, blockScale), scale)
	VMULPS(scale, x, x)
	return x
}

// end stores the rows that exist.
func (t *pairDots) end() {
	dst, stride, rows := val("dst"), val("dstStride"), val("rows")
	SHLQ(U8(2), stride)
	parts := t.parts(rows)
	t.eachRow("store", func() {
		for v := range 2 {
			a := YMM()
			VMOVUPS(Mem{Base: t.sum, Disp: vectorSize * v}, a)
			t.g.store(a, &parts[v], Mem{Base: dst, Disp: vectorSize * v})
		}
		ADDQ(stride, dst)
	})
}
