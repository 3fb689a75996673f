package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is a width of vectors, with what comes with it.
type isa struct {
	wide  bool // AVX-512: 32 registers, opmasks
	lanes int  // float32 numbers in a vector
}

var (
	avx2   = &isa{lanes: 8}
	avx512 = &isa{wide: true, lanes: 16}
)

// rowsMax is how many rows share what is loaded, with accumulators for each: rows of
// activations in a product of floats, and rows of queries in attention.
func (g *isa) rowsMax() int {
	if g.wide {
		return 6
	}
	return 3
}

// text begins a function.
func text(name, signature, doc string) { textWith(NOSPLIT, name, signature, doc) }

func textWith(attributes attr.Attribute, name, signature, doc string) {
	TEXT(name, attributes, signature)
	Pragma("noescape")
	Doc(doc)
}

// ret ends a function, with the upper halves clean for code that uses SSE.
func ret() {
	VZEROUPPER()
	RET()
}

// vec is a new register of this width.
func (g *isa) vec() reg.VecVirtual {
	if g.wide {
		return ZMM()
	}
	return YMM()
}

// bytes is the size of a vector.
func (g *isa) bytes() int { return 4 * g.lanes }

func zero(v reg.VecVirtual) reg.VecVirtual {
	VXORPS(v, v, v)
	return v
}

var constants = map[string]Mem{}

// table is a constant in memory, written once.
func table(name string, words ...uint32) Mem {
	m, ok := constants[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for i, w := range words {
			DATA(4*i, U32(w))
		}
		constants[name] = m
	}
	return m
}

// bits is a vector of equal 32-bit words in memory.
func (g *isa) bits(word uint32) Mem {
	return table(fmt.Sprintf("k%08x", word), slices.Repeat([]uint32{word}, g.lanes)...)
}

// num is a vector of equal numbers in memory.
func (g *isa) num(f float64) Mem { return g.bits(math.Float32bits(float32(f))) }

// mask selects the first lanes of a vector.
type mask struct {
	k reg.OpmaskVirtual // AVX-512
	v reg.VecVirtual    // AVX2: all ones in the lanes that count
}

// firstLanes selects the first n lanes, 0 ≤ n ≤ lanes; n is overwritten.
func (g *isa) firstLanes(n reg.GPVirtual) mask {
	if g.wide {
		ones, k := GP64(), K()
		MOVQ(I32(-1), ones)
		BZHIQ(n, ones, ones)
		KMOVW(ones.As32(), k)
		return mask{k: k}
	}
	words := append(slices.Repeat([]uint32{0xffffffff}, 8), make([]uint32, 8)...)
	base, v := GP64(), YMM()
	LEAQ(table("mask", words...), base)
	NEGQ(n)
	VMOVDQU(Mem{Base: base, Index: n, Scale: 4, Disp: 32}, v)
	return mask{v: v}
}

// load reads a vector, or the lanes of p, which are the only ones then that are not 0.
func (g *isa) load(m Mem, p *mask, v reg.VecVirtual) {
	switch {
	case p == nil:
		VMOVUPS(m, v)
	case g.wide:
		VMOVUPS_Z(m, p.k, v)
	default:
		VMASKMOVPS(m, p.v, v)
	}
}

func (g *isa) store(v reg.VecVirtual, p *mask, m Mem) {
	switch {
	case p == nil:
		VMOVUPS(v, m)
	case g.wide:
		VMOVUPS(v, p.k, m)
	default:
		VMASKMOVPS(v, p.v, m)
	}
}

// fold adds the upper half of a vector to the lower one until four lanes are left.
func (g *isa) fold(v reg.VecVirtual) reg.VecVirtual {
	half := YMM()
	if g.wide {
		VEXTRACTF64X4(U8(1), v, half)
		VADDPS(half, v.AsY(), v.AsY())
	}
	VEXTRACTF128(U8(1), v.AsY(), half.AsX())
	VADDPS(half.AsX(), v.AsX(), v.AsX())
	return v
}

// each goes over n numbers: body runs once for each whole vector and once, with a mask, for
// the rest. at is the index of the next number.
func (g *isa) each(name string, n reg.GPVirtual, body func(at reg.GPVirtual, p *mask)) {
	at := GP64()
	XORQ(at, at)
	SUBQ(I32(g.lanes), n)
	JLT(LabelRef(name + "_rest"))
	Label(name + "_vector")
	body(at, nil)
	ADDQ(I32(g.lanes), at)
	SUBQ(I32(g.lanes), n)
	JGE(LabelRef(name + "_vector"))
	Label(name + "_rest")
	ADDQ(I32(g.lanes), n)
	JLE(LabelRef(name + "_end"))
	p := g.firstLanes(n)
	body(at, &p)
	Label(name + "_end")
}

// ptr loads the base of a slice parameter, n its length.
func ptr(name string) reg.GPVirtual { r := GP64(); Load(Param(name).Base(), r); return r }
func n(name string) reg.GPVirtual   { r := GP64(); Load(Param(name).Len(), r); return r }
func val(name string) reg.GPVirtual { r := GP64(); Load(Param(name), r); return r }

func item(base, at reg.GPVirtual) Mem { return Mem{Base: base, Index: at, Scale: 4} }
