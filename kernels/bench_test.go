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
	kernels.IQ1_S, kernels.IQ1_M, kernels.IQ2_XXS, kernels.IQ2_XS, kernels.IQ2_S, kernels.IQ3_XXS, kernels.IQ3_S, kernels.TQ1_0, kernels.TQ2_0,
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

// BenchmarkMatMulDecode reads a matrix larger than the caches for n rows of x,
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
		x, dst := activations(8*cols), make([]float32, 8*rows)
		for _, set := range benchSets() {
			if !set.InAssembly(typ) {
				continue
			}
			m := set.Pack(typ, rows, cols, raw)
			for _, n := range []int{1, 4, 8} {
				b.Run(fmt.Sprintf("%v/n=%d/%s", typ, n, set.Name), func(b *testing.B) {
					b.SetBytes(int64(len(raw)))
					x := set.Input(x[:n*cols])
					for b.Loop() {
						set.MatMul(dst, rows, m, x, n, 0, rows)
					}
				})
			}
		}
	}
}

// BenchmarkPack packs a matrix, as a load does.
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
				if !set.InAssembly(typ) {
					continue
				}
				m := set.Pack(typ, rows, cols, raw)
				b.Run(fmt.Sprintf("n=%d/%v/%s", n, typ, set.Name), func(b *testing.B) {
					b.SetBytes(int64(len(raw)))
					x := set.Input(x)
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

var kvTypes = []kernels.KVType{kernels.KVF32, kernels.KVF16, kernels.KVInt8}

// newAttention has queries of group heads for each KV head; the last query looks at context
// positions.
func newAttention(l kernels.KVLayout, group, queries, context int) *kernels.Attention {
	width, pages := group*l.HeadDim, context/l.PageTokens
	a := &kernels.Attention{
		KVLayout: l, K: make([]byte, l.PoolBytes(pages)), V: make([]byte, l.PoolBytes(pages)),
		Out: make([]float32, queries*width), Q: activations(queries * width),
		Group: group, To: context - queries + 1, Scale: 0.125, Round: true,
		Queries: queries, Stride: width, Scores: make([]float32, kernels.AttentionScratch(queries*group, l.HeadDim, context)),
	}
	for _, p := range rand.New(rand.NewPCG(1, 2)).Perm(pages) {
		a.Pages = append(a.Pages, int32(p))
		for slot := range l.PageTokens {
			kernels.Best().Place(&l, a.K, a.V, p, slot, activations(l.KVHeads*l.HeadDim), activations(l.KVHeads*l.HeadDim))
		}
	}
	return a
}

// BenchmarkAttendDecode is one query token on the KV heads of some layers of
// Qwen3-0.6B's shape, more than the caches hold, on one core; the rate is that of K and V.
func BenchmarkAttendDecode(b *testing.B) {
	const heads, pageTokens, bytesMin = 8, 16, 128 << 20
	for _, typ := range kvTypes {
		l := kernels.KVLayout{KVType: typ, PageTokens: pageTokens, KVHeads: heads, HeadDim: 128}
		for _, context := range []int{128, 2048, 16384} {
			read := 2 * l.PageBytes() * context / pageTokens
			var layers []*kernels.Attention
			for size := 0; size < bytesMin; size += read {
				layers = append(layers, newAttention(l, 2, 1, context))
			}
			for _, set := range benchSets() {
				b.Run(fmt.Sprintf("%v/depth=%d/%s", typ, context, set.Name), func(b *testing.B) {
					b.SetBytes(int64(read))
					for i := 0; b.Loop(); i++ {
						a := layers[i%len(layers)]
						for a.KVHead = range heads {
							set.Attend(a)
						}
					}
				})
			}
		}
	}
}

// BenchmarkPlace writes one token's keys and values; the rate is that of the bytes written.
func BenchmarkPlace(b *testing.B) {
	for _, typ := range kvTypes {
		l := kernels.KVLayout{KVType: typ, PageTokens: 16, KVHeads: 8, HeadDim: 128}
		keys, values := make([]byte, l.PoolBytes(1)), make([]byte, l.PoolBytes(1))
		x := activations(l.KVHeads * l.HeadDim)
		for _, set := range benchSets() {
			b.Run(fmt.Sprintf("%v/%s", typ, set.Name), func(b *testing.B) {
				b.SetBytes(int64(2 * l.PageBytes() / l.PageTokens))
				for i := 0; b.Loop(); i++ {
					set.Place(&l, keys, values, 0, i%l.PageTokens, x, x)
				}
			})
		}
	}
}

// BenchmarkAttendQueries is some query tokens on one KV head.
func BenchmarkAttendQueries(b *testing.B) {
	const context = 4096
	for _, typ := range kvTypes {
		for _, queries := range []int{1, 4, 12} {
			a := newAttention(kernels.KVLayout{KVType: typ, PageTokens: 16, KVHeads: 1, HeadDim: 64}, 4, queries, context)
			for _, set := range benchSets() {
				b.Run(fmt.Sprintf("%v/queries=%d/%s", typ, queries, set.Name), func(b *testing.B) {
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

// BenchmarkElementwise is one row of a small model; the rate counts only dst.
func BenchmarkElementwise(b *testing.B) {
	const n = 4096
	x, y, dst := activations(n), activations(n), make([]float32, n)
	for _, set := range benchSets() {
		for _, op := range []struct {
			name string
			run  func()
		}{
			{"RMSNorm", func() { set.RMSNorm(dst, x, y, 1e-5) }},
			{"Rotate", func() { set.Rotate(dst, x[:128], 128, false) }},
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
