package kernels

import (
	"math"

	"github.com/forebay-io/forebay/kernels/ref"
)

// place is ref's Place, with the loops over the numbers of a narrow type in assembly where
// the set has them.
func (v *vector) place(l *KVLayout, keys, values []byte, page, slot int, key, value []float32) {
	checkPlace(l, keys, values, page, slot, key, value)
	checkType("Place", l.KVType)
	if l.KVType == KVF32 || v.placeHalves == nil {
		l.Place(keys, values, page, slot, key, value)
		return
	}
	for h := range l.KVHeads {
		at, from := l.Block(page, h), h*l.HeadDim
		v.placeRow(l, keys[at:], slot, slot, l.PageTokens, key[from:from+l.HeadDim])
		v.placeRow(l, values[at:], slot, slot*l.HeadDim, 1, value[from:from+l.HeadDim])
	}
}

// placeRow writes x to the numbers first, first+step, … of a block.
func (v *vector) placeRow(l *KVLayout, block []byte, slot, first, step int, x []float32) {
	size := l.NumberBytes()
	dst := &block[l.ScaleBytes()+first*size]
	if l.KVType == KVF16 {
		v.placeHalves(dst, step*size, &x[0], len(x))
		return
	}
	by := ref.PutScale(block[4*slot:], math.Float32frombits(v.absMax(&x[0], len(x))))
	v.placeBytes(dst, step*size, &x[0], len(x), by)
}
