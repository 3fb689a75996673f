package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// addBlock adds the block's sum times its scale to sum, and the product of its
// minimum with its part of x, when w stands behind the block, and begins anew.
func (t *tile) addBlock() {
	for v := range 2 {
		if t.f.scale < byteScales {
			factor := t.g.vec()
			t.scaleOf(v, 0, factor)
			for i := range t.rows {
				low, high := t.acc[0][v][i], t.acc[1][v][i]
				VADDPS(high, low, low)
				VFMADD231PS(low, factor, t.sum[v][i])
			}
			continue
		}
		for h := range 2 {
			factor := t.g.vec()
			t.scaleOf(v, h, factor)
			for i := range t.rows {
				VFMADD231PS(t.acc[h][v][i], factor, t.sum[v][i])
			}
		}
	}
	for h := range 2 {
		for v := range 2 {
			for i := range t.rows {
				zero(t.acc[h][v][i])
			}
		}
	}
	switch t.f.min {
	case noMin:
	case nibbleMins:
		t.addMin(0, 0, 16)
		t.addMin(1, 16, 16)
	default:
		t.addMin(0, 0, 32)
	}
}

// beforeElements is an address at the block's scales, disp bytes on.
func (t *tile) beforeElements(v, disp, elem int) Mem {
	return t.weights(v, disp-t.f.blockBytes(), elem)
}

// scaleOf makes the scale of half h of the block, or of the whole.
func (t *tile) scaleOf(v, h int, out reg.VecVirtual) {
	switch t.f.scale {
	case halfScale:
		VCVTPH2PS(t.beforeElements(v, 0, 2), out)
	case bfloatScale:
		loadBFloat(t.beforeElements(v, 0, 2), out)
	case byteScale:
		t.headTimes(v, 0, out, func(by reg.VecVirtual) { t.integer(v, 0, by) })
	case byteScales:
		t.headTimes(v, 0, out, func(by reg.VecVirtual) { t.integer(v, 16*h, by) })
	case nibbleScales:
		t.headTimes(v, 0, out, func(by reg.VecVirtual) {
			VPMOVZXBD(t.beforeElements(v, 16*h, 1), by)
			t.and15(by)
		})
	}
}

// integer reads a signed byte before the block. The scales and minima of K-quants
// that have no sign are under 64.
func (t *tile) integer(v, disp int, out reg.VecVirtual) {
	VPMOVSXBD(t.beforeElements(v, disp, 1), out)
}

func (t *tile) and15(v reg.VecVirtual) {
	if t.g.wide {
		VPANDD(t.g.bits(15), v, v)
	} else {
		VPAND(t.g.bits(15), v, v)
	}
}

// headTimes makes the product of a half in the header and an integer that read reads.
func (t *tile) headTimes(v, disp int, out reg.VecVirtual, read func(by reg.VecVirtual)) {
	by := t.g.vec()
	read(by)
	VCVTDQ2PS(by, by)
	m := Mem{Base: t.head, Disp: disp + v*t.g.lanes*2}
	if t.g.wide && v == 1 {
		m = Mem{Base: t.head, Index: t.wNext, Scale: 1, Disp: disp}
	}
	VCVTPH2PS(m, out)
	VMULPS(by, out, out)
}

// minOf makes the minimum of half h, or of the whole: added where it is a half,
// and taken away in the K-quants.
func (t *tile) minOf(v, h int) reg.VecVirtual {
	low := t.g.vec()
	if t.f.min == halfMin {
		VCVTPH2PS(t.beforeElements(v, 32, 2), low)
		return low
	}
	t.headTimes(v, 32, low, func(by reg.VecVirtual) {
		if t.f.min == byteMin {
			t.integer(v, 16, by)
			return
		}
		VPMOVZXBD(t.beforeElements(v, 16*h, 1), by)
		VPSRLD(U8(4), by, by)
	})
	return low
}

// addMin adds the minimum of half h, or of the whole, times the sum of n numbers of
// x from the block's column first on.
func (t *tile) addMin(h, first, n int) {
	begin := first - t.f.turns()
	for i := range t.rows {
		x := t.sumX(i, begin, n)
		for v := range 2 {
			low := t.minOf(v, h)
			if t.f.min == halfMin {
				VFMADD231PS(x, low, t.sum[v][i])
			} else {
				VFNMADD231PS(x, low, t.sum[v][i])
			}
		}
	}
}

// sumX adds n numbers of row i of x, in one order, and gives all lanes the sum.
func (t *tile) sumX(i, column, n int) reg.VecVirtual {
	x := t.g.vec()
	VMOVUPS(t.activation(i, column), x)
	for at := t.g.lanes; at < n; at += t.g.lanes {
		VADDPS(t.activation(i, column+at), x, x)
	}
	swapped := t.g.vec()
	add := func() { VADDPS(swapped, x, x) }
	if t.g.wide {
		VSHUFF64X2(U8(0x4e), x, x, swapped)
		add()
		VSHUFF64X2(U8(0xb1), x, x, swapped)
	} else {
		VPERM2F128(U8(1), x, x, swapped)
	}
	add()
	for _, order := range []uint8{0x4e, 0xb1} {
		VPERMILPS(U8(order), x, swapped)
		add()
	}
	return x
}
