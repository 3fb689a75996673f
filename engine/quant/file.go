package quant

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// ParseType finds one of Types by name, in any case.
func ParseType(name string) (kernels.Type, error) {
	var names []string
	for _, t := range Types {
		if strings.EqualFold(name, t.String()) {
			return t, nil
		}
		names = append(names, strings.ToLower(t.String()))
	}
	return 0, fmt.Errorf("type %q cannot be written; give one of %s", name, strings.Join(names, ", "))
}

// fileTypes maps a type to the general.file_type of a model with that type.
var fileTypes = map[kernels.Type]uint32{kernels.Q8_0: 7, kernels.Q4_0: 2, kernels.Q4_K: 14, kernels.Q6_K: 18}

// File returns f with its matrices as type t. Each is converted when it is read.
//
// These tensors stay as they are: vectors, biases (also those of experts, one row
// each), routers of experts, and tensors that are already smaller; not those of a type
// whose blocks are codes from tables, for which speed is worth more. A matrix whose
// rows are no multiple of t's block becomes Q8_0, or stays if Q8_0's block does
// not divide them either. The embedding and the output matrix lose the most from
// coarse types: they become Q8_0 if t is Q8_0, and Q6_K otherwise.
func File(f *gguf.File, t kernels.Type) (*gguf.File, error) {
	d := gguf.NewDraft(f.Name())
	d.Copy(f)
	d.Set("general.file_type", fileTypes[t])
	d.Set("general.quantization_version", uint32(2))
	for i := range f.Tensors {
		from := &f.Tensors[i]
		to := typeFor(from, t)
		if to == from.Type {
			d.Add(*from)
			continue
		}
		d.Add(gguf.Tensor{Name: from.Name, Type: to, Dims: from.Dims, Make: func() []byte {
			return convert(f, from, to)
		}})
	}
	return d.File(f.Digest()+" "+t.String(), true)
}

// typeFor returns the type of a tensor in the quantised model.
func typeFor(t *gguf.Tensor, want kernels.Type) kernels.Type {
	isMatrix := len(t.Dims) > 1 && strings.HasSuffix(t.Name, ".weight")
	if !t.Type.Known() || !isMatrix || strings.Contains(t.Name, "ffn_gate_inp") {
		return t.Type
	}
	if t.Name == "token_embd.weight" || t.Name == "output.weight" {
		if want != kernels.Q8_0 {
			want = kernels.Q6_K
		}
	}
	for _, to := range []kernels.Type{want, kernels.Q8_0} {
		if t.Dims[0]%to.BlockLen() == 0 {
			if bitsOf(to) < bitsOf(t.Type) || t.Type.Coded() {
				return to
			}
			return t.Type
		}
	}
	return t.Type
}

// bitsOf returns the size of an element in units of 1/256 bit.
func bitsOf(t kernels.Type) int { return 8 * 256 * t.BlockBytes() / t.BlockLen() }

// rowsAtOnce is how many rows are unpacked at a time.
const rowsAtOnce = 64

// eachRows calls visit with the tensor's numbers, some rows at a time, on all
// processors.
func eachRows(t *gguf.Tensor, raw []byte, visit func(first int, x []float32)) {
	cols, rows := t.Dims[0], t.Elements()/t.Dims[0]
	rowBytes := t.Type.Bytes(cols)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			x := make([]float32, rowsAtOnce*cols)
			for {
				first := int(next.Add(rowsAtOnce)) - rowsAtOnce
				if first >= rows {
					return
				}
				n := min(rowsAtOnce, rows-first)
				kernels.Dequantize(x[:n*cols], t.Type, raw[first*rowBytes:(first+n)*rowBytes])
				visit(first, x[:n*cols])
			}
		})
	}
	workers.Wait()
}

// convert returns the bytes of a tensor as another type. It returns nil if a
// number is not finite, because no scale represents it.
func convert(f *gguf.File, from *gguf.Tensor, to kernels.Type) []byte {
	out := make([]byte, to.Bytes(from.Elements()))
	rowBytes := to.Bytes(from.Dims[0])
	var broken atomic.Bool
	eachRows(from, from.Bytes(), func(first int, x []float32) {
		for _, v := range x {
			if v-v != 0 {
				broken.Store(true)
				return
			}
		}
		Encode(out[first*rowBytes:first*rowBytes:first*rowBytes+to.Bytes(len(x))], to, x)
	})
	f.Release(from.Data)
	if broken.Load() {
		return nil
	}
	return out
}
