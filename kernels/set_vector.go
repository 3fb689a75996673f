package kernels

import (
	"math"

	"github.com/forebay-io/forebay/kernels/ref"
)

// floatProduct multiplies up to two vectors of weight rows with some rows of float32 activations.
type floatProduct func(dst *float32, dstStride, rows int, w *byte, x *float32, cols, n int)

// vector holds the functions of an assembly package, under their names there.
type vector struct {
	name     string
	lanes    int                   // of a vector: a product takes two vectors of weight rows
	rowsMax  int                   // activation rows that a product takes at once
	products map[Type]floatProduct // other types are computed as in ref

	add        func(dst, x []float32)
	siLUMul    func(dst, gate, up []float32)
	rotate     [2]func(x *float32, heads, headDim int, angles *float32, pairs int) // of halves, of neighbours
	geluMul    func(dst, gate, up []float32)
	clamped    func(dst, gate, up []float32, limit float32)
	softCap    func(x []float32, limit float32)
	sumSquares func(x []float32) float64
	scaleMul   func(dst, x, w []float32, s float32)
	max        func(x []float32) float32
	expSum     func(x []float32, top float32) float32
	weigh      func(x []float32, top, scale float32) float32
	scale      func(x []float32, s float32)
	mulAdd     func(dst, x, w []float32)                                                      // nil: in plain Go
	fold       func(state *float32, decay float32, rows int, a, b, c, out *float32, cols int) // nil: in plain Go
	cached     [3]cached                                                                      // by KVType
	pairs      *bfloatPairs                                                                   // for KVF16; may be nil

	placeHalves func(dst *byte, step int, x *float32, n int)
	placeBytes  func(dst *byte, step int, x *float32, n int, by float32)
	absMax      func(x *float32, n int) uint32
}

// cached are the loops over keys and values of one type, without scales.
type cached struct {
	dots       func(dst *float32, dstStride int, q *float32, dim, rows int, k *byte, kStride, count int, scale float32, ahead *byte)
	accumulate func(out *float32, dim, rows int, v *byte, p *float32, pStride, count int, ahead *byte)
}

// withPairs returns s, a set made from v, with the attention of p.
func (s *Set) withPairs(name string, v *vector, p *bfloatPairs) *Set {
	with, own := *s, *v
	own.pairs = p
	with.Name, with.Attend = name, own.attend
	return &with
}

// set composes the operations of a Set from the loops of v.
func (v *vector) set() *Set {
	return &Set{
		Name: v.name, Pack: v.pack, MatMul: v.multiply, InAssembly: v.multiplies,
		RMSNorm: v.rmsNorm, Rotate: v.rotateHeads, SoftCap: v.softCap, Place: v.place, Attend: v.attend, Merge: v.merge,
		SiLUMul: func(dst, gate, up []float32) {
			checkLens("SiLUMul", len(gate), len(dst), len(up))
			v.siLUMul(dst, gate, up)
		},
		GELUMul: func(dst, gate, up []float32) {
			checkLens("GELUMul", len(gate), len(dst), len(up))
			v.geluMul(dst, gate, up)
		},
		ClampedSiLUMul: func(dst, gate, up []float32, limit float32) {
			checkLens("ClampedSiLUMul", len(gate), len(dst), len(up))
			v.clamped(dst, gate, up, limit)
		},
		Add: func(dst, x []float32) {
			checkLens("Add", len(dst), len(x))
			v.add(dst, x)
		},
		MulAdd: func(dst, x, w []float32) {
			checkLens("MulAdd", len(dst), len(x), len(w))
			if v.mulAdd == nil {
				ref.MulAdd(dst, x, w)
				return
			}
			v.mulAdd(dst, x, w)
		},
		Fold: v.foldRows,
		Softmax: func(x []float32) {
			checkSoftmax(x)
			v.softmax(x)
		},
		Peaks: func(dst, x []float32) {
			checkPeaks(dst, x)
			v.peaks(dst, x)
		},
		Weigh: v.weigh,
	}
}

// multiplies reports whether there is a product for weights of type t.
func (v *vector) multiplies(t Type) bool { return v.products[t] != nil }

// pack is Set.Pack: weights without a product stay as they are, for ref.
func (v *vector) pack(t Type, rows, cols int, raw []byte) *Matrix {
	if !v.multiplies(t) {
		return refSet.Pack(t, rows, cols, raw)
	}
	return floatTiles.pack(t, rows, cols, raw)
}

// multiply takes two vectors of weight rows at a time, which stay in the cache for all
// activations.
func (v *vector) multiply(dst []float32, dstStride int, m *Matrix, in Input, n, r0, r1 int) {
	product := v.products[m.Type]
	if m.Type.Coded() {
		v.multiplyPlain(dst, dstStride, m, in.Numbers, n, r0, r1)
		return
	}
	if product == nil {
		refSet.MatMul(dst, dstStride, m, in, n, r0, r1)
		return
	}
	x := in.Numbers
	checkMatMul(dst, dstStride, m, len(x), n, r0, r1)
	rowBytes := floatTiles.rowBytes(m.Type, m.Cols)
	for r := r0; r < r1; r += 2 * v.lanes {
		rows := min(2*v.lanes, r1-r)
		w := &m.Data[r*rowBytes] // r is whole tiles, and a tile is RowTile rows
		for i := 0; i < n; {
			calls := (n - i + v.rowsMax - 1) / v.rowsMax
			count := (n - i + calls - 1) / calls // even shares: seven rows, at most six at once, are 4+3 and not 6+1
			product(&dst[i*dstStride+r], dstStride, rows, w, &x[i*m.Cols], m.Cols, count)
			i += count
		}
	}
}

func (v *vector) rmsNorm(dst, x, weight []float32, eps float32) {
	checkLens("RMSNorm", len(x), len(dst), len(weight))
	v.scaleMul(dst, x, weight, normScale(v.sumSquares(x), len(x), eps))
}

func (v *vector) rotateHeads(x, angles []float32, headDim int, neighbours bool) {
	checkRotate(x, angles, headDim)
	if len(x) == 0 || len(angles) == 0 {
		return
	}
	rotate := v.rotate[0]
	if neighbours {
		rotate = v.rotate[1]
	}
	rotate(&x[0], len(x)/headDim, headDim, &angles[0], len(angles)/2)
}

func (v *vector) softmax(x []float32) {
	v.scale(x, 1/v.expSum(x, v.max(x)))
}

func (v *vector) foldRows(state []float32, decay float32, a, b, c, out []float32) {
	checkFold(state, a, b, c, out)
	switch {
	case len(out) == 0 || len(a) == 0:
		clear(out)
	case v.fold == nil:
		ref.Fold(state, decay, a, b, c, out)
	default:
		v.fold(&state[0], decay, len(a), &a[0], &b[0], &c[0], &out[0], len(out))
	}
}

func (v *vector) peaks(dst, x []float32) {
	for i := range dst {
		part := x[i*PeakLen : min((i+1)*PeakLen, len(x))]
		dst[i] = v.max(part)
		if s := v.sumSquares(part); s != s { // max may miss a NaN
			dst[i] = float32(math.Inf(1))
		}
	}
}

// normScale is 1/√(sum/n+eps), computed in float64.
func normScale(sum float64, n int, eps float32) float32 {
	return float32(1 / math.Sqrt(sum/float64(n)+float64(eps)))
}
