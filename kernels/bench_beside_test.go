package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/kerneltest"
)

// BenchmarkDecodeBesideQ4_K gives the time a weight takes in a product with one row of
// activations, as a multiple of what it takes in Q4_K. Matrices are larger than the caches. The
// quickest piece of each counts, so that other work on the machine does not.
func BenchmarkDecodeBesideQ4_K(b *testing.B) {
	const cols, bytesMin, piece = 4096, 48 << 20, 256
	types := append([]kernels.Type{kernels.Q4_K}, benchTypes...)
	for _, set := range benchSets() {
		if set.Round == nil {
			continue
		}
		b.Run(set.Name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			x := set.Input(activations(cols))
			best := map[kernels.Type]float64{}
			products := map[kernels.Type]func(){}
			for _, typ := range types {
				if typ.BlockLen() == 1 || products[typ] != nil {
					continue
				}
				rows := bytesMin / typ.Bytes(cols) / piece * piece
				tile := kerneltest.Weights(r, typ, 32*cols)
				var raw []byte
				for range rows / 32 {
					raw = append(raw, tile...)
				}
				m, dst := set.Pack(typ, rows, cols, raw), make([]float32, rows)
				products[typ] = func() {
					for r := 0; r < rows; r += piece {
						start := time.Now()
						set.MatMul(dst, rows, m, x, 1, r, r+piece)
						each := float64(time.Since(start)) / (piece * cols)
						if best[typ] == 0 || each < best[typ] {
							best[typ] = each
						}
					}
				}
			}
			for b.Loop() {
				for _, product := range products {
					product()
				}
			}
			for typ, each := range best {
				b.ReportMetric(each/best[kernels.Q4_K], fmt.Sprintf("%v/Q4_K", typ))
			}
			b.ReportMetric(1/best[kernels.Q4_K], "weights/ns:Q4_K")
		})
	}
}
