//go:build cuda

package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// placed is a model on a device.
type placed struct {
	// Fixed when it is placed.
	owner        *Device
	device       *cuda.Device
	config       *model.Config
	options      model.Options
	weights      weights
	pools        []pool
	ropes        []cuda.Address // of each rope, Dims numbers for each position
	tempers      cuda.Address   // of each position, what queries are multiplied with where a layer is Tempered
	buffers      buffers
	kernels      kernelSet
	promptTokens int            // that attention takes together
	bytes        int            // of the weights
	held         []cuda.Address // memory to free

	// Changed by steps.
	args    cuda.Args
	graphs  map[graphShape]*cudrv.Graph
	step    []byte // pinned: a batch, as batch.h has it
	results []byte // pinned: logits
	page    []byte // pinned: a page of every layer, once one was copied to the host or back
	steps   int    // so far
	times   stepTimes

	sampling sampling
}

// weights are those of model.DeviceWeights. Matrices with the same input and type are one
// matrix where that saves a launch.
type weights struct {
	embedding  matrix
	outputNorm norm
	output     matrix
	layers     []layer
}

type layer struct {
	attentionNorm, ffNorm norm
	postAttention, postFF cuda.Address
	qkv                   []matrix
	out                   matrix
	recurrent             recurrent
	qNorm, kNorm, sinks   cuda.Address
	gateUp                []matrix
	down                  matrix
	router, sharedGate    matrix
	routerBias            cuda.Address
	experts               experts
}

// norm is a norm's weight, and what is added after it; address 0 where there is none.
type norm struct{ weight, bias cuda.Address }

// matrix is a matrix in the layout of kernels/cuda, and which columns of a row its product
// has.
type matrix struct {
	kind       kernels.Type
	rows, cols int
	data, bias cuda.Address
	first      int // column of the product's first number
}

// experts are the matrices of all experts of a layer: expert e's is e·bytes after data.
type experts struct{ gateUp, down []expertMatrix }

type expertMatrix struct {
	matrix
	bytes int
}

type pool struct{ keys, values cuda.Address }

// buffers are a step's rows.
type buffers struct {
	batch, x, normed, qkv, heads, sum cuda.Address
	gateUp, gate, logits, partial     cuda.Address
	scores, shares, chosen, outputs   cuda.Address
	order, groups, groupsCount        cuda.Address // of choices by expert
	beside, gates                     cuda.Address // of the expert that every token uses
	states                            cuda.Address // of sequences: Options.States, and one more
}

// batchMax bounds a step: the rows are a dimension of launches.
const batchMax = 1 << 13

// newPlaced is a model of which nothing is on the device yet.
func newPlaced(d *Device, c *model.Config, o *model.Options) *placed {
	return &placed{
		owner: d, device: d.cuda, config: c, options: *o, graphs: map[graphShape]*cudrv.Graph{},
		pools: make([]pool, len(c.Layers)), ropes: make([]cuda.Address, len(c.Ropes)), promptTokens: promptTokens(c),
	}
}

func place(d *Device, c *model.Config, w *model.DeviceWeights, o *model.Options) (model.Placed, error) {
	if err := errors.Join(refusal(c), checkWeights(w)); err != nil {
		return nil, fmt.Errorf("%w; %s", err, onCPU)
	}
	if err := check(c, o); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.cuda.Bind(); err != nil {
		return nil, err
	}
	p := newPlaced(d, c, o)
	if err := p.fits(w); err != nil {
		return nil, err
	}
	l := &loader{device: d.cuda}
	if total := matrixBytes(w); d.options.Loaded != nil {
		l.loaded = func(bytes int) { d.options.Loaded(bytes, total) }
	}
	p.place(l, w)
	l.finish()
	p.bytes = l.bytes
	p.reserve(l)
	p.held = l.held
	if l.err == nil {
		l.err = p.findKernels(w)
	}
	if l.err != nil {
		return nil, errors.Join(l.err, p.Close())
	}
	return p, nil
}

