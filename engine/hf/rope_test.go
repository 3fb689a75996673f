package hf

import (
	"math"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
)

// TestLlama3Factors compares with the inverse frequencies that transformers 5
// computes (modeling_rope_utils), in float32.
func TestLlama3Factors(t *testing.T) {
	want := []float64{1, 0.079403013, 0.00470075384, 0.000911583134, 0.000176776681, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}
	r := rope{kind: "llama3", theta: 5e5, factor: 8, original: 64, low: 1, high: 4, dims: 16}
	for i, factor := range r.llama3Factors() {
		got := math.Pow(r.theta, -float64(2*i)/16) / float64(factor)
		if math.Abs(got/want[i]-1) > 1e-6 {
			t.Errorf("pair %d turns by %v a position, want %v", i, got, want[i])
		}
	}
}

// TestKeysOfConfigs: what config.json says arrives, and what it leaves open stays so.
func TestKeysOfConfigs(t *testing.T) {
	read := func(config string) *gguf.File {
		c, err := parseConfig("c", []byte(config))
		if err != nil {
			t.Fatal(err)
		}
		d := describe(c)
		if *c.err != nil {
			t.Fatal(*c.err)
		}
		draft := gguf.NewDraft("d")
		d.setKeys(draft)
		f, err := draft.File("", false)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for config, want := range map[string]map[string]string{
		`{"model_type":"llama","rope_scaling":{"type":"yarn","factor":4,"beta_fast":16,"beta_slow":2,"attention_factor":0.9,"original_max_position_embeddings":512}}`: {
			"factor": "4", "yarn_beta_fast": "16", "yarn_beta_slow": "2", "yarn_attn_factor": "0.9", "original_context_length": "512"},
		`{"model_type":"llama","max_position_embeddings":4096,"original_max_position_embeddings":1024,"rope_parameters":{"rope_type":"yarn","factor":8,"original_max_position_embeddings":512}}`: {
			"factor": "8", "yarn_beta_fast": "", "yarn_beta_slow": "", "yarn_attn_factor": "", "original_context_length": "1024"},
		`{"model_type":"llama","max_position_embeddings":4096,"rope_parameters":{"rope_type":"yarn","factor":null,"original_max_position_embeddings":512}}`: {"factor": "8"},
	} {
		f := read(config)
		for key, text := range want {
			if got := f.Text("llama.rope.scaling." + key); got != text {
				t.Errorf("%s: %s is %q, want %q", config, key, got, text)
			}
		}
	}
	if f := read(`{"model_type":"gemma3_text"}`); f.Text("gemma3.rope.freq_base") != "1e+06" || f.Text("gemma3.rope.freq_base_swa") != "10000" {
		t.Errorf("gemma 3's bases are %s and %s", f.Text("gemma3.rope.freq_base"), f.Text("gemma3.rope.freq_base_swa"))
	}
	// The 27B model's scale is that of embed/heads, which readers assume of 62 layers.
	for config, want := range map[string]string{
		`{"model_type":"gemma3_text","num_hidden_layers":62,"hidden_size":5376,"num_attention_heads":32,"head_dim":128,"query_pre_attn_scalar":168}`: "",
		`{"model_type":"gemma3_text","num_hidden_layers":62,"hidden_size":5376,"num_attention_heads":32,"head_dim":128,"query_pre_attn_scalar":64}`:  "0.125",
		`{"model_type":"gemma3_text","head_dim":256}`:                            "",
		`{"model_type":"gemma3_text","head_dim":256,"query_pre_attn_scalar":64}`: "0.125",
	} {
		if got := read(config).Text("gemma3.attention.scale"); got != want {
			t.Errorf("%s: the scale is %q, want %q", config, got, want)
		}
	}
	outer, err := parseConfig("c", []byte(`{"model_type":"gemma3","tie_word_embeddings":false,"text_config":{"head_dim":256}}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := describe(outer); *outer.err != nil || d.tied {
		t.Errorf("tie_word_embeddings beside text_config is not read: %v", *outer.err)
	}
	heads, _ := parseConfig("c", []byte(`{"model_type":"mistral","num_key_value_heads":null}`))
	if d := describe(heads); *heads.err != nil || d.kvHeads != 32 {
		t.Errorf("null key-value heads: %d, %v", d.kvHeads, *heads.err)
	}
}
