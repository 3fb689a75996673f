package hf

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

// sharedPath is a file of the reference outputs, which lie beside the repository;
// the test is skipped where they are not at hand.
func sharedPath(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "shared"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("reference data %s is not there", path)
	}
	return path
}

func open(t *testing.T, dir string) *Folder {
	t.Helper()
	folder, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.File.Close() })
	return folder
}

// TestFoldersEqualTheConvertersFiles: the tensors bit for bit, and every key that a
// model is computed by.
func TestFoldersEqualTheConvertersFiles(t *testing.T) {
	folders, _ := filepath.Glob(filepath.Join(sharedPath(t, "conformance", "safetensors"), "*"))
	if len(folders) < 4 {
		t.Fatalf("only %d folders", len(folders))
	}
	for _, dir := range folders {
		name := filepath.Base(dir)
		want, err := gguf.Open(sharedPath(t, "conformance", "arch", name+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		got := open(t, dir).File
		if len(got.Tensors) != len(want.Tensors) {
			t.Errorf("%s: %d tensors, want %d", name, len(got.Tensors), len(want.Tensors))
		}
		for i := range want.Tensors {
			a := &want.Tensors[i]
			b, ok := got.Tensor(a.Name)
			if !ok || a.Type != b.Type || !slices.Equal(a.Dims, b.Dims) || !slices.Equal(a.Bytes(), b.Bytes()) {
				t.Errorf("%s: tensor %s differs", name, a.Name)
			}
		}
		for _, key := range want.Keys() {
			arch, _, _ := want.String("general.architecture")
			if strings.HasPrefix(key, arch+".") && !strings.HasSuffix(key, "vocab_size") && want.Text(key) != got.Text(key) {
				t.Errorf("%s: key %s is %q, want %q", name, key, got.Text(key), want.Text(key))
			}
		}
		checkLogits(t, got, dir, name)
	}
}

// checkLogits compares a folder's logits with the reference beside the converter's file.
func checkLogits(t *testing.T, f *gguf.File, dir, name string) {
	t.Helper()
	sameLogits(t, f, sharedPath(t, "conformance", "arch", name+".json"), sharedPath(t, "conformance", "arch", name+".logits.f32"), 1e-5)
}

// sameLogits computes the ids of reference and compares with the logits of a file, all
// rows, in float32.
func sameLogits(t *testing.T, f *gguf.File, reference, logits string, most float64) {
	t.Helper()
	var ref struct{ IDs []int32 }
	text, err := os.ReadFile(reference)
	if err == nil {
		err = json.Unmarshal(text, &ref)
	}
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(logits)
	if err != nil {
		t.Fatal(err)
	}
	team := kernels.NewTeam(1)
	defer team.Close()
	set, err := kernels.Lookup("ref") // others round what they multiply with MXFP4
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f, set, team, model.Options{ContextTokens: len(ref.IDs)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	pages := make([]int32, m.Options().Pages)
	for i := range pages {
		pages[i] = int32(i)
	}
	got := m.Forward([]model.Chunk{{Tokens: ref.IDs, Pages: pages, Logits: len(ref.IDs)}})
	if len(got)*4 != len(raw) {
		t.Fatalf("%s: %d logits for %d bytes of reference", f.Name(), len(got), len(raw))
	}
	got = slices.Clone(got)
	m.ClearState(0)
	for start, n := 0, 1; start < len(ref.IDs); start, n = start+n, n*5%11 { // in pieces the same bits
		n = min(n, len(ref.IDs)-start)
		rows := m.Forward([]model.Chunk{{Tokens: ref.IDs[start : start+n], Start: start, Pages: pages, Logits: n}})
		if at := start * m.Config().Vocab; !slices.Equal(rows, got[at:at+len(rows)]) {
			t.Errorf("%s: the logits from token %d on differ when tokens come in pieces", f.Name(), start)
		}
	}
	var wrong, size float64
	for i, v := range got {
		want := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		wrong += (float64(v) - want) * (float64(v) - want)
		size += want * want
	}
	if !(wrong/size <= most) {
		t.Errorf("%s: NMSE %g", f.Name(), wrong/size)
	}
}

// TestFoldersOfEveryKindGiveTransformersLogits: random weights, saved by transformers
// 5 as BF16 or F16, with the logits that it computes of them in float32. Among them
// are weights in several files, windows in layers of config.json's choice, keys of
// older versions, and a head beside an embedding that is said to be it.
func TestFoldersOfEveryKindGiveTransformersLogits(t *testing.T) {
	folders, _ := filepath.Glob("testdata/*/logits.f32")
	if len(folders) != 61 {
		t.Fatalf("%d folders", len(folders))
	}
	for _, config := range folders {
		dir := filepath.Dir(config)
		sameLogits(t, open(t, dir).File, filepath.Join(dir, "reference.json"), filepath.Join(dir, "logits.f32"), 1e-10)
	}
}

func TestMixturesThatDifferAreRefusedByName(t *testing.T) {
	for want, changes := range map[string]map[string]any{
		"norm_topk_prob: is false, as it is where it is absent": {"norm_topk_prob": nil},
		"decoder_sparse_step: is 2; only 1":                     {"decoder_sparse_step": 2},
		"mlp_only_layers: names 1 layers":                       {"mlp_only_layers": []int{1}},
		"num_experts_per_tok: is 4 of 3 experts":                {"num_experts_per_tok": 4},
		"use_sliding_window: is true; a window (of 9 tokens)":   {"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1},
		`mlp.gate.weight": has the shape [3 16]`:                {"num_local_experts": 4},
		`proj.bias": is not understood`:                         {"attention_bias": false},
	} {
		wantRefused(t, copyFolder(t, "testdata/qwen3moe", changes), want)
	}
	// A window that no layer has, or that the context does not exceed, is none.
	open(t, copyFolder(t, "testdata/qwen3moe", map[string]any{"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 2}))
	open(t, copyFolder(t, "testdata/qwen3moe", map[string]any{"use_sliding_window": true, "sliding_window": 64, "max_window_layers": 0}))
}

func TestFP8ThatDoesNotFitIsRefused(t *testing.T) {
	for want, quantization := range map[string]map[string]any{
		"in blocks of 4×4 has other scales":            {"quant_method": "fp8", "weight_block_size": []int{4, 4}},
		"needed is one scale, or one for each of":      {"quant_method": "fp8"},
		"fmt: is \"e5m2\"; only e4m3 is supported":     {"quant_method": "fp8", "fmt": "e5m2"},
		"weight_block_size: is [0 4]":                  {"quant_method": "fp8", "weight_block_size": []int{0, 4}},
		"says that the weights are quantised already;": {"quant_method": "awq", "bits": 4},
	} {
		wantRefused(t, copyFolder(t, "testdata/qwen3-fp8", map[string]any{"quantization_config": quantization}), want)
	}
	wantRefused(t, copyFolder(t, "testdata/qwen3-fp8", map[string]any{"quantization_config": nil}), "has the type F8_E4M3; supported: F32, F16, BF16")
}

func wantRefused(t *testing.T, dir, want string) {
	t.Helper()
	folder, err := Open(dir)
	if err == nil {
		folder.File.Close()
		t.Errorf("opens; want %q", want)
	} else if !strings.Contains(err.Error(), want) {
		t.Errorf("error %q, want %q", err, want)
	}
}

// copyFolder makes a folder of another's files, with changes to config.json: null
// removes a key.
func copyFolder(t *testing.T, from string, changes map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := os.CopyFS(filepath.Join(dir, e.Name()), os.DirFS(filepath.Join(from, e.Name()))); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() == configName {
			var config map[string]any
			if err := json.Unmarshal(data, &config); err != nil {
				t.Fatal(err)
			}
			for key, v := range changes {
				if config[key] = v; v == nil {
					delete(config, key)
				}
			}
			data, _ = json.Marshal(config)
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestConfigsThatAreNotUnderstoodAreRefused(t *testing.T) {
	llama := sharedPath(t, "conformance", "safetensors", "llama3-ropescale")
	for want, changes := range map[string]map[string]any{
		"config.json: strange_scale: (2) is not understood":                               {"strange_scale": 2},
		`config.json: model_type: is "mamba"; supported: gemma3, gemma3n, gemma4, llama4`: {"model_type": "mamba"},
		`architectures: has "LlamaForTokenClassification"; supported`:                     {"architectures": []string{"LlamaForTokenClassification"}},
		`hidden_act: is "relu"; supported: ["silu" "swish"]`:                              {"hidden_act": "relu"},
		"hidden_size: is 0; allowed are whole numbers from 1":                             {"hidden_size": 0},
		`hidden_size: is "a", not a number`:                                               {"hidden_size": "a"},
		"num_hidden_layers: is 1.5; allowed":                                              {"num_hidden_layers": 1.5},
		"rms_norm_eps: is 2; allowed":                                                     {"rms_norm_eps": 2},
		`rope_parameters.rope_type: is "dynamic"; supported`:                              {"rope_parameters": map[string]any{"rope_type": "dynamic", "rope_theta": 1e4}},
		"rope_parameters.factor: is 0 or missing":                                         {"rope_parameters": map[string]any{"rope_type": "linear", "rope_theta": 1e4}},
		"rope_parameters.zzz: (1) is not understood":                                      {"rope_parameters": map[string]any{"rope_type": "default", "zzz": 1}},
		"quantization_config: says that the weights are quantised":                        {"quantization_config": map[string]any{"bits": 4}},
		"vocab_size: is 401, but the embedding has 400 rows":                              {"vocab_size": 401},
		`tensor "model.layers.3.input_layernorm.weight": is missing`:                      {"num_hidden_layers": 4},
		`tensor "model.layers.2.input_layernorm.weight": is not unders`:                   {"num_hidden_layers": 2},
		`q_proj.weight": has the shape [64 64]; config.json asks for`:                     {"head_dim": 32},
		`tensor "model.layers.0.self_attn.q_proj.bias": is missing`:                       {"attention_bias": true},
		"partial_rotary_factor: is 0.5; only 1 is supported":                              {"partial_rotary_factor": 0.5},
	} {
		wantRefused(t, copyFolder(t, llama, changes), want)
	}
}

// TestOldConfigsMeanTheSame: the keys of transformers before version 5.
func TestOldConfigsMeanTheSame(t *testing.T) {
	llama := sharedPath(t, "conformance", "safetensors", "llama3-ropescale")
	old := open(t, copyFolder(t, llama, map[string]any{
		"rope_parameters": nil, "dtype": nil, "torch_dtype": "float32", "rope_theta": 500000.0,
		"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
	})).File
	now := open(t, llama).File
	for i := range now.Tensors {
		a := &now.Tensors[i]
		if b, ok := old.Tensor(a.Name); !ok || !slices.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("tensor %s differs", a.Name)
		}
	}
	for _, key := range now.Keys() {
		if key != "general.name" && now.Text(key) != old.Text(key) {
			t.Errorf("key %s is %s, of the old config %s", key, now.Text(key), old.Text(key))
		}
	}
}

func TestPathsThatAreNoFolders(t *testing.T) {
	empty := t.TempDir()
	if _, err := Open(empty); err == nil || !strings.Contains(err.Error(), "has no config.json") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(empty, configName), []byte(`{"model_type":"llama"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(empty); err == nil || !strings.Contains(err.Error(), "has neither model.safetensors nor") {
		t.Errorf("a folder without weights: %v", err)
	}
	if _, err := Open(filepath.Join(empty, "nowhere")); err == nil {
		t.Error("a folder that is not there opens")
	}
}

// TestInfinityIsReadAsPythonWritesIt: JSON has no such number, and texts that have the word stay.
func TestInfinityIsReadAsPythonWritesIt(t *testing.T) {
	c, err := parseConfig("c", []byte(`{"time_step_limit": [0.0, Infinity], "a": "\"Infinity", "b": [-Infinity, "Infinity"]}`))
	if err == nil || c != nil {
		t.Fatal("a minus before a text is taken")
	}
	c, err = parseConfig("c", []byte(`{"time_step_limit": [0.0, Infinity], "a": "\" Infinity", "b": Infinity}`))
	if err != nil {
		t.Fatal(err)
	}
	d := &description{}
	if d.readStepLimit(c); *c.err != nil || c.text("a", "") != `" Infinity` || c.text("b", "") != "Infinity" {
		t.Errorf("%v, %q, %q", *c.err, c.text("a", ""), c.text("b", ""))
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"model_type":"gemma3n_text","intermediate_size":[8,9],"num_hidden_layers":2,"activation_sparsity_pattern":0.5}`))
	f.Add([]byte(`{"model_type":"falcon_h1","mamba_d_head":"auto","ssm_multipliers":[1,1,1,1,1]}`))
	f.Add([]byte(`{"model_type":"nomic_bert","n_embd":8,"n_head":2,"rotary_scaling_factor":2}`))
	f.Add([]byte(`{"model_type":"nemotron_h","hybrid_override_pattern":"M-*","time_step_limit":[0.0, Infinity]}`))
	f.Add([]byte(`{"model_type":"llama","hidden_size":64,"rope_parameters":{"rope_type":"yarn","factor":2}}`))
	f.Add([]byte(`{"model_type":"gemma3","text_config":{"layer_types":["full_attention"],"num_hidden_layers":1}}`))
	f.Add([]byte(`{"model_type":"qwen3_moe","norm_topk_prob":true,"num_experts":4,"head_dim":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := parseConfig("c", data); err == nil {
			if d := describe(c); d == nil && *c.err == nil {
				t.Fatal("neither a description nor an error")
			} else if d != nil && *c.err == nil {
				d.setKeys(gguf.NewDraft("d"))
			}
		}
	})
}
