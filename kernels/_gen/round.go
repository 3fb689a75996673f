package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// round writes rounded activations: ref.Round says what they are.
func (g *isa) round() {
	text("Round", "func(dst *byte, x *float32, blocks int, fineAbove float32)",
		"Round writes that many blocks of 32 numbers of x, rounded to integers, to dst. fineAbove is not negative and no NaN.")
	const topMin, topEnd = 0x0da24260, 0x7f800000 // bits of 1e-30, and of what is not finite
	r := &rounding{dst: val("dst"), x: val("x"), none: zero(ZMM()), sizes: ZMM()}
	left, fineAbove, most, past := val("blocks"), GP32(), GP32(), GP32()
	limit := XMM()
	Load(Param("fineAbove"), limit)
	VMOVD(limit, fineAbove)
	VPBROADCASTD(table("sizes", 0x7fffffff), r.sizes)
	Label("block")
	r.load()
	VMOVD(r.top.AsX(), most)
	LEAL(Mem{Base: most, Disp: -topMin}, past)
	CMPL(past, U32(topEnd-topMin))
	JAE(LabelRef("odd"))
	CMPL(most, fineAbove)
	JA(LabelRef("fine"))

	r.multiples(0x42fe0000, 0x3c010204) // 127 and a 127th
	VMOVDQU32(r.none, Mem{Base: r.dst, Disp: 4 * blockLow})
	r.storeSums(r.storeBytes(0), nil)
	Label("next")
	ADDQ(I32(128), r.x)
	ADDQ(I32(blockBytes), r.dst)
	DECQ(left)
	JNZ(LabelRef("block"))
	ret()

	Label("fine")
	r.multiples(0x46fefe00, 0x3c008183) // 32,639 and 256 of its parts
	r.storeFine()
	JMP(LabelRef("next"))

	Label("odd") // all but zero, or not finite
	VMOVDQU32(r.none, Mem{Base: r.dst})
	VMOVDQU32(r.none, Mem{Base: r.dst, Disp: 64})
	CMPL(past, I32(0))
	JL(LabelRef("next")) // less than topMin
	nan := XMM()
	VBROADCASTSS(table("nan", 0x7fc00000), nan)
	VMOVUPS(nan, Mem{Base: r.dst, Disp: 4 * blockSums})
	JMP(LabelRef("next"))
}

// rounding is the state of a block's rounding.
type rounding struct {
	dst, x      reg.GPVirtual
	sizes, none reg.VecVirtual
	n           [2]reg.VecVirtual // the numbers, then integers
	top         reg.VecVirtual    // the largest size, then the scale
}

// load reads a block and finds its largest size.
func (r *rounding) load() {
	var size [2]reg.VecVirtual
	for h := range r.n {
		r.n[h], size[h] = ZMM(), ZMM()
		VMOVUPS(Mem{Base: r.x, Disp: 64 * h}, r.n[h])
		VPANDD(r.sizes, r.n[h], size[h])
	}
	VPMAXUD(size[1], size[0], size[0])
	largest(size[0])
	r.top = size[0]
}

// multiples makes integers of the numbers: parts for the largest. Of the scale part
// is the factor to the largest.
func (r *rounding) multiples(parts, part uint32) {
	per, every := XMM(), ZMM()
	VMOVSS(table(fmt.Sprintf("k%08x", parts), parts), per)
	VDIVSS(r.top.AsX(), per, per)
	VBROADCASTSS(per, every)
	for _, n := range r.n {
		VMULPS(every, n, n)
		VCVTPS2DQ(n, n)
	}
	VMULSS(table(fmt.Sprintf("k%08x", part), part), r.top.AsX(), r.top.AsX())
}

// storeBytes stores the integers as bytes at that word of the block and returns their sums.
func (r *rounding) storeBytes(word int) reg.VecVirtual {
	for h, n := range r.n {
		VPMOVSDB(n, Mem{Base: r.dst, Disp: 4*word + 16*h})
	}
	return r.sums()
}

// sums are the sum of the integers, of the first and the second 16, and 0.
func (r *rounding) sums() reg.VecVirtual {
	for _, n := range r.n {
		foldInts(n)
	}
	halves, all := XMM(), XMM()
	VPHADDD(r.n[1].AsX(), r.n[0].AsX(), halves)
	VPHADDD(halves, halves, halves) // first, second, first, second
	VPHADDD(halves, halves, all)
	VPSHUFD(U8(0x10), halves, halves)
	VPBLENDD(U8(0b0001), all, halves, halves)
	VPBLENDD(U8(0b1000), r.none.AsX(), halves, halves)
	return halves
}

// storeSums stores what goes with the sums of the bytes, and of the lower ones if there are any.
func (r *rounding) storeSums(sums, low reg.VecVirtual) {
	less, every := XMM(), XMM()
	VPSUBD(sums, r.none.AsX(), less)
	VBROADCASTSS(r.top.AsX(), every)
	if low != nil {
		ones, lessLow := XMM(), XMM()
		VPCMPEQD(ones, ones, ones)
		VPBLENDD(U8(0b1000), ones, less, less) // fine
		VPSUBD(low, r.none.AsX(), lessLow)
		VMOVDQU(lessLow, Mem{Base: r.dst, Disp: 4 * lowLess})
		VPSLLD(U8(8), sums, sums)
		VPADDD(low, sums, sums)
		part256 := XMM()
		VBROADCASTSS(table("k3b800000", 0x3b800000), part256) // 1/256
		VMULPS(part256, every, every)
	}
	VMOVDQU(less, Mem{Base: r.dst, Disp: 4 * blockLess})
	VCVTDQ2PS(sums, sums)
	VMULPS(every, sums, sums)
	VINSERTPS(U8(0x30), r.top.AsX(), sums, sums)
	VMOVUPS(sums, Mem{Base: r.dst, Disp: 4 * blockSums})
}

// storeFine stores integers of two bytes. The lower one is signed, and taken away.
func (r *rounding) storeFine() {
	VMOVDQU32(r.none, Mem{Base: r.dst, Disp: 4 * blockLow})
	whole := r.n
	for h := range whole {
		upper := ZMM()
		r.n[h] = ZMM()
		VPSLLD(U8(24), whole[h], r.n[h])
		VPSRAD(U8(24), r.n[h], r.n[h])
		VPSUBD(r.n[h], whole[h], upper)
		VPSRAD(U8(8), upper, whole[h])
	}
	low := r.storeBytes(blockLow)
	r.n = whole
	r.storeSums(r.storeBytes(0), low)
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