// place puts the weights on the device.
func (p *placed) place(l *loader, w *model.DeviceWeights) {
	p.weights.embedding = l.matrix(model.DeviceLinear{Matrix: &w.Embedding})
	if p.weights.output = p.weights.embedding; !p.config.Tied {
		p.weights.output = l.matrix(w.Output)
	}
	p.weights.outputNorm = l.norm(w.OutputNorm)
	for i := range w.Layers {
		from := &w.Layers[i]
		to := layer{
			attentionNorm: l.norm(from.AttentionNorm), ffNorm: l.norm(from.FFNorm),
			postAttention: l.vector(from.PostAttention.Weight), postFF: l.vector(from.PostFF.Weight),
			recurrent: l.recurrent(&from.Recurrent), qNorm: l.vector(from.QNorm), kNorm: l.vector(from.KNorm), sinks: l.vector(from.Sinks),
		}
		if from.Out.Matrix != nil {
			to.qkv, to.out = l.matrices(from.Q, from.K, from.V), l.matrix(from.Out)
		}
		if len(from.Experts) > 0 {
			to.router, to.routerBias = l.matrix(from.Router), l.vector(from.RouterBias)
			if from.Dense.Down.Matrix != nil {
				to.gateUp, to.down = l.matrices(from.Dense.Gate, from.Dense.Up), l.matrix(from.Dense.Down)
			}
			if from.SharedGate.Matrix != nil {
				to.sharedGate = l.matrix(from.SharedGate)
			}
			to.experts = experts{
				gateUp: l.expertMatrices(from.Experts, func(f *model.DeviceFeedForward) []model.DeviceLinear { return []model.DeviceLinear{f.Gate, f.Up} }),
				down:   l.expertMatrices(from.Experts, func(f *model.DeviceFeedForward) []model.DeviceLinear { return []model.DeviceLinear{f.Down} }),
			}
		} else {
			to.gateUp, to.down = l.matrices(from.Dense.Gate, from.Dense.Up), l.matrix(from.Dense.Down)
		}
		p.weights.layers = append(p.weights.layers, to)
		if l.err != nil {
			return
		}
	}
}

// widths are the largest rows over all layers.
type widths struct{ qkv, heads, ff int }

func (p *placed) widths() (w widths) {
	c := p.config
	w.ff = max(c.ExpertFF, c.SharedFF)
	for i := range c.Layers {
		d := &c.Layers[i]
		w.qkv, w.heads = max(w.qkv, (c.Heads+2*d.KVHeads)*d.HeadDim), max(w.heads, c.Heads*d.HeadDim)
		w.ff = max(w.ff, d.FF)
		if d.Recurrent {
			w.qkv, w.heads = max(w.qkv, 3*c.Recurrent.Channels), max(w.heads, c.Recurrent.Channels)
		}
	}
	return w
}

// layout is that of a layer's pools.
func (p *placed) layout(layer int) kernels.KVLayout {
	d := &p.config.Layers[layer]
	return kernels.KVLayout{KVType: p.options.KVType, PageTokens: p.options.PageTokens, KVHeads: d.KVHeads, HeadDim: d.HeadDim}
}

const groupBytes = 16 // of struct Group of matmul.cu

// plan lists the sizes of all buffers of a step, the pools and the tables.
func (p *placed) plan(visit func(to *cuda.Address, bytes int)) {
	c, o, b, w := p.config, &p.options, &p.buffers, p.widths()
	n, choices := o.BatchTokensMax, o.BatchTokensMax*max(1, c.ExpertsUsed)
	visit(&b.batch, p.batchBytes(p.tablePages()))
	for _, one := range []struct {
		to *cuda.Address
		n  int
	}{
		{&b.x, n * c.Embed}, {&b.normed, n * c.Embed}, {&b.sum, n * c.Embed}, {&b.qkv, n * w.qkv}, {&b.heads, n * w.heads},
		{&b.gateUp, choices * 2 * w.ff}, {&b.gate, choices * w.ff}, {&b.logits, n * c.Vocab},
	} {
		visit(one.to, 4*one.n)
	}
	if splits := p.splitsMax(); splits > 1 {
		visit(&b.partial, 4*p.splitRows()*splits*(w.heads+2*c.Heads))
	}
	if c.Experts > 0 {
		visit(&b.scores, 4*n*c.Experts)
		visit(&b.shares, 4*choices)
		visit(&b.chosen, 4*choices)
		visit(&b.outputs, 4*choices*c.Embed)
		visit(&b.order, 4*choices)
		visit(&b.groups, groupBytes*choices)
		visit(&b.groupsCount, 4)
		if c.SharedFF > 0 {
			visit(&b.beside, 4*n*c.Embed)
			visit(&b.gates, 4*n)
		}
	}
	if p.stateLen() > 0 {
		visit(&b.states, (o.States+1)*c.StateBytes())
	}
	p.planSampling(visit)
	for i := range p.pools {
		layout := p.layout(i)
		visit(&p.pools[i].keys, layout.PoolBytes(o.Pages))
		visit(&p.pools[i].values, layout.PoolBytes(o.Pages))
	}
	for r := range p.ropes {
		visit(&p.ropes[r], 4*o.ContextTokens*c.Ropes[r].Dims)
	}
	if p.tempered() {
		visit(&p.tempers, 4*o.ContextTokens)
	}
}

