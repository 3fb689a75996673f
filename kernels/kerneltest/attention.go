package kerneltest

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

// cache is a random paged KV cache with one query.
type cache struct {
	k, v []float32 // [position][HeadDim], of the one KV head that is looked at
	a    kernels.Attention
}

func (c *checker) newCache(r *rand.Rand, dim, group, context int) *cache {
	return &cache{k: normal(r, context*dim), v: normal(r, context*dim), a: kernels.Attention{
		KVLayout: kernels.KVLayout{KVType: c.kv, HeadDim: dim},
		Q:        normal(r, group*dim), Queries: 1, Group: group, To: context, Scale: float32(1 / math.Sqrt(float64(dim))),
		Round: c.round,
	}}
}

// lay spreads the positions over pages in random order and leaves NaN everywhere else.
func (c *cache) lay(r *rand.Rand, pageTokens, heads int) *kernels.Attention {
	a := c.a
	context := len(c.k) / a.HeadDim
	used := (context + pageTokens - 1) / pageTokens
	order := r.Perm(used + 3)
	a.PageTokens, a.KVHeads, a.KVHead = pageTokens, heads, r.IntN(heads)
	if r.IntN(2) == 0 { // as where other layers' pages lie between
		a.Spacing = a.PageBytes() + 64*r.IntN(3)
	}
	a.K = bytes.Repeat([]byte{0xff}, a.PoolBytes(len(order))) // NaN in each type, or as a scale
	a.V = bytes.Clone(a.K)
	for _, p := range order[:used] {
		a.Pages = append(a.Pages, int32(p))
	}
	end := a.To + a.Queries - 1
	first := firstOf(&a, 0)
	k, v := slices.Repeat([]float32{float32(math.NaN())}, heads*a.HeadDim), slices.Repeat([]float32{float32(math.NaN())}, heads*a.HeadDim)
	for t := first; t < end; t++ {
		copy(k[a.KVHead*a.HeadDim:], c.k[t*a.HeadDim:][:a.HeadDim])
		copy(v[a.KVHead*a.HeadDim:], c.v[t*a.HeadDim:][:a.HeadDim])
		a.Place(a.K, a.V, order[t/pageTokens], t%pageTokens, k, v)
	}
	a.Out = make([]float32, len(a.Q))
	a.Scores = make([]float32, kernels.AttentionScratch(a.Queries*a.Group, a.HeadDim, end-first))
	return &a
}

// firstOf is the first position that query i looks at.
func firstOf(a *kernels.Attention, i int) int {
	if a.Window == 0 {
		return 0
	}
	return max(0, a.To+i-a.Window)
}

func (c *checker) compareAttend(t *testing.T, r *rand.Rand, dim, group, context, from int) {
	t.Helper()
	data := c.newCache(r, dim, group, context)
	data.a.Window = context - from
	if r.IntN(3) == 0 {
		data.a.Sinks = normal(r, group)
	}
	if r.IntN(3) == 0 {
		data.a.SoftCap = 1 + 3*r.Float32()
	}
	a := data.lay(r, 1+r.IntN(20), 1+r.IntN(3))
	c.set.Attend(a)
	got := append([]float32(nil), a.Out...)
	a.Round = false
	c.set.Attend(a)
	rounds := c.round && sameBits(got, a.Out) >= 0
	c.ref.Attend(a)
	for g := range group {
		top := data.largestScore(g, from, context)
		for d := range dim {
			mass := 0.0 // the largest |v|
			for pos := from; pos < context; pos++ {
				mass = math.Max(mass, math.Abs(float64(data.v[pos*dim+d])))
			}
			i, tolerance := g*dim+d, (64+8*top)*u*mass
			if rounds {
				tolerance += roundedError(top) * mass
			}
			if !near(got[i], a.Out[i], tolerance) {
				t.Fatalf("dim %d, group %d, [%d,%d): head %d [%d] is %v, ref %v", dim, group, from, context, g, d, got[i], a.Out[i])
			}
		}
	}
	if rounds && context <= roundedContextMax {
		data.compareRounded(t, got, from, context)
	}
}

// largestScore is the largest Scale·Σ|q·k| of head g.
func (c *cache) largestScore(g, from, context int) float64 {
	top, dim := 0.0, c.a.HeadDim
	for pos := from; pos < context; pos++ {
		terms := 0.0
		for j := range dim {
			terms += math.Abs(float64(c.a.Q[g*dim+j]) * float64(c.k[pos*dim+j]))
		}
		top = math.Max(top, terms*float64(c.a.Scale))
	}
	return top
}

