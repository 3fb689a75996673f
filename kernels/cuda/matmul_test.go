//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/kerneltest"
)

// allTypes are those that have kernels.
func allTypes() (types []kernels.Type) {
	for t := range kernels.Type(64) {
		if t.Known() && TypeName(t) != "" {
			types = append(types, t)
		}
	}
	return types
}

// TestTypes: a type has planes of all its bytes, or is refused by name.
func TestTypes(t *testing.T) {
	for typ := range kernels.Type(64) {
		if !typ.Known() {
			continue
		}
		sum := 0
		for _, f := range fields[typ] {
			sum += f.bytes
		}
		err := CheckMatrix(typ, 1024)
		if refused := err != nil && strings.Contains(err.Error(), typ.String()); (sum == typ.Bytes(typ.BlockLen())) == refused {
			t.Errorf("%v: the fields have %d of %d bytes of a block, and the check says %v", typ, sum, typ.Bytes(typ.BlockLen()), err)
		}
	}
	if n := len(allTypes()); n < 25 {
		t.Errorf("only %d types", n)
	}
}

func TestMatmul(t *testing.T) {
	b, set := newBench(t), ref(t)
	for _, typ := range allTypes() {
		r := rand.New(rand.NewPCG(1, uint64(typ)))
		rows, cols, n := 29, map[int]int{1: 272, 32: 288, 256: 512}[typ.BlockLen()], 11
		raw, x, bias := kerneltest.Weights(r, typ, rows*cols), random(r, n*cols), random(r, rows)
		w := make([]float32, rows*cols)
		kernels.Dequantize(w, typ, raw)
		want := make([]float32, n*rows)
		set.MatMul(want, rows, set.Pack(typ, rows, cols, raw), kernels.Input{Numbers: x}, n, 0, rows)
		for i := range n {
			set.Add(want[i*rows:(i+1)*rows], bias)
		}
		data, in, add := b.planes(typ, rows, cols, raw), b.numbers(x), b.numbers(bias)
		var first []float32
		variants, threads, shared, far := []int{8, 32}, 256, 32<<10, 1.0/(1<<15) // of two bfloat16
		if typ == kernels.F32 {
			variants, threads, shared, far = []int{1, 4, 8}, 256, 0, 16.0/(1<<24)
		}
		for _, at := range variants {
			got := b.inOrders(func() []float32 {
				out := b.alloc(4 * n * rows)
				b.args.Reset().At(out).Int(rows).At(data, add).Int(rows, cols).At(in).Int(cols).At(b.ints(int32(n)))
				b.launch(fmt.Sprintf("matmul_%s_%d", TypeName(typ), at), cudrv.Grid{2, (n + at - 1) / at, 1}, threads, shared)
				return b.get(out, n*rows)
			})
			b.near(got, want, func(i int) float64 {
				sum := 0.0
				for c := range cols {
					sum += math.Abs(float64(w[i%rows*cols+c]) * float64(x[i/rows*cols+c]))
				}
				return far * sum
			})
			if first == nil {
				first = got
			}
			if !slices.Equal(got, first) {
				t.Errorf("%v: %d rows at once give other bits than fewer", typ, at)
			}
		}
	}
}

