package tokenizer

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
)

const shared = "../../../shared"

// sharedFile is the path of a file of test data, or skips the test.
func sharedFile(t testing.TB, parts ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{shared}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("test data is missing: %s", path)
	}
	return path
}

func load(t testing.TB, path string) *Tokenizer {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func lines[T any](t testing.TB, path string) (list []T) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var v T
		if err := json.Unmarshal(in.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

type conformanceCase struct {
	Text       string  `json:"text"`
	IDs        []int32 `json:"ids"`
	AddSpecial bool    `json:"add_special"`
	UserText   bool    `json:"user_text"`
	Decoded    *string `json:"decoded"`
}

// TestTokenizerJSONConformance checks real tokenizer.json files. Where a case is
// not a user's text, control strings in it are control tokens.
func TestTokenizerJSONConformance(t *testing.T) {
	folders, _ := filepath.Glob(filepath.Join(sharedFile(t, "conformance", "tokenizers"), "*", "tokenizer.json.gz"))
	if len(folders) < 4 {
		t.Fatalf("only %d tokenizer.json files", len(folders))
	}
	for _, path := range folders {
		folder := filepath.Dir(path)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			tok := loadJSON(t, folder)
			checkEnds(t, tok, filepath.Base(folder))
			bad := 0
			cases := lines[conformanceCase](t, filepath.Join(folder, "cases.jsonl"))
			for _, c := range cases {
				got := tok.Encode(nil, c.Text, EncodeOptions{AddSpecial: c.AddSpecial, ParseSpecial: !c.UserText})
				wrong := !slices.Equal(got, c.IDs)
				if c.Decoded != nil && !wrong {
					wrong = decodeAll(tok, got) != *c.Decoded
				}
				if wrong {
					if bad++; bad <= 5 {
						t.Errorf("%.80q (special %v, user %v): got %v, want %v; decoded %.80q", c.Text, c.AddSpecial, c.UserText, got[:min(len(got), 20)], c.IDs[:min(len(c.IDs), 20)], tok.Decode(got))
					}
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d cases differ", bad, len(cases))
			}
		})
	}
}

// decodeAll is Decode with the text of control tokens.
func decodeAll(tok *Tokenizer, ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if b.Write(tok.Bytes(id)); tok.IsControl(id) {
			b.WriteString(tok.Text(id))
		}
	}
	return b.String()
}

// loadJSON reads a folder's tokenizer.json.gz and tokenizer_config.json.
func loadJSON(t testing.TB, folder string) *Tokenizer {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(folder, "tokenizer_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := FromJSON(folder, JSONSource{Tokenizer: unzip(t, filepath.Join(folder, "tokenizer.json.gz")), Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func unzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestConformanceVocabularies(t *testing.T) {
	folders, _ := filepath.Glob(filepath.Join(sharedFile(t, "conformance", "tokenizers"), "gguf-*"))
	if len(folders) == 0 {
		t.Skipf("test data is missing: %s/conformance/tokenizers/gguf-*", shared)
	}
	for _, folder := range folders {
		name := filepath.Base(folder)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(folder, "vocab.gguf")
			tok := load(t, path)
			checkEnds(t, tok, name)
			checkCases(t, tok, lines[conformanceCase](t, filepath.Join(folder, "cases.jsonl")))
		})
	}
}

// familyEnds are the tokens that end an answer, by test file.
var familyEnds = map[string]string{
	"llama3": "<|end_of_text|> <|eot_id|>", "qwen3": "<|endoftext|> <|im_end|>", "gemma3": "<end_of_turn>", "gptoss": "<|endoftext|> <|return|> <|call|>",
	"gguf-phi-3": "</s> <|endoftext|> <|end|>", "gguf-llama-spm": "</s>", "gguf-llama-bpe": "<|end_of_text|> <|eot_id|>",
	"gguf-qwen2": "<|endoftext|> <|im_end|>", "SmolLM2-135M-Instruct.Q4_1.gguf": "<|endoftext|> <|im_end|>",
}

func checkEnds(t *testing.T, tok *Tokenizer, name string) {
	t.Helper()
	if want, ok := familyEnds[name]; ok && strings.Join(ends(tok), " ") != want {
		t.Errorf("ends are %s, want %s", ends(tok), want)
	}
}

func checkCases(t *testing.T, tok *Tokenizer, cases []conformanceCase) {
	b, ok := tok.encoder.(*bpe)
	normal := ok && b.nfc
	bad := 0
	for _, c := range cases {
		got := tok.Encode(nil, c.Text, EncodeOptions{AddSpecial: c.AddSpecial})
		if !slices.Equal(got, c.IDs) {
			if bad++; bad <= 5 {
				t.Errorf("%.80q (add_special %v): got %v, want %v", c.Text, c.AddSpecial, got[:min(len(got), 20)], c.IDs[:min(len(c.IDs), 20)])
			}
		}
		want := c.Text
		if normal {
			want = nfc(want)
		}
		if tok.prefix.everywhere { // SPM cannot tell its mark for a space from a space
			want = strings.ReplaceAll(want, space, " ")
		}
		if back := tok.Decode(tok.Encode(nil, c.Text, EncodeOptions{})); back != want {
			t.Errorf("%.80q: decoded as %.80q", c.Text, back)
		}
	}
	if bad > 0 {
		t.Errorf("%d of %d cases differ", bad, len(cases))
	}
}

// TestModelPrompts checks the ids of whole rendered chats, and of their answers.
func TestModelPrompts(t *testing.T) {
	type reference struct {
		Prompt    string  `json:"prompt"`
		PromptIDs []int32 `json:"prompt_ids"`
		IDs       []int32 `json:"ids"`
		Text      string  `json:"text"`
		Finish    string  `json:"finish"`
	}
	for model, answers := range map[string]string{
		"demo-model/forebay-demo-q8_0.gguf":      "demo-model/reference.jsonl",
		"models/SmolLM2-135M-Instruct.Q4_1.gguf": "models/SmolLM2-135M-Instruct.Q4_1.reference.jsonl",
	} {
		t.Run(model, func(t *testing.T) {
			tok := load(t, sharedFile(t, model))
			checkEnds(t, tok, filepath.Base(model))
			for _, r := range lines[reference](t, sharedFile(t, answers)) {
				if got := tok.Encode(nil, r.Prompt, EncodeOptions{AddSpecial: true, ParseSpecial: true}); !slices.Equal(got, r.PromptIDs) {
					t.Errorf("%q: got %v, want %v", r.Prompt, got, r.PromptIDs)
				}
				if got := tok.Decode(r.IDs); got != r.Text {
					t.Errorf("decoded %q, want %q", got, r.Text)
				}
				if last := r.IDs[len(r.IDs)-1]; r.Finish == "stop" && !tok.IsEnd(last) {
					t.Errorf("%q: last token %d is no end", r.Prompt, last)
				}
			}
		})
	}
}
