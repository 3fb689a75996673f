//go:build cuda

package cuda

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/internal/cudrv"
)

func TestAddNorm(t *testing.T) {
	b, set, r := newBench(t), ref(t), rand.New(rand.NewPCG(4, 0))
	const n, width, eps, by = 5, 264, 1e-5, 0.5
	pick := []int32{1, 4}
	for _, with := range []struct{ sum, post, pick, bare bool }{{}, {sum: true}, {sum: true, post: true}, {sum: true, post: true, pick: true}, {sum: true, post: true, bare: true}} {
		x, sum, post, weight := random(r, n*width), random(r, n*width), random(r, width), random(r, width)
		rows := []int32{0, 1, 2, 3, 4}
		var at [3]Address
		if with.sum {
			at[0] = b.numbers(sum)
		}
		if with.post {
			at[1] = b.numbers(post)
		}
		if with.pick {
			rows, at[2] = pick, b.ints(pick...)
		}
		var wantX, want []float32
		for _, i := range rows {
			x, sum := append([]float32(nil), x[int(i)*width:][:width]...), append([]float32(nil), sum[int(i)*width:][:width]...)
			if with.post {
				set.RMSNorm(sum, sum, post, eps)
			}
			for k := range x {
				if with.sum {
					x[k] += sum[k] * by
				}
			}
			wantX = append(wantX, x...)
			if !with.bare {
				set.RMSNorm(x, x, weight, eps)
			}
			want = append(want, x...)
		}
		got := b.inOrders(func() []float32 {
			dx, out := b.numbers(x), b.alloc(4*n*width)
			norm := b.numbers(weight)
			if with.bare {
				norm = 0
			}
			b.args.Reset().At(dx, at[0], at[1], norm, out).Int(width).Float(eps, by).At(at[2], b.ints(int32(len(rows))))
			b.launch("add_norm", cudrv.Grid{n, 1, 1}, 256, 32)
			all := b.get(dx, n*width)
			var both []float32
			for _, i := range rows {
				both = append(both, all[int(i)*width:][:width]...)
			}
			return append(both, b.get(out, len(rows)*width)...)
		})
		b.near(got, append(wantX, want...), func(i int) float64 { return 1e-5 })
	}
}

// TestNormPart: a part of each row is normed, and the rest stays.
func TestNormPart(t *testing.T) {
	b, set, r := newBench(t), ref(t), rand.New(rand.NewPCG(7, 0))
	const n, stride, from, width, eps = 3, 400, 40, 264, 1e-5
	x, weight := random(r, (n+1)*stride), random(r, width) // a row more than the batch has: it stays
	want := append([]float32(nil), x...)
	for i := range n {
		part := want[i*stride+from:][:width]
		set.RMSNorm(part, part, weight, eps)
	}
	got := b.inOrders(func() []float32 {
		dx := b.numbers(x)
		b.args.Reset().At(dx+4*from).Int(stride, width).At(b.numbers(weight)).Float(eps).At(b.ints(n))
		b.launch("norm_part", cudrv.Grid{n + 1, 1, 1}, 256, 32)
		return b.get(dx, (n+1)*stride)
	})
	b.near(got, want, func(i int) float64 { return 1e-5 })
}

func TestActivate(t *testing.T) {
	b, set, r := newBench(t), ref(t), rand.New(rand.NewPCG(5, 0))
	const n, width, per = 3, 300, 2
	x := random(r, n*per*2*width)
	for i := range x {
		x[i] *= 6
	}
	for kind := range 3 {
		want := make([]float32, n*per*width)
		for i := range n * per {
			gate, up, dst := x[2*i*width:][:width], x[(2*i+1)*width:][:width], want[i*width:][:width]
			switch kind {
			case 0:
				set.SiLUMul(dst, gate, up)
			case 1:
				set.GELUMul(dst, gate, up)
			case 2:
				set.ClampedSiLUMul(dst, gate, up, 7)
			}
		}
		got := b.inOrders(func() []float32 {
			out := b.alloc(4 * n * per * width)
			b.args.Reset().At(out, b.numbers(x)).Int(width, kind).Float(7).Int(per).At(b.ints(n))
			b.launch("activate", cudrv.Grid{2, n * per, 1}, 256, 0)
			return b.get(out, n*per*width)
		})
		b.near(got, want, func(i int) float64 { return 1e-6 * (1 + math.Abs(float64(want[i]))) * 8 })
	}
}

