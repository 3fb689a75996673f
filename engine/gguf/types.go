package gguf

import "github.com/forebay-io/forebay/kernels"

// layout is the shape of a type's blocks: elements and bytes in each.
type layout struct{ elements, bytes int }

// foreignLayouts has the types that files may hold but kernels does not support.
// Their sizes are needed to check and list a file. The numbers are ggml's; an id
// in neither table was removed from ggml or never used.
var foreignLayouts = map[kernels.Type]layout{
	9: {32, 36}, 15: {256, 292}, // Q8_1 Q8_K
	16: {256, 66}, 17: {256, 74}, 18: {256, 98}, 19: {256, 50}, // IQ2_XXS IQ2_XS IQ3_XXS IQ1_S
	21: {256, 110}, 22: {256, 82}, 29: {256, 56}, // IQ3_S IQ2_S IQ1_M
	24: {1, 1}, 25: {1, 2}, 26: {1, 4}, 27: {1, 8}, 28: {1, 8}, // I8 I16 I32 I64 F64
	34: {256, 54}, 35: {256, 66}, 40: {64, 36}, // TQ1_0 TQ2_0 NVFP4
}

func layoutOf(t kernels.Type) (layout, bool) {
	if t.Known() {
		return layout{t.BlockLen(), t.BlockBytes()}, true
	}
	l, ok := foreignLayouts[t]
	return l, ok
}
