package kernels

import "github.com/forebay-io/forebay/kernels/ref"

// Set is one implementation of every operation: a row of the dispatch table.
// All functions may be called from several goroutines on disjoint outputs.
//
// Bit invariance: for one Set, each output number depends only on its own inputs. It has
// the same bits whatever n, r0 and r1 are, however a prompt is cut into calls, and wherever
// pages lie.
type Set struct {
	// Name is the set's stable name: "ref", "avx2", "avx2int8", "avx512", "avx512vnni",
	// "avx512bf16", "avx512amx", "neon". Its package has the same name.
	Name string

	// InAssembly reports whether MatMul multiplies weights of type t in assembly. Otherwise it
	// computes in plain Go as ref does, many times slower: avx2 and avx512 have no products of
	// quantised weights, and only sets that round have products of Coded types.
	InAssembly func(t Type) bool

	// ManyRows names the way in which a set multiplies RowTile and more rows of activations, if
	// it has two ways. Alternative is then the same set with the other way: the same name,
	// layout and bits. Faster times both. Other sets have neither.
	ManyRows    string
	Alternative *Set

	// Pack lays the raw blocks of a rows×cols matrix out in the order that
	// this set's MatMul reads. raw is len rows·cols/BlockLen·BlockBytes, row by
	// row; cols is a multiple of t.BlockLen(). The result may alias raw.
	Pack func(t Type, rows, cols int, raw []byte) *Matrix

	// MatMul computes dst[i·dstStride+r] = Σ_c m[r,c]·x[i,c] for r in [r0,r1) and
	// i in [0,n), from x's Blocks where the set has Round and a product of m's quantised
	// type in assembly, else from its Numbers. r0 is a multiple of RowTile; so is r1, or it is m.Rows.
	MatMul func(dst []float32, dstStride int, m *Matrix, x Input, n, r0, r1 int)

	// Round makes the blocks that MatMul reads. len(x) is a multiple of BlockLen. The
	// aligned group of four that holds a block's largest value keeps 16 bits; the others
	// get 8, so an outlier does not make the steps of all of them large. Round is nil
	// where MatMul reads only numbers.
	Round func(dst []Block, x []float32)

	// RMSNorm computes dst[i] = x[i]·weight[i]/√(mean(x²)+eps). dst may be x.
	RMSNorm func(dst, x, weight []float32, eps float32)

	// Rotate turns pairs of numbers of each head of x, headDim numbers each: a and b
	// become a·cos−b·sin and a·sin+b·cos, two products and one sum in float32, to the
	// same bits in all sets. Pair i of a head is its numbers i and i+len(angles)/2, or 2i
	// and 2i+1 where neighbours is true; its cos and sin are at the same places in angles.
	// Numbers from len(angles) ≤ headDim on stay. len(x) is a multiple of headDim.
	Rotate func(x, angles []float32, headDim int, neighbours bool)

	// SiLUMul computes dst[i] = gate[i]/(1+exp(−gate[i]))·up[i]. dst may be gate or up.
	SiLUMul func(dst, gate, up []float32)

	// GELUMul computes dst[i] = gelu(gate[i])·up[i] with the tanh form of gelu:
	// g·½·(1+tanh(√(2/π)·(g+0.044715·g³))). dst may be gate or up.
	GELUMul func(dst, gate, up []float32)

	// ClampedSiLUMul is gpt-oss's activation: with g = min(gate[i], limit) and
	// u = max(−limit, min(up[i], limit)), dst[i] = g/(1+exp(−1.702·g))·(u+1).
	// dst may be gate or up.
	ClampedSiLUMul func(dst, gate, up []float32, limit float32)

	// SoftCap replaces x[i] by limit·tanh(x[i]/limit). limit > 0.
	SoftCap func(x []float32, limit float32)

	// Add computes dst[i] += x[i].
	Add func(dst, x []float32)

	// MulAdd computes dst[i] += x[i]·w[i].
	MulAdd func(dst, x, w []float32)

	// Fold advances a matrix by one step and reads it: for each row i of state,
	// state[i,:] = decay·state[i,:] + a[i]·b, and out = Σ_i c[i]·state[i,:] of the new
	// rows. A row has len(out) = len(b) numbers, and there are len(a) = len(c) rows.
	// Numbers of out do not depend on each other.
	Fold func(state []float32, decay float32, a, b, c, out []float32)

	// Softmax replaces x by exp(x−max x)/Σ. len(x) ≥ 1. A row whose entries
	// are all −∞ or that holds NaN or +∞ gives NaN.
	Softmax func(x []float32)

	// Peaks writes the largest of each PeakLen numbers of x to dst, whose length is
	// Peaks(len(x)): −∞ where all numbers are, +∞ where one is NaN.
	Peaks func(dst, x []float32)

	// Weigh replaces x by exp((x−top)·scale), x no larger than top, and gives their
	// sum: 1 for top, 0 for −∞.
	Weigh func(x []float32, top, scale float32) float32

	// Place writes the key and the value of one token, [KVHeads][HeadDim] each, to a
	// slot of a page of a layer's pools. All sets write the same bytes.
	Place func(l *KVLayout, keys, values []byte, page, slot int, k, v []float32)

	// Attend computes the attention of one query token or of several consecutive ones,
	// each to the bits that it has alone; see Attention.
	Attend func(a *Attention)

	// Merge writes the outputs from the partial results that Attend has made of all pieces
	// of the context that a's queries look at, in the order of the pieces, and overwrites
	// them. The bits are those of one Attend over all. It is nil where Attend makes no
	// partial results.
	Merge func(a *Attention, partials []float32)
}

