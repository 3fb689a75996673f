package kerneltest

import (
	"bytes"
	"math"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

// place compares pools byte by byte, for rows of every length with numbers of every kind, and
// checks that nothing else is written.
func (c *checker) place(t *testing.T) {
	r := random(8)
	odd := []float32{0, float32(math.Copysign(0, -1)), 65504, 65519, 65520, -7e4, 1e30, math.MaxFloat32, 0x1p-14, 0x1p-25, -0x1.8p-24, 1e-40, 1e-31}
	broken := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	for dim := 1; dim <= 70; dim++ {
		for round := range 12 {
			l := kernels.KVLayout{KVType: c.kv, PageTokens: 1 + r.IntN(20), KVHeads: 1 + r.IntN(3), HeadDim: dim}
			k, v := normal(r, l.KVHeads*dim), normal(r, l.KVHeads*dim)
			for i := range k {
				switch {
				case round%3 == 1:
					k[i] = odd[r.IntN(len(odd))]
				case round%3 == 2:
					k[i] *= float32(math.Exp2(r.Float64()*60 - 40))
				}
			}
			if round%4 == 0 {
				v[r.IntN(len(v))] = broken[r.IntN(len(broken))]
			}
			l.Spacing = l.PageBytes() + 64*r.IntN(2)
			page, slot := r.IntN(3), r.IntN(l.PageTokens)
			pools := func(set *kernels.Set) (keys, values []byte) {
				keys, values = bytes.Repeat([]byte{0xa5}, l.PoolBytes(3)), bytes.Repeat([]byte{0x5a}, l.PoolBytes(3))
				set.Place(&l, keys, values, page, slot, k, v)
				return keys, values
			}
			keys, values := pools(c.set)
			wantKeys, wantValues := pools(c.ref)
			if !bytes.Equal(keys, wantKeys) || !bytes.Equal(values, wantValues) {
				t.Fatalf("heads of %d in slot %d of %d: key %v or value %v lies there in other bytes than ref's", dim, slot, l.PageTokens, k, v)
			}
		}
	}
}
