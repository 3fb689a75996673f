//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels"
)

// scene is the keys and values of one sequence in pages, made by place on the device and by ref,
// and queries that look at them.
type scene struct {
	layout       kernels.KVLayout
	heads, n     int
	pages        []int32
	window       int // negative: chunks of −window
	cap          float32
	sinks        bool
	norms        bool
	dims         int
	neighbours   bool
	normLast     bool
	tempers      bool
	keys, values []byte // ref's
}

func (s *scene) width() int { return (s.heads + 2*s.layout.KVHeads) * s.layout.HeadDim }

// TestPlaceAndAttend: what place stores is what ref stores, and attention over it is ref's, with
// the same bits for rows one by one, for splits of them, and for many rows of a prompt.
func TestPlaceAndAttend(t *testing.T) {
	for _, s := range []scene{
		{layout: kernels.KVLayout{PageTokens: 16, KVHeads: 2, HeadDim: 64}, heads: 8, n: 150, dims: 64},
		{layout: kernels.KVLayout{PageTokens: 16, KVHeads: 1, HeadDim: 8}, heads: 2, n: 700, window: 300, sinks: true},
		{layout: kernels.KVLayout{PageTokens: 16, KVHeads: 1, HeadDim: 16}, heads: 1, n: 40, norms: true, dims: 8, neighbours: true},
		{layout: kernels.KVLayout{PageTokens: 16, KVHeads: 2, HeadDim: 32}, heads: 4, n: 30, norms: true, dims: 32, normLast: true, tempers: true},
		{layout: kernels.KVLayout{PageTokens: 8, KVHeads: 2, HeadDim: 192}, heads: 20, n: 33, cap: 1.5, sinks: true},
		{layout: kernels.KVLayout{PageTokens: 5, KVHeads: 3, HeadDim: 32}, heads: 9, n: 300, window: 140, norms: true, dims: 32},
		{layout: kernels.KVLayout{PageTokens: 8, KVHeads: 2, HeadDim: 32}, heads: 6, n: 530, window: -160, dims: 32},
	} {
		for _, kv := range []kernels.KVType{kernels.KVF32, kernels.KVF16, kernels.KVInt8, kernels.KVBF16, kernels.KVFP8} {
			s.layout.KVType = kv
			t.Run(fmt.Sprintf("%v/%d heads of %d", kv, s.heads, s.layout.HeadDim), func(t *testing.T) { s.run(newBench(t)) })
		}
	}
}

