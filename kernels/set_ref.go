package kernels

import "github.com/forebay-io/forebay/kernels/ref"

// refSet is the specification as a Set. Its Matrix is the raw image.
var refSet = &Set{
	Name:       "ref",
	InAssembly: func(Type) bool { return false },
	Pack: func(t Type, rows, cols int, raw []byte) *Matrix {
		checkPack(t, rows, cols, raw)
		return &Matrix{Type: t, Rows: rows, Cols: cols, Data: raw}
	},
	MatMul: func(dst []float32, dstStride int, m *Matrix, x Input, n, r0, r1 int) {
		checkMatMul(dst, dstStride, m, len(x.Numbers), n, r0, r1)
		w := ref.Matrix{Type: uint32(m.Type), Cols: m.Cols, RowBytes: m.Type.Bytes(m.Cols), Data: m.Data}
		ref.MatMul(dst, dstStride, w, x.Numbers, n, r0, r1)
	},
	RMSNorm: func(dst, x, weight []float32, eps float32) {
		checkLens("RMSNorm", len(x), len(dst), len(weight))
		ref.RMSNorm(dst, x, weight, eps)
	},
	Rotate: func(x, angles []float32, headDim int, neighbours bool) {
		checkRotate(x, angles, headDim)
		ref.Rotate(x, angles, headDim, neighbours)
	},
	SiLUMul: func(dst, gate, up []float32) {
		checkLens("SiLUMul", len(gate), len(dst), len(up))
		ref.SiLUMul(dst, gate, up)
	},
	GELUMul: func(dst, gate, up []float32) {
		checkLens("GELUMul", len(gate), len(dst), len(up))
		ref.GELUMul(dst, gate, up)
	},
	ClampedSiLUMul: func(dst, gate, up []float32, limit float32) {
		checkLens("ClampedSiLUMul", len(gate), len(dst), len(up))
		ref.ClampedSiLUMul(dst, gate, up, limit)
	},
	SoftCap: ref.SoftCap,
	Add: func(dst, x []float32) {
		checkLens("Add", len(dst), len(x))
		ref.Add(dst, x)
	},
	MulAdd: func(dst, x, w []float32) {
		checkLens("MulAdd", len(dst), len(x), len(w))
		ref.MulAdd(dst, x, w)
	},
	Fold: func(state []float32, decay float32, a, b, c, out []float32) {
		checkFold(state, a, b, c, out)
		ref.Fold(state, decay, a, b, c, out)
	},
	Softmax: func(x []float32) {
		checkSoftmax(x)
		ref.Softmax(x)
	},
	Peaks: func(dst, x []float32) {
		checkPeaks(dst, x)
		ref.Peaks(dst, x)
	},
	Weigh: ref.Weigh,
	Place: func(l *KVLayout, keys, values []byte, page, slot int, k, v []float32) {
		checkPlace(l, keys, values, page, slot, k, v)
		l.Place(keys, values, page, slot, k, v)
	},
	Attend: func(a *Attention) {
		checkAttention(a)
		ref.Attend((*ref.Attention)(a))
	},
}

// Dequantize writes the len(dst) values that src holds as type t; len(dst) is a
// multiple of t.BlockLen(). The values are exact, bit for bit.
func Dequantize(dst []float32, t Type, src []byte) {
	if !t.Known() || len(dst)%t.BlockLen() != 0 || len(src) < t.Bytes(len(dst)) {
		panicf("Dequantize: %d values of %v from %d bytes", len(dst), t, len(src))
	}
	ref.Dequantize(dst, uint32(t), src)
}
