package kernels

import (
	"math"
	"unsafe"
)

// attendChunk is how many positions go through the softmax together. A chunk
// starts at a multiple of it, so where the cuts lie depends on positions alone.
// Its scores, keys and values for a tile stay in the caches.
const attendChunk = 256

// aheadBytes is how far ahead keys and values are asked for, a page at least: the time that
// they are read in is longer than memory takes to answer.
const aheadBytes = 8 << 10

// AttentionScratch is the length of Attention.Scores that a tile of rows =
// Queries·Group needs, whose last query looks at no more than context positions.
func AttentionScratch(rows, headDim, context int) int {
	return max(context, rows*(attendChunk+2*headDim)+2*PartLen(rows, headDim)+2*attendChunk+pairScratch(headDim))
}

// attention is an Attention on its way through a vector set. Row r is query
// r/Group, head r%Group.
type attention struct {
	*Attention
	v *vector
	cached
	pairs   *pairs // nil where the numbers are computed with as they are
	block   int    // bytes of one
	number  int    // bytes of one
	rows    int
	last    int       // of the pages that are looked at
	ahead   int       // how many pages on is asked for
	chunk   [2]int    // the first and the last page of the chunk
	q       []float32 // [rows][HeadDim]
	partial           // of the span's positions so far
	all     partial   // of the spans before it
	scores  []float32 // [rows][attendChunk], from lo on
	paired  []float32 // keys or values of some positions
	scratch []float32

	// of the chunk's keys and values, where the type has any
	keyScales, valueScales []float32
}

// attend computes a softmax for each span of positions and brings them together in
// their order: so the spans may be computed by several workers. In a span it goes chunk by
// chunk with a running softmax: what is summed so far is scaled whenever a larger
// score comes. In a chunk it goes page by page, all rows before the next page, so that
// K and V come from memory once. The sums of a row are the same, in the same order,
// whatever rows are beside it: a position that not all rows look at is added for each
// query alone.
func (v *vector) attend(a *Attention) {
	checkAttention(a)
	t := attention{Attention: a, v: v, cached: v.cached[a.KVType], block: a.BlockBytes(), number: a.NumberBytes()}
	if a.Round && a.KVType == KVF16 && v.pairs != nil {
		t.pairs, t.cached = v.pairs, v.pairs.cached
	}
	t.begin()
	first, end := a.from(0), a.To+a.Queries-1
	if a.Part != nil {
		t.span(max(first, a.Span*AttendSpan), min(end, (a.Span+1)*AttendSpan))
		return
	}
	for lo := first; lo < end; {
		hi := min(end, (lo/AttendSpan+1)*AttendSpan)
		if lo == first {
			t.span(lo, hi)
			t.all, t.partial = t.partial, newPartial(t.cut(PartLen(t.rows, t.HeadDim)), t.rows)
		} else {
			t.partial.clear()
			t.span(lo, hi)
			t.v.addPartial(&t.all, &t.partial)
		}
		lo = hi
	}
	v.endAttention(a, &t.all)
}

// span computes the sums of the positions [lo,end), which are of one span.
func (t *attention) span(lo, end int) {
	a := t.Attention
	for lo < end {
		hi := min(end, (lo/attendChunk+1)*attendChunk)
		t.chunk = [2]int{lo / t.PageTokens, (hi - 1) / t.PageTokens}
		if t.keyScales != nil {
			t.readScales(lo, hi)
		}
		t.products(lo, hi)
		for i := range a.Queries {
			if from, to := max(lo, a.from(i)), min(hi, a.To+i); from < to {
				for r := i * a.Group; r < (i+1)*a.Group; r++ {
					t.exponentials(r, from-lo, to-lo)
				}
			}
		}
		t.values(lo, hi)
		lo = hi
	}
}

// cut takes n numbers from the scratch.
func (t *attention) cut(n int) []float32 {
	x := t.scratch[:n]
	t.scratch = t.scratch[n:]
	return x
}

// begin lays the scratch out. Queries that do not lie side by side are brought
// together, and so are their outputs until the end.
func (t *attention) begin() {
	width := t.Group * t.HeadDim
	t.rows, t.scratch = t.Queries*t.Group, t.Scores
	t.last = (t.To + t.Queries - 2) / t.PageTokens
	t.ahead = max(1, aheadBytes/t.block)
	t.q = t.Q
	if t.pairs != nil {
		t.pairQueries()
	} else if !t.contiguous() {
		t.q = t.cut(t.Queries * width)
		for i := range t.Queries {
			copy(t.q[i*width:][:width], t.Q[i*t.Stride:])
		}
	}
	if t.Part != nil {
		t.partial = newPartial(t.Part, t.rows)
	} else {
		t.partial = newPartial(t.cut(PartLen(t.rows, t.HeadDim)), t.rows)
	}
	t.scores = t.cut(t.rows * attendChunk)
	if t.ScaleBytes() > 0 {
		t.keyScales, t.valueScales = t.cut(attendChunk), t.cut(attendChunk)
	}
}

func (t *attention) contiguous() bool { return t.Queries == 1 || t.Stride == t.Group*t.HeadDim }

// readScales brings the scales of the positions [lo,hi) together, in one go: each
// is a line of memory that nothing has asked for, and so they are waited for together.
func (t *attention) readScales(lo, hi int) {
	for at := lo; at < hi; {
		numbers, slot, next := t.run(at, hi)
		first := numbers - t.ScaleBytes() + 4*slot
		copy(bytesOf(t.keyScales[at-lo:next-lo]), t.K[first:])
		copy(bytesOf(t.valueScales[at-lo:next-lo]), t.V[first:])
		at = next
	}
}

