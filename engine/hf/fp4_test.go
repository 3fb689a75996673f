package hf

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestNVFP4HasTheReferencesBits: a matrix as another implementation dequantises it, rounded to bfloat16.
func TestNVFP4HasTheReferencesBits(t *testing.T) {
	for _, name := range []string{"llama-nvfp4", "mixtral-nvfp4", "qwen3-nvfp4"} {
		dir := filepath.Join("testdata", name)
		want, err := os.ReadFile(filepath.Join(dir, "attn_output.bf16"))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := open(t, dir).File.Tensor("blk.0.attn_output.weight")
		if !ok || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: other bits", name)
		}
	}
}

// TestE2M1 counts the codes' values by their definition.
func TestE2M1(t *testing.T) {
	for i, got := range e2m1 {
		want := math.Ldexp(float64(i&1), -1)
		if exponent := i >> 1 & 3; exponent > 0 {
			want = math.Ldexp(2+float64(i&1), exponent-2)
		}
		if i > 7 {
			want = -want
		}
		if float64(got) != want || math.Signbit(float64(got)) != (i > 7) {
			t.Errorf("code %d is %v, want %v", i, got, want)
		}
	}
}

func TestNVFP4ThatDoesNotFitIsRefused(t *testing.T) {
	group := func(bits, size int) any {
		return map[string]any{"group_0": map[string]any{"weights": map[string]any{"num_bits": bits, "type": "float", "group_size": size}}}
	}
	for _, c := range []struct {
		folder       string
		quantization map[string]any
		want         string
	}{
		{"mixtral-nvfp4", map[string]any{"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "says that the weights are quantised already; of such folders those of FP8 (e4m3) and NVFP4"},
		{"mixtral-nvfp4", map[string]any{"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}, "group_size: is 32; NVFP4 has groups of 16"},
		{"mixtral-nvfp4", map[string]any{"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": group(4, 32)}, "config_groups: has weights of 4 bits"},
		{"mixtral-nvfp4", map[string]any{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "has the shape [16 8]; config.json asks for [16 16]"},
		{"mixtral-nvfp4", map[string]any{"quant_method": "modelopt", "quant_algo": "FP8"}, "has the shape [16 8]; config.json asks for [16 16]"},
		{"qwen3-nvfp4", map[string]any{"quant_method": "compressed-tensors", "format": "mixed-precision"}, "says that the weights are quantised already"},
		{"qwen3-nvfp4", map[string]any{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": group(8, 16)}, "config_groups: has weights of 8 bits"},
		{"qwen3-nvfp4", map[string]any{"quant_method": "modelopt", "quant_algo": "NVFP4"}, `proj.weight": is missing`},
	} {
		wantRefused(t, copyFolder(t, "testdata/"+c.folder, map[string]any{"quantization_config": c.quantization}), c.want)
	}
	wantRefused(t, copyFolder(t, "testdata/llama-nvfp4", map[string]any{"intermediate_size": 40}), "has the shape [48 16]; config.json asks for [40 16]")
	wantRefused(t, copyFolder(t, "testdata/llama-nvfp4", map[string]any{"intermediate_size": 64}), "has the shape [48 16]; config.json asks for [64 16]")
	open(t, copyFolder(t, "testdata/mixtral-fp8", map[string]any{"quantization_config": map[string]any{"quant_method": "modelopt", "quant_algo": "FP8"}}))
	dir := copyFolder(t, "testdata/llama-nvfp4", nil)
	if err := os.WriteFile(filepath.Join(dir, modeloptName), []byte(`{"quantization": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, dir, modeloptName+": has no object quantization")
}

// FuzzQuantization: whatever the quantizer's file says is taken into config.json whole, or refused.
func FuzzQuantization(f *testing.F) {
	f.Add([]byte(`{"quantization":{"quant_algo":"NVFP4","group_size":16,"exclude_modules":["lm_head"]}}`), []byte(`{"model_type":"llama"}`))
	f.Add([]byte(`{"quantization":{"quant_algo":"FP8"}}`), []byte(`{"model_type":"llama","time_step_limit":[0.0, Infinity]}`))
	f.Fuzz(func(t *testing.T, said, config []byte) {
		text, err := addQuantization(modeloptName, config, said)
		if err != nil {
			return
		}
		c, err := parseConfig("c", text)
		if err != nil {
			if _, before := parseConfig("c", config); before == nil {
				t.Fatalf("%q with %q is broken: %v", config, said, err)
			}
			return
		}
		if d := describe(c); d == nil && *c.err == nil {
			t.Fatal("neither a description nor an error")
		}
	})
}
