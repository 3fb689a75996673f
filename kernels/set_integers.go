package kernels

import "unsafe"

// integerProduct multiplies up to two vectors of weight rows with some rows of rounded
// activations; amxProduct multiplies RowTile rows of both.
type (
	integerProduct func(dst *float32, dstStride, rows int, w, x *byte, cols, n, ahead int)
	amxProduct     func(dst *float32, dstStride int, w, x *byte, cols, ahead int)
)

// integers are the products of an assembly package with quantised weights, of activations
// that it rounds to integers.
type integers struct {
	name       string
	lanes      int // of a vector: a product takes one vector of weight rows or two
	rowsMax    int // activation rows that a product takes at once
	fewRows    int // up to as many, one vector of weight rows is taken
	products   map[Type]integerProduct
	amx        map[Type]amxProduct     // may be nil
	unpackings map[Type]codesUnpacking // of types that are Coded; others are unpacked in plain Go
	round      func(dst *byte, x *float32, blocks int)
}

// withAMX is d with products of RowTile rows of activations with as many of weights at once.
func (d *integers) withAMX(products map[Type]amxProduct) *integers {
	with := *d
	with.amx = products
	return &with
}

// withIntegers is s with the products that d has.
func (s *Set) withIntegers(d *integers) *Set {
	with := *s
	with.Name = d.name
	with.InAssembly = func(t Type) bool { return d.products[t] != nil || t.Coded() || s.InAssembly(t) }
	with.Pack = func(t Type, rows, cols int, raw []byte) *Matrix {
		if d.products[t] == nil {
			return s.Pack(t, rows, cols, raw)
		}
		return byteTiles.pack(t, rows, cols, raw)
	}
	with.MatMul = func(dst []float32, dstStride int, m *Matrix, x Input, n, r0, r1 int) {
		switch {
		case m.Type.Coded():
			d.multiplyCoded(dst, dstStride, m, x.Blocks, n, r0, r1)
		case d.products[m.Type] == nil:
			s.MatMul(dst, dstStride, m, x, n, r0, r1)
		default:
			d.multiply(dst, dstStride, m, x.Blocks, n, r0, r1)
		}
	}
	with.Round = func(dst []Block, x []float32) {
		checkRound(dst, x)
		if len(x) > 0 {
			d.round(blockBytes(&dst[0]), &x[0], len(dst))
		}
	}
	return &with
}

func blockBytes(b *Block) *byte { return (*byte)(unsafe.Pointer(b)) }

// chunkBytes is the size of a chunk of activations, which is multiplied with all weights
// before the next chunk: about half of a core's second-level cache.
const chunkBytes = 512 << 10

// multiply goes through the weights by one or two vectors of rows at a time. They stay in the
// first-level cache for all activations of a chunk, which stays in the second-level cache.
func (d *integers) multiply(dst []float32, dstStride int, m *Matrix, x []Block, n, r0, r1 int) {
	checkMatMul(dst, dstStride, m, len(x)*BlockLen, n, r0, r1)
	rowBlocks := m.Cols / BlockLen
	unit := d.rowsMax
	if d.amx != nil {
		unit = RowTile
	}
	chunk := max(1, chunkBytes/(rowBlocks*int(unsafe.Sizeof(Block{})))/unit) * unit
	for i := 0; i < n; i += chunk {
		d.multiplyChunk(dst[i*dstStride:], dstStride, m, x[i*rowBlocks:], min(chunk, n-i), r0, r1)
	}
}

// multiplyChunk multiplies all rows of a chunk with the tiles of two vectors, and then with
// the next ones. Consecutive calls on the same tiles share the prefetching of the next: the
// first call fetches one tile, the second the other. With AMX, RowTile rows of
// activations are multiplied with whole tiles of weights at once.
func (d *integers) multiplyChunk(dst []float32, dstStride int, m *Matrix, x []Block, n, r0, r1 int) {
	product, amx := d.products[m.Type], d.amx[m.Type]
	rowBytes, rowBlocks := byteTiles.rowBytes(m.Type, m.Cols), m.Cols/BlockLen
	step, tile := 2*d.lanes, RowTile*rowBytes
	rest := n // rows of activations that AMX leaves
	if amx != nil {
		rest %= RowTile
	}
	if rest <= d.fewRows {
		step = d.lanes
	}
	for r := r0; r < r1; r += step {
		rows := min(step, r1-r)
		w := &m.Data[r*rowBytes]
		ahead := 0
		if n > d.rowsMax {
			ahead = step * rowBytes
		}
		i := 0
		if amx != nil && rows%RowTile == 0 {
			for ; i+RowTile <= n; i += RowTile {
				for v := 0; v < rows; v += RowTile {
					amx(&dst[i*dstStride+r+v], dstStride, &m.Data[(r+v)*rowBytes], blockBytes(&x[i*rowBlocks]), m.Cols, ahead)
				}
				ahead = -1
			}
		}
		for i < n {
			calls := (n - i + d.rowsMax - 1) / d.rowsMax
			count := (n - i + calls - 1) / calls
			product(&dst[i*dstStride+r], dstStride, rows, w, blockBytes(&x[i*rowBlocks]), m.Cols, count, ahead)
			i += count
			if ahead > 0 {
				ahead += tile
			}
			if ahead >= 2*step*rowBytes {
				ahead = -1
			}
		}
	}
}
