package hf

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/mapped"
	"github.com/forebay-io/forebay/engine/safetensors"
	"github.com/forebay-io/forebay/kernels"
)

// matrix is a tensor of two dimensions or more, as floats.
type matrix struct {
	*safetensors.Tensor
	kind  kernels.Type
	make  func() []byte // of its floats; nil for a tensor that has them
	bytes int           // of its floats
}

// matrix finds a matrix of the shape; a size of 0 matches any.
func (b *builder) matrix(name string, shape ...int) *matrix {
	if m, found := b.matrix4(name, shape); found {
		return m
	}
	allowed := floats
	if b.fp8 != nil {
		allowed = append(slices.Clone(floats), "F8_E4M3")
	}
	t := b.takeOf(name, shape, allowed...)
	if t == nil {
		return nil
	}
	if t.Type != "F8_E4M3" {
		return &matrix{Tensor: t, kind: types[t.Type], bytes: len(t.Data)}
	}
	s := b.scales8(t)
	if s == nil {
		return nil
	}
	return &matrix{Tensor: t, kind: kernels.BF16, make: func() []byte { return s.floats(t) }, bytes: 2 * t.Elements()}
}

// data is the matrix's floats, which are its own bytes where it has floats.
func (m *matrix) data() []byte {
	if m.make == nil {
		return m.Data
	}
	return m.make()
}

// fp8 says how a folder's matrices of 8-bit floats are scaled (FP8, Micikevicius et al.,
// 2022): by one number, by one for each row, or by one for each block of Rows×Cols.
// Activations are not rounded here, so what a folder says of them is not read.
type fp8 struct{ Rows, Cols int }

// readQuantization reads how the weights are quantised, and how they are scaled; false where that is not known.
func (d *description) readQuantization(c *config) bool {
	q := c.object("quantization_config")
	if q == nil {
		return false
	}
	f := &fp8{}
	block := value[[]int](q, "weight_block_size", "a list of two sizes", nil)
	switch q.text("quant_method", "") {
	case "fp8":
		if kind := q.text("fmt", "e4m3"); kind != "e4m3" {
			q.fail("fmt", "is %.60q; only e4m3 is supported", kind)
		}
	case "modelopt", "modelopt_fp4":
		switch q.text("quant_algo", "") {
		case "FP8":
		case "NVFP4":
			if n := q.size("group_size", group4); n != group4 {
				q.fail("group_size", "is %d; NVFP4 has groups of %d", n, group4)
			}
			readGroup4(q)
			d.fp4 = &modeloptFP4
			return true
		default:
			return false
		}
	case "compressed-tensors":
		switch q.text("format", "") {
		case "float-quantized":
		case "nvfp4-pack-quantized":
			readGroup4(q)
			d.fp4 = &compressedFP4
			return true
		default:
			return false
		}
		for _, group := range value[map[string]struct {
			Weights struct {
				Block []int `json:"block_structure"`
			} `json:"weights"`
		}](q, "config_groups", "an object of groups", nil) {
			block = group.Weights.Block
		}
	default:
		return false
	}
	if len(block) == 2 && min(block[0], block[1]) > 0 && max(block[0], block[1]) <= sizeMax {
		f.Rows, f.Cols = block[0], block[1]
	} else if len(block) > 0 {
		q.fail("weight_block_size", "is %v; needed are two sizes over 0", block)
	}
	d.fp8 = f
	return true
}

// scales8 are the scales of one matrix.
type scales8 struct {
	fp8
	each []float32
	wide int // scales in a row of blocks
}

// scales8 finds the scales of t.
func (b *builder) scales8(t *safetensors.Tensor) *scales8 {
	of := strings.TrimSuffix(t.Name, "weight")
	for _, name := range []string{"input_scale", "activation_scale"} { // of activations
		if _, ok := b.weights.Tensor(of + name); ok {
			b.used[of+name] = true
		}
	}
	name := of + "weight_scale_inv"
	if _, ok := b.weights.Tensor(name); !ok {
		name = of + "weight_scale"
	}
	raw, ok := b.weights.Tensor(name)
	if !ok {
		b.fail(t.Name, "has the type F8_E4M3, and %s is missing", name)
		return nil
	}
	b.used[name] = true
	s := &scales8{each: make([]float32, raw.Elements())}
	switch kind, known := types[raw.Type]; {
	case known:
		kernels.Dequantize(s.each, kind, raw.Data)
	case raw.Type == "F8_E8M0":
		for i, e := range raw.Data {
			s.each[i] = float32(math.Ldexp(1, int(e)-127))
		}
	default:
		b.fail(name, "has the type %s; supported: %s, F8_E8M0", raw.Type, strings.Join(floats, ", "))
		return nil
	}
	if len(t.Shape) != 2 {
		b.fail(t.Name, "has the type F8_E4M3 and the shape %v; only matrices of two dimensions are supported in this type", t.Shape)
		return nil
	}
	rows, cols := t.Shape[0], t.Shape[1]
	switch {
	case len(s.each) == 1:
		s.Rows, s.Cols, s.wide = rows, cols, 1
	case b.fp8.Rows > 0:
		s.fp8, s.wide = *b.fp8, (cols+b.fp8.Cols-1)/b.fp8.Cols
		if !slices.Equal(raw.Shape, []int{(rows + s.Rows - 1) / s.Rows, s.wide}) {
			b.fail(name, "has the shape %v; a matrix of %v in blocks of %d×%d has other scales", raw.Shape, t.Shape, s.Rows, s.Cols)
			return nil
		}
	case len(s.each) == rows:
		s.Rows, s.Cols, s.wide = 1, cols, 1
	default:
		b.fail(name, "has the shape %v; needed is one scale, or one for each of %d rows", raw.Shape, rows)
		return nil
	}
	return s
}

// floats is t as bfloat16, each number rounded once.
func (s *scales8) floats(t *safetensors.Tensor) []byte {
	rows, cols := t.Shape[0], t.Shape[1]
	out := make([]byte, 0, 2*len(t.Data))
	for row := range rows {
		for col := range cols {
			x := e4m3[t.Data[row*cols+col]] * s.each[row/s.Rows*s.wide+col/s.Cols]
			out = binary.LittleEndian.AppendUint16(out, roundBF16(x))
		}
	}
	mapped.Release(t.Data)
	return out
}

// e4m3 are the values of the bytes: a sign, 4 bits of exponent with a bias of 7, 3 of mantissa,
// no infinities, and one NaN of each sign.
var e4m3 = func() (all [256]float32) {
	for i := range all {
		exponent, mantissa := i>>3&15, float64(i&7)
		x := math.Ldexp(mantissa, -9)
		if exponent > 0 {
			x = math.Ldexp(8+mantissa, exponent-10)
		}
		if i&127 == 127 {
			x = math.NaN()
		}
		if i > 127 {
			x = -x
		}
		all[i] = float32(x)
	}
	return all
}()

// roundBF16 rounds to the nearest bfloat16, halves to even.
func roundBF16(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 1
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
