// Command gen writes the assembly of kernels/avx2, avx2int8, avx512, avx512vnni, avx512bf16
// and avx512amx, the loops of kernels/probe, and the table of products of package kernels.
// The sets avx2 and avx512 come from the same program: they differ in the width of a vector,
// in the number of registers and in how a part of a vector is loaded and stored. avx2int8 and
// avx512vnni are matrix products with integers beside the other operations of avx2 and avx512,
// avx512bf16 is attention with bfloat16, and avx512amx has the products of avx512vnni for many
// rows.
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
//go:generate go run . -products ../products_amd64.go

import (
	"flag"
	"fmt"
	"os"
	"slices"

	. "github.com/mmcloughlin/avo/build"

	"github.com/forebay-io/forebay/kernels/_gen/format"
)

// programs are what each package of assembly has.
var programs = map[string]func(){
	"avx2":       avx2.floatSet,
	"avx512":     avx512.floatSet,
	"avx2int8":   avx2.integerSet(avx2.rowsMatMul, unpackAllNarrow),
	"avx512vnni": avx512.integerSet(avx512.dotMatMul, unpackAllCodes),
	"avx512bf16": avx512.bfloatLoops,
	"avx512amx":  amxSet,
	"probe":      probes,
}

// integerFormats are the types of weights in products of rounded activations.
var integerFormats = slices.Concat(format.Quantised, format.Bytes)

// products are the matrix products of the packages, which package kernels finds by type.
var products = []format.Products{
	{Package: "avx2", Kind: "floatProduct", Prefix: "MatMul", Var: "avx2Products", Formats: format.Floats},
	{Package: "avx2int8", Kind: "integerProduct", Prefix: "MatMul", Var: "avx2int8Products", Formats: integerFormats},
	{Package: "avx2int8", Kind: "codesUnpacking", Prefix: "Unpack", Var: "avx2int8Unpackings", Formats: slices.Concat(format.Codes, format.CodesOfAVX2)},
	{Package: "avx512", Kind: "floatProduct", Prefix: "MatMul", Var: "avx512Products", Formats: format.Floats},
	{Package: "avx512amx", Kind: "amxProduct", Prefix: "Tiles", Var: "avx512amxProducts", Formats: integerFormats},
	{Package: "avx512vnni", Kind: "integerProduct", Prefix: "MatMul", Var: "avx512vnniProducts", Formats: integerFormats},
	{Package: "avx512vnni", Kind: "codesUnpacking", Prefix: "Unpack", Var: "avx512vnniUnpackings", Formats: format.Codes},
}

func main() {
	set := flag.String("set", "", "the package to write, whose files -out and -stubs name")
	table := flag.String("products", "", "the file to write the table of products to, instead of a package")
	flag.Parse()
	if *table != "" {
		if err := format.WriteProducts(*table, "go run . -products "+*table+" (in kernels/_gen)", "amd64", products); err != nil {
			fail(err)
		}
		return
	}
	program, ok := programs[*set]
	if !ok {
		fail(fmt.Errorf("no set %q", *set))
	}
	ConstraintExpr("amd64,!purego")
	program()
	Generate()
	if err := encodeUnknown(flag.Lookup("out").Value.String()); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "gen:", err)
	os.Exit(1)
}

// floatSet is the program of a set of its own: float32 products and everything else.
func (g *isa) floatSet() {
	for _, f := range floatFormats {
		g.matMul(f)
	}
	g.add()
	g.mulAdd()
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
	g.foldRows()
	for _, c := range cachedTypes {
		g.dots(c)
		g.accumulate(c)
	}
	placeHalves()
	absMax()
	placeBytes()
}

// integerSet is the program of products of rounded activations, of their rounding, and of what
// unpacks codes.
func (g *isa) integerSet(product func(quantised), unpack func()) func() {
	return func() {
		for _, f := range quantisedFormats {
			product(f)
		}
		unpack()
		g.round()
	}
}

// amxSet is the program of products by AMX.
func amxSet() {
	for _, f := range quantisedFormats {
		avx512.amxProduct(f)
	}
}
