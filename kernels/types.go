package kernels

import "fmt"

// Type is a storage type of tensor elements, numbered as in GGUF files.
type Type uint32

// The types that can be computed with; the package comment says how to add one.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q8_0 Type = 8
	BF16 Type = 30
)

// typeInfo is one row of the type table: BlockLen elements take BlockBytes bytes.
type typeInfo struct {
	name                 string
	blockLen, blockBytes int
}

// typeTable has the types we compute with. Block layouts are ggml's.
var typeTable = map[Type]typeInfo{
	F32:  {"F32", 1, 4},
	F16:  {"F16", 1, 2},
	BF16: {"BF16", 1, 2},
	Q8_0: {"Q8_0", 32, 34}, // f16 d; int8 q[32]; w = d·q
	Q4_0: {"Q4_0", 32, 18}, // f16 d; 16 bytes; byte j holds elements j (low) and j+16 (high); w = d·(n−8)
}

// foreignTypes names the types that other programs write and we do not compute with.
var foreignTypes = map[Type]string{
	3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
	16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
	24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
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
