package cli

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// embedderFile is a small embedding model with random weights.
func embedderFile(t *testing.T) string {
	b := gguftest.TinyBuilder(gguftest.Tiny{Type: kernels.Q8_0, Seed: 3, Layers: 2, Embed: 64, FF: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 270, Context: 300})
	path := filepath.Join(t.TempDir(), "embedder.gguf")
	if err := os.WriteFile(path, b.Set("llama.pooling_type", uint32(3)).Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// vectors is the answer of /v1/embeddings.
type vectors struct {
	Object string
	Model  string
	Data   []struct {
		Object    string
		Index     int
		Embedding json.RawMessage
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
}

// all are the vectors, in order.
func (v *vectors) all(t *testing.T) (all [][]float32) {
	t.Helper()
	for i, d := range v.Data {
		var x []float32
		var text string
		if json.Unmarshal(d.Embedding, &text) == nil {
			raw, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			for ; len(raw) > 0; raw = raw[4:] {
				x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
			}
		} else if err := json.Unmarshal(d.Embedding, &x); err != nil {
			t.Fatalf("%s: %v", d.Embedding, err)
		}
		if d.Index != i || d.Object != "embedding" {
			t.Errorf("entry %d is %d of kind %q", i, d.Index, d.Object)
		}
		all = append(all, x)
	}
	return all
}

// askFor posts a body that need not be right, and decodes what comes.
func (p *process) askFor(path string, body map[string]any, to any) (status int, text string) {
	p.t.Helper()
	resp, err := p.postTo(p.t.Context(), path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == 200 {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		p.t.Fatalf("%v: %s", err, raw)
	}
	return resp.StatusCode, string(raw)
}

// The route of OpenAI's API with an embedding model: every form of input, both encodings,
// shorter vectors, more texts than run at once; and what is refused.
func TestEmbeddingsRoute(t *testing.T) {
	t.Parallel()
	p := serve(t, "--model", embedderFile(t))
	embed := func(more map[string]any) *vectors {
		t.Helper()
		body, v := map[string]any{"model": "embedder"}, &vectors{}
		for k, x := range more {
			body[k] = x
		}
		if status, text := p.askFor("/v1/embeddings", body, v); status != 200 {
			t.Fatalf("%v: %d %s", more, status, text)
		}
		return v
	}
	one := embed(map[string]any{"input": "hello"})
	want := one.all(t)[0]
	if one.Object != "list" || one.Model != "embedder" || len(want) != 64 || one.Usage.Prompt != one.Usage.Total || one.Usage.Prompt < 1 {
		t.Errorf("%+v", one)
	}
	var texts []string
	for i := range 40 {
		texts = append(texts, strings.Repeat("a", i+1))
	}
	texts[17] = "hello"
	many := embed(map[string]any{"input": texts, "encoding_format": "base64"}).all(t)
	if len(many) != 40 || !slices.Equal(many[17], want) || slices.Equal(many[0], many[1]) {
		t.Errorf("of 40 texts: %d vectors; that of hello %v, alone %v", len(many), many[17], want)
	}
	short := embed(map[string]any{"input": []string{"hello"}, "dimensions": 10}).all(t)[0]
	if ratio := short[0] / want[0]; len(short) != 10 || math.Abs(float64(short[9]/want[9]-ratio)) > 1e-4 || ratio < 1 {
		t.Errorf("shortened: %v of %v", short, want)
	}
	ids := embed(map[string]any{"input": []any{[]int{72, 101}, []int{72}}}).all(t)
	if alone := embed(map[string]any{"input": []int{72, 101}}).all(t); len(ids) != 2 || !slices.Equal(ids[0], alone[0]) {
		t.Errorf("token ids: %d vectors", len(ids))
	}
	for field, body := range map[string]map[string]any{
		"input":           {"model": "embedder", "input": []string{"a", ""}},
		"encoding_format": {"model": "embedder", "input": "a", "encoding_format": "int8"},
		"dimensions":      {"model": "embedder", "input": "a", "dimensions": 65},
		"model":           {"input": "a"},
	} {
		if status, text := p.askFor("/v1/embeddings", body, nil); status != 400 || !strings.Contains(text, `"param":"`+field+`"`) {
			t.Errorf("%v: %d %s", body, status, text)
		}
	}
	if status, text := p.askFor("/v1/chat/completions", chatBody("hello", map[string]any{"model": "embedder"}), nil); status != 400 || !strings.Contains(text, "/v1/embeddings") {
		t.Errorf("a chat with an embedder: %d %s", status, text)
	}
	if status, text := p.askFor("/v1/embeddings", map[string]any{"model": "embedder", "input": strings.Repeat("a", 400)}, nil); status != 400 || !strings.Contains(text, "context") {
		t.Errorf("a text longer than the context: %d %s", status, text)
	}
}

// A text is nearest to itself, and documents come back in order and as they were sent.
func TestRerankRoute(t *testing.T) {
	t.Parallel()
	p := serve(t, "--model", embedderFile(t))
	var answer struct {
		ID      string
		Results []struct {
			Index    int
			Score    float64 `json:"relevance_score"`
			Document struct{ Text string }
		}
		Usage struct {
			Total int `json:"total_tokens"`
		}
	}
	status, text := p.askFor("/v1/rerank", map[string]any{
		"model": "embedder", "query": "the sea", "top_n": 2, "return_documents": true,
		"documents": []any{"a mountain", map[string]any{"text": "the sea"}, "bread"},
	}, &answer)
	if r := answer.Results; status != 200 || len(r) != 2 || r[0].Index != 1 || math.Abs(r[0].Score-1) > 1e-6 || r[0].Document.Text != "the sea" || r[1].Score > r[0].Score || answer.Usage.Total == 0 {
		t.Errorf("%d %s", status, text)
	}
	for field, body := range map[string]map[string]any{
		"query":     {"model": "embedder", "documents": []string{"a"}},
		"documents": {"model": "embedder", "query": "a", "documents": []any{}},
		"top_n":     {"model": "embedder", "query": "a", "documents": []any{"b"}, "top_n": 0},
	} {
		if status, text := p.askFor("/v1/rerank", body, nil); status != 400 || !strings.Contains(text, `"param":"`+field+`"`) {
			t.Errorf("%v: %d %s", body, status, text)
		}
	}
}

// The official Python client asks for base64 and reads it.
func TestEmbeddingsOfTheOfficialClient(t *testing.T) {
	t.Parallel()
	if !pythonClient("") {
		if slices.Contains(strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ","), "python") {
			t.Fatal("the OpenAI client for Python is required and not installed")
		}
		t.Skip("the OpenAI client for Python is not installed")
	}
	p := serve(t, "--model", embedderFile(t))
	script := fmt.Sprintf(`
import openai
c = openai.OpenAI(base_url=%q, api_key="none")
a = c.embeddings.create(model="embedder", input=["one", "two"])
b = c.embeddings.create(model="embedder", input="two", encoding_format="float")
assert len(a.data) == 2 and len(a.data[1].embedding) == 64 and a.usage.total_tokens > 0
assert max(abs(x - y) for x, y in zip(a.data[1].embedding, b.data[0].embedding)) < 1e-6
print("ok")`, p.url+"/v1")
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", script).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("%v: %s", err, out)
	}
}

// An engine that makes text says what to serve instead.
func TestEmbeddingsOfAModelThatGenerates(t *testing.T) {
	t.Parallel()
	p := serve(t)
	if status, text := p.askFor("/v1/embeddings", map[string]any{"model": "forebay-demo", "input": "a"}, nil); status != 400 || !strings.Contains(text, "makes no embeddings") {
		t.Errorf("%d %s", status, text)
	}
}

// forebay model embed writes the vector that the route answers with.
func TestModelEmbed(t *testing.T) {
	path, out := embedderFile(t), filepath.Join(t.TempDir(), "out.f32")
	if words, status := run(t, "", "model", "embed", path, "--ids", "72,101", "-o", out); status != 0 || !strings.Contains(words, "64 numbers") {
		t.Fatalf("%d %s", status, words)
	}
	p := serve(t, "--model", path)
	var v vectors
	p.askFor("/v1/embeddings", map[string]any{"model": "embedder", "input": []int{72, 101}}, &v)
	raw, err := os.ReadFile(out)
	if err != nil || len(raw) != 256 {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	cosine := 0.0 // the engine keeps keys and values in 16 bits
	for i, x := range v.all(t)[0] {
		cosine += float64(x) * float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
	}
	if cosine < 0.999 {
		t.Errorf("the cosine of file and answer is %v", cosine)
	}
	for _, args := range [][]string{
		{"model", "embed", filepath.Join("engine", "demo", "forebay-demo-q8_0.gguf"), "--ids", "1", "-o", out},
		{"model", "logits", path, "--ids", "1", "-o", out}, {"model", "embed", path, "--ids", "270", "-o", out}, {"model", "embed", path},
	} {
		if words, status := run(t, "", args...); status == 0 {
			t.Errorf("%v: %s", args, words)
		}
	}
}

// Encoders over HTTP give the vectors of another implementation.
func TestEncodersRoute(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"embed-bert", "embed-modern-bert", "embed-gemma"} {
		var reference struct{ IDs []int32 }
		text, err := os.ReadFile(shared(t, "conformance/arch2/"+name+".json"))
		if err == nil {
			err = json.Unmarshal(text, &reference)
		}
		raw, failed := os.ReadFile(shared(t, "conformance/arch2/"+name+".vector.f32"))
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		p := serve(t, "--model", shared(t, "conformance/arch2/"+name+".gguf"))
		var v vectors
		if status, text := p.askFor("/v1/embeddings", map[string]any{"model": name, "input": []any{reference.IDs, reference.IDs[:9]}}, &v); status != 200 {
			t.Fatalf("%s: %d %s", name, status, text)
		}
		cosine := 0.0
		for i, x := range v.all(t)[0] {
			cosine += float64(x) * float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		}
		if cosine < 0.9999 {
			t.Errorf("%s: the cosine with the reference is %v", name, cosine)
		}
	}
}
