package model

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// headTensor is a head's matrix, of small numbers by a rule.
func headTensor(name string, rows, cols int) gguf.Tensor {
	x := make([]float32, rows*cols)
	for r := range rows {
		for c := range cols {
			x[r*cols+c] = float32((c*7+r*13+c*r)%17-8) / 16
		}
	}
	return gguf.Tensor{Name: name, Type: kernels.F32, Dims: []int{cols, rows}, Data: gguftest.Encode(kernels.F32, x)}
}

func biasTensor(name string, n int, x float32) gguf.Tensor {
	return gguf.Tensor{Name: name, Type: kernels.F32, Dims: []int{n}, Data: gguftest.Encode(kernels.F32, slices.Repeat([]float32{x}, n))}
}

// rankerFile is a reference embedder with a ranking head in place of its pooling.
func rankerFile(t *testing.T, stem, architecture string, labels []string, head ...gguf.Tensor) *gguf.File {
	t.Helper()
	f := openFile(t, sharedPath(t, "conformance", "arch2", stem+".gguf"))
	d := gguf.NewDraft(stem)
	d.Copy(f)
	d.Set(architecture+".pooling_type", uint32(PoolRank))
	if labels != nil {
		d.Set(architecture+".classifier.output_labels", labels)
	}
	for _, tensor := range append(slices.Clone(f.Tensors), head...) {
		d.Add(tensor)
	}
	made, err := d.File("", false)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestRankers: scores of BERT's heads, with and without a hidden layer, computed in float64 by
// a program of its own, with the second token type behind the query; and of Qwen3's, from the
// reference's hidden state.
func TestRankers(t *testing.T) {
	tokens := readIDs(t, "embed-bert")
	pair := slices.Concat([]int32{2}, tokens[1:20], []int32{3}, tokens[30:60], []int32{3})
	output := []gguf.Tensor{headTensor("cls.output.weight", 1, 64), biasTensor("cls.output.bias", 1, 0.5)}
	hidden := []gguf.Tensor{headTensor("cls.weight", 64, 64), biasTensor("cls.bias", 64, 0.25)}
	for name, c := range map[string]struct {
		file *gguf.File
		ids  []int32
		want float64
	}{
		"bert":        {rankerFile(t, "embed-bert", "bert", nil, output...), pair, 0.6994254078843848},
		"bert hidden": {rankerFile(t, "embed-bert", "bert", []string{"LABEL_0"}, append(hidden, output...)...), pair, 0.8381554009438568},
		"qwen3":       {rankerFile(t, "embed-qwen3", "qwen3", []string{"no", "yes"}, headTensor("cls.output.weight", 2, 64)), readIDs(t, "embed-qwen3"), 0.9959669123908421},
		"qwen3 yes":   {rankerFile(t, "embed-qwen3", "qwen3", []string{"yes", "no"}, headTensor("cls.output.weight", 2, 64)), readIDs(t, "embed-qwen3"), 1 - 0.9959669123908421},
	} {
		for _, set := range kernels.Sets() {
			m := load(t, c.file, set, newTeam(t, 2), Options{BatchTokensMax: 512})
			if got := embed(m, c.ids, len(c.ids)); len(got) != 1 || m.config.VectorWidth() != 1 || math.Abs(float64(got[0])-c.want) > 2e-5 {
				t.Errorf("%s, %s: %v, want %v", name, set.Name, got, c.want)
			}
		}
	}
}

// TestRankersRefused: what a head means must be known.
func TestRankersRefused(t *testing.T) {
	output := headTensor("cls.output.weight", 2, 64)
	for text, f := range map[string]*gguf.File{
		"one of a ranking head's outputs must be yes": rankerFile(t, "embed-qwen3", "qwen3", []string{"a", "b"}, output),
		"a ranking head of bert has one":              rankerFile(t, "embed-bert", "bert", []string{"a", "b"}, output),
		"supported in bert and qwen3":                 rankerFile(t, "embed-nomic-bert", "nomic-bert", nil, output),
	} {
		if _, err := ReadConfig(f); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	f := rankerFile(t, "embed-bert", "bert", nil)
	if _, err := Load(f, kernels.Best(), newTeam(t, 1), Options{}); err == nil || !strings.Contains(err.Error(), "cls.output.weight: is missing") {
		t.Errorf("without a head: %v", err)
	}
}