func (s *scene) run(b *bench) {
	const eps, scale = 1e-5, 0.2
	r, set, l := rand.New(rand.NewPCG(9, uint64(s.heads))), ref(b.T), s.layout
	count := (s.n-1)/l.PageTokens + 1
	s.pages = nil
	for _, p := range r.Perm(count + 3)[:count] {
		s.pages = append(s.pages, int32(p))
	}
	pool := l.PoolBytes(count + 3)
	s.keys, s.values = make([]byte, pool), make([]byte, pool)
	qkv, qNorm, kNorm := random(r, s.n*s.width()), random(r, l.HeadDim), random(r, l.HeadDim)
	angles, sinks := make([]float32, s.n*s.dims), random(r, s.heads)
	for i := range angles {
		angles[i] = float32(math.Sin(float64(i)))
	}
	tempers := make([]float32, s.n)
	for i := range tempers {
		tempers[i] = 1 + float32(i)/64
	}
	placed := append([]float32(nil), qkv...)
	positions := make([]int32, s.n)
	for i := range s.n {
		positions[i] = int32(i)
		row := placed[i*s.width():][:s.width()]
		q, k, v := row[:s.heads*l.HeadDim], row[s.heads*l.HeadDim:][:l.KVHeads*l.HeadDim], row[(s.heads+l.KVHeads)*l.HeadDim:]
		for x, norm := range map[*[]float32][]float32{&q: qNorm, &k: kNorm} {
			norms := func() {
				for h := 0; s.norms && h < len(*x); h += l.HeadDim {
					set.RMSNorm((*x)[h:h+l.HeadDim], (*x)[h:h+l.HeadDim], norm, eps)
				}
			}
			if !s.normLast {
				norms()
			}
			if s.dims > 0 {
				set.Rotate(*x, angles[i*s.dims:][:s.dims], l.HeadDim, s.neighbours)
			}
			if s.normLast {
				norms()
			}
		}
		for j := range q {
			if s.tempers {
				q[j] *= tempers[i]
			}
		}
		set.Place(&l, s.keys, s.values, int(s.pages[i/l.PageTokens]), i%l.PageTokens, k, v)
	}
	want := s.attend(set, placed, sinks, scale)
	var alone []int32 // some of the rows; the emulator is slow
	for i := range s.n {
		if i%7 == 3 || i > s.n-4 {
			alone = append(alone, int32(i))
		}
	}
	in := b.batch(batch{positions: positions, pages: s.pages, alone: alone})
	table, norms, sinkAt := Address(0), [2]Address{}, Address(0)
	if s.dims > 0 {
		table = b.numbers(angles)
	}
	if s.norms {
		norms = [2]Address{b.numbers(qNorm), b.numbers(kNorm)}
	}
	if s.sinks {
		sinkAt = b.numbers(sinks)
	}
	turn, tempersAt := 0, Address(0)
	if s.neighbours {
		turn |= TurnNeighbours
	}
	if s.normLast {
		turn |= TurnNormLast
	}
	if s.tempers {
		tempersAt = b.numbers(tempers)
	}
	got := b.inOrders(func() []float32 {
		rows, keys, values, out := b.numbers(qkv), b.alloc(pool), b.alloc(pool), b.alloc(4*s.n*s.heads*l.HeadDim)
		b.args.Reset().At(rows).Int(s.heads, l.KVHeads, l.HeadDim, l.PageTokens, l.BlockBytes()).At(keys, values, norms[0], norms[1]).
			Float(eps).At(table).Int(s.dims, turn).At(tempersAt, in)
		b.launch("place_"+l.KVType.String(), cudrv.Grid{s.heads + 2*l.KVHeads, s.n + 1, 1}, 64, 4*(32+l.HeadDim))
		group, width := s.heads/l.KVHeads, s.heads*l.HeadDim
		rest := func(a *Args, in Address) {
			a.At(rows).Int(s.heads, l.KVHeads, l.HeadDim, l.PageTokens, l.BlockBytes()).At(keys, values).Int(s.window).Float(scale, s.cap).At(in)
		}
		var whole []float32
		// In every launch there is one block more than the batch has: it must leave.
		for _, tile := range []int{PromptTokens(l.HeadDim, group), min(11, PromptTokens(l.HeadDim, group))} {
			rest(b.args.Reset().At(out, sinkAt), b.batch(batch{positions: positions, pages: s.pages, tile: tile}))
			parts := (group + PromptRows(l.HeadDim) - 1) / PromptRows(l.HeadDim)
			b.launch(fmt.Sprintf("attend_prompt_%s", l.KVType), cudrv.Grid{l.KVHeads * parts, (s.n-1)/tile + 2, 1}, AttendThreads, PromptShared(l.HeadDim))
			got := b.get(out, s.n*width)
			if whole != nil && !slices.Equal(got, whole) {
				b.Errorf("groups of %d tokens give other bits than larger ones", tile)
			}
			whole = got
		}
		same := func(how string, at Address) {
			got := b.get(at, s.n*width)
			for _, row := range alone {
				if !slices.Equal(got[int(row)*width:][:width], whole[int(row)*width:][:width]) {
					b.Fatalf("row %d has other bits %s than in a prompt", row, how)
				}
			}
		}
		grid, shared, one := cudrv.Grid{l.KVHeads * ((group + AttendHeads - 1) / AttendHeads), len(alone) + 1, 1}, AttendShared(l.HeadDim), b.alloc(4*s.n*width)
		rest(b.args.Reset().At(one, sinkAt), in)
		b.launch(fmt.Sprintf("attend_%s", l.KVType), grid, AttendThreads, shared)
		same("alone", one)
		splits := (s.n-1)/SplitTokens + 2
		partial, merged := b.alloc(4*len(alone)*splits*s.heads*(l.HeadDim+2)), b.alloc(4*s.n*width)
		rest(b.args.Reset().At(partial).Int(splits), in)
		grid[2] = splits
		b.launch(fmt.Sprintf("attend_splits_%s", l.KVType), grid, AttendThreads, shared)
		b.args.Reset().At(merged, partial).Int(splits, s.heads, l.HeadDim, s.window).At(sinkAt, in)
		b.launch("attend_merge", cudrv.Grid{s.heads, len(alone) + 1, 1}, 128, 0)
		same("by a block for each split", merged)
		return whole
	})
	b.near(got, want, func(int) float64 { return 2e-3 })
	if n := nmse(got, want); n > 1e-9 && l.KVType == kernels.KVF32 || n > 1e-6 {
		b.Errorf("NMSE %g", n)
	}
}

// attend is ref's attention of every row.
func (s *scene) attend(set *kernels.Set, rows, sinks []float32, scale float32) (out []float32) {
	l := s.layout
	group := s.heads / l.KVHeads
	for i := range s.n {
		for h := range l.KVHeads {
			first, window := 0, s.window
			if window < 0 {
				first, window = i-i%-window, 0
			}
			a := kernels.Attention{
				Out: make([]float32, group*l.HeadDim), Q: rows[i*s.width()+h*group*l.HeadDim:][:group*l.HeadDim], Queries: 1,
				KVLayout: l, K: s.keys, V: s.values, Pages: s.pages[first/l.PageTokens:], KVHead: h, Group: group, To: i + 1 - first, Window: window, Scale: scale,
				SoftCap: s.cap, Scores: make([]float32, kernels.AttentionScratch(group, l.HeadDim, s.n)),
			}
			if s.sinks {
				a.Sinks = sinks[h*group:][:group]
			}
			set.Attend(&a)
			out = append(out, a.Out...)
		}
	}
	return out
}

func nmse(a, b []float32) float64 {
	var wrong, size float64
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		wrong += d * d
		size += float64(b[i]) * float64(b[i])
	}
	return wrong / size
}