func (c *checker) attendEveryShape(t *testing.T) {
	r := random(1)
	for dim := 1; dim <= 70; dim++ {
		c.compareAttend(t, r, dim, 2, 13, 0)
	}
	for _, dim := range []int{16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256} {
		for group := 1; group <= 8; group++ {
			c.compareAttend(t, r, dim, group, 21, r.IntN(5))
		}
	}
	for context := 1; context <= 200; context++ {
		c.compareAttend(t, r, 16, 3, context, r.IntN(context))
	}
	for _, context := range []int{kernels.PieceLen, kernels.PieceLen + 1, 3*kernels.PieceLen + 77} {
		c.compareAttend(t, r, 24, 2, context, 0)
		c.compareAttend(t, r, 24, 2, context, r.IntN(context))
	}
}

// attendInvariant lays out the same positions in many ways; the bits must stay.
func (c *checker) attendInvariant(t *testing.T) {
	r := random(2)
	for range 10 {
		data := c.newCache(r, 8*(1+r.IntN(17)), 1+r.IntN(8), 1+r.IntN(120))
		data.a.Window, data.a.SoftCap, data.a.Sinks = r.IntN(data.a.To), 3, normal(r, data.a.Group)
		first := data.lay(r, 16, 1)
		c.set.Attend(first)
		for range 8 {
			a := data.lay(r, 1+r.IntN(40), 1+r.IntN(3))
			c.set.Attend(a)
			if at := sameBits(a.Out, first.Out); at >= 0 {
				t.Fatalf("pages of %d, window %d up to %d: [%d] is %v and with pages of 16 %v", a.PageTokens, a.Window, a.To, at, a.Out[at], first.Out[at])
			}
		}
		c.groupInvariant(t, r, data, first)
	}
}

// attendQueries: each of several queries has the bits that it has alone, whatever the
// number of queries, the pages, the window and the numbers behind them.
func (c *checker) attendQueries(t *testing.T) {
	r := random(5)
	for range 50 {
		dim, group, queries := 1+r.IntN(140), 1+r.IntN(8), 1+r.IntN(20)
		to := 1 + r.IntN([]int{20, 300, 1100}[r.IntN(3)])
		data := c.newCache(r, dim, group, to+queries-1)
		data.a.Queries, data.a.To, data.a.Stride = queries, to, group*dim+r.IntN(2)*r.IntN(100)
		data.a.Q = normal(r, (queries-1)*data.a.Stride+group*dim)
		if r.IntN(2) == 0 {
			data.a.Window = 1 + r.IntN(to+queries+5)
		}
		if r.IntN(3) == 0 {
			data.a.Sinks = normal(r, group)
		}
		if r.IntN(3) == 0 {
			data.a.SoftCap = 1 + 3*r.Float32()
		}
		if last := to + queries - 2; queries > 1 && r.IntN(2) == 0 { // the others do not see it
			data.k[last*dim], data.v[last*dim] = float32(math.NaN()), float32(math.Inf(1))
		}
		whole := data.lay(r, 1+r.IntN(40), 1+r.IntN(3))
		c.set.Attend(whole)
		for i := range queries {
			one := *data
			one.a.Queries, one.a.Stride, one.a.To = 1, 0, to+i
			one.a.Q = data.a.Q[i*data.a.Stride:][:group*dim]
			a := one.lay(r, 16, 1)
			c.set.Attend(a)
			if at := sameBits(a.Out, whole.Out[i*data.a.Stride:]); at >= 0 {
				t.Fatalf("head of %d, group %d, query %d of %d, window %d up to %d, pages of %d: [%d] is %v and alone %v", dim, group, i, queries,
					a.Window, a.To, whole.PageTokens, at, whole.Out[i*data.a.Stride+at], a.Out[at])
			}
		}
	}
}

