package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// byteDots multiplies bytes and adds the products of some groups in 16 bits. A pass is half a
// block of both vectors of weight rows. The frame has the bytes of all groups, unless
// they are whole in memory, since each row looks up its own, and the minima.
type byteDots struct {
	*rowDots
	elements [2][4]reg.VecVirtual // [v], of each group of the pass
}

const (
	frameGroups = frameRest
	frameLows   = frameGroups + 2*8*vectorBytes
	bytesFrame  = frameLows + 2*2*vectorBytes
)

func (t *byteDots) blocks(name string, left reg.GPVirtual) {
	halves := t.f.ScaleHalves()
	t.eachBlock(name, left, func() {
		t.keepLows(halves)
		for h := range 2 {
			for v := range 2 {
				for i := range t.elements[v] {
					t.elements[v][i] = t.groupBytes(v, 4*h+i)
					if !t.coding.whole() {
						VMOVDQU(t.elements[v][i], t.group(v, 4*h+i))
					}
				}
				if halves == 2 || h == 1 {
					t.factor[v] = YMM()
					t.scaleOf(v, h*(halves-1), t.factor[v])
				}
			}
			t.eachRow(name+[]string{"_first", "_second"}[h], func() {
				n := t.products(h)
				if halves == 1 && h == 0 {
					t.leave(n)
				} else {
					t.finish(halves, h, n)
				}
			})
		}
	})
}

// keepLows puts the minima into the frame.
func (t *byteDots) keepLows(halves int) {
	if t.f.Minimum == format.NoMinimum {
		return
	}
	for h := range halves {
		for v := range 2 {
			VMOVUPS(t.minOf(v, h), t.low(v, h))
		}
	}
}

func (t *byteDots) low(v, h int) Mem   { return t.inFrame(frameLows + vectorBytes*(2*h+v)) }
func (t *byteDots) group(v, g int) Mem { return t.inFrame(frameGroups + vectorBytes*(8*v+g)) }

// inWords reports whether the products of both halves are added in 16 bits.
func (t *byteDots) inWords() bool { return t.coding.chain() >= 8 && t.f.ScaleHalves() == 1 }

// products makes the sums of half h of the row at x with the lower bytes.
func (t *byteDots) products(h int) (sums [2]reg.VecVirtual) {
	chain := min(t.coding.chain(), 4)
	for first := 0; first < 4; first += chain {
		var pairs [2]reg.VecVirtual
		for i := first; i < first+chain; i++ {
			x := YMM()
			VPBROADCASTD(t.activation(0, 4*h+i), x)
			for v := range pairs {
				out := YMM()
				VPMADDUBSW(x, t.elements[v][i], out)
				pairs[v] = plus(VPADDW, out, pairs[v])
			}
		}
		for v := range sums {
			if !t.inWords() {
				t.widen(pairs[v])
			}
			sums[v] = plus(VPADDD, pairs[v], sums[v])
		}
	}
	return sums
}

// plus adds n to sum, which is nil at first.
func plus(add func(ops ...Op), n, sum reg.VecVirtual) reg.VecVirtual {
	if sum == nil {
		return n
	}
	add(n, sum, sum)
	return sum
}

// leave keeps the first half's sums for the second.
func (t *byteDots) leave(sums [2]reg.VecVirtual) {
	for v, n := range sums {
		VMOVDQU(n, t.leftAt(v))
	}
}

// finish completes the sums of half h, or of the block, and adds them to the row's.
func (t *byteDots) finish(halves, h int, sums [2]reg.VecVirtual) {
	for v, n := range sums {
		switch {
		case t.inWords():
			VPADDW(t.leftAt(v), n, n)
			t.widen(n)
		case halves == 1:
			VPADDD(t.leftAt(v), n, n)
		}
	}
	t.addTops(halves, h, sums)
	t.takeOffsets(halves, h, sums)
	scale := t.scaleOfRow()
	for v, n := range sums {
		t.scaleInts(v, scale, n)
	}
	if h == 1 {
		t.addMins(halves, scale, sums)
	}
	for v, n := range sums {
		VMOVUPS(n, t.sumAt(v))
	}
}

// addTops adds 256 times the products of the group with its upper bytes, which are zero in the
// half that it does not lie in.
func (t *byteDots) addTops(halves, h int, sums [2]reg.VecVirtual) {
	top, index, x := blockTop, GP64(), YMM()
	if halves == 2 {
		top = halfTop + h
	}
	MOVL(t.activation(0, blockGroup), index.As32())
	VPBROADCASTD(t.activation(0, top), x)
	for v, n := range sums {
		w, m := YMM(), t.group(v, 0)
		m.Index, m.Scale = index, vectorBytes/16
		if t.coding.whole() {
			m.Base, m.Disp, m.Scale = t.w, vectorBytes*v-t.coding.bytes, 2*vectorBytes/16
		}
		VMOVDQU(m, w)
		VPMADDUBSW(x, w, w)
		VPMADDWD(t.g.bits(0x01000100), w, w)
		VPADDD(w, n, n)
	}
}

// takeOffsets corrects for the offset between the weights' bytes and their numbers.
func (t *byteDots) takeOffsets(halves, h int, sums [2]reg.VecVirtual) {
	if t.coding.offset == noOffset {
		return
	}
	less := t.lessOf(halves, h)
	VPSLLD(U8(t.coding.offset), less, less)
	for _, n := range sums {
		VPADDD(less, n, n)
	}
}

// addMins adds the minima times the row's numbers.
func (t *byteDots) addMins(halves int, scale reg.VecVirtual, sums [2]reg.VecVirtual) {
	if t.f.Minimum == format.NoMinimum {
		return
	}
	for h := range halves {
		x := t.sumOf(halves, h, scale)
		for v, sum := range sums {
			if t.f.Minimum == format.HalfMinimum {
				VFMADD231PS(t.low(v, h), x, sum)
			} else {
				VFNMADD231PS(t.low(v, h), x, sum)
			}
		}
	}
}

// lessOf is the negated sum of the row's integers in half h, or in all of the block.
func (t *byteDots) lessOf(halves, h int) reg.VecVirtual {
	less, place := YMM(), blockLess
	if halves == 2 && h == 0 {
		place = halfLess
	}
	VPBROADCASTD(t.activation(0, place), less)
	if halves == 2 && h == 1 {
		first := YMM()
		VPBROADCASTD(t.activation(0, halfLess), first)
		VPSUBD(first, less, less)
	}
	return less
}

// sumOf is the sum of the row's numbers in half h, or in all of the block.
func (t *byteDots) sumOf(halves, h int, scale reg.VecVirtual) reg.VecVirtual {
	x := YMM()
	if halves == 1 {
		VBROADCASTSS(t.activation(0, blockSum), x)
		return x
	}
	VPSUBD(t.lessOf(halves, h), zero(x), x)
	VCVTDQ2PS(x, x)
	VMULPS(scale, x, x)
	return x
}
