package hf

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/mapped"
	"github.com/forebay-io/forebay/engine/safetensors"
	"github.com/forebay-io/forebay/kernels"
)

// change is a change that the converter makes to a tensor's numbers.
type change struct {
	heads      int // if over 0, the two halves of each head's rows are interleaved
	tiles      tiles
	plusOne    bool
	negatedExp bool
}

var asIs = change{}

// normed returns the change for the weights of norms: gemma stores them minus 1.
func (b *builder) normed() change { return change{plusOne: b.plusOne} }

// turned returns the change for the rows of queries or keys. For RoPE, the Hugging
// Face layout pairs the rows i and i+half of a head; llama's GGUF pairs 2i and
// 2i+1.
func (b *builder) turned(heads int) change {
	if !b.permute {
		return asIs
	}
	return change{heads: heads}
}

// take finds a tensor of floats of the shape; a size of 0 matches any.
func (b *builder) take(name string, shape ...int) *safetensors.Tensor {
	return b.takeOf(name, shape, floats...)
}

// floats are the tensor types of types.
var floats = []string{"F32", "F16", "BF16"}

func (b *builder) takeOf(name string, shape []int, allowed ...string) *safetensors.Tensor {
	t, ok := b.weights.Tensor(name)
	if !ok {
		b.fail(name, "is missing")
		return nil
	}
	b.used[name] = true
	if !slices.EqualFunc(t.Shape, shape, func(has, want int) bool { return has == want || want == 0 && has > 0 }) {
		b.fail(name, "has the shape %v; config.json asks for %v", t.Shape, shape)
		return nil
	}
	if !slices.Contains(allowed, t.Type) {
		b.fail(name, "has the type %s; supported: %s", t.Type, strings.Join(allowed, ", "))
		return nil
	}
	return t
}

// linear adds a matrix of rows×cols, and its bias.
func (b *builder) linear(to, from string, rows, cols int, bias bool, how change) {
	b.whole(to+".weight", b.matrix(from+".weight", rows, cols), how)
	if bias {
		b.vector(to+".bias", from+".bias", rows, how)
	}
}

// vector adds a tensor of one dimension, as float32.
func (b *builder) vector(to, from string, n int, how change) {
	t := b.take(from, n)
	if t == nil {
		return
	}
	if how == asIs && t.Type == "F32" {
		b.draft.Add(gguf.Tensor{Name: to, Type: kernels.F32, Dims: []int{n}, Data: t.Data})
		return
	}
	b.draft.Add(gguf.Tensor{Name: to, Type: kernels.F32, Dims: []int{n}, Make: func() []byte {
		x := make([]float32, n)
		kernels.Dequantize(x, types[t.Type], t.Data)
		if how.plusOne {
			for i := range x {
				x[i]++
			}
		}
		if how.negatedExp {
			negatedExp(x)
		}
		out := how.tiles.apply(float32Bytes(x), n, 4)
		if how.heads > 0 {
			out = interleave(out, how.heads, n/how.heads, 4)
		}
		return out
	}})
}

// whole adds a matrix, unless it is nil.
func (b *builder) whole(to string, m *matrix, how change) {
	if m == nil {
		return
	}
	made := gguf.Tensor{Name: to, Type: m.kind, Dims: slices.Clone(m.Shape)}
	slices.Reverse(made.Dims)
	rows := m.Shape[0]
	switch {
	case how.heads > 0 && (rows%how.heads != 0 || rows/how.heads%2 != 0):
		b.fail(m.Name, "has %d rows, which %d heads of an even size do not make", rows, how.heads)
		return
	case how.heads > 0:
		made.Make = func() []byte {
			out := interleave(m.data(), how.heads, rows/how.heads, m.bytes/rows)
			mapped.Release(m.Data)
			return out
		}
	case how.tiles.heads > 0:
		made.Make = func() []byte {
			out := how.tiles.apply(m.data(), rows, m.bytes/rows)
			mapped.Release(m.Data)
			return out
		}
	case m.make != nil:
		made.Make = m.make
	default:
		made.Data = m.Data
	}
	b.bytes[made.Type] += m.bytes
	b.draft.Add(made)
}

// interleave reorders the rows of each head: the first row of both halves, the
// second row of both halves, and so on.
func interleave(data []byte, heads, headRows, rowBytes int) []byte {
	out := make([]byte, 0, len(data))
	for h := range heads {
		for i := range headRows / 2 {
			for half := range 2 {
				row := h*headRows + half*(headRows/2) + i
				out = append(out, data[row*rowBytes:(row+1)*rowBytes]...)
			}
		}
	}
	return out
}

func float32s(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}

func float32Bytes(x []float32) []byte {
	out := make([]byte, 0, 4*len(x))
	for _, v := range x {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}
