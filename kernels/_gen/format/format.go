// Package format has the table of the weights' types that both generators write
// products for, and the Go source that finds a product by its type.
//
// Weights lie in tiles of 16 rows; kernels/pack.go has the picture. A quantised type
// comes in blocks of 32 columns with scales before each block, and a type in
// super-blocks has a header before every eight blocks. How elements become numbers is
// each generator's own.
package format

import "strings"

// Format is how one type of weights lies in a tile of 16 rows.
type Format struct {
	Name    string // as package kernels names the type
	Scale   Scale
	Minimum Minimum
}

// Scale is the factor of a block's sum.
type Scale int

const (
	NoScale      Scale = iota
	HalfScale          // a half before each block
	BFloatScale        // a bfloat16 before each block
	FloatScale         // a float32 before each block, and room for another one
	FloatScales        // a float32 for each half of the block
	ByteScale          // a half in the header times a signed byte before each block
	ByteScales         // the same with a byte for each half of the block
	NibbleScales       // the same with the low nibble of a byte for each half
)

// Minimum is what a block's numbers begin at: its product with Σx joins the sum.
type Minimum int

const (
	NoMinimum      Minimum = iota
	HalfMinimum            // a half after the scale, added
	ByteMinimum            // a half in the header times a byte after the scale, subtracted
	NibbleMinimums         // a half in the header times the high nibble of the scales' bytes, subtracted
)

// Floats are the types whose elements are numbers.
var Floats = []Format{{Name: "F32"}, {Name: "F16"}, {Name: "BF16"}}

// Quantised are the types in blocks.
var Quantised = []Format{
	{"Q8_0", HalfScale, NoMinimum},
	{"Q4_0", HalfScale, NoMinimum},
	{"Q4_1", HalfScale, HalfMinimum},
	{"Q5_0", HalfScale, NoMinimum},
	{"Q5_1", HalfScale, HalfMinimum},
	{"IQ4_NL", HalfScale, NoMinimum},
	{"MXFP4", BFloatScale, NoMinimum},
	{"Q2_K", NibbleScales, NibbleMinimums},
	{"Q3_K", ByteScales, NoMinimum},
	{"Q4_K", ByteScale, ByteMinimum},
	{"Q5_K", ByteScale, ByteMinimum},
	{"Q6_K", ByteScales, NoMinimum},
	{"IQ4_XS", ByteScale, NoMinimum},
}

// Bytes are what types of codes are unpacked to before they are multiplied. No file has them.
var Bytes = []Format{
	{"Bytes32", FloatScale, NoMinimum},
	{"Bytes16", FloatScales, NoMinimum},
}

// Codes are types of codes from tables that are unpacked in assembly, and CodesOfAVX2 those that are in AVX2
// alone, with their codes or with digits.
var (
	Codes       = []Format{{Name: "IQ2_XXS"}, {Name: "IQ2_XS"}, {Name: "IQ2_S"}, {Name: "IQ3_XXS"}, {Name: "IQ3_S"}}
	CodesOfAVX2 = []Format{{Name: "IQ1_S"}, {Name: "IQ1_M"}, {Name: "TQ1_0"}, {Name: "TQ2_0"}}
)

// Const is the name of the type's constant in package kernels.
func (f Format) Const() string {
	if f.Scale == FloatScale || f.Scale == FloatScales {
		return strings.ToLower(f.Name)
	}
	return f.Name
}

// Scaled reports whether the type is quantised.
func (f Format) Scaled() bool { return f.Scale != NoScale }

// Super reports whether the type comes in super-blocks of eight blocks.
func (f Format) Super() bool { return f.Scale >= ByteScale }

// ScaleHalves is 2 where the halves of a block have scales of their own, else 1.
func (f Format) ScaleHalves() int {
	if f.Scale == FloatScales || f.Scale == ByteScales || f.Scale == NibbleScales {
		return 2
	}
	return 1
}

// HeaderBytes is the size of a super-block's header, over 16 rows.
func (f Format) HeaderBytes() int {
	switch {
	case !f.Super():
		return 0
	case f.Minimum == NoMinimum:
		return 32
	}
	return 64
}

// ScaleBytes is the size of the scales and minima before a block's elements, over 16 rows.
func (f Format) ScaleBytes() int {
	n := [...]int{NoScale: 0, HalfScale: 32, BFloatScale: 32, FloatScale: 128, FloatScales: 128, ByteScale: 16, ByteScales: 32, NibbleScales: 32}[f.Scale]
	return n + [...]int{NoMinimum: 0, HalfMinimum: 32, ByteMinimum: 16, NibbleMinimums: 0}[f.Minimum]
}

// IQ4Numbers are the numbers of the nibbles of IQ4_NL and IQ4_XS, and DoubledE2M1 those of
// MXFP4, times two.
var (
	IQ4Numbers  = []int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	DoubledE2M1 = []int{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)
