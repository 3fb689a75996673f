package kernels

import (
	"math"
	"unsafe"
)

// attendChunk is how many positions go through the softmax together. A chunk starts at a
// multiple of it, so the cuts depend only on positions. Its scores, keys and values stay
// in the caches for all rows.
const attendChunk = 256

// aheadBytes is how far ahead keys and values are prefetched, at least a page: reading that
// much takes longer than memory takes to answer.
const aheadBytes = 8 << 10

// AttentionScratch is the length of Attention.Scores for rows = Queries·Group, where the
// last query looks at no more than context positions.
func AttentionScratch(rows, headDim, context int) int {
	return max(context, rows*(attendChunk+2*headDim)+2*PartialLen(rows, headDim)+2*attendChunk+pairScratch(headDim))
}

// attention is the state of one Attend in a vector set. Row r is query r/Group, head
// r%Group.
type attention struct {
	*Attention
	v *vector
	cached
	pairs   *bfloatPairs // nil where nothing is rounded to bfloat16
	block   int          // bytes of a KV head's part of a page
	stride  int          // bytes from a page to the next
	number  int          // bytes of a number
	rows    int
	last    int       // the last page that is looked at
	ahead   int       // how many pages ahead is prefetched
	chunk   [2]int    // the first and the last page of the chunk
	q       []float32 // [rows][HeadDim]
	partial           // of the piece's positions so far
	all     partial   // of the pieces before it
	scores  []float32 // [rows][attendChunk], from lo on
	paired  []float32 // keys or values of some positions, as pairs
	scratch []float32

	// The scales of the chunk's keys and values, where the type has any.
	keyScales, valueScales []float32
}

// attend computes a softmax for each piece of the context and adds them up in their order,
// so that several workers may compute the pieces. It goes through a piece chunk by chunk
// with a running softmax: the sums so far are scaled whenever a larger score comes. It
// goes through a chunk page by page, all rows before the next page, so that K and V come
// from memory once. The sums of a row are the same, in the same order, whatever rows are
// beside it: a position that only some rows look at is added for each query alone.
func (v *vector) attend(a *Attention) {
	checkAttention(a)
	checkType("Attend", a.KVType)
	t := attention{Attention: a, v: v, cached: v.cached[a.KVType], block: a.BlockBytes(), stride: a.PageStride(), number: a.NumberBytes()}
	if a.Round && a.KVType == KVF16 && v.pairs != nil {
		t.pairs, t.cached = v.pairs, v.pairs.cached
	}
	t.begin()
	first, end := a.from(0), a.To+a.Queries-1
	if a.Partial != nil {
		t.piece(max(first, a.Piece*PieceLen), min(end, (a.Piece+1)*PieceLen))
		return
	}
	for lo := first; lo < end; {
		hi := min(end, (lo/PieceLen+1)*PieceLen)
		if lo == first {
			t.piece(lo, hi)
			t.all, t.partial = t.partial, newPartial(t.cut(PartialLen(t.rows, t.HeadDim)), t.rows)
		} else {
			t.partial.clear()
			t.piece(lo, hi)
			t.v.addPartial(&t.all, &t.partial)
		}
		lo = hi
	}
	v.endAttention(a, &t.all)
}

// piece computes the sums of the positions [lo,end), which are of one piece.
func (t *attention) piece(lo, end int) {
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

// begin lays out the scratch. Queries that do not lie side by side are copied together, and
// their outputs lie together until the end.
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
	if t.Partial != nil {
		t.partial = newPartial(t.Partial, t.rows)
	} else {
		t.partial = newPartial(t.cut(PartialLen(t.rows, t.HeadDim)), t.rows)
	}
	t.scores = t.cut(t.rows * attendChunk)
	if t.ScaleBytes() > 0 {
		t.keyScales, t.valueScales = t.cut(attendChunk), t.cut(attendChunk)
	}
}

func (t *attention) contiguous() bool { return t.Queries == 1 || t.Stride == t.Group*t.HeadDim }

// readScales copies the scales of the positions [lo,hi) together in one loop: each is in a
// cache line that nothing has prefetched, so the waiting times overlap.
func (t *attention) readScales(lo, hi int) {
	for at := lo; at < hi; {
		numbers, slot, next := t.run(at, hi)
		first := numbers - t.ScaleBytes() + 4*slot
		copy(bytesOf(t.keyScales[at-lo:next-lo]), t.K[first:])
		copy(bytesOf(t.valueScales[at-lo:next-lo]), t.V[first:])
		at = next
	}
}

// products computes the scores of the positions [lo,hi) for all rows, without the keys'
// scales. It includes positions that a row does not look at.
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
// exp(score−top), adds them to the row's sum, and then multiplies them with the values'
// scales.
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
		// The sum is that of the rounded weights, so the weights of the values sum to one.
		// Rounding then moves an output by a share of v−out, not of v, which may be large
		// in all positions.
		sum = t.pairs.numbers(&scores[0], &scores[0], len(scores))
	}
	t.sum[r] += sum
	if t.valueScales != nil {
		t.v.scaleMul(scores, scores, t.valueScales[from:to], 1)
	}
}

// values adds the values of the positions [lo,hi), in their order. The values of a page are
// added together for consecutive queries that look at the same positions of it.
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

// looks gives the positions of [at,next) that query i looks at.
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

// weigh adds the values of [from,to) to rows of out from row on. The scores begin at
// position lo, and the values that were taken at position at.
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

// run finds the positions [at,next) before end that lie in one page. The KV head's numbers
// of that page begin at numbers in a pool, and position at is in slot.
func (t *attention) run(at, end int) (numbers, slot, next int) {
	i := at / t.PageTokens
	return t.page(i) + t.ScaleBytes(), at - i*t.PageTokens, min(end, (i+1)*t.PageTokens)
}

// afterKeys is the address, offset bytes into the numbers, of the page that is read some
// pages after the keys of position at: keys, or after the chunk's keys its values.
func (t *attention) afterKeys(at, offset int) *byte {
	i := at/t.PageTokens + t.ahead
	if i <= t.chunk[1] {
		return &t.K[t.page(i)+t.ScaleBytes()+offset]
	}
	i = min(t.chunk[0]+i-t.chunk[1]-1, t.chunk[1])
	return &t.V[t.page(i)+t.ScaleBytes()+offset]
}

// afterValues is the same after the values of position at: values, or after the chunk's
// values the keys of the next chunk.
func (t *attention) afterValues(at, offset int) *byte {
	pool, i := t.V, min(at/t.PageTokens+t.ahead, t.last)
	if i > t.chunk[1] {
		pool = t.K
	}
	return &pool[t.page(i)+t.ScaleBytes()+offset]
}

// page is where the KV head's block of page i of the sequence begins.
func (t *attention) page(i int) int { return int(t.Pages[i])*t.stride + t.KVHead*t.block }

// from is the first position that query i looks at.
func (a *Attention) from(i int) int {
	if a.Window == 0 {
		return 0
	}
	return max(0, a.To+i-a.Window)
}
