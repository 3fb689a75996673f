//go:build cuda

package cuda

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/internal/cudrv"
)

func TestAddNorm(t *testing.T) {
	b, set, r := newBench(t), ref(t), rand.New(rand.NewPCG(4, 0))
	const n, width, eps, by = 5, 264, 1e-5, 0.5
	pick := []int32{1, 4}
	for _, with := range []struct{ sum, post, pick, bare, centred, bias, none bool }{
		{}, {sum: true}, {sum: true, post: true}, {sum: true, post: true, pick: true}, {sum: true, post: true, bare: true},
		{sum: true, centred: true}, {sum: true, centred: true, bias: true, pick: true}, {sum: true, none: true},
	} {
		x, sum, post, weight, bias := random(r, n*width), random(r, n*width), random(r, width), random(r, width), random(r, width)
		for i := range x {
			x[i] += 2 // a mean to take off
		}
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
			if with.none {
				x = make([]float32, width)
			} else if !with.bare {
				mean := float32(0)
				for _, v := range x {
					mean += v / width
				}
				for k := range x {
					if with.centred {
						x[k] -= mean
					}
				}
				set.RMSNorm(x, x, weight, eps)
			}
			for k := range x {
				if with.bias {
					x[k] += bias[k]
				}
			}
			want = append(want, x...)
		}
		got := b.inOrders(func() []float32 {
			dx, out := b.numbers(x), b.numbers(make([]float32, n*width))
			norm, to, added, centred := b.numbers(weight), out, Address(0), 0
			if with.bare {
				norm = 0
			}
			if with.none {
				to = 0
			}
			if with.bias {
				added = b.numbers(bias)
			}
			if with.centred {
				centred = 1
			}
			b.args.Reset().At(dx, at[0], at[1], norm, added, to).Int(width, centred).Float(eps, by).At(at[2], b.ints(int32(len(rows))))
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
		kind             int
		bias             bool
		groups, ofGroups int
	}{
		{kind: 0}, {kind: 1}, {kind: 5, bias: true}, {kind: 2}, {kind: 6, bias: true},
		{kind: 1, groups: 10, ofGroups: 2}, {kind: 14, bias: true, groups: 7, ofGroups: 3}, {kind: 14, groups: 35, ofGroups: 4},
	} {
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
			b.args.Reset().At(chosen, shares, b.numbers(scores), biasAt).Int(experts, used, with.kind, with.groups, with.ofGroups).Float(sumAdd, scale).At(b.ints(n))
			b.launch("route", cudrv.Grid{n + 1, 1, 1}, 32, 8*with.groups)
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
			want, taken, sum := make([]float32, used), outsideGroups(row, bias, with.groups, with.ofGroups, with.kind&8 != 0), float64(sumAdd)
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

// outsideGroups are the experts that are in none of the best groups, of which each is as good as its best expert or as
// its two best.
func outsideGroups(scores, bias []float32, groups, used int, byTwo bool) map[int]bool {
	outside := map[int]bool{}
	if groups == 0 {
		return outside
	}
	size := len(scores) / groups
	worth := func(g int) float32 {
		var all []float32
		for e := g * size; e < (g+1)*size; e++ {
			all = append(all, scores[e]+bias[e])
		}
		slices.Sort(all)
		if byTwo {
			return all[size-1] + all[size-2]
		}
		return all[size-1]
	}
	order := make([]int, groups)
	for g := range order {
		order[g] = g
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(worth(b), worth(a)) })
	for _, g := range order[used:] {
		for e := range size {
			outside[g*size+e] = true
		}
	}
	return outside
}

// TestSparseRoute: Phi's router takes the best, then the best of the rest, and each weighs what it has in the softmax
// over those that are left and near it.
func TestSparseRoute(t *testing.T) {
	b := newBench(t)
	const n, experts, used, sparse, reach = 5, 40, 2, 16, 0.02
	r := rand.New(rand.NewPCG(8, 8))
	scores := random(r, n*experts)
	for i := range scores {
		scores[i] = 3 + scores[i]/16 // many are near
	}
	for i := range experts {
		scores[i] -= 6 // a row of negative ones
	}
	scores[3*experts+7], scores[3*experts+30] = 9, 9
	got := b.inOrders(func() []float32 {
		chosen, shares := b.alloc(4*n*used), b.alloc(4*n*used)
		b.args.Reset().At(chosen, shares, b.numbers(scores), 0).Int(experts, used, sparse, 0, 0).Float(0, 0).At(b.ints(n))
		b.launch("route", cudrv.Grid{n + 1, 1, 1}, 32, 0)
		return append(b.get(chosen, n*used), b.get(shares, n*used)...)
	})
	for i := range n {
		left := slices.Clone(scores[i*experts:][:experts])
		for k := range used {
			best := slices.Index(left, slices.Max(left))
			top, sum := float64(left[best]), 0.0
			for _, v := range left {
				if near := (top - float64(v)) / max(math.Abs(float64(v)), top); !(near > reach) && v > -100 {
					sum += math.Exp(float64(v) - top)
				}
			}
			if at := int(math.Float32bits(got[i*used+k])); at != best {
				t.Errorf("row %d: choice %d is expert %d, want %d", i, k, at, best)
			}
			b.near(got[n*used+i*used+k:][:1], []float32{float32(1 / sum)}, func(int) float64 { return 1e-6 })
			left[best] = -1000
		}
	}
}

func TestShareInputs(t *testing.T) {
	b, r := newBench(t), rand.New(rand.NewPCG(8, 1))
	const n, used, width = 3, 2, 300
	x, shares, want := random(r, (n+1)*width), random(r, (n+1)*used), make([]float32, (n+1)*used*width)
	for i := range n * used * width {
		want[i] = shares[i/width] * x[i/width/used*width+i%width]
	}
	got := b.inOrders(func() []float32 {
		out := b.numbers(make([]float32, len(want)))
		b.args.Reset().At(out, b.numbers(x), b.numbers(shares)).Int(width, used).At(b.ints(n))
		b.launch("share_inputs", cudrv.Grid{2, n + 1, used}, 256, 0)
		return b.get(out, len(want))
	})
	b.near(got, want, func(int) float64 { return 0 })
}

func TestGatherExperts(t *testing.T) {
	b, r := newBench(t), rand.New(rand.NewPCG(8, 0))
	const n, used, width = 3, 2, 300
	x, shares, beside, gates := random(r, n*used*width), random(r, n*used), random(r, n*width), random(r, n)
	for with := range 4 { // nothing beside, or that, or that with gates, and then no shares
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
				share := shares[i/width*used+k]
				if with > 2 {
					share = 1
				}
				want[i] += share * x[(i/width*used+k)*width+i%width]
			}
		}
		got := b.inOrders(func() []float32 {
			out, weights := b.alloc(4*n*width), b.numbers(shares)
			if with > 2 {
				weights = 0
			}
			b.args.Reset().At(out, b.numbers(x), weights, at[0], at[1]).Int(width, used).At(b.ints(n))
			b.launch("gather_experts", cudrv.Grid{2, n, 1}, 256, 0)
			return b.get(out, n*width)
		})
		b.near(got, want, func(int) float64 { return 1e-5 })
	}
}
