package model

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// Device computes passes elsewhere than on this machine's CPU. Above it everything is the
// same code for both: which tokens a step has, which pages hold them, and what becomes of the
// logits. Below it are the weights, the pages' memory and the arithmetic.
type Device interface {
	// Place takes a model to the device, with memory for its pages and for a step. It copies
	// the weights, and refuses by name what it cannot compute.
	Place(c *Config, w *DeviceWeights, o *Options) (Placed, error)
}

// Placed is a model on a device. It belongs to one goroutine.
type Placed interface {
	// Forward is Model.Forward, with the logits of chunks without Stay. They are valid until the
	// next Forward, and so are the laps: the kernels of the step in their order, or none where
	// the step was not timed.
	Forward(chunks []Chunk, times DeviceTimes) (logits []float32, laps []DeviceLap, err error)
	// DrawsMax is how many draws a Sample takes where the vocabulary has so many tokens; 0 where
	// it takes none.
	DrawsMax(vocab int) int
	// Sample finds the tokens of draws in the last Forward's logits, of which the first vocab
	// of a row are tokens.
	Sample(draws []DeviceDraw, vocab int) error
	// Row copies a row of the last Forward's logits. It is valid until the next Row.
	Row(row int) ([]float32, error)
	// CopyPage copies page src to page dst in every layer.
	CopyPage(dst, src int32) error
	// SavePage copies a page of every layer to the host, where it has dst's length, and LoadPage
	// copies it back. Both wait until it is done.
	SavePage(dst []byte, page int32) error
	LoadPage(page int32, src []byte) error
	// CopyState copies the state in slot src to slot dst, in a model with recurrent layers, and
	// ClearState makes one that of a sequence without tokens. At first all are.
	CopyState(dst, src int32) error
	ClearState(slot int32) error
	// WeightBytes is the memory of the weights on the device.
	WeightBytes() int
	// Graphs is how many prepared steps there are.
	Graphs() int
	Close() error
}

// DeviceTimes says whether a step's kernels are timed, which costs it some time.
type DeviceTimes int

const (
	TimeNone DeviceTimes = iota
	TimeSome             // the device times some steps, as it is configured
	TimeEach             // somebody waits for this step's kernels
)

// DeviceLap is a kernel of a step: when it was done, in milliseconds of the step's work on the
// device. Attention of a step without a lap of KernelAttentionPrefill may have served prompts too.
type DeviceLap struct {
	Class KernelClass
	Layer int // -1 outside the layers
	Done  float64
}

// DeviceFault is what a Model's methods panic with when a device fails: what it
// holds is lost, and only a new process can use it again.
type DeviceFault struct{ Err error }

// Kernel is the kernel that failed, or "" where the device does not know it.
func (f *DeviceFault) Kernel() string {
	var e *KernelError
	if errors.As(f.Err, &e) {
		return e.Kernel
	}
	return ""
}

// KernelError says that a kernel of a device failed, and where in a pass it was, or "".
type KernelError struct {
	Kernel, Where string
	Err           error
}

func (e *KernelError) Error() string { return fmt.Sprintf("kernel %s%s: %v", e.Kernel, e.Where, e.Err) }

func (e *KernelError) Unwrap() error { return e.Err }

func (f *DeviceFault) Error() string { return fmt.Sprintf("the device failed: %v", f.Err) }

func (f *DeviceFault) Unwrap() error { return f.Err }

// DeviceWeights are a model's weights as its file has them: a matrix's Data are the rows of
// blocks of its type. They are valid until Place returns.
type DeviceWeights struct {
	Embedding  kernels.Matrix
	OutputNorm DeviceNorm
	Output     DeviceLinear // the embedding again, where the model is Tied
	Layers     []DeviceLayer
}

// DeviceLinear is a matrix, and the bias of its product or nil.
type DeviceLinear struct {
	*kernels.Matrix
	Bias []float32
}

// DeviceNorm is a norm's weight, and what is added after it or nil. Without a weight there is
// no norm.
type DeviceNorm struct{ Weight, Bias []float32 }

// DeviceLayer is the weights of a layer; those that a model does not have are nil.
type DeviceLayer struct {
	AttentionNorm, PostAttention DeviceNorm
	Q, K, V, Out                 DeviceLinear
	Recurrent                    DeviceRecurrent
	QNorm, KNorm, Sinks          []float32
	FFNorm, PostFF               DeviceNorm
	Dense                        DeviceFeedForward // of a mixture, the expert that every token uses
	SharedGate, Router           DeviceLinear
	RouterBias                   []float32
	Experts                      []DeviceFeedForward
}

// DeviceRecurrent is the weights of a short convolution: its input is In·x times Before·x, and
// Gate·x multiplies its output. Taps has a row of each tap, the oldest token's first, of a
// number for each channel.
type DeviceRecurrent struct {
	Before, Gate, In, Out DeviceLinear
	Taps                  []float32
}

// DeviceFeedForward is a feed-forward layer; its matrices are nil where there is none.
type DeviceFeedForward struct{ Gate, Up, Down DeviceLinear }

// deviceSet is the kernel set whose matrices are as the file has them.
const deviceSet = "ref"

