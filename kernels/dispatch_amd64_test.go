//go:build amd64 && !purego

package kernels

import "testing"

// TestWrongProductsAreSeen: the comparison that allows AMX notices one wrong bit.
func TestWrongProductsAreSeen(t *testing.T) {
	set := Best()
	for typ := range typeTable {
		if typ.BlockLen() == 1 {
			continue
		}
		if !sameProducts(set, set, typ) {
			t.Errorf("%v: %s differs from itself", typ, set.Name)
		}
		wrong := *set
		wrong.MatMul = func(dst []float32, dstStride int, m *Matrix, x Input, n, r0, r1 int) {
			set.MatMul(dst, dstStride, m, x, n, r0, r1)
			dst[len(dst)-1] *= 1 + 0x1p-23
		}
		if sameProducts(&wrong, set, typ) || sameProducts(set, &wrong, typ) {
			t.Errorf("%v: one wrong number is not seen", typ)
		}
	}
}
