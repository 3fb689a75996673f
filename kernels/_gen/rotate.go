package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const rotateSignature = "func(x *float32, heads, headDim int, angles *float32, pairs int)"

// rotateHalves loads a vector of angles once for all heads. Products are rounded before they
// are added, as in ref.
func (g *isa) rotateHalves() {
	text("RotateHalves", rotateSignature, "RotateHalves turns numbers i and pairs+i of each head by the cos and sin at i and pairs+i of angles.")
	r := rotation{x: val("x"), heads: val("heads"), step: val("headDim"), angles: val("angles")}
	pairs, apart := val("pairs"), GP64()
	MOVQ(pairs, apart)
	SHLQ(U8(2), apart)
	SHLQ(U8(2), r.step)
	g.each("rotate", pairs, func(at reg.GPVirtual, p *mask) {
		cos, sin, second := g.vec(), g.vec(), GP64()
		LEAQ(Mem{Base: r.angles, Index: apart, Scale: 1}, second)
		g.load(item(r.angles, at), p, cos)
		g.load(item(second, at), p, sin)
		r.eachHead(at, p, func(head reg.GPVirtual) {
			a, b, other := g.vec(), g.vec(), g.vec()
			there := Mem{Base: head, Index: apart, Scale: 1}
			g.load(Mem{Base: head}, p, a)
			g.load(there, p, b)
			VMULPS(sin, a, other)
			VMULPS(cos, a, a)
			product := g.vec()
			VMULPS(sin, b, product)
			VSUBPS(product, a, a)
			VMULPS(cos, b, b)
			VADDPS(b, other, b)
			g.store(a, p, Mem{Base: head})
			g.store(b, p, there)
		})
	})
	ret()
}

// rotateNeighbours multiplies the first of a pair's swapped numbers with −sin.
func (g *isa) rotateNeighbours() {
	text("RotateNeighbours", rotateSignature, "RotateNeighbours turns numbers 2i and 2i+1 of each head by the cos and sin at 2i and 2i+1 of angles.")
	r := rotation{x: val("x"), heads: val("heads"), step: val("headDim"), angles: val("angles")}
	n := val("pairs")
	ADDQ(n, n)
	SHLQ(U8(2), r.step)
	signs := table("firstSign", 1<<31, 0, 1<<31, 0, 1<<31, 0, 1<<31, 0, 1<<31, 0, 1<<31, 0, 1<<31, 0, 1<<31, 0)
	g.each("rotate", n, func(at reg.GPVirtual, p *mask) {
		cos, sin := g.vec(), g.vec()
		g.load(item(r.angles, at), p, sin)
		VMOVSLDUP(sin, cos)
		VMOVSHDUP(sin, sin)
		VXORPS(signs, sin, sin)
		r.eachHead(at, p, func(head reg.GPVirtual) {
			a, swapped := g.vec(), g.vec()
			g.load(Mem{Base: head}, p, a)
			VPERMILPS(U8(0xb1), a, swapped)
			VMULPS(cos, a, a)
			VMULPS(sin, swapped, swapped)
			VADDPS(swapped, a, a)
			g.store(a, p, Mem{Base: head})
		})
	})
	ret()
}

// rotation has the operands of both pairings; step is the size of a head in bytes.
type rotation struct{ x, heads, step, angles reg.GPVirtual }

// eachHead runs body with the address of number at of each head.
func (r *rotation) eachHead(at reg.GPVirtual, p *mask, body func(head reg.GPVirtual)) {
	name := "head"
	if p != nil {
		name = "head_rest"
	}
	head, left := GP64(), GP64()
	LEAQ(item(r.x, at), head)
	MOVQ(r.heads, left)
	Label(name)
	body(head)
	ADDQ(r.step, head)
	DECQ(left)
	JNZ(LabelRef(name))
}
