package kernels

import (
	"unsafe"

	"github.com/forebay-io/forebay/kernels/ref"
)

// In the sets that round nothing, weights of a Coded type become float32 numbers in plain Go,
// piece by piece, and these go through the product of F32: so the rows of a prompt share what a
// block costs.

// pieceColumns is how many columns of a tile are numbers at the same time.
const pieceColumns = ref.BlockLenMax

// plainRowsMax is no less than the rows of activations that any product takes at once.
const plainRowsMax = 8

// plainPiece is a tile's numbers, column by column, and room for one row of them; inputs are
// rows of activations, for the same columns.
type plainPiece struct {
	numbers [pieceColumns * RowTile]float32
	row     [pieceColumns]float32
	inputs  [plainRowsMax * pieceColumns]float32
	sums    [plainRowsMax * RowTile]float32
}

var plainPieces = make(kept[plainPiece], keptMost)

// kept is what is not in use, so that a product allocates nothing. A sync.Pool would lose
// it at each garbage collection.
type kept[T any] chan *T

// keptMost is how many are kept, one for each of so many threads.
const keptMost = 256

func (k kept[T]) take() *T {
	select {
	case t := <-k:
		return t
	default:
		return new(T)
	}
}

func (k kept[T]) keep(t *T) {
	select {
	case k <- t:
	default:
	}
}

// multiplyPlain multiplies weights of a Coded type. An output is the sum of its pieces, in
// their order.
func (v *vector) multiplyPlain(dst []float32, dstStride int, m *Matrix, x []float32, n, r0, r1 int) {
	checkMatMul(dst, dstStride, m, len(x), n, r0, r1)
	p := plainPieces.take()
	defer plainPieces.keep(p)
	for r := r0; r < r1; r += RowTile {
		rows := min(RowTile, r1-r)
		for c := 0; c < m.Cols; c += pieceColumns {
			cols := min(pieceColumns, m.Cols-c)
			p.unpack(m, r, rows, c, cols)
			for i := 0; i < n; i += v.rowsMax {
				p.multiply(v, dst[i*dstStride+r:], dstStride, x[i*m.Cols+c:], m.Cols, rows, cols, min(v.rowsMax, n-i), c == 0)
			}
		}
	}
}

// unpack makes the numbers of some rows and columns. Rows that a tile lacks are not read.
func (p *plainPiece) unpack(m *Matrix, r, rows, c, cols int) {
	rowBytes := m.Type.Bytes(m.Cols)
	for k := range rows {
		ref.Dequantize(p.row[:cols], uint32(m.Type), m.Data[(r+k)*rowBytes+m.Type.Bytes(c):])
		for j, w := range p.row[:cols] {
			p.numbers[j*RowTile+k] = w
		}
	}
}

// multiply adds a piece's products of n rows to dst, or sets dst to them.
func (p *plainPiece) multiply(v *vector, dst []float32, dstStride int, x []float32, xStride, rows, cols, n int, first bool) {
	for i := range n {
		copy(p.inputs[i*cols:][:cols], x[i*xStride:])
	}
	v.products[F32](&p.sums[0], RowTile, rows, (*byte)(unsafe.Pointer(&p.numbers[0])), &p.inputs[0], cols, n)
	for i := range n {
		out, sums := dst[i*dstStride:][:rows], p.sums[i*RowTile:][:rows]
		if first {
			copy(out, sums)
			continue
		}
		for k, s := range sums {
			out[k] += s
		}
	}
}
