// Command gen writes the assembly of kernels/avx2, avx2int8, avx512, avx512vnni, avx512bf16
// and avx512amx, and the loops of kernels/probe. The sets avx2 and avx512 come from the same
// program: they differ in the width of a vector, in the number of registers and in how a part
// of a vector is loaded and stored. avx2int8 and avx512vnni are matrix products with integers
// beside the other operations of avx2 and avx512, avx512bf16 is attention with bfloat16, and
// avx512amx has the products of avx512vnni for many rows.
//
//	go generate
package main

//go:generate go run . -set avx2 -pkg avx2 -out ../avx2/impl_amd64.s -stubs ../avx2/stubs.go
//go:generate go run . -set avx2int8 -pkg avx2int8 -out ../avx2int8/impl_amd64.s -stubs ../avx2int8/stubs.go
//go:generate go run . -set avx512vnni -pkg avx512vnni -out ../avx512vnni/impl_amd64.s -stubs ../avx512vnni/stubs.go
//go:generate go run . -set avx512 -pkg avx512 -out ../avx512/impl_amd64.s -stubs ../avx512/stubs.go
//go:generate go run . -set avx512bf16 -pkg avx512bf16 -out ../avx512bf16/impl_amd64.s -stubs ../avx512bf16/stubs.go
//go:generate go run . -set avx512amx -pkg avx512amx -out ../avx512amx/impl_amd64.s -stubs ../avx512amx/stubs.go
//go:generate go run . -set probe -pkg probe -out ../probe/impl_amd64.s -stubs ../probe/stubs.go

import (
	"flag"
	"fmt"
	"math"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is what the two sets differ in.
type isa struct {
	wide       bool // AVX-512: 32 registers, opmasks
	lanes      int  // float32 numbers in a vector
	rows       int  // activation rows that MatMul keeps accumulators for
	scaledRows int  // the same for types with scales
}

func main() {
	set := flag.String("set", "", "avx2, avx2int8, avx512, avx512vnni, avx512bf16, avx512amx or probe")
	flag.Parse()
	g := &isa{lanes: 8, rows: 3, scaledRows: 2}
	if *set != "avx2" && *set != "avx2int8" {
		g = &isa{wide: true, lanes: 16, rows: 6, scaledRows: 4}
	}
	ConstraintExpr("amd64,!purego")
	switch *set {
	case "avx512vnni":
		g.scaledRows = 6
		for _, f := range byteFormats {
			g.dotMatMul(f)
		}
		g.round()
		Generate()
		return
	case "avx512bf16":
		bfloatLoops()
		Generate()
		byBytes()
		return
	case "avx512amx":
		for _, f := range byteFormats {
			g.tiles(f)
		}
		Generate()
		byBytes()
		return
	case "avx2int8":
		for _, f := range byteFormats {
			g.rowsMatMul(f)
		}
		g.round()
		Generate()
		return
	case "probe":
		probes()
		Generate()
		return
	}
	for _, f := range formats {
		g.matMul(f)
	}
	g.add()
	g.rotateHalves()
	g.rotateNeighbours()
	g.siluMul()
	g.geluMul()
	g.clampedSiLUMul()
	g.softCap()
	g.scale()
	g.scaleMul()
	g.sumSquares()
	g.max()
	g.expSum()
	g.weigh()
	for _, c := range cachedTypes {
		g.dots(c)
		g.accumulate(c)
	}
	placeHalves()
	absMax()
	placeBytes()
	Generate()
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

// vec is a new register of this set's width.
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

// bits is a vector of lanes equal 32-bit words in memory.
func (g *isa) bits(word uint32) Mem {
	return table(fmt.Sprintf("k%08x", word), slices.Repeat([]uint32{word}, g.lanes)...)
}

// num is a vector of lanes equal numbers in memory.
func (g *isa) num(f float64) Mem { return g.bits(math.Float32bits(float32(f))) }

// part is the first n lanes of a vector, 0 ≤ n ≤ lanes.
type part struct {
	k reg.OpmaskVirtual // AVX-512
	v reg.VecVirtual    // AVX2: all ones in the lanes that count
}

// part makes the mask of the first n lanes; n is overwritten.
func (g *isa) part(n reg.GPVirtual) part {
	if g.wide {
		ones, k := GP64(), K()
		MOVQ(I32(-1), ones)
		BZHIQ(n, ones, ones)
		KMOVW(ones.As32(), k)
		return part{k: k}
	}
	words := append(slices.Repeat([]uint32{0xffffffff}, 8), make([]uint32, 8)...)
	base, v := GP64(), YMM()
	LEAQ(table("mask", words...), base)
	NEGQ(n)
	VMOVDQU(Mem{Base: base, Index: n, Scale: 4, Disp: 32}, v)
	return part{v: v}
}

// load reads a part of a vector; the other lanes are 0.
func (g *isa) load(m Mem, p *part, v reg.VecVirtual) {
	switch {
	case p == nil:
		VMOVUPS(m, v)
	case g.wide:
		VMOVUPS_Z(m, p.k, v)
	default:
		VMASKMOVPS(m, p.v, v)
	}
}

func (g *isa) store(v reg.VecVirtual, p *part, m Mem) {
	switch {
	case p == nil:
		VMOVUPS(v, m)
	case g.wide:
		VMOVUPS(v, p.k, m)
	default:
		VMASKMOVPS(v, p.v, m)
	}
}

// fold adds the upper halves of a vector to the lower ones until four lanes are left.
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

// each walks over n numbers: body runs once for each whole vector and once, with
// a mask, for the rest. body finds its place at index at, counted in numbers.
func (g *isa) each(name string, n reg.GPVirtual, body func(at reg.GPVirtual, p *part)) {
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
	p := g.part(n)
	body(at, &p)
	Label(name + "_end")
}

// ptr loads the base of a slice parameter, n its length.
func ptr(name string) reg.GPVirtual { r := GP64(); Load(Param(name).Base(), r); return r }
func n(name string) reg.GPVirtual   { r := GP64(); Load(Param(name).Len(), r); return r }
func val(name string) reg.GPVirtual { r := GP64(); Load(Param(name), r); return r }

func item(base, at reg.GPVirtual) Mem { return Mem{Base: base, Index: at, Scale: 4} }
