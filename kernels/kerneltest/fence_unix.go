//go:build unix

package kerneltest

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forebay-io/forebay/kernels"
)

const pageBytes = 64 << 10 // a multiple of every page size in use

// fence gives memory of n bytes that ends, or else begins, at a page that faults.
func fence(t *testing.T, n int, atEnd bool) []byte {
	t.Helper()
	size := (n + pageBytes - 1) / pageBytes * pageBytes
	all, err := unix.Mmap(-1, 0, size+2*pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(all) })
	for _, page := range [][]byte{all[:pageBytes], all[pageBytes+size:]} {
		if err := unix.Mprotect(page, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	if atEnd {
		return all[pageBytes+size-n : pageBytes+size : pageBytes+size]
	}
	return all[pageBytes : pageBytes+n : pageBytes+n]
}

// fenced is a copy of x beside a page that faults.
func fenced[T any](t *testing.T, x []T, atEnd bool) []T {
	t.Helper()
	var zero T
	memory := fence(t, len(x)*int(unsafe.Sizeof(zero)), atEnd)
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), len(x))
	copy(out, x)
	return out
}

// outside touches memory that faults as soon as an operation reads or writes
// past an end of an operand.
func (c *checker) outside(t *testing.T) {
	for _, atEnd := range []bool{true, false} {
		for _, typ := range c.types() {
			for _, shape := range [][3]int{{1, 1, 1}, {5, 2, 3}, {16, 3, 7}, {17, 33, 4}, {33, 5, 22}, {47, 1, 2}} {
				rows, cols, n := shape[0], shape[1]*typ.BlockLen(), shape[2]
				p := c.newProduct(uint64(rows), typ, rows, cols, n)
				m := c.set.Pack(typ, rows, cols, fenced(t, p.raw, atEnd))
				m.Data = fenced(t, m.Data, atEnd)
				dst, x := fenced(t, make([]float32, n*rows), atEnd), kernels.Input{Numbers: fenced(t, p.x, atEnd)}
				if c.rounds(typ) {
					x.Blocks = fenced(t, c.set.Input(x.Numbers).Blocks, atEnd)
				}
				for r0 := 0; r0 < rows; r0 += kernels.RowTile {
					c.set.MatMul(dst, rows, m, x, n, r0, min(r0+kernels.RowTile, rows))
				}
				c.set.MatMul(dst, rows, m, x, n, 0, rows)
			}
		}
		for n := 1; n <= 40; n++ {
			r := random(uint64(n))
			a, b, dst := fenced(t, normal(r, n), atEnd), fenced(t, normal(r, n), atEnd), fenced(t, make([]float32, n), atEnd)
			c.set.Add(dst, a)
			c.set.RMSNorm(dst, a, b, 1e-5)
			c.set.Rotate(dst, a[:n/2*2], n, false)
			c.set.Rotate(dst, a[:n/2*2], n, true)
			for _, op := range activations {
				op.run(c.set, dst, a, b)
			}
			c.set.Softmax(dst)
			attention := c.newCache(r, n, 2, 2+n%10).lay(r, 3, 1)
			used := attention.PoolBytes((attention.To + 2) / 3)
			attention.Pages = []int32{0, 1, 2, 3}
			attention.K, attention.V = fenced(t, make([]byte, used), atEnd), fenced(t, make([]byte, used), atEnd)
			for i := range attention.To {
				k, v := fenced(t, normal(r, n), atEnd), fenced(t, normal(r, n), atEnd)
				c.set.Place(&attention.KVLayout, attention.K, attention.V, i/3, i%3, k, v)
			}
			attention.Q, attention.Out = fenced(t, attention.Q, atEnd), fenced(t, attention.Out, atEnd)
			attention.Scores = fenced(t, attention.Scores, atEnd)
			attention.Sinks, attention.SoftCap = fenced(t, normal(r, 2), atEnd), 5
			c.set.Attend(attention)
			attention.Queries, attention.Group, attention.Stride, attention.To = 2, 1, n+3, attention.To-1
			attention.Q, attention.Out = fenced(t, normal(r, 2*n+3), atEnd), fenced(t, make([]float32, 2*n+3), atEnd)
			attention.Sinks = attention.Sinks[:1]
			c.set.Attend(attention)
		}
	}
}
