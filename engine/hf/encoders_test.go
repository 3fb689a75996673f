package hf

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

// TestEncodersGiveTransformersVectors: random weights in BF16, with what transformers computes of them in
// float32: the pooled vector, or the score of a ranker's two texts.
func TestEncodersGiveTransformersVectors(t *testing.T) {
	folders, _ := filepath.Glob("testdata/*/vector.f32")
	if len(folders) != 10 {
		t.Fatalf("%d folders", len(folders))
	}
	team := kernels.NewTeam(1)
	defer team.Close()
	for _, path := range folders {
		dir := filepath.Dir(path)
		var ref struct{ IDs []int32 }
		text, err := os.ReadFile(filepath.Join(dir, "reference.json"))
		if err == nil {
			err = json.Unmarshal(text, &ref)
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set, err := kernels.Lookup("ref")
		if err != nil {
			t.Fatal(err)
		}
		m, err := model.Load(open(t, dir).File, set, team, model.Options{ContextTokens: len(ref.IDs), BatchTokensMax: len(ref.IDs)})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		pages := make([]int32, m.Options().Pages)
		for i := range pages {
			pages[i] = int32(i)
		}
		pool := m.NewPooler()
		rows := pool.Rows(0, len(ref.IDs), true)
		pool.Add(m.Forward([]model.Chunk{{Tokens: ref.IDs, Pages: pages, Logits: rows}}))
		got := pool.Vector()
		if len(got)*4 != len(raw) {
			t.Fatalf("%s: %d numbers for %d bytes of reference", dir, len(got), len(raw))
		}
		var wrong, size float64
		for i, v := range got {
			want := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
			wrong += (float64(v) - want) * (float64(v) - want)
			size += want * want
		}
		if !(wrong/size <= 1e-10) {
			t.Errorf("%s: NMSE %g", dir, wrong/size)
		}
	}
}

func TestEncodersThatDifferAreRefusedByName(t *testing.T) {
	for _, c := range []struct {
		folder  string
		changes map[string]any
		want    string
	}{
		{"bert", map[string]any{"hidden_act": "gelu_new"}, `hidden_act: is "gelu_new"; supported: ["gelu"]`},
		{"bert", map[string]any{"position_embedding_type": "relative_key"}, `position_embedding_type: is "relative_key"`},
		{"bert", map[string]any{"max_position_embeddings": 65}, `embeddings.position_embeddings.weight": has the shape [64 16]; config.json asks for [65 16]`},
		{"bert", map[string]any{"num_hidden_layers": 1}, `encoder.layer.1.attention.output.LayerNorm.bias": is not understood`},
		{"bert-ranker", map[string]any{"id2label": map[string]string{"0": "no", "1": "yes"}}, "id2label: names 2 outputs; a head that ranks has one"},
		{"xlm-roberta", map[string]any{"max_position_embeddings": 65}, `position_embeddings.weight": has the shape`},
		{"xlm-roberta", map[string]any{"pad_token_id": 70}, "max_position_embeddings: is 64, and the first position is 71"},
		{"modernbert", map[string]any{"norm_bias": true}, "norm_bias: is true; only false"},
		{"modernbert", map[string]any{"global_attn_every_n_layers": 2}, `layer_types: has "sliding_attention" in layer 2`},
		{"nomic_bert", map[string]any{"hidden_act": "gelu"}, `hidden_act: is "gelu"`},
		{"nomic_bert", map[string]any{"num_attention_heads": 3}, "num_attention_heads: is 3 heads of 4"},
		{"nomic-own", map[string]any{"qkv_proj_bias": true}, "qkv_proj_bias: is true; only false"},
		{"nomic-own", map[string]any{"num_experts": 8}, "num_experts: (8) is not understood"},
		{"nomic-own", map[string]any{"rotary_emb_fraction": 0.5}, "rotary_emb_fraction: is 0.5; only 1"},
		{"nomic-own", map[string]any{"n_inner": 25}, `mlp.fc11.weight": has the shape [24 16]; config.json asks for [25 16]`},
		{"gemma3-embedding", map[string]any{"use_bidirectional_attention": "all"}, "use_bidirectional_attention: is \"all\", not true or false"},
		{"qwen3-embedding", map[string]any{"auto_map": map[string]string{"AutoModel": "modeling.Model"}}, "auto_map: names code of the model's own"},
	} {
		wantRefused(t, copyFolder(t, "testdata/"+c.folder, c.changes), c.want)
	}
}

func TestPoolingThatIsNotKnownIsRefused(t *testing.T) {
	const modules = `[{"type":"sentence_transformers.models.Transformer","path":""},{"type":"sentence_transformers.models.Pooling","path":"1_Pooling"}]`
	for _, c := range []struct{ modules, pooling, want string }{
		{`{}`, `{}`, "modules.json: is no list of modules"},
		{`[{"type":"sentence_transformers.models.Dense","path":"2_Dense"}]`, `{}`, `modules.json: module 0 is "sentence_transformers.models.Dense"`},
		{`[{"type":"x.Pooling","path":"../other"}]`, `{}`, `path: is "../other"; needed is a folder in this one`},
		{`[{"type":"x.Pooling","path":"nowhere"}]`, `{}`, "config.json: is missing"},
		{modules, `{"pooling_mode_max_tokens":true}`, "pooling_mode_max_tokens: is true; supported is one of mean_tokens"},
		{modules, `{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true}`, "is true; supported is one of"},
		{modules, `{"pooling_mode":"weightedmean"}`, `pooling_mode: is "weightedmean"; supported: mean, cls, lasttoken`},
		{modules, `{"word_embedding_dimension":16}`, "pooling_mode: is missing, and no mode is true"},
		{modules, `{"pooling_mode":"mean","strange":1}`, "strange: (1) is not understood"},
	} {
		dir := copyFolder(t, "testdata/bert-ranker", nil)
		for name, text := range map[string]string{modulesName: c.modules, "1_Pooling/config.json": c.pooling} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		wantRefused(t, dir, c.want)
	}
}

func TestDenseModulesThatDoNotFitAreRefused(t *testing.T) {
	const identity = `"activation_function":"torch.nn.modules.linear.Identity"`
	for _, c := range []struct{ config, modules, want string }{
		{config: `{"in_features":24,"out_features":8,"bias":false,"activation_function":"torch.nn.modules.activation.Tanh"}`, want: `activation_function: is "torch.nn.modules.activation.Tanh"; only`},
		{config: `{"in_features":24,"out_features":8,"bias":false}`, want: "activation_function: is"},
		{config: `{"in_features":23,"out_features":8,"bias":false,` + identity + `}`, want: "in_features: is 23; 24 numbers come in"},
		{config: `{"in_features":24,"out_features":9,"bias":false,` + identity + `}`, want: `tensor "linear.weight": has the shape [8 24]; config.json asks for [9 24]`},
		{config: `{"in_features":24,"out_features":8,` + identity + `}`, want: `tensor "linear.bias": is missing`},
		{config: `{"in_features":24,"out_features":8,"scale":2,` + identity + `}`, want: "scale: (2) is not understood"},
		{modules: `[{"type":"x.Transformer","path":""},{"type":"x.Pooling","path":"1_Pooling"},{"type":"x.Normalize","path":""},{"type":"x.Dense","path":"2_Dense"}]`, want: "in this order"},
		{modules: `[{"type":"x.Transformer","path":""},{"type":"x.Pooling","path":"1_Pooling"},{"type":"x.Dense","path":"../2_Dense"}]`, want: "needed is a folder in this one"},
		{modules: `[{"type":"x.Transformer","path":""},{"type":"x.Pooling","path":"1_Pooling"},{"type":"x.Dense","path":"1_Pooling"}]`, want: "in_features: is 0"},
	} {
		dir := copyFolder(t, "testdata/gemma3-embedding", nil)
		for name, text := range map[string]string{"3_Dense/config.json": c.config, modulesName: c.modules} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		wantRefused(t, dir, c.want)
	}
}
