package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// round writes Round, which rounds activations as ref.Round does.
func (g *isa) round() {
	text("Round", "func(dst *byte, x *float32, blocks int)",
		"Round writes that many blocks of 32 numbers of x, rounded to integers, to dst.")
	const topMin, topEnd = 0x0da24260, 0x7f800000 // bits of 1e-30, and of what is not finite
	r := &rounding{g: g, dst: val("dst"), x: val("x"), none: zero(g.vec()), sizes: g.vec()}
	left, past := val("blocks"), GP32()
	VPBROADCASTD(table("sizes", 0x7fffffff), r.sizes)
	Label("block")
	r.load()
	VMOVD(r.top.AsX(), past)
	SUBL(U32(topMin), past)
	CMPL(past, U32(topEnd-topMin))
	JAE(LabelRef("odd"))
	if g.wide {
		r.findGroup()
	} else {
		r.findGroupAVX2()
	}
	r.multiples()
	if g.wide {
		r.storeBytes()
	} else {
		r.storeBytesAVX2()
	}
	r.storeTop()
	r.storeSums()
	Label("next")
	ADDQ(I32(128), r.x)
	ADDQ(I32(blockBytes), r.dst)
	DECQ(left)
	JNZ(LabelRef("block"))
	ret()

	Label("odd") // all but zero, or not finite
	for at := 0; at < blockBytes; at += g.bytes() {
		VMOVUPS(r.none, Mem{Base: r.dst, Disp: at})
	}
	CMPL(past, I32(0))
	JL(LabelRef("next")) // less than topMin
	nan := XMM()
	VBROADCASTSS(table("nan", 0x7fc00000), nan)
	VMOVSD(nan, Mem{Base: r.dst, Disp: 4 * blockScale}) // and blockSum
	JMP(LabelRef("next"))
}

// rounding is the state of a block's rounding.
type rounding struct {
	g           *isa
	dst, x      reg.GPVirtual
	sizes, none reg.VecVirtual
	n           []reg.VecVirtual // the numbers, then integers
	most        []reg.VecVirtual // the largest size of each group, in its four lanes
	top         reg.VecVirtual   // the largest of all, in each lane
	group       reg.GPVirtual    // its first lane
	second      reg.VecVirtual   // the largest of the other groups, in each lane
	scale       reg.VecVirtual   // in the first lane
}

// load reads a block and finds its largest magnitudes.
func (r *rounding) load() {
	r.n, r.most, r.top = nil, nil, r.g.vec()
	for at := 0; at < 4*32; at += r.g.bytes() {
		n, most, swapped := r.g.vec(), r.g.vec(), r.g.vec()
		VMOVUPS(Mem{Base: r.x, Disp: at}, n)
		VANDPS(r.sizes, n, most)
		for _, order := range []uint8{0x4e, 0xb1} {
			VPSHUFD(U8(order), most, swapped)
			VPMAXUD(swapped, most, most)
		}
		r.n, r.most = append(r.n, n), append(r.most, most)
	}
	VPMAXUD(r.most[1], r.most[0], r.top)
	for _, most := range r.most[2:] {
		VPMAXUD(most, r.top, r.top)
	}
	r.g.largest(r.top)
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
	r.g.largest(r.second)
}

// findGroupAVX2 is findGroup without masks.
func (r *rounding) findGroupAVX2() {
	r.group, r.second = GP64(), zero(YMM())
	bits, same := GP32(), YMM()
	for i, most := range r.most {
		VPCMPEQD(r.top, most, same)
		if i == 0 {
			VMOVMSKPS(same, r.group.As32())
			continue
		}
		VMOVMSKPS(same, bits)
		SHLL(U8(8*i), bits)
		ORL(bits, r.group.As32())
	}
	BSFL(r.group.As32(), r.group.As32())
	group := YMM()
	VMOVD(r.group.As32(), group.AsX())
	VPBROADCASTD(group.AsX(), group)
	for i, most := range r.most {
		first := uint32(8 * i)
		lanes := table("lanes"+string(rune('0'+i)), first, first, first, first, first+4, first+4, first+4, first+4)
		VPCMPEQD(lanes, group, same)
		VPANDN(most, same, same)
		VPMAXUD(same, r.second, r.second)
	}
	r.g.largest(r.second)
}

// multiples makes integers of the numbers.
func (r *rounding) multiples() {
	base, per, every := XMM(), XMM(), r.g.vec()
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

// storeSums stores a block's scale and sums.
func (r *rounding) storeSums() {
	var sums [2]reg.VecVirtual
	for h := range sums {
		sums[h] = r.sumHalf(h)
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

// sumHalf adds up the integers of half h until four sums are left.
func (r *rounding) sumHalf(h int) reg.VecVirtual {
	sum, half := r.g.vec(), YMM()
	if r.g.wide {
		VEXTRACTI64X4(U8(1), r.n[h], half)
		VPADDD(half, r.n[h].AsY(), sum.AsY())
	} else {
		VPADDD(r.n[2*h+1], r.n[2*h], sum)
	}
	VEXTRACTI128(U8(1), sum.AsY(), half.AsX())
	VPADDD(half.AsX(), sum.AsX(), sum.AsX())
	return sum
}

// storeBytes stores the integers. The lower byte is signed, and the upper one is what remains
// without it. All upper bytes lie for a moment where the sums will be.
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
}

// storeBytesAVX2 is storeBytes with packing instructions, which leave four bytes of each vector
// side by side in either half.
func (r *rounding) storeBytesAVX2() {
	var lows, highs [4]reg.VecVirtual
	for i, n := range r.n {
		lows[i], highs[i] = YMM(), YMM()
		VPSLLD(U8(24), n, lows[i])
		VPSRAD(U8(24), lows[i], lows[i])
		VPSUBD(lows[i], n, highs[i])
		VPSRAD(U8(8), highs[i], highs[i])
	}
	order := YMM()
	VMOVDQU(table("order", 0, 4, 1, 5, 2, 6, 3, 7), order)
	for at, n := range [][4]reg.VecVirtual{lows, highs} {
		VPACKSSDW(n[1], n[0], n[0])
		VPACKSSDW(n[3], n[2], n[2])
		VPACKSSWB(n[2], n[0], n[0])
		VPERMD(n[0], order, n[0])
		VMOVDQU(n[0], Mem{Base: r.dst, Disp: 32 * at})
	}
}

// storeTop moves the group's upper bytes to their places.
func (r *rounding) storeTop() {
	top := GP32()
	MOVL(Mem{Base: r.dst, Index: r.group, Scale: 1, Disp: 32}, top)
	VMOVQ(r.none.AsX(), Mem{Base: r.dst, Disp: 4 * halfTop})
	MOVL(top, Mem{Base: r.dst, Disp: 4 * blockTop})
	SHLL(U8(2), r.group.As32())
	MOVL(r.group.As32(), Mem{Base: r.dst, Disp: 4 * blockGroup})
	SHRL(U8(6), r.group.As32())
	MOVL(top, Mem{Base: r.dst, Index: r.group, Scale: 4, Disp: 4 * halfTop})
}

// largest puts the largest of a vector's unsigned words into each lane; the lanes of each
// four are equal.
func (g *isa) largest(v reg.VecVirtual) {
	swapped := g.vec()
	if !g.wide {
		VPERM2I128(U8(1), v, v, swapped)
		VPMAXUD(swapped, v, v)
		return
	}
	for _, order := range []uint8{0x4e, 0xb1} {
		VSHUFI32X4(U8(order), v, v, swapped)
		VPMAXUD(swapped, v, v)
	}
}
