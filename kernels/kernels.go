package kernels

// Set is one implementation of every operation: a row of the dispatch table.
// All functions may be called from several goroutines on disjoint outputs.
//
// Bit invariance: for one Set, each output number depends on its own inputs
// alone. It is the same bits whatever n, r0 and r1 are, however a prompt is
// cut into calls, and wherever pages lie.
type Set struct {
	// Name is the set's stable name: "ref", "avx2", "avx512".
	Name string

	// Pack lays the raw blocks of a rows×cols matrix out in the order that
	// this set's MatMul reads. raw is len rows·cols/BlockLen·BlockBytes, row by
	// row; cols is a multiple of t.BlockLen(). The result may alias raw.
	Pack func(t Type, rows, cols int, raw []byte) *Matrix

	// MatMul computes dst[i·dstStride+r] = Σ_c m[r,c]·x[i·m.Cols+c] for r in
	// [r0,r1) and i in [0,n). r0 is a multiple of RowTile; r1 is one too, or m.Rows.
	MatMul func(dst []float32, dstStride int, m *Matrix, x []float32, n, r0, r1 int)

	// RMSNorm computes dst[i] = x[i]·weight[i]/√(mean(x²)+eps). dst may be x.
	RMSNorm func(dst, x, weight []float32, eps float32)

	// SiLUMul computes dst[i] = gate[i]/(1+exp(−gate[i]))·up[i]. dst may be gate or up.
	SiLUMul func(dst, gate, up []float32)

	// Add computes dst[i] += x[i].
	Add func(dst, x []float32)

	// Softmax replaces x by exp(x−max x)/Σ. len(x) ≥ 1. A row whose entries
	// are all −∞ or that holds NaN or +∞ gives NaN.
	Softmax func(x []float32)

	// Attend computes one query token's attention; see Attention.
	Attend func(a *Attention)
}

// RowTile is the granularity of MatMul's row ranges in every set.
const RowTile = 16

// Matrix is a weight matrix in the layout of the Set that packed it.
type Matrix struct {
	Type       Type
	Rows, Cols int
	// Data is the packed image; its meaning belongs to the set.
	Data []byte
}

// Attention is the work of one query token on one KV head: the Group query
// heads that share it attend to the positions [From, To) of a paged cache.
//
// For each query head g: s[t] = Scale·Σ_d Q[g,d]·K[t,d], p = softmax(s),
// Out[g,d] = Σ_t p[t]·V[t,d].
type Attention struct {
	Out, Q []float32 // [Group][HeadDim], contiguous
	// K and V are one layer's pools. Position t of KV head h lies in page
	// p = Pages[t/PageTokens], at ((p·KVHeads+h)·PageTokens + t%PageTokens)·HeadDim.
	K, V       []float32
	Pages      []int32
	PageTokens int
	KVHeads    int
	KVHead     int
	HeadDim    int
	Group      int
	From, To   int
	Scale      float32
	// Scores is scratch of at least Group·(To−From) numbers.
	Scores []float32
}