func TestScaleCap(t *testing.T) {
	b, set, r := newBench(t), ref(t), rand.New(rand.NewPCG(6, 0))
	const n, width = 2, 700
	x := random(r, n*width)
	for _, limit := range []float32{0, 1.5} {
		want := append([]float32(nil), x...)
		for i := range want {
			want[i] *= 3
		}
		if limit > 0 {
			set.SoftCap(want, limit)
		}
		got := b.inOrders(func() []float32 {
			out := b.numbers(x)
			b.args.Reset().At(out).Int(width).Float(3, limit).At(b.ints(n))
			b.launch("scale_cap", cudrv.Grid{3, n, 1}, 256, 0)
			return b.get(out, n*width)
		})
		b.near(got, want, func(int) float64 { return 1e-5 })
	}
}

func TestRoute(t *testing.T) {
	b, set := newBench(t), ref(t)
	const n, experts, used, sumAdd, scale = 4, 70, 5, 1e-3, 2.5
	for _, with := range []struct {
		kind int
		bias bool
	}{{kind: 0}, {kind: 1}, {kind: 5, bias: true}, {kind: 2}, {kind: 6, bias: true}} {
		r := rand.New(rand.NewPCG(7, uint64(with.kind)))
		scores, bias := random(r, n*experts), random(r, experts)
		scores[10], scores[42], scores[69] = 9, 9, 9 // equal ones: the first
		bias[42], bias[69] = bias[10], bias[10]
		biasAt := Address(0)
		if with.bias {
			biasAt = b.numbers(bias)
		} else {
			clear(bias)
		}
		got := b.inOrders(func() []float32 {
			chosen, shares := b.alloc(4*n*used), b.alloc(4*n*used)
			b.args.Reset().At(chosen, shares, b.numbers(scores), biasAt).Int(experts, used, with.kind).Float(sumAdd, scale).At(b.ints(n))
			b.launch("route", cudrv.Grid{n + 1, 1, 1}, 32, 0)
			return append(b.get(chosen, n*used), b.get(shares, n*used)...)
		})
		for i := range n {
			row := append([]float32(nil), scores[i*experts:][:experts]...)
			switch with.kind & 3 {
			case 1:
				set.Softmax(row)
			case 2:
				for e := range row {
					row[e] = float32(1 / (1 + math.Exp(-float64(row[e]))))
				}
			}
			want, taken, sum := make([]float32, used), map[int]bool{}, float64(sumAdd)
			for k := range used {
				at := -1
				for e := range row {
					if !taken[e] && (at < 0 || row[e]+bias[e] > row[at]+bias[at]) {
						at = e
					}
				}
				taken[at], want[k] = true, row[at]
				sum += float64(row[at])
				if got := int(math.Float32bits(got[i*used+k])); got != at {
					t.Errorf("%+v: row %d: choice %d is expert %d, want %d", with, i, k, got, at)
				}
			}
			by := float64(scale)
			if with.kind&4 != 0 {
				by /= sum
			}
			for k := range want {
				want[k] = float32(float64(want[k]) * by)
			}
			if with.kind == 0 {
				for k := range want {
					want[k] /= scale
				}
				set.Softmax(want)
			}
			b.near(got[n*used+i*used:][:used], want, func(int) float64 { return 2e-6 })
		}
	}
}

func TestGatherExperts(t *testing.T) {
	b, r := newBench(t), rand.New(rand.NewPCG(8, 0))
	const n, used, width = 3, 2, 300
	x, shares, beside, gates := random(r, n*used*width), random(r, n*used), random(r, n*width), random(r, n)
	for with := range 3 { // nothing beside, or that, or that with gates
		var at [2]Address
		want := make([]float32, n*width)
		for i := range want {
			if with > 0 {
				at[0] = b.numbers(beside)
				want[i] = beside[i]
			}
			if with > 1 {
				at[1] = b.numbers(gates)
				want[i] /= float32(1 + math.Exp(-float64(gates[i/width])))
			}
			for k := range used {
				want[i] += shares[i/width*used+k] * x[(i/width*used+k)*width+i%width]
			}
		}
		got := b.inOrders(func() []float32 {
			out := b.alloc(4 * n * width)
			b.args.Reset().At(out, b.numbers(x), b.numbers(shares), at[0], at[1]).Int(width, used).At(b.ints(n))
			b.launch("gather_experts", cudrv.Grid{2, n, 1}, 256, 0)
			return b.get(out, n*width)
		})
		b.near(got, want, func(int) float64 { return 1e-5 })
	}
}
