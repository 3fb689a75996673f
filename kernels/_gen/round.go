package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// round writes rounded activations: ref.Round says what they are.
func (g *isa) round() {
	text("Round", "func(dst *byte, x *float32, blocks int)",
		"Round writes that many blocks of 32 numbers of x, rounded to integers, to dst.")
	const topMin, topEnd = 0x0da24260, 0x7f800000 // bits of 1e-30, and of what is not finite
	r := &rounding{dst: val("dst"), x: val("x"), none: zero(ZMM()), sizes: ZMM()}
	left, past := val("blocks"), GP32()
	VPBROADCASTD(table("sizes", 0x7fffffff), r.sizes)
	Label("block")
	r.load()
	VMOVD(r.top.AsX(), past)
	SUBL(U32(topMin), past)
	CMPL(past, U32(topEnd-topMin))
	JAE(LabelRef("odd"))
	r.findGroup()
	r.multiples()
	r.storeBytes()
	r.storeSums()
	Label("next")
	ADDQ(I32(128), r.x)
	ADDQ(I32(blockBytes), r.dst)
	DECQ(left)
	JNZ(LabelRef("block"))
	ret()

	Label("odd") // all but zero, or not finite
	VMOVDQU32(r.none, Mem{Base: r.dst})
	CMPL(past, I32(0))
	JL(LabelRef("next")) // less than topMin
	nan := XMM()
	VBROADCASTSS(table("nan", 0x7fc00000), nan)
	VMOVSD(nan, Mem{Base: r.dst, Disp: 4 * blockScale}) // and blockSum
	JMP(LabelRef("next"))
}

// rounding is the state of a block's rounding.
type rounding struct {
	dst, x      reg.GPVirtual
	sizes, none reg.VecVirtual
	n           [2]reg.VecVirtual // the numbers, then integers
	most        [2]reg.VecVirtual // the largest size of each group, in its four lanes
	top         reg.VecVirtual    // the largest of all, in each lane
	group       reg.GPVirtual     // its first lane
	second      reg.VecVirtual    // the largest of the other groups, in each lane
	scale       reg.VecVirtual    // in the first lane
}

// load reads a block and finds its largest sizes.
func (r *rounding) load() {
	for h := range r.n {
		r.n[h], r.most[h] = ZMM(), ZMM()
		VMOVUPS(Mem{Base: r.x, Disp: 64 * h}, r.n[h])
		VPANDD(r.sizes, r.n[h], r.most[h])
		swapped := ZMM()
		for _, order := range []uint8{0x4e, 0xb1} {
			VPSHUFD(U8(order), r.most[h], swapped)
			VPMAXUD(swapped, r.most[h], r.most[h])
		}
	}
	r.top = ZMM()
	VPMAXUD(r.most[1], r.most[0], r.top)
	largest(r.top)
}

// findGroup finds the first group with the largest size, and the largest of the others.
func (r *rounding) findGroup() {
	r.group, r.second = GP64(), ZMM()
	upper := GP64()
	k, others := [2]reg.OpmaskVirtual{K(), K()}, [2]reg.OpmaskVirtual{K(), K()}
	for h, most := range r.most {
		VPCMPEQD(r.top, most, k[h])
	}
	KMOVW(k[0], r.group.As32())
	KMOVW(k[1], upper.As32())
	SHLL(U8(16), upper.As32())
	ORL(upper.As32(), r.group.As32())
	BSFL(r.group.As32(), r.group.As32())
	left := GP64() // every lane but the group's four
	MOVL(I32(15), left.As32())
	SHLXL(r.group.As32(), left.As32(), left.As32())
	NOTL(left.As32())
	KMOVW(left.As32(), others[0])
	SHRL(U8(16), left.As32())
	KMOVW(left.As32(), others[1])
	kept := ZMM()
	VMOVDQA32_Z(r.most[0], others[0], kept)
	VMOVDQA32_Z(r.most[1], others[1], r.second)
	VPMAXUD(kept, r.second, r.second)
	largest(r.second)
}

// multiples makes integers of the numbers.
func (r *rounding) multiples() {
	base, per, every := XMM(), XMM(), ZMM()
	VMULSS(table("part257", 0x3b7f00ff), r.top.AsX(), base)
	VMAXSS(r.second.AsX(), base, base)
	VMOVSS(table("most127", 0x42fe0000), per)
	VDIVSS(base, per, per)
	VMULSS(table("part127", 0x3c010204), base, base)
	VBROADCASTSS(per, every)
	r.scale = base
	for _, n := range r.n {
		VMULPS(every, n, n)
		VCVTPS2DQ(n, n)
	}
}

// storeSums stores what a block says of itself.
func (r *rounding) storeSums() {
	var sums [2]reg.VecVirtual
	for h, n := range r.n {
		sums[h] = ZMM()
		VMOVDQA32(n, sums[h])
		foldInts(sums[h])
	}
	halves, less := XMM(), XMM()
	VPHADDD(sums[1].AsX(), sums[0].AsX(), halves)
	VPHADDD(halves, halves, halves) // first, second, first, second
	VPSUBD(halves, r.none.AsX(), less)
	VMOVD(less, Mem{Base: r.dst, Disp: 4 * halfLess})
	VPHADDD(halves, halves, halves)
	VPSUBD(halves, r.none.AsX(), less)
	VMOVD(less, Mem{Base: r.dst, Disp: 4 * blockLess})
	VCVTDQ2PS(halves, halves)
	VMULSS(r.scale, halves, halves)
	VMOVSS(halves, Mem{Base: r.dst, Disp: 4 * blockSum})
	VMOVSS(r.scale, Mem{Base: r.dst, Disp: 4 * blockScale})
}

// storeBytes stores the integers. The lower byte is signed, and taken away before the
// upper one is left. All upper bytes lie for a moment where the sums will.
func (r *rounding) storeBytes() {
	for h, n := range r.n {
		low := ZMM()
		VPMOVDB(n, Mem{Base: r.dst, Disp: 16 * h})
		VPSLLD(U8(24), n, low)
		VPSRAD(U8(24), low, low)
		VPSUBD(low, n, low)
		VPSRAD(U8(8), low, low)
		VPMOVDB(low, Mem{Base: r.dst, Disp: 32 + 16*h})
	}
	top := GP32()
	MOVL(Mem{Base: r.dst, Index: r.group, Scale: 1, Disp: 32}, top)
	VMOVQ(r.none.AsX(), Mem{Base: r.dst, Disp: 4 * halfTop})
	MOVL(top, Mem{Base: r.dst, Disp: 4 * blockTop})
	SHLL(U8(2), r.group.As32())
	MOVL(r.group.As32(), Mem{Base: r.dst, Disp: 4 * blockGroup})
	SHRL(U8(6), r.group.As32())
	MOVL(top, Mem{Base: r.dst, Index: r.group, Scale: 4, Disp: 4 * halfTop})
}

// largest puts the largest of 16 unsigned words into each lane; the lanes of each four are equal.
func largest(v reg.VecVirtual) {
	swapped := ZMM()
	for _, order := range []uint8{0x4e, 0xb1} {
		VSHUFI32X4(U8(order), v, v, swapped)
		VPMAXUD(swapped, v, v)
	}
}

// foldInts adds 16 words up to four.
func foldInts(v reg.VecVirtual) {
	half := YMM()
	VEXTRACTI64X4(U8(1), v, half)
	VPADDD(half, v.AsY(), v.AsY())
	VEXTRACTI128(U8(1), v.AsY(), half.AsX())
	VPADDD(half.AsX(), v.AsX(), v.AsX())
}
