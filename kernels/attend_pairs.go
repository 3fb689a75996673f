package kernels

import "unsafe"

// pairs are the loops of an assembly package that computes with pairs of bfloat16
// numbers, for pages of halves. A pair is a word in memory of float32 numbers.
type pairs struct {
	cached  cached // of pairs with halves, of which it makes pairs for each turn of rowsMax rows
	rowsMax int
	lanes   int // positions that dots takes at once

	halves     func(dst *float32, src *byte, stride, width, rows int, ahead *byte)
	numbers    func(dst, x *float32, n int) float32
	dots       func(dst *float32, dstStride int, q *float32, dim, rows int, k *float32, count int, scale float32)
	accumulate func(out *float32, dim, rows int, v, p *float32, pStride, skip, count int)
}

const (
	// pairedMax is how many positions' values are made pairs of together, so that the
	// sums are read and written that seldom. They stay in the first-level cache.
	pairedMax = 64
	// pairLanes is at least as many lanes as any set has.
	pairLanes = 16
	lineWords = 16 // of a cache line
)

// pairWidth is the words of a row of pairs of n numbers.
func pairWidth(n int) int { return (n + pairLanes - 1) / pairLanes * pairLanes }

// pairScratch is what pairedMax values, or lanes keys, take, from the beginning of a line on.
func pairScratch(headDim int) int { return pairedMax/2*pairWidth(headDim) + lineWords }

// pairQueries lays out the scratch that the other types do not have, and makes pairs of the
// queries: of each number and the next one, of which dots reads every other.
func (t *attention) pairQueries() {
	begin := -int(uintptr(unsafe.Pointer(unsafe.SliceData(t.scratch)))/4) & (lineWords - 1)
	t.scratch = t.scratch[begin:]
	t.paired, t.q = t.cut(pairScratch(t.HeadDim)-lineWords), t.cut(t.rows*t.HeadDim)
	for r := range t.rows {
		t.pairs.numbers(&t.q[r*t.HeadDim], &t.Q[r/t.Group*t.Stride+r%t.Group*t.HeadDim], t.HeadDim)
	}
}

// once says whether keys and values are made pairs of before all rows read them: from the
// third turn on, that costs less than to make them again.
func (t *attention) once() bool { return t.pairs != nil && t.rows > 2*t.pairs.rowsMax }

// pairProducts is products for some positions after the other.
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

// pairValues makes pairs of the values from at on, up to pairedMax and to the end of a page
// that leaves one alone, and gives where they end.
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

// pairAt is where the pair of value i of those that lie in paired is, and whether another
// value comes before it there.
func (t *attention) pairAt(i int) (pair *float32, skip int) {
	return &t.paired[i/2*pairWidth(t.HeadDim)], i % 2
}
