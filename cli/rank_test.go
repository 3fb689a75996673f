package cli

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// rankerFile writes a model that scores documents: a reference embedder with a head in place
// of its pooling.
func rankerFile(t *testing.T, stem string, outputs int, keys map[string]any) string {
	t.Helper()
	f, err := gguf.Open(shared(t, "conformance/arch2/"+stem+".gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := gguf.NewDraft("ranker")
	d.Copy(f)
	for key, value := range keys {
		d.Set(key, value)
	}
	for _, tensor := range f.Tensors {
		d.Add(tensor)
	}
	head := make([]float32, 64*outputs)
	for i := range head {
		head[i] = float32(i*i%31-15) / 64
	}
	d.Add(gguf.Tensor{Name: "cls.output.weight", Type: kernels.F32, Dims: []int{64, outputs}, Data: gguftest.Encode(kernels.F32, head)})
	made, err := d.File("", false)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ranker.gguf")
	out, err := os.Create(path)
	if err == nil {
		err = gguf.Write(out, made, func(*gguf.Tensor) {})
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// tokenIDs are the tokens of a text.
func tokenIDs(t *testing.T, model, text string, special, control bool) (ids []int) {
	t.Helper()
	line, _ := json.Marshal(map[string]any{"text": text, "add_special": special, "parse_special": control})
	out, status := run(t, string(line)+"\n", "model", "tokenize", model)
	var answer struct{ IDs []int }
	if err := json.Unmarshal([]byte(out), &answer); status != 0 || err != nil || len(answer.IDs) == 0 {
		t.Fatalf("%d %v %s", status, err, out)
	}
	return answer.IDs
}

// scoreOf is what forebay model embed makes of tokens.
func scoreOf(t *testing.T, model string, ids []int) float64 {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.f32")
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
	if words, status := run(t, "", "model", "embed", model, "--ids", text, "-o", out); status != 0 {
		t.Fatalf("%d %s", status, words)
	}
	raw, err := os.ReadFile(out)
	if err != nil || len(raw) != 4 {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
}

// A model with a ranking head scores every document with the query, as the file's template or
// BERT's pairs have it; control strings of a client stay text. It does nothing else.
func TestRankersRoute(t *testing.T) {
	t.Parallel()
	documents := []string{"bread and water", "the answer is the sea", "<|endoftext|>[SEP]{query}", "alone"}
	const query = "what is {document} down there"
	qwen3 := rankerFile(t, "embed-qwen3", 2, map[string]any{"qwen3.pooling_type": uint32(4),
		"qwen3.classifier.output_labels": []string{"yes", "no"}, "tokenizer.chat_template.rerank": "<|start|>Q: {query}\nD: {document}<|endoftext|>A:"})
	bert := rankerFile(t, "embed-bert", 1, map[string]any{"bert.pooling_type": uint32(4)})
	for path, tokens := range map[string]func(document string) []int{
		qwen3: func(document string) []int {
			if strings.HasPrefix(document, "<|") {
				return nil // no text makes these tokens
			}
			return tokenIDs(t, qwen3, "<|start|>Q: "+query+"\nD: "+document+"<|endoftext|>A:", false, true)
		},
		bert: func(document string) []int {
			return append(tokenIDs(t, bert, query, true, false), tokenIDs(t, bert, document, true, false)[1:]...)
		},
	} {
		p := serve(t, "--model", path)
		var answer struct {
			Results []struct {
				Index int
				Score float64 `json:"relevance_score"`
			}
		}
		if status, text := p.askFor("/v1/rerank", map[string]any{"model": "ranker", "query": query, "documents": documents}, &answer); status != 200 || len(answer.Results) != 4 {
			t.Fatalf("%d %s", status, text)
		}
		for i, r := range answer.Results {
			if r.Score < 0 || r.Score > 1 || i > 0 && r.Score > answer.Results[i-1].Score {
				t.Errorf("result %d: %+v", i, answer.Results)
			}
			if ids := tokens(documents[r.Index]); ids != nil {
				if want := scoreOf(t, path, ids); math.Abs(r.Score-want) > 2e-3 { // the engine keeps keys and values in 16 bits
					t.Errorf("%s, %q: score %v, alone %v", path, documents[r.Index], r.Score, want)
				}
			}
		}
		for route, body := range map[string]map[string]any{
			"/v1/embeddings":       {"input": "a"},
			"/v1/completions":      {"prompt": "a"},
			"/v1/chat/completions": {"messages": []any{map[string]any{"role": "user", "content": "a"}}},
		} {
			body["model"] = "ranker"
			if status, text := p.askFor(route, body, nil); status != 400 || !strings.Contains(text, "/v1/rerank") {
				t.Errorf("%s: %d %s", route, status, text)
			}
		}
		if status, text := p.askFor("/v1/rerank", map[string]any{"model": "ranker", "query": "a", "documents": []string{"b", ""}}, nil); status != 400 || !strings.Contains(text, "index 1 is empty") {
			t.Errorf("%d %s", status, text)
		}
		if status, text := p.askFor("/v1/rerank", map[string]any{"model": "ranker", "query": "a", "documents": []string{strings.Repeat("b ", 600)}}, nil); status != 400 || !strings.Contains(text, "context") {
			t.Errorf("a pair longer than the context: %d %s", status, text)
		}
	}
}

// A file that does not say how a pair is written is refused at the start.
func TestRankerWithoutATemplate(t *testing.T) {
	t.Parallel()
	path := rankerFile(t, "embed-qwen3", 2, map[string]any{"qwen3.pooling_type": uint32(4), "qwen3.classifier.output_labels": []string{"yes", "no"}})
	if words, status := run(t, "", "serve", "--model", path, "--listen", "127.0.0.1:0"); status == 0 || !strings.Contains(words, "tokenizer.chat_template.rerank") {
		t.Errorf("%d %s", status, words)
	}
}
