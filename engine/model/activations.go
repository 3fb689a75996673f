package model

import (
	"slices"
	"unsafe"

	"github.com/forebay-io/forebay/kernels"
)

// roundsAttention reports whether attention may round to bfloat16. It may where
// the products around it round more, since their matrices are in blocks; not in
// mixtures, where a small error may choose another expert.
func roundsAttention(c *Config, w *weights) bool {
	return c.Experts == 0 && c.largest().group > 0 && !slices.ContainsFunc(w.layers, func(l layer) bool { return l.out.Matrix != nil && l.out.Type.BlockLen() == 1 })
}

// activations are the rows with which a matrix is multiplied.
type activations struct {
	width   int
	numbers []float32
	memory  []kernels.Block // for the blocks of all numbers; nil where no product reads blocks
	blocks  []kernels.Block // memory, or nil where rows are no whole blocks
	set     *kernels.Set
}

// newActivations reserves n rows; rows returns zeroed memory for n rows of float32.
func newActivations(set *kernels.Set, n, width int, rows func(n, width int) []float32) activations {
	a := activations{width: width, numbers: rows(n, width), set: set}
	if set.Round == nil {
		return a
	}
	const words = int(unsafe.Sizeof(kernels.Block{}) / unsafe.Sizeof(float32(0)))
	if memory := rows(n*width/kernels.BlockLen, words); len(memory) > 0 {
		a.memory = unsafe.Slice((*kernels.Block)(unsafe.Pointer(&memory[0])), len(memory)/words)
	}
	return a.of(width)
}

// of is the same memory as rows of another width, which is no larger.
func (a *activations) of(width int) activations {
	b := *a
	if b.width, b.blocks = width, b.memory; width%kernels.BlockLen != 0 { // matrices in blocks have whole blocks of columns
		b.blocks = nil
	}
	return b
}

// row is the numbers of row i.
func (a *activations) row(i int) []float32 { return row(a.numbers, i, a.width) }

// from is the rows from i on.
func (a *activations) from(i int) kernels.Input {
	in := kernels.Input{Numbers: a.numbers[i*a.width:]}
	if a.blocks != nil {
		in.Blocks = a.blocks[i*a.width/kernels.BlockLen:]
	}
	return in
}

// round makes the blocks of the numbers [lo,hi) of row i, whole blocks.
func (a *activations) round(i, lo, hi int) {
	if a.blocks != nil {
		at := i * a.width
		a.set.Round(a.blocks[(at+lo)/kernels.BlockLen:(at+hi)/kernels.BlockLen], a.numbers[at+lo:at+hi])
	}
}

// copyRow copies row i of other.
func (a *activations) copyRow(to int, other *activations, i int) {
	copy(a.row(to), other.row(i))
	if a.blocks != nil {
		copy(a.from(to).Blocks[:a.width/kernels.BlockLen], other.from(i).Blocks)
	}
}
