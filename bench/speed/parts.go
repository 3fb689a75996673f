package speed

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/forebay-io/forebay/kernels"
)

// Part is the measurement of one operation with a number of workers. It is compared
// with the roof: the time to read its bytes or the time to do its operations,
// whichever is longer.
type Part struct {
	Op      string `json:"op"`
	Type    string `json:"type,omitempty"`
	Rows    int    `json:"rows"` // of activations; of attention, query tokens
	Context int    `json:"context,omitempty"`
	Workers int    `json:"workers"`

	GBs  float64 `json:"gb_s"` // bytes it must read, with weights in the file's types
	GOPS float64 `json:"gops,omitempty"`
	// Bound names the roof: "memory", "cache" or a loop. Share is the reached share
	// of it. Both are absent if there is no loop for the arithmetic.
	Bound string  `json:"bound,omitempty"`
	Share float64 `json:"share,omitempty"`
}

// PartsOptions says which operations to measure.
type PartsOptions struct {
	Set   *kernels.Set
	Team  *kernels.Team
	Types []kernels.Type
	Time  time.Duration // of each measurement
}

// Types lists all types of MatMul, in the order of the tables.
var Types = []kernels.Type{
	kernels.F32, kernels.F16, kernels.BF16, kernels.Q8_0, kernels.Q6_K, kernels.Q5_K, kernels.Q5_1, kernels.Q5_0,
	kernels.Q4_K, kernels.Q4_1, kernels.Q4_0, kernels.IQ4_NL, kernels.IQ4_XS, kernels.MXFP4, kernels.Q3_K, kernels.Q2_K,
}

// Sizes of the operands.
const (
	matrixBytes = 96 << 20 // at least, so that a pass comes from memory
	matrixCols  = 2048
	panelRows   = 1024 // outputs of a call with many rows

	headDim, headGroup, kvHeads, pageTokens = 128, 2, 8, 16

	elementNumbers = 12 << 10 // of an operation on numbers: three such arrays stay in the second cache
)

// parts measures operations beside the roofs of one worker and of all workers.
type parts struct {
	o     *PartsOptions
	roofs map[int]*Machine
	line  func(any) error
}

// Parts measures every operation and calls line with each result as soon as it is
// ready: two *Machine, then *Part.
func Parts(o *PartsOptions, line func(any) error) error {
	p := &parts{o: o, roofs: map[int]*Machine{}, line: line}
	roof := NewRoof(o.Team)
	for _, workers := range p.workers() {
		p.roofs[workers] = roof.Machine(workers)
		if err := line(p.roofs[workers]); err != nil {
			return err
		}
	}
	for _, t := range o.Types {
		if err := p.matMul(t); err != nil {
			return err
		}
	}
	for _, measure := range []func() error{p.attention, p.elements} {
		if err := measure(); err != nil {
			return err
		}
	}
	return nil
}

// workers returns the numbers of workers to measure: one, and all.
func (p *parts) workers() []int {
	if all := p.o.Team.Workers(); all > 1 {
		return []int{1, all}
	}
	return []int{1}
}

// work is a part of an operation: the bytes it reads, where they are, and the
// operations it does.
type work struct {
	bytes, ops int
	cached     bool
	loop       string // the loop of kernels/probe for its arithmetic; empty if there is none
	run        func(worker, workers int)
}

// measure runs w on one worker and on all, and passes the lines on.
func (p *parts) measure(of Part, w *work) error {
	for _, workers := range p.workers() {
		if err := p.measureOn(workers, of, w); err != nil {
			return err
		}
	}
	return nil
}

// measureOn takes the median of the runs. The first run is a warm-up.
func (p *parts) measureOn(workers int, of Part, w *work) error {
	var times []float64
	for began := time.Now(); len(times) < 4 || time.Since(began) < p.o.Time; {
		start := time.Now()
		p.o.Team.Run(func(worker int) {
			if worker < workers {
				w.run(worker, workers)
			}
		})
		times = append(times, time.Since(start).Seconds())
	}
	took := Median(times[1:])
	of.Workers, of.GBs, of.GOPS = workers, giga(float64(w.bytes)/took), giga(float64(w.ops)/took)
	of.Bound, of.Share = p.roofs[workers].bound(w, took)
	return p.line(&of)
}