// Block is BlockLen activations rounded to 8 and 16 bits.
type Block = ref.Block

// BlockLen is how many activations share a scale.
const BlockLen = ref.BlockLen

// PeakLen is how many numbers share a peak.
const PeakLen = ref.PeakLen

// Peaks is how many peaks n numbers have.
func Peaks(n int) int { return (n + PeakLen - 1) / PeakLen }

// Input holds the activations of a matrix product, row by row: as numbers, and as the blocks
// that Round makes of them.
type Input struct {
	Numbers []float32
	Blocks  []Block // may be nil if MatMul reads Numbers
}

// Input makes the input from rows of numbers, and rounds them where the set does: then a
// row's length is a multiple of BlockLen. It allocates the blocks.
func (s *Set) Input(x []float32) Input {
	in := Input{Numbers: x}
	if s.Round != nil {
		in.Blocks = make([]Block, len(x)/BlockLen)
		s.Round(in.Blocks, x)
	}
	return in
}

// KVType is the type in which pages hold keys and values.
type KVType = ref.KVType

const (
	KVF32  = ref.KVF32
	KVF16  = ref.KVF16
	KVInt8 = ref.KVInt8
	KVBF16 = ref.KVBF16
	KVFP8  = ref.KVFP8
)

// ParseKVType finds a type by its name: f32, f16, int8, bf16 or fp8.
func ParseKVType(name string) (KVType, error) { return ref.ParseKVType(name) }

// KVLayout is the layout of keys and values in a layer's two pools.
type KVLayout = ref.KVLayout

// KVSlack is the number of bytes of a pool after its last page.
const KVSlack = ref.KVSlack

// RowTile is the granularity of MatMul's row ranges in every set.
const RowTile = 16

// Matrix is a weight matrix in the layout of the Set that packed it.
type Matrix struct {
	Type       Type
	Rows, Cols int
	// Data is the packed image; its meaning belongs to the set.
	Data []byte
}

// Attention is the work of Queries consecutive query tokens of one sequence on
// one KV head: the Group query heads that share it attend to positions of a
// paged cache. Query i attends to those before To+i, and with a Window to the
// last Window of them.
//
// For each query head g: s[t] = Scale·Σ_d Q[g,d]·K[t,d], which SoftCap bounds,
// p = softmax(s), Out[g,d] = Σ_t p[t]·V[t,d]. A sink is one more score in the
// softmax that has no value: it counts in the maximum and in the sum only.
type Attention struct {
	// Out and Q hold query i at i·Stride: [Group][HeadDim], contiguous. Out may not be Q.
	Out, Q  []float32
	Queries int
	Stride  int // counts where Queries is over 1
	KVLayout
	// K and V are one layer's pools, PoolBytes long. Position t lies in page
	// Pages[t/PageTokens], in slot t%PageTokens.
	K, V    []byte
	Pages   []int32
	KVHead  int
	Group   int
	To      int // at least 1
	Window  int // 0 means none
	Scale   float32
	SoftCap float32   // s = SoftCap·tanh(s/SoftCap); 0 means none
	Sinks   []float32 // [Group]; nil means none
	// Round allows the set to round queries, keys, values and p to bfloat16. The sum of p
	// is then that of the rounded ones. Sums stay float32.
	Round bool
	// Scores is scratch of at least AttentionScratch numbers.
	Scores []float32
	// Partial, where it is not nil, gets the result of the positions of piece Piece instead
	// of Out: PartialLen numbers. Merge adds up the pieces.
	Partial []float32
	Piece   int // position t is in piece t/PieceLen
}
