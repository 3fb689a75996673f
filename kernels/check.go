package kernels

import "fmt"

// The checks of shapes run once per call, outside the loops. A wrong shape is a
// mistake of the caller, so it panics; without the check, assembly would write anywhere.

func panicf(format string, args ...any) { panic("kernels: " + fmt.Sprintf(format, args...)) }

func checkPack(t Type, rows, cols int, raw []byte) {
	if !t.Known() || rows < 1 || cols < 1 || cols%t.BlockLen() != 0 || len(raw) != rows*t.Bytes(cols) {
		panicf("Pack: %d×%d of %v from %d bytes", rows, cols, t, len(raw))
	}
}

// checkMatMul demands enough activations, as numbers or in blocks.
func checkMatMul(dst []float32, dstStride int, m *Matrix, activations, n, r0, r1 int) {
	if r0 < 0 || r0%RowTile != 0 || r1 < r0 || r1 > m.Rows || (r1%RowTile != 0 && r1 != m.Rows) {
		panicf("MatMul: rows [%d,%d) of %d are not whole tiles of %d", r0, r1, m.Rows, RowTile)
	}
	if n < 0 || activations < n*m.Cols {
		panicf("MatMul: %d rows of %d columns from %d activations", n, m.Cols, activations)
	}
	if n > 0 && (dstStride < r1 || len(dst) < (n-1)*dstStride+r1) {
		panicf("MatMul: %d rows of stride %d up to column %d into %d outputs", n, dstStride, r1, len(dst))
	}
}

func checkRound(dst []Block, x []float32) {
	if len(x) != len(dst)*BlockLen {
		panicf("Round: %d numbers into %d blocks of %d", len(x), len(dst), BlockLen)
	}
}

// checkLens demands that all lengths are want.
func checkLens(op string, want int, lens ...int) {
	for _, n := range lens {
		if n != want {
			panicf("%s: operands of %d and %d numbers", op, want, n)
		}
	}
}

func checkPeaks(dst, x []float32) {
	if len(dst) != Peaks(len(x)) {
		panicf("Peaks: %d numbers of %d", len(dst), len(x))
	}
}

func checkRotate(x, angles []float32, headDim int) {
	if headDim < 1 || len(x)%headDim != 0 || len(angles)%2 != 0 || len(angles) > headDim {
		panicf("Rotate: heads of %d in %d numbers, %d angles", headDim, len(x), len(angles))
	}
}

func checkFold(state, a, b, c, out []float32) {
	if len(b) != len(out) || len(c) != len(a) || len(state) != len(a)*len(out) {
		panicf("Fold: a state of %d numbers, %d and %d rows, %d and %d columns", len(state), len(a), len(c), len(b), len(out))
	}
}

func checkSoftmax(x []float32) {
	if len(x) == 0 {
		panicf("Softmax: no numbers")
	}
}

func checkAttention(a *Attention) {
	end := a.To + a.Queries - 1
	if a.To < 1 || a.Queries < 1 || a.Window < 0 || a.Group < 1 || a.HeadDim < 1 || a.PageTokens < 1 || !a.KVType.Known() {
		panicf("Attend: %d queries up to position %d, window %d, group %d, head of %d, pages of %d",
			a.Queries, a.To, a.Window, a.Group, a.HeadDim, a.PageTokens)
	}
	width := a.Group * a.HeadDim
	if n := (a.Queries-1)*a.Stride + width; len(a.Q) < n || len(a.Out) < n || a.Queries > 1 && a.Stride < width {
		panicf("Attend: %d queries of %d heads of %d with stride %d from %d numbers into %d",
			a.Queries, a.Group, a.HeadDim, a.Stride, len(a.Q), len(a.Out))
	}
	if a.Sinks != nil && len(a.Sinks) != a.Group {
		panicf("Attend: %d sinks for %d heads", len(a.Sinks), a.Group)
	}
	first := a.from(0)
	if n := AttentionScratch(a.Queries*a.Group, a.HeadDim, end-first); len(a.Scores) < n {
		panicf("Attend: scratch of %d, want %d for %d queries of %d heads and %d positions", len(a.Scores), n, a.Queries, a.Group, end-first)
	}
	if n := PartialLen(a.Queries*a.Group, a.HeadDim); a.Partial != nil && (len(a.Partial) != n || a.Piece < first/PieceLen || a.Piece > (end-1)/PieceLen) {
		panicf("Attend: a partial result of %d numbers for piece %d, want %d, up to position %d", len(a.Partial), a.Piece, n, end)
	}
	if a.KVHead < 0 || a.KVHead >= a.KVHeads || len(a.Pages)*a.PageTokens < end {
		panicf("Attend: KV head %d of %d, %d pages of %d for position %d", a.KVHead, a.KVHeads, len(a.Pages), a.PageTokens, end)
	}
	pageLen, stride := a.PageBytes(), a.PageStride()
	if stride < pageLen {
		panicf("Attend: pages of %d bytes, %d apart", pageLen, stride)
	}
	for _, p := range a.Pages[first/a.PageTokens : (end-1)/a.PageTokens+1] {
		if at := int(p) * stride; p < 0 || at+pageLen+KVSlack > len(a.K) || at+pageLen+KVSlack > len(a.V) {
			panicf("Attend: page %d of pools with %d and %d bytes", p, len(a.K), len(a.V))
		}
	}
}

// checkMerge demands one or more whole partial results of that size.
func checkMerge(a *Attention, partials []float32, size int) {
	if n := (a.Queries-1)*a.Stride + a.Group*a.HeadDim; len(partials) == 0 || len(partials)%size != 0 || len(a.Out) < n {
		panicf("Merge: %d numbers of partial results of %d each, %d outputs in %d", len(partials), size, n, len(a.Out))
	}
}

// checkType refuses types that have no loops in assembly.
func checkType(op string, t KVType) {
	if t.GPUOnly() {
		panicf("%s: only a GPU keeps keys and values as %v", op, t)
	}
}

func checkPlace(l *KVLayout, keys, values []byte, page, slot int, k, v []float32) {
	if !l.KVType.Known() || l.KVHeads < 1 || l.HeadDim < 1 || slot < 0 || slot >= l.PageTokens {
		panicf("Place: slot %d of a page of %d, %d KV heads of %d", slot, l.PageTokens, l.KVHeads, l.HeadDim)
	}
	if n := l.KVHeads * l.HeadDim; len(k) != n || len(v) != n {
		panicf("Place: %d and %d numbers for %d KV heads of %d", len(k), len(v), l.KVHeads, l.HeadDim)
	}
	if end := page*l.PageStride() + l.PageBytes(); page < 0 || end > len(keys) || end > len(values) {
		panicf("Place: page %d of pools with %d and %d bytes", page, len(keys), len(values))
	}
}
