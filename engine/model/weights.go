package model

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// weights are a model's tensors, packed for one kernel set. Matrices are
// outputs×inputs.
type weights struct {
	embedding  *gguf.Tensor // rows are read from the file as tokens ask for them
	outputNorm []float32
	output     *kernels.Matrix
	layers     []layer
}

type layer struct {
	attentionNorm  []float32
	q, k, v, out   *kernels.Matrix
	ffNorm         []float32
	gate, up, down *kernels.Matrix
}

// loader takes tensors out of a file. The first failure sticks in err; packing
// waits in jobs until every tensor has been checked.
type loader struct {
	file  *gguf.File
	arch  string
	taken map[string]bool
	jobs  []packJob
	err   error
}

type packJob struct {
	dst    **kernels.Matrix
	tensor *gguf.Tensor
}

func (l *loader) fail(name, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("%s: tensor %s: %s", l.file.Name(), name, fmt.Sprintf(format, args...))
	}
}

// loadWeights checks and packs every tensor of the model that c describes.
func loadWeights(f *gguf.File, c *Config, set *kernels.Set, team *kernels.Team) (*weights, error) {
	l := &loader{file: f, arch: c.Architecture, taken: map[string]bool{ropeFactorsName: c.RopeFactors != nil}}
	w := &weights{layers: make([]layer, c.Layers)}
	w.embedding = l.take("token_embd.weight", c.Embed, c.Vocab)
	w.outputNorm = l.vector("output_norm.weight", c.Embed)
	outputName := "output.weight"
	if c.Tied {
		outputName = "token_embd.weight"
	}
	l.matrix(&w.output, outputName, c.Embed, c.Vocab)
	for i := range w.layers {
		l.layer(&w.layers[i], fmt.Sprintf("blk.%d.", i), c)
		if l.err != nil {
			break
		}
	}
	l.checkAllTaken()
	if l.err != nil {
		return nil, l.err
	}
	l.pack(set, team, w.embedding)
	return w, nil
}

func (l *loader) layer(to *layer, prefix string, c *Config) {
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	to.attentionNorm = l.vector(prefix+"attn_norm.weight", c.Embed)
	l.matrix(&to.q, prefix+"attn_q.weight", c.Embed, heads)
	l.matrix(&to.k, prefix+"attn_k.weight", c.Embed, kvHeads)
	l.matrix(&to.v, prefix+"attn_v.weight", c.Embed, kvHeads)
	l.matrix(&to.out, prefix+"attn_output.weight", heads, c.Embed)
	to.ffNorm = l.vector(prefix+"ffn_norm.weight", c.Embed)
	l.matrix(&to.gate, prefix+"ffn_gate.weight", c.Embed, c.FF)
	l.matrix(&to.up, prefix+"ffn_up.weight", c.Embed, c.FF)
	l.matrix(&to.down, prefix+"ffn_down.weight", c.FF, c.Embed)
}

// take finds a tensor and checks its type and shape; dims[0] is the row length.
func (l *loader) take(name string, dims ...int) *gguf.Tensor {
	t, ok := l.file.Tensor(name)
	if !ok {
		l.fail(name, "is missing; the model needs it with the shape %v", dims)
		return nil
	}
	l.taken[name] = true
	if !slices.Equal(t.Dims, dims) {
		l.fail(name, "has the shape %v; the model's keys ask for %v", t.Dims, dims)
		return nil
	}
	if !t.Type.Known() {
		l.fail(name, "has the type %s, which is not supported; supported: %s", t.Type, supportedTypes())
		return nil
	}
	return t
}

// vector takes a tensor of one dimension as float32.
func (l *loader) vector(name string, n int) []float32 {
	t := l.take(name, n)
	if t == nil {
		return nil
	}
	x := make([]float32, n)
	kernels.Dequantize(x, t.Type, t.Data)
	return x
}

// matrix takes a tensor of rows×cols that pack will put into *dst.
func (l *loader) matrix(dst **kernels.Matrix, name string, cols, rows int) {
	if t := l.take(name, cols, rows); t != nil {
		l.jobs = append(l.jobs, packJob{dst, t})
	}
}

// checkAllTaken refuses tensors that the model as described does not use, such
// as biases: without them the numbers would be wrong.
func (l *loader) checkAllTaken() {
	for i := range l.file.Tensors {
		if name := l.file.Tensors[i].Name; !l.taken[name] {
			l.fail(name, "is not understood in architecture %s", l.arch)
		}
	}
}

// pack runs the jobs on the whole team. The file's memory is given back tensor by
// tensor, so that weights are never resident twice; kept is still read from it.
func (l *loader) pack(set *kernels.Set, team *kernels.Team, kept *gguf.Tensor) {
	var next atomic.Int64
	team.Run(func(int) {
		for i := int(next.Add(1)) - 1; i < len(l.jobs); i = int(next.Add(1)) - 1 {
			t := l.jobs[i].tensor
			packed := set.Pack(t.Type, t.Dims[1], t.Dims[0], t.Data)
			*l.jobs[i].dst = packed
			if t != kept && unsafe.SliceData(packed.Data) != unsafe.SliceData(t.Data) {
				l.file.Release(t.Data)
			}
		}
	})
}

// bytes is the memory that the packed weights take; part of it may be the file's.
func (w *weights) bytes() int {
	n := len(w.output.Data) + 4*len(w.outputNorm)
	for i := range w.layers {
		l := &w.layers[i]
		for _, m := range []*kernels.Matrix{l.q, l.k, l.v, l.out, l.gate, l.up, l.down} {
			n += len(m.Data)
		}
		n += 4 * (len(l.attentionNorm) + len(l.ffNorm))
	}
	return n
}

// supportedTypes lists the types that can be computed with.
func supportedTypes() string {
	var names []string
	for t := range kernels.Type(64) {
		if t.Known() {
			names = append(names, t.String())
		}
	}
	return strings.Join(names, ", ")
}