// placeOn takes the model of f to o.Device.
func (m *Model) placeOn(f *gguf.File) error {
	c, o := &m.config, &m.options
	set, err := kernels.Lookup(deviceSet)
	if err != nil {
		return err
	}
	w, err := loadWeights(f, c, set, m.team, nil)
	if err != nil {
		return err
	}
	if m.placed, err = o.Device.Place(c, w.forDevice(c), o); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	m.weights = &weights{}
	m.pass.batch, m.stateLen = newBatch(o.BatchTokensMax), c.stateLen()
	m.tileRows = 1
	return nil
}

func (w *weights) forDevice(c *Config) *DeviceWeights {
	d := &DeviceWeights{
		Embedding:  kernels.Matrix{Type: w.embedding.Type, Rows: c.Vocab, Cols: c.Embed, Data: w.embedding.Data},
		OutputNorm: w.outputNorm.forDevice(), Output: w.output.forDevice(), Layers: make([]DeviceLayer, len(w.layers)),
	}
	for i := range w.layers {
		l := &w.layers[i]
		to := &d.Layers[i]
		*to = DeviceLayer{
			AttentionNorm: l.attentionNorm.forDevice(), PostAttention: l.postAttention.forDevice(),
			Q: l.q.forDevice(), K: l.k.forDevice(), V: l.v.forDevice(), Out: l.out.forDevice(),
			Recurrent: l.recurrent.forDevice(), QNorm: l.qNorm, KNorm: l.kNorm, Sinks: l.sinks, FFNorm: l.ffNorm.forDevice(), PostFF: l.postFF.forDevice(),
			Dense: l.dense.forDevice(), SharedGate: l.sharedGate.forDevice(), Router: l.router.forDevice(), RouterBias: l.routerBias,
		}
		for e := range l.experts {
			to.Experts = append(to.Experts, l.experts[e].forDevice())
		}
	}
	return d
}

func (n *norm) forDevice() DeviceNorm { return DeviceNorm{n.weight, n.bias} }

func (l *linear) forDevice() DeviceLinear { return DeviceLinear{l.Matrix, l.bias} }

func (r *recurrent) forDevice() DeviceRecurrent {
	return DeviceRecurrent{r.before.forDevice(), r.gate.forDevice(), r.in.forDevice(), r.out.forDevice(), r.taps}
}

func (f *feedForward) forDevice() DeviceFeedForward {
	return DeviceFeedForward{f.gate.forDevice(), f.up.forDevice(), f.down.forDevice()}
}

// forwardOn is ForwardUnless on the device, which is not stopped between layers.
func (m *Model) forwardOn(stop *atomic.Bool, chunks []Chunk) (logits []float32, done bool) {
	if stop != nil && stop.Load() {
		return nil, false
	}
	p := &m.pass
	p.gather(chunks) // checks them
	times, began := p.timer.wish(), p.timer.now()
	logits, laps, err := m.placed.Forward(chunks, times)
	if err != nil {
		panic(&DeviceFault{err})
	}
	p.timer.divide(began, laps, p.batch.keys)
	return logits, true
}

func (t *Timer) wish() DeviceTimes {
	switch {
	case !t.on:
		return TimeNone
	case cap(t.Launches) > 0:
		return TimeEach
	}
	return TimeSome
}

// divide divides the time since began between the kernels of a step on a device, in proportion
// to the device's times. What of it the device did not work is divided with the rest.
func (t *Timer) divide(began int64, laps []DeviceLap, keys attentionKeys) {
	if !t.on {
		return
	}
	now := t.now()
	if len(laps) == 0 {
		t.last = now
		return
	}
	apart := slices.ContainsFunc(laps, func(l DeviceLap) bool { return l.Class == KernelAttentionPrefill })
	t.last = began
	unit := float64(now-began) / max(laps[len(laps)-1].Done, 1e-9)
	for _, lap := range laps {
		to := max(t.last, min(now, began+int64(lap.Done*unit)))
		if lap.Class == KernelAttentionDecode && !apart {
			t.addAttention(lap.Layer, keys, to)
		} else {
			t.add(lap.Class, lap.Layer, t.last, to)
		}
		t.last = to
	}
}

// DeviceGraphs is how many steps the device has prepared; 0 on the CPU.
func (m *Model) DeviceGraphs() int {
	if m.placed == nil {
		return 0
	}
	return m.placed.Graphs()
}

// Each visits every matrix once.
func (w *DeviceWeights) Each(visit func(*kernels.Matrix)) {
	visit(&w.Embedding)
	some := func(all ...DeviceLinear) {
		for _, l := range all {
			if l.Matrix != nil {
				visit(l.Matrix)
			}
		}
	}
	if w.Output.Matrix != nil && &w.Output.Data[0] != &w.Embedding.Data[0] {
		some(w.Output)
	}
	for i := range w.Layers {
		l := &w.Layers[i]
		r := &l.Recurrent
		some(l.Q, l.K, l.V, l.Out, r.Before, r.Gate, r.In, r.Out, l.Dense.Gate, l.Dense.Up, l.Dense.Down, l.SharedGate, l.Router)
		for e := range l.Experts {
			some(l.Experts[e].Gate, l.Experts[e].Up, l.Experts[e].Down)
		}
	}
}

// RopeTable writes cos and sin of rope r for each position that a row of dst has room for,
// Ropes[r].Dims numbers each, as kernels.Set.Rotate reads them; contextTokens is
// Options.ContextTokens.
func (c *Config) RopeTable(dst []float32, r, contextTokens int) {
	rope, dims := newRope(&c.Ropes[r], contextTokens), c.Ropes[r].Dims
	for position := range len(dst) / dims {
		rope.angles(row(dst, position, dims), position)
	}
}
