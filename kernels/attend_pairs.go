package kernels

import "unsafe"

// bfloatPairs are the loops of an assembly package that computes with pairs of bfloat16
// numbers, for pages of halves. A pair takes the place of a float32 number.
type bfloatPairs struct {
	cached  cached // multiply pairs with halves, which become pairs again for each rowsMax rows
	rowsMax int
	lanes   int // positions that dots takes at once

	halves     func(dst *float32, src *byte, stride, width, rows int, ahead *byte)
	numbers    func(dst, x *float32, n int) float32
	dots       func(dst *float32, dstStride int, q *float32, dim, rows int, k *float32, count int, scale float32)
	accumulate func(out *float32, dim, rows int, v, p *float32, pStride, skip, count int)
}

const (
	// pairedMax is how many positions' values become pairs together. They stay in the
	// first-level cache; the more they are, the less often the sums are read and written.
	pairedMax = 64
	// pairLanes is no less than the lanes of any set.
	pairLanes = 16
	lineWords = 16 // in a cache line
)

// pairWidth is the number of words in a row of pairs of n numbers.
func pairWidth(n int) int { return (n + pairLanes - 1) / pairLanes * pairLanes }

// pairScratch is the words that pairedMax values, or lanes keys, take, aligned to a cache
// line.
func pairScratch(headDim int) int { return pairedMax/2*pairWidth(headDim) + lineWords }

// pairQueries lays out the scratch that only pairs need, and makes pairs of the queries: of
// each number and the next one. dots reads every other pair.
func (t *attention) pairQueries() {
	begin := -int(uintptr(unsafe.Pointer(unsafe.SliceData(t.scratch)))/4) & (lineWords - 1)
	t.scratch = t.scratch[begin:]
	t.paired, t.q = t.cut(pairScratch(t.HeadDim)-lineWords), t.cut(t.rows*t.HeadDim)
	for r := range t.rows {
		t.pairs.numbers(&t.q[r*t.HeadDim], &t.Q[r/t.Group*t.Stride+r%t.Group*t.HeadDim], t.HeadDim)
	}
}

// once reports whether keys and values become pairs once, before all rows read them. From
// the third turn of rowsMax rows on that costs less than making them again.
func (t *attention) once() bool { return t.pairs != nil && t.rows > 2*t.pairs.rowsMax }

// pairProducts is products with pairs, for at most lanes positions at a time.
func (t *attention) pairProducts(lo, hi int) {
	for at := lo; at < hi; {
		numbers, slot, next := t.run(at, min(hi, at+t.pairs.lanes))
		scores, k, then := &t.scores[at-lo], &t.K[numbers+slot*t.number], t.afterKeys(at, slot*t.HeadDim*t.number)
		if t.once() {
			t.pairs.halves(&t.paired[0], k, t.PageTokens, next-at, t.HeadDim, then)
			t.pairs.dots(scores, attendChunk, &t.q[0], t.HeadDim, t.rows, &t.paired[0], next-at, t.Scale)
		} else {
			t.cached.dots(scores, attendChunk, &t.q[0], t.HeadDim, t.rows, k, t.PageTokens, next-at, t.Scale, then)
		}
		at = next
	}
}

// pairValues makes pairs of the values from position at on, at most pairedMax, and gives
// their end. It stops at the end of a page that leaves a value alone in its pair.
func (t *attention) pairValues(at, hi int) int {
	begin := at
	for hi = min(hi, at+pairedMax); at < hi && (at-begin)%2 == 0; {
		numbers, slot, next := t.run(at, hi)
		from := slot * t.HeadDim * t.number
		to, _ := t.pairAt(at - begin)
		t.pairs.halves(to, &t.V[numbers+from], t.HeadDim, t.HeadDim, next-at, t.afterValues(at, from))
		at = next
	}
	return at
}

// pairAt is the pair of value i in paired; skip is 1 where value i is the second of it.
func (t *attention) pairAt(i int) (pair *float32, skip int) {
	return &t.paired[i/2*pairWidth(t.HeadDim)], i % 2
}