// attendPieces: the pieces of the context, each computed alone and then merged, give the bits of
// one call.
func (c *checker) attendPieces(t *testing.T) {
	if c.set.Merge == nil {
		t.Skip("the set makes no partial results")
	}
	r := random(23)
	for range 12 {
		dim, group, queries := 1+r.IntN(70), 1+r.IntN(4), 1+r.IntN(3)
		to := 1 + r.IntN(4*kernels.PieceLen)
		data := c.newCache(r, dim, group, to+queries-1)
		data.a.Queries, data.a.To, data.a.Stride = queries, to, group*dim+r.IntN(5)
		data.a.Q = normal(r, (queries-1)*data.a.Stride+group*dim)
		if r.IntN(2) == 0 {
			data.a.Window = 1 + r.IntN(to+5)
		}
		if r.IntN(2) == 0 {
			data.a.Sinks = normal(r, group)
		}
		a := data.lay(r, 1+r.IntN(40), 1+r.IntN(3))
		c.set.Attend(a)
		whole := slices.Clone(a.Out)
		clear(a.Out)
		first, last := firstOf(a, 0)/kernels.PieceLen, (to+queries-2)/kernels.PieceLen
		size := kernels.PartialLen(queries*group, dim)
		partials := slices.Repeat([]float32{float32(math.NaN())}, (last-first+1)*size)
		for _, i := range r.Perm(last - first + 1) {
			a.Partial, a.Piece = partials[i*size:(i+1)*size], first+i
			c.set.Attend(a)
		}
		c.set.Merge(a, partials)
		if at := sameBits(a.Out, whole); at >= 0 {
			t.Fatalf("%d queries of %d heads of %d up to %d, window %d: [%d] is %v in pieces and %v whole", queries, group, dim, to, a.Window, at, a.Out[at], whole[at])
		}
	}
}

// groupInvariant: a head's result is the same alone.
func (c *checker) groupInvariant(t *testing.T, r *rand.Rand, data *cache, whole *kernels.Attention) {
	dim := data.a.HeadDim
	for g := range data.a.Group {
		one := *data
		one.a.Group, one.a.Q, one.a.Sinks = 1, data.a.Q[g*dim:][:dim], data.a.Sinks[g:g+1]
		a := one.lay(r, 16, 2)
		c.set.Attend(a)
		if at := sameBits(a.Out, whole.Out[g*dim:]); at >= 0 {
			t.Fatalf("head %d of %d: [%d] is %v alone and %v in the group", g, data.a.Group, at, a.Out[at], whole.Out[g*dim+at])
		}
	}
}

// attendSinks: a sink far above the scores leaves them no weight. One far below leaves them
// all weight, with the bits of no sink. One that is not finite gives what ref gives.
func (c *checker) attendSinks(t *testing.T) {
	r := random(3)
	data := c.newCache(r, 24, 5, 19)
	plain := data.lay(r, 4, 1)
	c.set.Attend(plain)
	data.a.Sinks = []float32{200, -200, float32(math.Inf(-1)), float32(math.Inf(1)), float32(math.NaN())}
	a := data.lay(r, 4, 1)
	c.set.Attend(a)
	for i, v := range a.Out {
		switch i / 24 {
		case 0:
			if v < -1e-30 || v > 1e-30 {
				t.Errorf("below a large sink [%d] is %v", i, v)
			}
		case 1, 2:
			if v != plain.Out[i] {
				t.Errorf("above a small sink [%d] is %v, without it %v", i, v, plain.Out[i])
			}
		default:
			if v == v {
				t.Errorf("beside a sink that is not finite [%d] is %v", i, v)
			}
		}
	}
}

func (c *checker) allocations(t *testing.T) {
	r := random(4)
	x, y := normal(r, 576), normal(r, 576)
	a := c.newCache(r, 64, 3, 50).lay(r, 16, 2)
	a.Sinks, a.SoftCap = []float32{0, 1, 2}, 2
	tile := c.newCache(r, 64, 3, 50)
	tile.a.Q, tile.a.Queries, tile.a.Stride, tile.a.To = normal(r, 4*200), 4, 200, 47
	some := tile.lay(r, 16, 2)
	for name, f := range map[string]func(){
		"RMSNorm": func() { c.set.RMSNorm(x, x, y, 1e-5) },
		"Add":     func() { c.set.Add(x, y) },
		"Rotate":  func() { c.set.Rotate(x, y[:48], 64, true) },
		"Softmax": func() { c.set.Softmax(x) },
		"Attend":  func() { c.set.Attend(a); c.set.Attend(some) },
		"activations": func() {
			for _, op := range activations {
				op.run(c.set, x, x, y)
			}
		},
	} {
		if n := testing.AllocsPerRun(20, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	for _, typ := range c.types() {
		p := c.newProduct(1, typ, 37, columns(typ, 96), 23)
		m := c.set.Pack(typ, p.rows, p.cols, p.raw)
		x := c.input(typ, p.x)
		if n := testing.AllocsPerRun(20, func() { c.set.MatMul(p.want, p.rows, m, x, p.n, 0, p.rows) }); n != 0 {
			t.Errorf("MatMul %v allocates %v times", typ, n)
		}
	}
}
