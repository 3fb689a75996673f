package hf

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/forebay-io/forebay/engine/mapped"
	"github.com/forebay-io/forebay/engine/safetensors"
	"github.com/forebay-io/forebay/kernels"
)

// fp4 says what a folder calls the tensors of its matrices of 4-bit floats (NVFP4): the codes,
// two in a byte, the first in its low half; a scale in e4m3 for each 16 codes of a row; and a
// float32 for the whole matrix. As with FP8, what it says of activations is not read.
type fp4 struct {
	packed  string // in place of weight
	global  string
	divides bool // the scales are divided by the float32, not multiplied
}

var (
	modeloptFP4   = fp4{packed: "weight", global: "weight_scale_2"}
	compressedFP4 = fp4{packed: "weight_packed", global: "weight_global_scale", divides: true}
)

// group4 is how many codes share a scale.
const group4 = 16

// readGroup4 refuses other groups than NVFP4's in a quantizer's config_groups.
func readGroup4(q *config) {
	const key = "config_groups"
	for _, group := range value[map[string]struct {
		Weights *struct {
			Bits  int    `json:"num_bits"`
			Type  string `json:"type"`
			Group int    `json:"group_size"`
		} `json:"weights"`
	}](q, key, "an object of groups", nil) {
		if w := group.Weights; w != nil && (w.Bits != 4 || w.Type != "float" || w.Group != group4) {
			q.fail(key, "has weights of %d bits (%.60q) in groups of %d; NVFP4 has floats of 4 bits in groups of %d", w.Bits, w.Type, w.Group, group4)
		}
	}
}

// modeloptName is where NVIDIA's quantizer says what it did, if config.json does not.
const modeloptName = "hf_quant_config.json"

// addQuantization puts what modeloptName says into a config.json that says nothing of it.
func addQuantization(path string, text, said []byte) ([]byte, error) {
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(quoteInfinity(text), &whole); err != nil || whole["quantization_config"] != nil {
		return text, nil // whoever reads it reports the error
	}
	var quantizer struct {
		Quantization map[string]json.RawMessage `json:"quantization"`
	}
	if err := json.Unmarshal(said, &quantizer); err != nil || quantizer.Quantization == nil {
		return nil, fmt.Errorf("%s: has no object quantization: %w", path, err)
	}
	quantizer.Quantization["quant_method"] = json.RawMessage(`"modelopt"`)
	raw, err := json.Marshal(quantizer.Quantization)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	whole["quantization_config"] = raw
	return json.Marshal(whole)
}

// matrix4 finds a matrix of 4-bit floats of the shape; found is false where the folder has no such matrix of
// this name.
func (b *builder) matrix4(name string, shape []int) (m *matrix, found bool) {
	of, isWeight := strings.CutSuffix(name, "weight")
	if b.fp4 == nil || !isWeight {
		return nil, false
	}
	codes, ok := b.weights.Tensor(of + b.fp4.packed)
	if !ok || codes.Type != "U8" {
		return nil, false
	}
	if len(codes.Shape) != 2 || len(shape) != 2 || codes.Shape[1] == 0 || codes.Shape[1]*2%group4 != 0 || shape[1]%group4 != 0 {
		b.fail(codes.Name, "has the type U8 and the shape %v; a matrix of NVFP4 has two dimensions, and rows of a multiple of %d numbers", codes.Shape, group4)
		return nil, true
	}
	if codes = b.takeOf(codes.Name, []int{shape[0], shape[1] / 2}, "U8"); codes == nil {
		return nil, true
	}
	rows, cols := codes.Shape[0], codes.Shape[1]*2
	scales := b.takeOf(of+"weight_scale", []int{rows, cols / group4}, "F8_E4M3")
	global, ok := b.single(of + b.fp4.global)
	if scales == nil || !ok {
		return nil, true
	}
	for _, name := range []string{"input_scale", "input_global_scale"} { // of activations
		b.used[of+name] = true
	}
	divides := b.fp4.divides
	whole := &safetensors.Tensor{Name: codes.Name, Type: codes.Type, Shape: []int{rows, cols}, Data: codes.Data}
	return &matrix{Tensor: whole, kind: kernels.BF16, bytes: 2 * rows * cols, make: func() []byte {
		out := make([]byte, 0, 4*len(codes.Data))
		for i, scale := range scales.Data {
			step := e4m3[scale] * global
			if divides {
				step = e4m3[scale] / global
			}
			for _, two := range codes.Data[i*group4/2 : (i+1)*group4/2] {
				out = binary.LittleEndian.AppendUint16(out, roundBF16(e2m1[two&15]*step))
				out = binary.LittleEndian.AppendUint16(out, roundBF16(e2m1[two>>4]*step))
			}
		}
		mapped.Release(codes.Data)
		return out
	}}, true
}

// single finds a number over 0.
func (b *builder) single(name string) (float32, bool) {
	t, ok := b.weights.Tensor(name)
	if !ok {
		b.fail(name, "is missing")
		return 0, false
	}
	b.used[name] = true
	kind, known := types[t.Type]
	if !known || t.Elements() != 1 {
		b.fail(name, "has the type %s and the shape %v; needed is one number in %s", t.Type, t.Shape, strings.Join(floats, ", "))
		return 0, false
	}
	x := make([]float32, 1)
	if kernels.Dequantize(x, kind, t.Data); !(x[0] > 0) || math.IsInf(float64(x[0]), 0) {
		b.fail(name, "is %v; allowed are numbers over 0", x[0])
		return 0, false
	}
	return x[0], true
}

// e2m1 are the values of the codes: a sign, 2 bits of exponent with a bias of 1, 1 of mantissa.
var e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}
