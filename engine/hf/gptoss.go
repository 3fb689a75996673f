package hf

import (
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/mapped"
	"github.com/forebay-io/forebay/engine/safetensors"
	"github.com/forebay-io/forebay/kernels"
)

// This file has gpt-oss, whose experts lie together in one tensor of each kind. Gate and up
// are one matrix, whose rows are those of both in turn. In the folders that its makers
// give out the matrices are MXFP4: blocks of 32 numbers with a scale of a byte (OCP
// Microscaling Formats, 2023). In others they are floats, and transposed.

// readGPTOSS refuses other activations than the readers of GGUF know.
func readGPTOSS(_ *description, c *config) {
	c.ignore("experts_per_token", "initial_context_length") // other names of keys that are there
	for key, want := range map[string]float64{"swiglu_alpha": 1.702, "swiglu_limit": 7} {
		if x := c.number(key, want); x != want {
			c.fail(key, "is %v; only %v is supported", x, want)
		}
	}
}

func setGPTOSS(d *description, to *gguf.Draft) {
	to.Set("gpt-oss.expert_feed_forward_length", uint32(d.ff))
}

// gptOSSExperts adds the router and the experts of a layer, and what its attention has more.
func (b *builder) gptOSSExperts(to, from string) {
	b.vector(to+"attn_sinks.weight", from+"self_attn.sinks", b.heads, asIs)
	b.router(to+"ffn_gate_inp.weight", from+"mlp.router.weight")
	b.vector(to+"ffn_gate_inp.bias", from+"mlp.router.bias", b.experts, asIs)
	gateUp, down := from+"mlp.experts.gate_up_proj", from+"mlp.experts.down_proj"
	both := half{from: gateUp, rows: 2 * b.ff, cols: b.embed, step: 2}
	b.packed(to+"ffn_gate_exps", both)
	both.first = 1
	b.packed(to+"ffn_up_exps", both)
	b.packed(to+"ffn_down_exps", half{from: down, rows: b.embed, cols: b.ff, step: 1})
}

// half is every step-th row, from the first on, of the matrices of all experts.
type half struct {
	from       string
	rows, cols int // of the whole matrix
	first      int
	step       int
}

// packed adds a matrix of every expert, and its bias.
func (b *builder) packed(to string, h half) {
	b.packedBias(to+".bias", h)
	if _, ok := b.weights.Tensor(h.from + "_blocks"); ok {
		b.packedBlocks(to+".weight", h)
		return
	}
	t := b.take(h.from, b.experts, h.cols, h.rows)
	if t == nil {
		return
	}
	b.bytes[types[t.Type]] += len(t.Data) / h.step
	size := len(t.Data) / t.Elements()
	b.draft.Add(gguf.Tensor{Name: to + ".weight", Type: types[t.Type], Dims: []int{h.cols, h.rows / h.step, b.experts}, Make: func() []byte {
		out := make([]byte, 0, len(t.Data)/h.step)
		for e := range b.experts {
			for row := h.first; row < h.rows; row += h.step {
				for col := range h.cols {
					at := ((e*h.cols+col)*h.rows + row) * size
					out = append(out, t.Data[at:at+size]...)
				}
			}
		}
		return out
	}})
}

func (b *builder) packedBias(to string, h half) {
	t := b.take(h.from+"_bias", b.experts, h.rows)
	if t == nil {
		return
	}
	b.draft.Add(gguf.Tensor{Name: to, Type: kernels.F32, Dims: []int{h.rows / h.step, b.experts}, Make: func() []byte {
		x := make([]float32, t.Elements())
		kernels.Dequantize(x, types[t.Type], t.Data)
		var some []float32
		for i := h.first; i < len(x); i += h.step {
			some = append(some, x[i])
		}
		return float32Bytes(some)
	}})
}

const (
	mxBlock  = 32          // numbers that share a scale
	mxPacked = mxBlock / 2 // their bytes
)

// packedBlocks adds matrices of MXFP4. A block of the folder has its numbers in turn, two
// in a byte; one of GGUF has the scale first, and numbers i and i+16 in a byte.
func (b *builder) packedBlocks(to string, h half) {
	groups := h.cols / mxBlock
	blocks := b.bytesOf(h.from+"_blocks", b.experts, h.rows, groups, mxPacked)
	scales := b.bytesOf(h.from+"_scales", b.experts, h.rows, groups)
	if blocks == nil || scales == nil {
		return
	}
	b.bytes[kernels.MXFP4] += (len(blocks.Data) + len(scales.Data)) / h.step
	b.draft.Add(gguf.Tensor{Name: to, Type: kernels.MXFP4, Dims: []int{h.cols, h.rows / h.step, b.experts}, Make: func() []byte {
		out := make([]byte, 0, (len(blocks.Data)+len(scales.Data))/h.step)
		for row := h.first; row < b.experts*h.rows; row += h.step {
			for g := row * groups; g < (row+1)*groups; g++ {
				out = append(out, scales.Data[g])
				in := blocks.Data[g*mxPacked : (g+1)*mxPacked]
				for i := range mxPacked {
					low, high := in[i/2]>>(i%2*4)&15, in[(i+mxPacked)/2]>>(i%2*4)&15
					out = append(out, low|high<<4)
				}
			}
		}
		if h.first == h.step-1 { // the last one that reads it
			mapped.Release(blocks.Data)
		}
		return out
	}})
}

// bytesOf finds a tensor of bytes of the shape.
func (b *builder) bytesOf(name string, shape ...int) *safetensors.Tensor {
	return b.takeOf(name, shape, "U8")
}
