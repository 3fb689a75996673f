package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// round writes rounded activations: ref.Round says what they are.
func (g *isa) round() {
	text("Round", "func(dst *byte, x *float32, blocks int)", "Round writes that many blocks of 32 numbers of x, rounded to 8 bits, to dst.")
	const topMin, topEnd = 0x0da24260, 0x7f800000 // bits of 1e-30, and of what is not finite
	dst, x, left := val("dst"), val("x"), val("blocks")
	sizes, most, one := ZMM(), GP32(), XMM()
	VPBROADCASTD(table("sizes", 0x7fffffff), sizes)
	Label("block")
	var n [2]reg.VecVirtual
	var top [2]reg.VecVirtual
	for h := range n {
		n[h], top[h] = ZMM(), ZMM()
		VMOVUPS(Mem{Base: x, Disp: 64 * h}, n[h])
		VPANDD(sizes, n[h], top[h])
	}
	VPMAXUD(top[1], top[0], top[0])
	largest(top[0])
	VMOVD(top[0].AsX(), most)
	LEAL(Mem{Base: most, Disp: -topMin}, most)
	CMPL(most, U32(topEnd-topMin))
	JAE(LabelRef("odd"))

	VMOVSS(table("k127", 0x42fe0000), one)
	VDIVSS(top[0].AsX(), one, one)
	per := ZMM()
	VBROADCASTSS(one, per)
	for h := range n {
		VMULPS(per, n[h], n[h])
		VCVTPS2DQ(n[h], n[h])
		VPMOVSDB(n[h], Mem{Base: dst, Disp: 16 * h})
		foldInts(n[h])
	}
	halves, all := n[0].AsX(), XMM() // first, second, first, second
	VPHADDD(n[1].AsX(), n[0].AsX(), halves)
	VPHADDD(halves, halves, halves)
	VPHADDD(halves, halves, all)
	VPSHUFD(U8(0x10), halves, halves)
	VPBLENDD(U8(0b0001), all, halves, halves)
	none, less := XMM(), XMM()
	VPXOR(none, none, none)
	VPBLENDD(U8(0b1000), none, halves, halves)
	VPSUBD(halves, none, less)
	VMOVDQU(less, Mem{Base: dst, Disp: 4 * blockLess})
	scale := top[0].AsX()
	VMULSS(table("per127", 0x3c010204), scale, scale)
	VCVTDQ2PS(halves, halves)
	every := XMM()
	VBROADCASTSS(scale, every)
	VMULPS(every, halves, halves)
	VINSERTPS(U8(0x30), scale, halves, halves)
	VMOVUPS(halves, Mem{Base: dst, Disp: 4 * blockSums})
	Label("next")
	ADDQ(I32(128), x)
	ADDQ(I8(blockBytes), dst)
	DECQ(left)
	JNZ(LabelRef("block"))
	ret()

	Label("odd") // all but zero, or not finite
	VMOVDQU32(zero(n[0]), Mem{Base: dst})
	CMPL(most, I32(0))
	JL(LabelRef("next")) // less than topMin
	VBROADCASTSS(table("nan", 0x7fc00000), halves)
	VMOVUPS(halves, Mem{Base: dst, Disp: 4 * blockSums})
	JMP(LabelRef("next"))
}

// largest puts the largest of 16 unsigned words into the first.
func largest(v reg.VecVirtual) {
	half := YMM()
	VEXTRACTI64X4(U8(1), v, half)
	VPMAXUD(half, v.AsY(), v.AsY())
	VEXTRACTI128(U8(1), v.AsY(), half.AsX())
	VPMAXUD(half.AsX(), v.AsX(), v.AsX())
	for _, order := range []uint8{0x4e, 0xb1} {
		VPSHUFD(U8(order), v.AsX(), half.AsX())
		VPMAXUD(half.AsX(), v.AsX(), v.AsX())
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