// bound returns the roof of w and the share that it reaches if it takes took
// seconds.
func (m *Machine) bound(w *work, took float64) (name string, share float64) {
	name, reads := "memory", m.ReadGBs
	if w.cached {
		name, reads = "cache", m.CacheGBs
	}
	least := float64(w.bytes) / 1e9 / reads
	if w.ops > 0 {
		gops := m.GOPS[w.loop]
		if gops == 0 {
			return "", 0
		}
		if t := float64(w.ops) / 1e9 / gops; t > least {
			name, least = w.loop, t
		}
	}
	return name, round(least/took, 1000)
}

// loopOf names the loop for the arithmetic with which a set multiplies weights of a
// type with n rows. There is no loop for tiles, and none for plain Go.
func loopOf(set *kernels.Set, t kernels.Type, n int) string {
	switch wide := strings.HasPrefix(set.Name, "avx512"); {
	case !set.InAssembly(t):
		return ""
	case set.Name == "avx512amx" && t.BlockLen() > 1 && n >= kernels.RowTile:
		return ""
	case wide && set.Round != nil && t.BlockLen() > 1:
		return "dot_int8_avx512"
	case wide:
		return "fma_f32_avx512"
	case set.Name == "avx2" || set.Name == "avx2int8" && t.BlockLen() == 1:
		return "fma_f32_avx2"
	}
	return ""
}

// attentionLoopOf names the loop for the arithmetic of a set's attention to halves,
// if it may round.
func attentionLoopOf(set *kernels.Set) string {
	if set.Name == "avx512bf16" || set.Name == "avx512amx" {
		return "dot_bf16_avx512"
	}
	return loopOf(set, kernels.F32, 1)
}

// weights returns random blocks of a type. All scales in them are normal numbers,
// because infinite and subnormal ones can be slower.
func weights(t kernels.Type, n int) []byte {
	b := make([]byte, t.Bytes(n))
	r := rand.New(rand.NewPCG(1, 2))
	for at := 0; at < len(b); at += 8 {
		word := r.Uint64()&0x1b1b1b1b1b1b1b1b | 0x2020202020202020
		for i := range b[at:min(at+8, len(b))] {
			b[at+i] = byte(word >> (8 * i))
		}
	}
	return b
}

func numbers(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = rand.Float32() - 0.5
	}
	return x
}

// product is a matrix with its inputs. Only it calls MatMul.
type product struct {
	set *kernels.Set
	m   *kernels.Matrix
	x   kernels.Input
	dst []float32
}

func newProduct(set *kernels.Set, t kernels.Type, rows, cols, n int) *product {
	return &product{set: set, m: set.Pack(t, rows, cols, weights(t, rows*cols)), x: set.Input(numbers(n * cols)), dst: make([]float32, n*rows)}
}

// multiply computes a worker's share of the outputs [lo,hi) for n rows of input.
func (p *product) multiply(n, lo, hi, worker, workers int) {
	from, to := kernels.Split(hi-lo, kernels.RowTile, worker, workers)
	p.set.MatMul(p.dst, p.m.Rows, p.m, p.x, n, lo+from, lo+to)
}

// matMul measures a type: one row times the whole matrix, which comes from memory,
// and more rows times one panel of it after another.
func (p *parts) matMul(t kernels.Type) error {
	rows := (matrixBytes/t.Bytes(matrixCols)/panelRows + 1) * panelRows
	m := newProduct(p.o.Set, t, rows, matrixCols, 256)
	for _, n := range []int{1, 4, 16, 256} {
		outputs := rows
		if n > 4 {
			outputs = panelRows
		}
		at := make([]int, p.o.Team.Workers())
		w := &work{bytes: t.Bytes(outputs * matrixCols), ops: 2 * n * outputs * matrixCols, loop: loopOf(p.o.Set, t, n)}
		w.run = func(worker, workers int) {
			lo := at[worker]
			m.multiply(n, lo, lo+outputs, worker, workers)
			at[worker] = (lo + outputs) % rows
		}
		if err := p.measure(Part{Op: "matmul", Type: t.String(), Rows: n}, w); err != nil {
			return err
		}
		clear(at)
	}
	return nil
}

