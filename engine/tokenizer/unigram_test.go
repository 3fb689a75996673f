package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// unigramCases are a small model of sentencepiece 0.2, trained on made-up text with a table of characters of
// its own, as three tokenizer.json that cut words in other ways; with the ids that tokenizers 0.23 gives for texts of
// random words, spaces, and characters that the table has, that only the model lacks, or that nothing knows.
func unigramCases(t testing.TB) (c struct {
	Tokenizers map[string]json.RawMessage
	Texts      []string
	IDs        map[string][][]int32
}) {
	raw, err := os.ReadFile("testdata/unigram.json")
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil || len(c.Tokenizers) != 3 || len(c.Texts) < 200 {
		t.Fatalf("%d tokenizers, %d texts: %v", len(c.Tokenizers), len(c.Texts), err)
	}
	return c
}

func TestUnigram(t *testing.T) {
	cases := unigramCases(t)
	for name, text := range cases.Tokenizers {
		tok, err := FromJSON(name, JSONSource{Tokenizer: text})
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range cases.Texts {
			if got := tok.Encode(nil, text, EncodeOptions{}); !slices.Equal(got, cases.IDs[name][i]) {
				t.Errorf("%s: %q: got %v, want %v", name, text, got, cases.IDs[name][i])
			}
		}
		if got := tok.Pair(nil, []int32{7}, []int32{8}); !slices.Equal(got, []int32{0, 7, 2, 2, 8, 2}) {
			t.Errorf("%s: a pair: %v", name, got)
		}
	}
}

// TestUnigramOfGGUF gives the ids of the same model in tokenizer.json.
func TestUnigramOfGGUF(t *testing.T) {
	cases := unigramCases(t)
	var parts struct {
		Normalizer struct {
			Charsmap []byte `json:"precompiled_charsmap"`
		}
		Model struct{ Vocab [][2]any }
	}
	if err := json.Unmarshal(cases.Tokenizers["words"], &parts); err != nil {
		t.Fatal(err)
	}
	var tokens []string
	var scores []float32
	var kinds, chars []int32
	for i, pair := range parts.Model.Vocab {
		tokens, scores, kinds = append(tokens, pair[0].(string)), append(scores, float32(pair[1].(float64))), append(kinds, int32(kindNormal))
		if i < 4 {
			kinds[i] = int32(kindControl)
		}
	}
	for _, b := range parts.Normalizer.Charsmap {
		chars = append(chars, int32(b))
	}
	f := file{}.with("model", "t5").with("tokens", tokens).with("scores", scores).with("token_type", kinds).with("precompiled_charsmap", chars).
		with("bos_token_id", uint32(0)).with("eos_token_id", uint32(2)).with("unknown_token_id", uint32(3)).with("add_space_prefix", true)
	tok := f.must(t)
	for i, text := range cases.Texts {
		if got := tok.Encode(nil, text, EncodeOptions{}); !slices.Equal(got, cases.IDs["words"][i]) {
			t.Errorf("%q: got %v, want %v", text, got, cases.IDs["words"][i])
		}
	}
	if got := tok.Pair(nil, []int32{7}, []int32{8}); !slices.Equal(got, []int32{0, 7, 2, 2, 8, 2}) {
		t.Errorf("a pair: %v", got)
	}
}

func TestUnigramRefusesByName(t *testing.T) {
	base := unigramCases(t).Tokenizers["words"]
	for want, change := range map[string]func(map[string]any){
		"byte_fallback is true":                      func(m map[string]any) { m["model"].(map[string]any)["byte_fallback"] = true },
		"unk_id is missing":                          func(m map[string]any) { delete(m["model"].(map[string]any), "unk_id") },
		"names no unknown token":                     func(m map[string]any) { m["model"].(map[string]any)["unk_id"] = 9999 },
		"vocab: member 1 is [1,2]; needed is a text": func(m map[string]any) { m["model"].(map[string]any)["vocab"] = []any{[]any{"a", 1}, []any{1, 2}} },
		"neither bytes nor spaces are encoded":       func(m map[string]any) { m["pre_tokenizer"] = object("type", "WhitespaceSplit") },
		"supported with Metaspace that puts a space": func(m map[string]any) {
			m["pre_tokenizer"] = object("type", "Metaspace", "replacement", space, "prepend_scheme", "never")
		},
		"supported with WhitespaceSplit, or with": func(m map[string]any) { m["pre_tokenizer"] = object("type", "Metaspace", "replacement", space) },
		"component NFKC is not supported":         func(m map[string]any) { m["normalizer"] = object("type", "NFKC") },
		"a table of characters says another size": func(m map[string]any) { m["normalizer"].(map[string]any)["precompiled_charsmap"] = "AAAAAAAA" },
		"has a replacement of 99 bytes": func(m map[string]any) {
			blob := append([]byte{4, 0, 0, 0, 0, 0, 0, 0}, strings.Repeat("a", 99)...)
			m["normalizer"].(map[string]any)["precompiled_charsmap"] = base64.StdEncoding.EncodeToString(blob)
		},
		`model of type "BPE" has a vocab of scores`: func(m map[string]any) { m["model"].(map[string]any)["type"] = "BPE" },
		"token 4 has 600 bytes; allowed are 512": func(m map[string]any) {
			m["model"].(map[string]any)["vocab"].([]any)[4] = []any{strings.Repeat("a", 600), -1}
		},
	} {
		var whole map[string]any
		if err := json.Unmarshal(base, &whole); err != nil {
			t.Fatal(err)
		}
		change(whole)
		text, _ := json.Marshal(whole)
		if _, err := FromJSON("t", JSONSource{Tokenizer: text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestHostileCharsmaps: tables of random units neither loop nor read beyond their end.
func TestHostileCharsmaps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		size := 4 * (1 + rnd.IntN(64))
		blob := binary.LittleEndian.AppendUint32(nil, uint32(size))
		for range size + rnd.IntN(8) {
			blob = append(blob, byte(rnd.Uint32()))
		}
		if c, err := newCharsmap(blob); err == nil {
			c.normalize("a text \xff with é and ▁")
		}
	}
}
