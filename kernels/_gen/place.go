package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// placeLanes is how many numbers Place* convert together. Both sets take eight: the stores of
// keys, one for each number, are the limit.
const placeLanes = 8

// byEights goes over n numbers, by eights and then the rest: convert leaves them in x, size
// bytes each, and store writes lane i to dst, which moves by step bytes after each. Eight
// that lie side by side are written together.
func byEights(size int, from, n, dst, step reg.GPVirtual, x reg.VecVirtual, convert func(), store func(lane int)) {
	lane := func(i int) {
		store(i)
		ADDQ(step, dst)
	}
	SUBQ(I8(placeLanes), n)
	JLT(LabelRef("part"))
	Label("whole")
	VMOVUPS(Mem{Base: from}, x)
	convert()
	CMPQ(step, I8(size))
	JNE(LabelRef("apart"))
	if size == 2 {
		VMOVDQU(x.AsX(), Mem{Base: dst})
	} else {
		VMOVQ(x.AsX(), Mem{Base: dst})
	}
	ADDQ(I8(placeLanes*size), dst)
	JMP(LabelRef("next"))
	Label("apart")
	for i := range placeLanes {
		lane(i)
	}
	Label("next")
	ADDQ(I8(4*placeLanes), from)
	SUBQ(I8(placeLanes), n)
	JGE(LabelRef("whole"))
	Label("part")
	ADDQ(I8(placeLanes), n)
	JLE(LabelRef("end"))
	count := GP64()
	MOVQ(n, count)
	p := avx2.firstLanes(count)
	VMASKMOVPS(Mem{Base: from}, p.v, x)
	convert()
	for i := range placeLanes - 1 {
		lane(i)
		DECQ(n)
		JZ(LabelRef("end"))
	}
	Label("end")
	ret()
}

func placeHalves() {
	text("PlaceHalves", "func(dst *byte, step int, x *float32, n int)",
		"PlaceHalves writes x[i] as a half, within ±65504, to the two bytes at i·step of dst, for i in [0,n).")
	v, top, bottom := YMM(), YMM(), YMM()
	VMOVUPS(table("halfMax", words(0x477fe000)...), top)
	VMOVUPS(table("halfMin", words(0xc77fe000)...), bottom)
	dst := val("dst")
	byEights(2, val("x"), val("n"), dst, val("step"), v, func() {
		VMINPS(v, top, v) // x is the operand that a NaN comes from
		VMAXPS(v, bottom, v)
		VCVTPS2PH(U8(0), v, v.AsX())
	}, func(i int) { VPEXTRW(U8(i), v.AsX(), Mem{Base: dst}) })
}

func placeBytes() {
	text("PlaceBytes", "func(dst *byte, step int, x *float32, n int, by float32)",
		"PlaceBytes writes x[i]·by, rounded to an integer from −128 to 127, to the byte at i·step of dst, for i in [0,n).")
	v, by, dst := YMM(), avx2.splat("by"), val("dst")
	byEights(1, val("x"), val("n"), dst, val("step"), v, func() {
		half := XMM()
		VMULPS(by, v, v)
		VCVTPS2DQ(v, v)
		VEXTRACTI128(U8(1), v, half)
		VPACKSSDW(half, v.AsX(), v.AsX())
		VPACKSSWB(v.AsX(), v.AsX(), v.AsX())
	}, func(i int) { VPEXTRB(U8(i), v.AsX(), Mem{Base: dst}) })
}

// absMax compares bits as integers: a NaN is above infinity, infinity above all numbers.
func absMax() {
	text("AbsMax", "func(x *float32, n int) uint32",
		"AbsMax gives the bits of the largest |x[i]| for i in [0,n); a NaN is the largest of all.")
	x, n, at := val("x"), val("n"), GP64()
	v, top, sign := YMM(), zero(YMM()), YMM()
	VMOVUPS(table("noSign", words(0x7fffffff)...), sign)
	avx2.each("max", n, func(at reg.GPVirtual, p *mask) {
		avx2.load(item(x, at), p, v)
		VPAND(sign, v, v)
		VPMAXUD(v, top, top)
	})
	half := XMM()
	VEXTRACTI128(U8(1), top, half)
	VPMAXUD(half, top.AsX(), top.AsX())
	for _, order := range []uint8{0x4e, 0xb1} {
		VPSHUFD(U8(order), top.AsX(), half)
		VPMAXUD(half, top.AsX(), top.AsX())
	}
	VMOVD(top.AsX(), at.As32())
	Store(at.As32(), ReturnIndex(0))
	ret()
}

// words is a table of eight equal words.
func words(w uint32) []uint32 { return []uint32{w, w, w, w, w, w, w, w} }