// products computes the scores of the positions [lo,hi) for all rows, those that a
// row does not look at too, without the keys' scales.
func (t *attention) products(lo, hi int) {
	if t.pairs != nil {
		t.pairProducts(lo, hi)
		return
	}
	for at := lo; at < hi; {
		numbers, slot, next := t.run(at, hi)
		k := &t.K[numbers+slot*t.number]
		t.cached.dots(&t.scores[at-lo], attendChunk, &t.q[0], t.HeadDim, t.rows, k, t.PageTokens, next-at, t.Scale, t.afterKeys(at, 0))
		at = next
	}
}

// bytesOf is the memory of x. Pages hold scales as this processor does.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// exponentials replaces row r's scores of the chunk's positions [from,to) by
// exp(score−top), and once they are summed by their products with the values' scales.
func (t *attention) exponentials(r, from, to int) {
	scores := t.scores[r*attendChunk:][from:to]
	if t.keyScales != nil {
		t.v.scaleMul(scores, scores, t.keyScales[from:to], 1)
	}
	if t.SoftCap > 0 {
		t.v.softCap(scores, t.SoftCap)
	}
	if top := max(t.top[r], t.v.max(scores)); top != t.top[r] {
		by := float32(math.Exp(float64(t.top[r]) - float64(top)))
		t.top[r], t.sum[r] = top, t.sum[r]*by
		t.v.scale(t.out[r*t.HeadDim:][:t.HeadDim], by)
	}
	sum := t.v.expSum(scores, t.top[r])
	if t.pairs != nil {
		// The weights that values get sum to one: their rounding then moves an output by
		// its share of v−out, not of v, which may be large in all positions.
		sum = t.pairs.numbers(&scores[0], &scores[0], len(scores))
	}
	t.sum[r] += sum
	if t.valueScales != nil {
		t.v.scaleMul(scores, scores, t.valueScales[from:to], 1)
	}
}

// values adds the values of the positions [lo,hi), in their order: those of a page
// together for all queries beside each other that look at the same ones of them.
func (t *attention) values(lo, hi int) {
	for at := lo; at < hi; {
		next := t.take(at, hi)
		for i := 0; i < t.Queries; {
			from, to := t.looks(i, at, next)
			n := 1
			for i+n < t.Queries {
				if f, e := t.looks(i+n, at, next); f != from || e != to {
					break
				}
				n++
			}
			if from < to {
				t.weigh(lo, at, from, to, i*t.Group, n*t.Group)
			}
			i += n
		}
		at = next
	}
}

// looks says which of the positions [at,next) query i looks at.
func (t *attention) looks(i, at, next int) (from, to int) {
	return max(at, t.from(i)), min(next, t.To+i)
}

// take finds the positions from at on that weigh can add in one go.
func (t *attention) take(at, hi int) int {
	if t.once() {
		return t.pairValues(at, hi)
	}
	_, _, next := t.run(at, hi)
	return next
}

// weigh adds the values of [from,to) to rows of out from row on; lo is where the scores
// begin, and at where what was taken does.
func (t *attention) weigh(lo, at, from, to, row, rows int) {
	out, p := &t.out[row*t.HeadDim], &t.scores[row*attendChunk+from-lo]
	if t.once() {
		v, skip := t.pairAt(from - at)
		t.pairs.accumulate(out, t.HeadDim, rows, v, p, attendChunk, skip, to-from)
		return
	}
	numbers, slot, _ := t.run(from, to)
	v := &t.V[numbers+slot*t.HeadDim*t.number]
	t.cached.accumulate(out, t.HeadDim, rows, v, p, attendChunk, to-from, t.afterValues(from, 0))
}

// run finds the positions [at,next) before end that lie in one page: the numbers of
// its KV head begin there in a pool, and they lie from slot on.
func (t *attention) run(at, end int) (numbers, slot, next int) {
	i := at / t.PageTokens
	return t.page(i) + t.ScaleBytes(), at - i*t.PageTokens, min(end, (i+1)*t.PageTokens)
}

// afterKeys is what is read some pages after the keys of position at, offset bytes into
// the numbers: keys, or behind the chunk's its values.
func (t *attention) afterKeys(at, offset int) *byte {
	i := at/t.PageTokens + t.ahead
	if i <= t.chunk[1] {
		return &t.K[t.page(i)+t.ScaleBytes()+offset]
	}
	i = min(t.chunk[0]+i-t.chunk[1]-1, t.chunk[1])
	return &t.V[t.page(i)+t.ScaleBytes()+offset]
}

// afterValues is what is read some pages after the values of position at: values, or
// behind the chunk's the keys of the next one.
func (t *attention) afterValues(at, offset int) *byte {
	pool, i := t.V, min(at/t.PageTokens+t.ahead, t.last)
	if i > t.chunk[1] {
		pool = t.K
	}
	return &pool[t.page(i)+t.ScaleBytes()+offset]
}

// page is where the KV head's block of page i of the sequence begins.
func (t *attention) page(i int) int { return (int(t.Pages[i])*t.KVHeads + t.KVHead) * t.block }

// from is the first position that query i looks at.
func (a *Attention) from(i int) int {
	if a.Window == 0 {
		return 0
	}
	return max(0, a.To+i-a.Window)
}
