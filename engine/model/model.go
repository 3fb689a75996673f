package model

import (
	"context"
	"fmt"
	"math"
	"runtime/pprof"
	"sync/atomic"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// Options are the sizes of a loaded model's memory.
type Options struct {
	ContextTokens  int // longest sequence; 0 means the trained context, the most allowed
	PageTokens     int // positions in a page; 0 means 16
	Pages          int // pages in the pool; 0 means one sequence of ContextTokens
	BatchTokensMax int // tokens in one Forward over all spans; 0 means 256

	KVType kernels.KVType // of the numbers in pages; float32 where it is not set

	// Packed has the matrices that need not be packed; nil has none. It must outlive
	// the Model, and counts only where it has them all.
	Packed Packed
}

// Model is a loaded model with its page pool and scratch.
type Model struct {
	// fixed at construction
	config     Config
	options    Options
	set        *kernels.Set
	team       *kernels.Team
	weights    *weights
	parameters int
	group      int  // query heads of a KV head
	tileRows   int  // most rows of a tile
	headBlocks bool // what the query heads of a KV head give is whole blocks
	layout     kernels.KVLayout
	pools      []pool
	memory     memory
	logits     []float32
	ropes      []rope
	run        phases
	timer      *Timer

	// of the Forward that is running; workers write disjoint parts
	batch   batch
	scratch scratch
	mixture mixture
	rows    int  // of the batch that are still computed
	serial  bool // the caller alone runs the phase
	layer   int
	taken   atomic.Int64 // pieces of a shared phase
	workers []kernels.Attention
}

// pool is one layer's keys and values, laid out as kernels.Attention says.
type pool struct{ keys, values []byte }

// scratch holds the activations of a batch, one row for each token.
type scratch struct {
	x         []float32   // Embed
	normed    activations // Embed
	q         []float32   // Heads·HeadDim
	heads     activations // Heads·HeadDim: what the queries found
	k, v      []float32   // KVHeads·HeadDim
	gate      activations // FF, a row for each expert of a token
	up        [][]float32 // FF, gatedRows rows of each worker
	sum       []float32   // Embed, to be added to x
	angles    [][]float32 // for each rope, rows of Dims, as rope.angles says
	attention []float32   // for each worker
}

// Load checks the model in f and prepares it to run with set on team. Both must
// outlive the Model, and f too.
func Load(f *gguf.File, set *kernels.Set, team *kernels.Team, o Options) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	if err := o.fill(f.Name(), &c); err != nil {
		return nil, err
	}
	m := &Model{config: c, options: o, set: set, team: team, parameters: f.Parameters(), timer: new(Timer)}
	if m.weights, err = loadWeights(f, &c, set, team, o.Packed); err != nil {
		return nil, err
	}
	if err := m.reserve(); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	for i := range c.Ropes {
		m.ropes = append(m.ropes, newRope(&c.Ropes[i], o.ContextTokens))
	}
	m.bindPhases()
	return m, nil
}

// optionMax bounds a page and a batch, as PageBytes promises.
const optionMax = 1 << 16

// fill sets defaults and checks o against the model.
func (o *Options) fill(name string, c *Config) error {
	if o.ContextTokens > c.ContextTokens {
		return fmt.Errorf("%s: a context of %d tokens is asked for; the model was trained for %d", name, o.ContextTokens, c.ContextTokens)
	}
	var err error
	size := func(option string, n *int, absent, most int) {
		if *n == 0 {
			*n = absent
		}
		if (*n < 1 || *n > most) && err == nil {
			err = fmt.Errorf("%s: option %s is %d; allowed are 1 to %d", name, option, *n, most)
		}
	}
	size("ContextTokens", &o.ContextTokens, c.ContextTokens, c.ContextTokens)
	size("PageTokens", &o.PageTokens, 16, optionMax)
	size("BatchTokensMax", &o.BatchTokensMax, 256, optionMax)
	if !o.KVType.Known() && err == nil {
		err = fmt.Errorf("%s: option KVType is %d, which is none of the types", name, o.KVType)
	}
	if err == nil {
		size("Pages", &o.Pages, (o.ContextTokens-1)/o.PageTokens+1, math.MaxInt32)
	}
	return err
}

