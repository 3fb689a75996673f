package gguf

import "github.com/forebay-io/forebay/kernels"

// layout is the shape of a type's blocks: elements and bytes in each.
type layout struct{ elements, bytes int }

// foreignLayouts has the types that files may hold but kernels does not support.
// Their sizes are needed to check and list a file. The numbers are ggml's; an id
// in neither table was removed from ggml or never used.
var foreignLayouts = map[kernels.Type]layout{
	9: {32, 36}, 15: {256, 292}, // Q8_1 Q8_K
	24: {1, 1}, 25: {1, 2}, 26: {1, 4}, 27: {1, 8}, 28: {1, 8}, // I8 I16 I32 I64 F64
	40: {64, 36}, // NVFP4
}

func layoutOf(t kernels.Type) (layout, bool) {
	if t.Known() {
		return layout{t.BlockLen(), t.BlockBytes()}, true
	}
	l, ok := foreignLayouts[t]
	return l, ok
}
