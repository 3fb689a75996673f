package kernels

import "math"

// attendChunk is how many positions go through the softmax together. A chunk
// starts at a multiple of it, so where the cuts lie depends on positions alone.
// Its scores, keys and values for a tile stay in the caches.
const attendChunk = 256

// AttentionScratch is the length of Attention.Scores that a tile of rows =
// Queries·Group needs, whose last query looks at no more than context positions.
func AttentionScratch(rows, headDim, context int) int {
	return max(context, rows*(attendChunk+2*headDim+2))
}

// attention is an Attention on its way through a vector set. Row r is query
// r/Group, head r%Group.
type attention struct {
	*Attention
	v       *vector
	rows    int
	last    int       // of the pages that are looked at
	q, out  []float32 // [rows][HeadDim]; out is not yet divided by sum
	scores  []float32 // [rows][attendChunk], from lo on
	top     []float32 // the largest score so far, no less than -MaxFloat32
	sum     []float32 // Σ exp(score−top) so far
	scratch []float32
}

// attend goes chunk by chunk with a running softmax: what is summed so far is
// scaled whenever a larger score comes. In a chunk it goes page by page, all
// rows before the next page, so that K and V come from memory once. The sums of
// a row are the same, in the same order, whatever rows are beside it: a position
// that not all rows look at is added for each query alone.
func (v *vector) attend(a *Attention) {
	checkAttention(a)
	t := attention{Attention: a, v: v}
	t.begin()
	end := a.To + a.Queries - 1
	for lo := a.from(0); lo < end; {
		hi := min(end, (lo/attendChunk+1)*attendChunk)
		t.dots(lo, hi)
		for i := range a.Queries {
			if from, to := max(lo, a.from(i)), min(hi, a.To+i); from < to {
				for r := i * a.Group; r < (i+1)*a.Group; r++ {
					t.exponentials(r, t.scores[r*attendChunk:][from-lo:to-lo])
				}
			}
		}
		t.values(lo, hi)
		lo = hi
	}
	t.end()
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
	t.q, t.out = t.Q, t.Out
	if !t.contiguous() {
		t.q, t.out = t.cut(t.Queries*width), t.cut(t.Queries*width)
		for i := range t.Queries {
			copy(t.q[i*width:][:width], t.Q[i*t.Stride:])
		}
	}
	t.scores, t.top, t.sum = t.cut(t.rows*attendChunk), t.cut(t.rows), t.cut(t.rows)
	clear(t.out[:t.Queries*width])
	for r := range t.rows {
		t.top[r], t.sum[r] = -math.MaxFloat32, 0
		if t.Sinks != nil {
			sink := t.Sinks[r%t.Group]
			t.top[r] = max(t.top[r], sink)
			t.sum[r] = float32(math.Exp(float64(sink) - float64(t.top[r])))
		}
	}
}

func (t *attention) contiguous() bool { return t.Queries == 1 || t.Stride == t.Group*t.HeadDim }

// end divides by the sums.
func (t *attention) end() {
	for r := range t.rows {
		out := t.out[r*t.HeadDim:][:t.HeadDim]
		t.v.scale(out, 1/t.sum[r])
		if !t.contiguous() {
			copy(t.Out[r/t.Group*t.Stride+r%t.Group*t.HeadDim:], out)
		}
	}
}

// dots computes the scores of the positions [lo,hi) for all rows, those that a
// row does not look at too.
func (t *attention) dots(lo, hi int) {
	for at := lo; at < hi; {
		page, slot, next, ahead := t.run(at, hi)
		k := &t.K[page*t.HeadDim+slot]
		t.v.dots(&t.scores[at-lo], attendChunk, &t.q[0], t.HeadDim, t.rows, k, t.PageTokens, next-at, t.Scale, &t.K[ahead*t.HeadDim])
		at = next
	}
}

// exponentials replaces row r's scores of a chunk by exp(score−top).
func (t *attention) exponentials(r int, scores []float32) {
	if t.SoftCap > 0 {
		t.v.softCap(scores, t.SoftCap)
	}
	if top := max(t.top[r], t.v.max(scores)); top != t.top[r] {
		by := float32(math.Exp(float64(t.top[r]) - float64(top)))
		t.top[r], t.sum[r] = top, t.sum[r]*by
		t.v.scale(t.out[r*t.HeadDim:][:t.HeadDim], by)
	}
	t.sum[r] += t.v.expSum(scores, t.top[r])
}

// values adds the values of the positions [lo,hi), in their order: those that
// the last query begins at up to those that the first ends at for all rows
// together, and what lies before and behind for each query alone.
func (t *attention) values(lo, hi int) {
	from, to := max(lo, t.from(t.Queries-1)), min(hi, t.To)
	if to < from {
		to = from // narrow windows: nothing is common
	}
	for i := range t.Queries {
		t.accumulate(lo, max(lo, t.from(i)), min(from, t.To+i, hi), i, 1)
	}
	t.accumulate(lo, from, min(to, hi), 0, t.Queries)
	for i := range t.Queries {
		t.accumulate(lo, max(to, t.from(i)), min(hi, t.To+i), i, 1)
	}
}

// accumulate adds the values of [at,end) for n queries from the i-th on; lo is
// where the scores begin.
func (t *attention) accumulate(lo, at, end, i, n int) {
	row := i * t.Group
	for at < end {
		page, slot, next, ahead := t.run(at, end)
		v, p := &t.V[(page+slot)*t.HeadDim], &t.scores[row*attendChunk+at-lo]
		t.v.accumulate(&t.out[row*t.HeadDim], t.HeadDim, n*t.Group, v, p, attendChunk, next-at, &t.V[ahead*t.HeadDim])
		at = next
	}
}

// run finds the positions [at,next) before end that lie in one page: its KV
// head begins page positions into a pool, and they begin slot positions later.
// The head of the page after it, or of the last one again, is at ahead.
func (t *attention) run(at, end int) (page, slot, next, ahead int) {
	i := at / t.PageTokens
	return t.page(i), at - i*t.PageTokens, min(end, (i+1)*t.PageTokens), t.page(min(i+1, t.last))
}

// page is where the KV head begins in page i of the sequence, in positions.
func (t *attention) page(i int) int {
	return (int(t.Pages[i])*t.KVHeads + t.KVHead) * t.PageTokens
}

// from is the first position that query i looks at.
func (a *Attention) from(i int) int {
	if a.Window == 0 {
		return 0
	}
	return max(0, a.To+i-a.Window)
}
