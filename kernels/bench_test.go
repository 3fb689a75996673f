package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/kerneltest"
)

var benchTypes = []kernels.Type{
	kernels.F32, kernels.F16, kernels.BF16, kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.Q5_0, kernels.Q5_1,
	kernels.Q2_K, kernels.Q3_K, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K, kernels.IQ4_NL, kernels.IQ4_XS, kernels.MXFP4,
}

// benchSets are the sets worth timing: ref is a specification.
func benchSets() []*kernels.Set { return kernels.Sets()[:len(kernels.Sets())-1] }

func activations(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = rand.Float32() - 0.5
	}
	return x
}

// fineTops is what models take.
const fineTops = 4

// BenchmarkMatMulDecode reads a matrix larger than the caches for one row of x,
// on one core; the rate is that of the weights' bytes.
func BenchmarkMatMulDecode(b *testing.B) {
	const cols, bytesMin = 2048, 96 << 20
	r := rand.New(rand.NewPCG(1, 2))
	for _, typ := range benchTypes {
		rows := bytesMin / typ.Bytes(cols) / 32 * 32
		tile := kerneltest.Weights(r, typ, 32*cols)
		raw := make([]byte, 0, rows*typ.Bytes(cols))
		for range rows / 32 {
			raw = append(raw, tile...)
		}
		x, dst := activations(cols), make([]float32, rows)
		for _, set := range benchSets() {
			m := set.Pack(typ, rows, cols, raw)
			b.Run(fmt.Sprintf("%v/%s", typ, set.Name), func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				x := set.Input(x, cols, fineTops)
				for b.Loop() {
					set.MatMul(dst, rows, m, x, 1, 0, rows)
				}
			})
		}
	}
}

// BenchmarkPack is what a load does for each matrix.
func BenchmarkPack(b *testing.B) {
	const rows, cols = 512, 2048
	r := rand.New(rand.NewPCG(1, 2))
	for _, typ := range benchTypes {
		raw := kerneltest.Weights(r, typ, rows*cols)
		b.Run(typ.String(), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				kernels.Best().Pack(typ, rows, cols, raw)
			}
		})
	}
}

// BenchmarkMatMulBatch multiplies with n rows of x on one core.
func BenchmarkMatMulBatch(b *testing.B) {
	const rows, cols = 1024, 1024
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 4, 64} {
		x, dst := activations(n*cols), make([]float32, n*rows)
		for _, typ := range benchTypes {
			raw := kerneltest.Weights(r, typ, rows*cols)
			for _, set := range benchSets() {
				m := set.Pack(typ, rows, cols, raw)
				b.Run(fmt.Sprintf("n=%d/%v/%s", n, typ, set.Name), func(b *testing.B) {
					b.SetBytes(int64(len(raw)))
					x := set.Input(x, cols, fineTops)
					for b.Loop() {
						set.MatMul(dst, rows, m, x, n, 0, rows)
					}
					flops := 2 * float64(n) * rows * cols * float64(b.N)
					b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOPS")
				})
			}
		}
	}
}

// newAttention is queries of four heads of 64, the last of which looks at context positions.
func newAttention(queries, context int) *kernels.Attention {
	const dim, group, pageTokens = 64, 4, 16
	a := &kernels.Attention{
		Out: make([]float32, queries*group*dim), Q: activations(queries * group * dim), K: activations(context * dim), V: activations(context * dim),
		PageTokens: pageTokens, KVHeads: 1, HeadDim: dim, Group: group, To: context - queries + 1, Scale: 0.125,
		Queries: queries, Stride: group * dim, Scores: make([]float32, kernels.AttentionScratch(queries*group, dim, context)),
	}
	for _, p := range rand.New(rand.NewPCG(1, 2)).Perm(context / pageTokens) {
		a.Pages = append(a.Pages, int32(p))
	}
	return a
}

// BenchmarkAttend is one query token on one KV head; the rate is that of K and V.
func BenchmarkAttend(b *testing.B) {
	for _, context := range []int{128, 2048, 32768, 262144} {
		a := newAttention(1, context)
		for _, set := range benchSets() {
			b.Run(fmt.Sprintf("context=%d/%s", context, set.Name), func(b *testing.B) {
				b.SetBytes(int64(8 * context * a.HeadDim))
				for b.Loop() {
					set.Attend(a)
				}
			})
		}
	}
}

// BenchmarkAttendTile is some query tokens on one KV head.
func BenchmarkAttendTile(b *testing.B) {
	for _, context := range []int{512, 4096} {
		for _, queries := range []int{1, 4, 12} {
			a := newAttention(queries, context)
			for _, set := range benchSets() {
				b.Run(fmt.Sprintf("context=%d/queries=%d/%s", context, queries, set.Name), func(b *testing.B) {
					for b.Loop() {
						set.Attend(a)
					}
					keys := queries * (a.To + context) / 2
					flops := 4 * float64(keys*a.Group*a.HeadDim) * float64(b.N)
					b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOPS")
				})
			}
		}
	}
}

// BenchmarkElementwise is one row of a small model; the rate counts dst alone.
func BenchmarkElementwise(b *testing.B) {
	const n = 4096
	x, y, dst := activations(n), activations(n), make([]float32, n)
	for _, set := range benchSets() {
		for _, op := range []struct {
			name string
			run  func()
		}{
			{"RMSNorm", func() { set.RMSNorm(dst, x, y, 1e-5) }},
			{"SiLUMul", func() { set.SiLUMul(dst, x, y) }},
			{"GELUMul", func() { set.GELUMul(dst, x, y) }},
			{"ClampedSiLUMul", func() { set.ClampedSiLUMul(dst, x, y, 7) }},
			{"SoftCap", func() { set.SoftCap(dst, 30) }},
			{"Add", func() { set.Add(dst, y) }},
			{"Softmax", func() { copy(dst, x); set.Softmax(dst) }},
		} {
			b.Run(op.name+"/"+set.Name, func(b *testing.B) {
				b.SetBytes(4 * n)
				for b.Loop() {
					op.run()
				}
			})
		}
	}
}