// reserve sets up pools, scratch and the workers' attention.
func (m *Model) reserve() error {
	c, o := &m.config, &m.options
	m.group = c.Heads / c.KVHeads
	m.headBlocks = m.group*c.HeadDim%kernels.BlockLen == 0
	m.tileRows = max(1, tileHeads/m.group)
	m.layout = c.kvLayout(o.KVType, o.PageTokens)
	scores := kernels.AttentionScratch(m.tileRows*m.group, c.HeadDim, min(o.ContextTokens, o.Pages*o.PageTokens))
	var failure error
	rows := func(n, width int) []float32 {
		if failure != nil {
			return nil
		}
		if n > math.MaxInt/8/max(1, width) {
			failure = fmt.Errorf("%d rows of %d numbers are more than memory can hold", n, width)
			return nil
		}
		x, err := m.memory.float32s(n * width)
		failure = err
		return x
	}
	if failure = m.reservePools(); failure != nil {
		_ = m.memory.free()
		return failure
	}
	n := o.BatchTokensMax
	m.logits = rows(n, c.Vocab)
	m.scratch = scratch{
		x: rows(n, c.Embed), normed: newActivations(m.set, n, c.Embed, rows), sum: rows(n, c.Embed),
		q: rows(n, c.Heads*c.HeadDim), heads: newActivations(m.set, n, c.Heads*c.HeadDim, rows),
		k: rows(n, c.KVHeads*c.HeadDim), v: rows(n, c.KVHeads*c.HeadDim),
		gate:      newActivations(m.set, n*max(1, c.ExpertsUsed), c.FF, rows),
		attention: rows(m.team.Workers(), scores),
	}
	for range m.team.Workers() {
		m.scratch.up = append(m.scratch.up, rows(min(n*max(1, c.ExpertsUsed), gatedRows), c.FF))
	}
	for i := range c.Ropes {
		m.scratch.angles = append(m.scratch.angles, rows(n, c.Ropes[i].Dims))
	}
	m.mixture = newMixture(c, m.set, n, rows)
	m.batch = newBatch(n)
	m.batch.spans = m.newSpans(min(o.ContextTokens, o.Pages*o.PageTokens), rows)
	if failure != nil {
		_ = m.memory.free()
		return failure
	}
	m.workers = make([]kernels.Attention, m.team.Workers())
	for w := range m.workers {
		m.workers[w] = kernels.Attention{
			KVLayout: m.layout, Group: m.group,
			Stride: c.Heads * c.HeadDim, Scale: c.AttentionScale, SoftCap: c.AttentionSoftCap,
			Round: roundsAttention(c, m.weights), Scores: row(m.scratch.attention, w, scores),
		}
	}
	return nil
}

// reservePools sets up the pages of every layer.
func (m *Model) reservePools() error {
	m.pools = make([]pool, m.config.Layers)
	if m.options.Pages > (math.MaxInt-kernels.KVSlack)/m.layout.PageBytes() {
		return fmt.Errorf("%d pages of %d bytes in a layer are more than memory can hold", m.options.Pages, 2*m.layout.PageBytes())
	}
	for i := range m.pools {
		for _, pages := range []*[]byte{&m.pools[i].keys, &m.pools[i].values} {
			var err error
			if *pages, err = m.memory.bytes(m.layout.PoolBytes(m.options.Pages)); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetTimer has t told of every launch from the next Forward on.
func (m *Model) SetTimer(t *Timer) { m.timer = t }

// Label gives all goroutines that compute the profiler's labels of ctx.
func (m *Model) Label(ctx context.Context) {
	m.team.Run(func(int) { pprof.SetGoroutineLabels(ctx) })
}

// Config describes the model.
func (m *Model) Config() Config { return m.config }

// Options are the sizes in force, defaults filled in.
func (m *Model) Options() Options { return m.options }

// PageBytes is the memory of one page over all layers, keys and values.
func (m *Model) PageBytes() int { return m.config.PageBytes(m.options.KVType, m.options.PageTokens) }

// WeightBytes is the memory of the packed weights.
func (m *Model) WeightBytes() int { return m.weights.bytes() }

// Packed lists the matrices, and whether all came from Options.Packed.
func (m *Model) Packed() (matrices []PackedMatrix, reused bool) {
	return m.weights.matrices, m.weights.reused
}

// Parameters is the number of elements in the file's tensors.
func (m *Model) Parameters() int { return m.parameters }

// CopyPage copies page src to page dst in every layer.
func (m *Model) CopyPage(dst, src int32) {
	size := m.layout.PageBytes()
	to, from := int(dst)*size, int(src)*size
	for i := range m.pools {
		p := &m.pools[i]
		copy(p.keys[to:to+size], p.keys[from:from+size])
		copy(p.values[to:to+size], p.values[from:from+size])
	}
}

// Close frees pools and scratch. The logits of the last Forward go with them.
func (m *Model) Close() error { return m.memory.free() }