// newAttention returns the queries of a group of heads. The last query sees the
// whole context. Only this function knows the layout of keys and values.
func newAttention(queries, context int) *kernels.Attention {
	layout := kernels.KVLayout{KVType: kernels.KVF16, PageTokens: pageTokens, KVHeads: kvHeads, HeadDim: headDim}
	a := &kernels.Attention{
		Out: make([]float32, queries*headGroup*headDim), Q: numbers(queries * headGroup * headDim),
		K: make([]byte, layout.PoolBytes(context/pageTokens)), V: make([]byte, layout.PoolBytes(context/pageTokens)),
		KVLayout: layout, Group: headGroup, To: context - queries + 1, Scale: 0.09, Round: true,
		Queries: queries, Stride: headGroup * headDim, Scores: make([]float32, kernels.AttentionScratch(queries*headGroup, headDim, context)),
	}
	for i := range context / pageTokens {
		a.Pages = append(a.Pages, int32(i))
		for slot := range pageTokens {
			layout.Place(a.K, a.V, i, slot, numbers(kvHeads*headDim), numbers(kvHeads*headDim))
		}
	}
	return a
}

// attendHeads distributes the KV heads over the workers.
func attendHeads(set *kernels.Set, a *kernels.Attention, team *kernels.Team) func(worker, workers int) {
	each := make([]kernels.Attention, team.Workers())
	for i := range each {
		each[i] = *a
		each[i].Out, each[i].Scores = make([]float32, len(a.Out)), make([]float32, len(a.Scores))
	}
	return func(worker, workers int) {
		own := &each[worker]
		lo, hi := kernels.Split(kvHeads, 1, worker, workers)
		for own.KVHead = lo; own.KVHead < hi; own.KVHead++ {
			set.Attend(own)
		}
	}
}

// attention measures one query token at a depth, with keys and values from memory,
// and several consecutive query tokens.
func (p *parts) attention() error {
	for _, c := range []struct {
		op               string
		queries, context int
	}{{"attention decode", 1, 16384}, {"attention prefill", 16, 2048}} {
		a := newAttention(c.queries, c.context)
		positions := c.queries * (a.To + c.context) / 2
		w := &work{
			bytes: 2 * kvHeads * c.context * a.KVType.TokenBytes(headDim), ops: 4 * kvHeads * headGroup * headDim * positions,
			loop: attentionLoopOf(p.o.Set), run: attendHeads(p.o.Set, a, p.o.Team),
		}
		if err := p.measure(Part{Op: c.op, Rows: c.queries, Context: c.context}, w); err != nil {
			return err
		}
	}
	return nil
}

// elements measures the operations on numbers in the second-level cache.
func (p *parts) elements() error {
	set, workers := p.o.Set, p.o.Team.Workers()
	type arrays struct{ dst, x, y []float32 }
	each := make([]arrays, workers)
	for i := range each {
		each[i] = arrays{make([]float32, elementNumbers), numbers(elementNumbers), numbers(elementNumbers)}
	}
	for _, op := range []struct {
		name string
		run  func(a *arrays)
	}{
		{"norm", func(a *arrays) { set.RMSNorm(a.dst, a.x, a.y, 1e-5) }},
		{"silu", func(a *arrays) { set.SiLUMul(a.dst, a.x, a.y) }},
		{"gelu", func(a *arrays) { set.GELUMul(a.dst, a.x, a.y) }},
	} {
		const repeats = 64 // a call is too short for a clock
		for _, n := range p.workers() {
			run := func(worker, _ int) {
				for range repeats {
					op.run(&each[worker])
				}
			}
			w := &work{bytes: n * repeats * 2 * 4 * elementNumbers, cached: true, run: run}
			if err := p.measureOn(n, Part{Op: op.name, Rows: 1}, w); err != nil {
				return err
			}
		}
	}
	return nil
}
