package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// beforeElements is an address at the block's scales, disp bytes on.
func (t *weights) beforeElements(v, disp, elem int) Mem {
	return t.weightsAt(v, disp-t.f.blockBytes(), elem)
}

// scaleOf makes the scale of half h of the block, or of the whole.
func (t *weights) scaleOf(v, h int, out reg.VecVirtual) {
	switch t.f.Scale {
	case format.HalfScale:
		VCVTPH2PS(t.beforeElements(v, 0, 2), out)
	case format.BFloatScale:
		loadBFloat(t.beforeElements(v, 0, 2), out)
	case format.FloatScale, format.FloatScales:
		VMOVUPS(t.beforeElements(v, 64*h, 4), out)
	case format.ByteScale:
		t.headTimes(v, 0, out, func(by reg.VecVirtual) { t.integer(v, 0, by) })
	case format.ByteScales:
		t.headTimes(v, 0, out, func(by reg.VecVirtual) { t.integer(v, 16*h, by) })
	case format.NibbleScales:
		t.headTimes(v, 0, out, func(by reg.VecVirtual) {
			VPMOVZXBD(t.beforeElements(v, 16*h, 1), by)
			t.and15(by)
		})
	}
}

// integer reads a signed byte before the block. The scales and minima of K-quants
// that have no sign are under 64.
func (t *weights) integer(v, disp int, out reg.VecVirtual) {
	VPMOVSXBD(t.beforeElements(v, disp, 1), out)
}

func (t *weights) and15(v reg.VecVirtual) {
	if t.g.wide {
		VPANDD(t.g.bits(15), v, v)
	} else {
		VPAND(t.g.bits(15), v, v)
	}
}

// headTimes makes the product of a half in the header and an integer that read reads.
func (t *weights) headTimes(v, disp int, out reg.VecVirtual, read func(by reg.VecVirtual)) {
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
func (t *weights) minOf(v, h int) reg.VecVirtual {
	low := t.g.vec()
	if t.f.Minimum == format.HalfMinimum {
		VCVTPH2PS(t.beforeElements(v, 32, 2), low)
		return low
	}
	t.headTimes(v, 32, low, func(by reg.VecVirtual) {
		if t.f.Minimum == format.ByteMinimum {
			t.integer(v, 16, by)
			return
		}
		VPMOVZXBD(t.beforeElements(v, 16*h, 1), by)
		VPSRLD(U8(4), by, by)
	})
	return low
}