// matrixBytes is the memory of the matrices on a device.
func matrixBytes(w *model.DeviceWeights) (bytes int) {
	w.Each(func(m *kernels.Matrix) { bytes += cuda.PlanesBytes(m.Type, m.Rows, m.Cols) })
	return bytes
}

// fits refuses a model that the device's free memory does not hold, before anything is copied.
func (p *placed) fits(w *model.DeviceWeights) error {
	weights, pools, rest := matrixBytes(w), 0, 0
	p.plan(func(_ *cuda.Address, bytes int) { rest += bytes })
	for i := range p.pools {
		layout := p.layout(i)
		pools += 2 * layout.PoolBytes(p.options.Pages)
	}
	free, err := p.device.FreeBytes()
	if err != nil {
		return err
	}
	if need := weights + rest; int64(need) > free {
		return fmt.Errorf("the model needs %d bytes of the GPU's memory: %d for weights, %d for keys and values, %d for steps and states; %d are free. Give a smaller engine.kv_bytes, engine.context_tokens or engine.batch_tokens_max, or smaller weights by engine.quantize",
			need, weights, pools, rest-pools, free)
	}
	return nil
}

// tempered says whether any layer is.
func (p *placed) tempered() bool {
	return slices.ContainsFunc(p.config.Layers, func(d model.Layer) bool { return d.Tempered })
}

// reserve takes the memory of plan, and fills the tables.
func (p *placed) reserve(l *loader) {
	p.plan(func(to *cuda.Address, bytes int) { *to = l.alloc(bytes) })
	for r := range p.ropes {
		dims := p.config.Ropes[r].Dims
		angles := make([]float32, p.options.ContextTokens*dims)
		p.config.RopeTable(angles, r, p.options.ContextTokens)
		if l.err == nil && len(angles) > 0 {
			l.err = p.device.Put(p.ropes[r], unsafe.Slice((*byte)(unsafe.Pointer(&angles[0])), 4*len(angles)))
		}
	}
	if p.tempered() && l.err == nil {
		scales := make([]float32, p.options.ContextTokens)
		for i := range scales {
			scales[i] = p.config.Temperature.At(i)
		}
		l.err = p.device.Put(p.tempers, unsafe.Slice((*byte)(unsafe.Pointer(&scales[0])), 4*len(scales)))
	}
	if l.err == nil {
		p.step, l.err = cudrv.Pin(p.batchBytes(p.tablePages()))
	}
	if l.err == nil {
		l.err = p.prepareSampling()
	}
	if l.err == nil {
		l.err = p.clearStates()
	}
}

// Close frees the model's memory.
func (p *placed) Close() (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = p.device.Bind()
	for _, g := range p.graphs {
		err = errors.Join(err, g.Close())
	}
	p.graphs = nil
	err = errors.Join(err, p.times.close())
	for _, at := range p.held {
		err = errors.Join(err, p.device.Free(at))
	}
	p.held = nil
	for _, pinned := range []*[]byte{&p.step, &p.results, &p.page, &p.sampling.in, &p.sampling.out, &p.sampling.row} {
		if *pinned != nil {
			err = errors.Join(err, cudrv.Unpin(*pinned))
			*pinned = nil
		}
	}
	return err
}

// WeightBytes implements model.Placed.
func (p *placed) WeightBytes() int { return p.bytes }

// Graphs implements model.Placed.
func (p *placed) Graphs() int { return len(p.graphs) }

// CopyPage implements model.Placed.
func (p *placed) CopyPage(dst, src int32) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.device.Bind(); err != nil {
		return err
	}
	for i := range p.pools {
		layout := p.layout(i)
		size := layout.PageBytes()
		if size == 0 {
			continue
		}
		for _, pages := range []cuda.Address{p.pools[i].keys, p.pools[i].values} {
			if err := p.device.MoveLater(pages+cuda.Address(int(dst)*size), pages+cuda.Address(int(src)*size), size); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbers gives the first n float32 of pinned memory.
func numbers(memory []byte, n int) []float32 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&memory[0])), n)
}
