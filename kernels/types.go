package kernels

import (
	"fmt"

	"github.com/forebay-io/forebay/kernels/ref"
)

// Type is a storage type of tensor elements, numbered as in GGUF files.
type Type uint32

// The types that can be computed with; the package comment says how to add one.
const (
	F32    Type = ref.F32
	F16    Type = ref.F16
	BF16   Type = ref.BF16
	Q8_0   Type = ref.Q8_0
	Q4_0   Type = ref.Q4_0
	Q4_1   Type = ref.Q4_1
	Q5_0   Type = ref.Q5_0
	Q5_1   Type = ref.Q5_1
	Q2_K   Type = ref.Q2_K
	Q3_K   Type = ref.Q3_K
	Q4_K   Type = ref.Q4_K
	Q5_K   Type = ref.Q5_K
	Q6_K   Type = ref.Q6_K
	IQ4_NL Type = ref.IQ4_NL
	IQ4_XS Type = ref.IQ4_XS
	MXFP4  Type = ref.MXFP4

	IQ1_S   Type = ref.IQ1_S
	IQ1_M   Type = ref.IQ1_M
	IQ2_XXS Type = ref.IQ2_XXS
	IQ2_XS  Type = ref.IQ2_XS
	IQ2_S   Type = ref.IQ2_S
	IQ3_XXS Type = ref.IQ3_XXS
	IQ3_S   Type = ref.IQ3_S
	TQ1_0   Type = ref.TQ1_0
	TQ2_0   Type = ref.TQ2_0
)

// typeInfo is one row of the type table: BlockLen elements take BlockBytes bytes.
type typeInfo struct {
	name                 string
	blockLen, blockBytes int
}

// typeTable has the types we compute with. Block layouts are ggml's; package ref documents
// them at its dequantisers.
var typeTable = map[Type]typeInfo{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2},
	Q8_0: {"Q8_0", 32, 34}, Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24},
	Q2_K: {"Q2_K", 256, 84}, Q3_K: {"Q3_K", 256, 110}, Q4_K: {"Q4_K", 256, 144}, Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210},
	IQ4_NL: {"IQ4_NL", 32, 18}, IQ4_XS: {"IQ4_XS", 256, 136}, MXFP4: {"MXFP4", 32, 17},

	IQ1_S: {"IQ1_S", 256, 50}, IQ1_M: {"IQ1_M", 256, 56}, IQ2_XXS: {"IQ2_XXS", 256, 66}, IQ2_XS: {"IQ2_XS", 256, 74}, IQ2_S: {"IQ2_S", 256, 82},
	IQ3_XXS: {"IQ3_XXS", 256, 98}, IQ3_S: {"IQ3_S", 256, 110}, TQ1_0: {"TQ1_0", 256, 54}, TQ2_0: {"TQ2_0", 256, 66},
}

// foreignTypes names types that other programs write and that we do not compute with.
var foreignTypes = map[Type]string{
	9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 40: "NVFP4",
}

// Known reports whether t can be computed with.
func (t Type) Known() bool { _, ok := typeTable[t]; return ok }

// BlockLen is the number of elements in a block.
func (t Type) BlockLen() int { return typeTable[t].blockLen }

// BlockBytes is the number of bytes in a block.
func (t Type) BlockBytes() int { return typeTable[t].blockBytes }

// Bytes is the size of n elements; n is a multiple of BlockLen.
func (t Type) Bytes(n int) int { return n / t.BlockLen() * t.BlockBytes() }

// String names t as its makers do, known or not.
func (t Type) String() string {
	if i, ok := typeTable[t]; ok {
		return i.name
	}
	if s, ok := foreignTypes[t]; ok {
		return s
	}
	return fmt.Sprintf("type %d", uint32(t))
}