func TestExperts(t *testing.T) {
	b, set := newBench(t), ref(t)
	const experts, used, n, rows = 4, 2, 3, 10
	chosen := []int32{2, 0, 3, 1, 2, 3}
	for _, typ := range []kernels.Type{kernels.F32, kernels.Q8_0, kernels.Q4_K, kernels.MXFP4, kernels.IQ2_XXS, kernels.IQ3_S, kernels.TQ1_0} {
		r := rand.New(rand.NewPCG(2, uint64(typ)))
		cols := 256
		x, bias := random(r, n*used*cols), random(r, experts*rows)
		var raws [experts][]byte
		size := PlanesBytes(typ, rows, cols)
		data := b.alloc(experts * size)
		for e := range raws {
			raws[e] = kerneltest.Weights(r, typ, rows*cols)
			b.must(PutPlanes(typ, rows, cols, 0, raws[e], func(place, n int, fill func([]byte)) error {
				piece := make([]byte, n)
				fill(piece)
				return b.device.Put(data+Address(e*size+place), piece)
			}))
		}
		for perChoice := range 2 {
			want := make([]float32, n*used*rows)
			for p, e := range chosen {
				from := p / used
				if perChoice == 1 {
					from = p
				}
				out := want[p*rows:][:rows]
				set.MatMul(out, rows, set.Pack(typ, rows, cols, raws[e]), kernels.Input{Numbers: x[from*cols:]}, 1, 0, rows)
				set.Add(out, bias[int(e)*rows:][:rows])
			}
			out := b.alloc(4 * n * used * rows)
			arguments := func() {
				b.must(b.device.Put(out, make([]byte, 4*n*used*rows)))
				b.args.Reset().At(out).Int(rows).At(data).Long(uint64(size)).At(b.numbers(bias)).Int(rows, cols).At(b.numbers(x)).Int(cols, perChoice).
					At(b.ints(chosen...)).Int(used).At(b.ints(n))
			}
			if typ == kernels.F32 {
				b.near(b.inOrders(func() []float32 {
					arguments()
					b.launch("experts_f32", cudrv.Grid{2, n * used, 1}, 256, 0)
					return b.get(out, n*used*rows)
				}), want, func(int) float64 { return 1e-4 })
				continue
			}
			var alone []float32
			for _, most := range []int{0, 1, 2, 8, 32} { // of a group; 0 without groups
				tokens := max(8, most)
				got := b.inOrders(func() []float32 {
					order, groups, count := b.alloc(4*n*used), b.alloc(16*n*used), b.ints(n*used)
					if most > 0 {
						b.args.Reset().At(order, groups, count, b.ints(chosen...)).Int(experts, used, most).At(b.ints(n))
						b.launch("group_experts", cudrv.Grid{1, 1, 1}, 256, 3*4*experts)
					} else {
						order, groups, count = 0, 0, 0
					}
					arguments()
					b.args.At(order, groups, count)
					b.launch(fmt.Sprintf("experts_%s_%d", TypeName(typ), tokens), cudrv.Grid{1, n*used + 1, 1}, 256, 32<<10)
					return b.get(out, n*used*rows)
				})
				b.near(got, want, func(i int) float64 { return 4e-4 * (1 + math.Abs(float64(want[i]))) })
				if alone == nil {
					alone = got
				}
				if !slices.Equal(got, alone) {
					t.Errorf("%v: groups of up to %d tokens give other bits than tokens alone", typ, most)
				}
			}
		}
	}
}

// TestEmbed: rows of weights are the dequantiser's, bit for bit.
func TestEmbed(t *testing.T) {
	b := newBench(t)
	for _, typ := range allTypes() {
		r := rand.New(rand.NewPCG(3, uint64(typ)))
		vocab, width := 5, 2*max(typ.BlockLen(), 8)
		raw := kerneltest.Weights(r, typ, vocab*width)
		w := make([]float32, vocab*width)
		kernels.Dequantize(w, typ, raw)
		data, in := b.planes(typ, vocab, width, raw), b.batch(batch{tokens: []int32{4, 0, 3}, positions: []int32{0, 1, 2}})
		got := b.inOrders(func() []float32 {
			x := b.alloc(4 * 3 * width)
			b.args.Reset().At(x, data).Int(vocab, width).Float(1).At(in)
			b.launch("embed_"+TypeName(typ), cudrv.Grid{3, 1, 1}, 128, 0)
			return b.get(x, 3*width)
		})
		for i, token := range []int{4, 0, 3} {
			for j := range width {
				if got, want := got[i*width+j], w[token*width+j]; math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("%v: number %d of token %d is %v, the dequantiser says %v", typ, j, token, got, want)
				}
			}
		}
	}
}
