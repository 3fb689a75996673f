package model

import (
	"context"
	"fmt"
	"math"
	"runtime/pprof"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// Options are the sizes of a loaded model's memory.
type Options struct {
	ContextTokens  int // longest sequence; 0 means the trained context, the most allowed
	PageTokens     int // positions in a page; 0 means 16
	Pages          int // pages in the pool; 0 means one sequence of ContextTokens
	BatchTokensMax int // tokens in one Forward over all chunks; 0 means 256
	States         int // states of sequences, in a model with recurrent layers; 0 means one

	KVType kernels.KVType // of the numbers in pages; the zero value is float32

	// Windows gives layers with windows pages of their own, by Paging.
	Windows bool

	// Device computes the passes; nil is the CPU.
	Device Device

	// Packed has matrices that were packed before; nil has none. It is used only
	// if it has them all, and then must outlive the Model.
	Packed Packed
}

// Model is a loaded model: its weights, its page pool, and the pass that runs.
type Model struct {
	// Fixed at construction.
	config     Config
	options    Options
	set        *kernels.Set
	team       *kernels.Team
	weights    *weights
	parameters int
	tileRows   int // most rows of a tile
	shapes     []shape
	lastStore  int // the last layer that stores keys and values
	ropes      []rope
	memory     memory
	placed     Placed // on Options.Device; else nil

	stateLen int   // numbers of a state over all layers; 0 in a model without recurrent layers
	stateAt  []int // where each layer's part begins

	paging  Paging
	pools   []pool    // of each layer: what the steps before have written
	regions []region  // the memory of all pools
	states  []float32 // [States][stateLen]
	pass    pass      // what a step changes
}

// shape is what attention of a layer goes by.
type shape struct {
	layout     kernels.KVLayout
	group      int  // query heads of a KV head
	headBlocks bool // a KV head's output is a multiple of BlockLen
	inPieces   bool // a context may be cut into pieces
}

// pool is one layer's keys and values, laid out as kernels.Attention says.
type pool struct{ keys, values []byte }

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
	m := &Model{config: c, options: o, set: set, team: team, parameters: f.Parameters(), paging: c.Paging(&o)}
	m.pass.m, m.pass.timer = m, new(Timer)
	if o.Device != nil {
		if err := m.placeOn(f); err != nil {
			return nil, err
		}
		return m, nil
	}
	if m.weights, err = loadWeights(f, &c, set, team, o.Packed); err != nil {
		return nil, err
	}
	if err := m.reserve(); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	for i := range c.Ropes {
		m.ropes = append(m.ropes, newRope(&c.Ropes[i], o.ContextTokens))
	}
	m.pass.bindPhases()
	return m, nil
}

// optionMax bounds a page and a batch; PageBytes relies on it.
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
	o.Windows = o.Windows && o.Device == nil
	size("States", &o.States, 1, optionMax)
	size("BatchTokensMax", &o.BatchTokensMax, 256, optionMax)
	if !o.KVType.Known() && err == nil {
		err = fmt.Errorf("%s: option KVType is %d, which is not a type", name, o.KVType)
	}
	if err == nil && o.Device == nil && o.KVType.GPUOnly() {
		err = fmt.Errorf("%s: keys and values of type %s are kept on a GPU alone; on the CPU there are f32, f16 and int8", name, o.KVType)
	}
	if err == nil && c.ChunkTokens%o.PageTokens != 0 {
		err = fmt.Errorf("%s: pages of %d tokens do not divide this model's chunks of %d; give a size that does, such as 16", name, o.PageTokens, c.ChunkTokens)
	}
	if err == nil {
		size("Pages", &o.Pages, (o.ContextTokens-1)/o.PageTokens+1, math.MaxInt32)
	}
	return err
}

// reserve fixes the shapes and sets up the pools and the pass.
func (m *Model) reserve() error {
	c := &m.config
	m.tileRows = max(1, tileHeads/max(1, c.largest().group))
	for i := range c.Layers {
		l, group := &c.Layers[i], 0
		if c.stores(i) || l.Recurrent {
			m.lastStore = i
		}
		if l.KVHeads > 0 {
			group = c.Heads / l.KVHeads
		}
		m.shapes = append(m.shapes, shape{layout: l.kvLayout(m.options.KVType, m.options.PageTokens), group: group, headBlocks: group*l.HeadDim%kernels.BlockLen == 0 && !c.GatedAttention && c.Latent.Rank == 0})
	}
	err := m.reservePools()
	if err == nil {
		err = m.reserveStates()
	}
	if err == nil {
		err = m.pass.reserve()
	}
	if err != nil {
		_ = m.memory.free()
	}
	return err
}

// SetTimer makes t count every launch from the next Forward on.
func (m *Model) SetTimer(t *Timer) { m.pass.timer = t }

// Label gives the profiler labels of ctx to all goroutines that compute.
func (m *Model) Label(ctx context.Context) {
	m.team.Run(func(int) { pprof.SetGoroutineLabels(ctx) })
}

// Config describes the model.
func (m *Model) Config() Config { return m.config }

// Options are the sizes with the defaults filled in.
func (m *Model) Options() Options { return m.options }

// PageBytes is the memory of one page, keys and values.
func (m *Model) PageBytes() int { return m.paging.PageBytes }

// Paging says how the layers share pages.
func (m *Model) Paging() Paging { return m.paging }

// StateBytes is the memory of one state over all layers.
func (m *Model) StateBytes() int { return m.config.StateBytes() }

// WeightBytes is the memory of the packed weights.
func (m *Model) WeightBytes() int {
	if m.placed != nil {
		return m.placed.WeightBytes()
	}
	return m.weights.bytes()
}

// Packed lists the matrices, and whether all came from Options.Packed.
func (m *Model) Packed() (matrices []PackedMatrix, reused bool) {
	return m.weights.matrices, m.weights.reused
}

// Parameters is the number of elements in the file's tensors.
func (m *Model) Parameters() int { return m.parameters }

// CopyPage copies page src to page dst in every layer.
func (m *Model) CopyPage(dst, src int32) {
	if m.placed != nil {
		if err := m.placed.CopyPage(dst, src); err != nil {
			panic(&DeviceFault{err})
		}
		return
	}
	for i := range m.regions {
		r, size := &m.regions[i], m.regions[i].pageBytes
		to, from := int(dst)*size, int(src)*size
		copy(r.keys[to:to+size], r.keys[from:from+size])
		copy(r.values[to:to+size], r.values[from:from+size])
	}
}

// OnDevice reports whether the pages are in a device's memory.
func (m *Model) OnDevice() bool { return m.placed != nil }

// SavePage copies a page of every layer to dst, which has PageBytes bytes.
func (m *Model) SavePage(dst []byte, page int32) {
	if m.placed != nil {
		if err := m.placed.SavePage(dst, page); err != nil {
			panic(&DeviceFault{err})
		}
		return
	}
	m.eachPage(page, func(b []byte) { dst = dst[copy(dst, b):] })
}

// LoadPage is the reverse of SavePage.
func (m *Model) LoadPage(page int32, src []byte) {
	if m.placed != nil {
		if err := m.placed.LoadPage(page, src); err != nil {
			panic(&DeviceFault{err})
		}
		return
	}
	m.eachPage(page, func(b []byte) { src = src[copy(b, src):] })
}

// Close frees pools and scratch. The logits of the last Forward go with them.
func (m *Model) Close() error {
	if m.placed != nil {
		return m.placed.Close()
	}
	return m.memory.free()
}
