package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// smallJSON is a byte-level tokenizer.json of the bytes and two merges, with
// changes to its top level.
func smallJSON(changes map[string]any) []byte {
	vocab := map[string]int{}
	for c, r := range byteAlphabet {
		vocab[string(r)] = c
	}
	vocab["he"], vocab["Ġh"] = 256, 257
	f := map[string]any{
		"added_tokens":  []any{map[string]any{"id": 258, "content": "<|end|>", "special": true}, map[string]any{"id": 259, "content": "<tool>", "special": false}},
		"normalizer":    nil,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []any{"h e", []string{"Ġ", "h"}}},
	}
	for key, v := range changes {
		f[key] = v
	}
	text, _ := json.Marshal(f)
	return text
}

func TestFromJSONRefusesByName(t *testing.T) {
	regex := func(text string) map[string]any {
		return object("type", "Split", "pattern", object("Regex", text), "behavior", "Isolated")
	}
	for want, changes := range map[string]map[string]any{
		`model of type "Unigram" is not supported; supported are BPE, WordPiece and Unigram`: {"model": object("type", "Unigram")},
		"model: dropout is 0.1":                                                     {"model": object("type", "BPE", "vocab", object("a", 0), "dropout", 0.1)},
		"model: vocab is empty":                                                     {"model": object("type", "BPE")},
		"model: continuing_subword_prefix":                                          {"model": object("type", "BPE", "vocab", object("a", 0), "continuing_subword_prefix", "##")},
		`token "a" has the id -1; allowed are`:                                      {"model": object("type", "BPE", "vocab", object("a", -1))},
		`token "a" has the id 5000000; allowed are`:                                 {"model": object("type", "BPE", "vocab", object("a", 5000000))},
		"1 tokens have ids up to 4000000":                                           {"model": object("type", "BPE", "vocab", object("a", 4000000)), "added_tokens": nil},
		"not a tokenizer.json":                                                      {"model": object("type", "BPE", "vocab", object("a", "b"))},
		"model.merges is missing or empty":                                          {"model": object("type", "BPE", "vocab", object("a", 0, "b", 1, "ab", 2))},
		"a merge of 3 parts":                                                        {"model": object("type", "BPE", "vocab", object("a", 0), "merges", []any{[]string{"a", "b", "c"}})},
		`merge 1 ("ab" and "c") is into something that is no token`:                 {"model": object("type", "BPE", "vocab", object("ab", 0, "c", 1), "merges", []any{"x y", "ab c"})},
		"normalizer: component Lowercase is not supported":                          {"normalizer": object("type", "Sequence", "normalizers", []any{object("type", "NFC"), object("type", "Lowercase")})},
		"normalizer: component Replace of anything but spaces":                      {"normalizer": object("type", "Replace", "pattern", object("String", "a"), "content", "b")},
		"pre_tokenizer: component Whitespace is not supported":                      {"pre_tokenizer": object("type", "Whitespace")},
		`pre_tokenizer: component Split by the pattern "\\w+" is not supported`:     {"pre_tokenizer": regex(`\w+`)},
		`pre_tokenizer: component Split with the behavior "Removed" (invert false)`: {"pre_tokenizer": object("type", "Split", "pattern", object("Regex", `\p{N}`), "behavior", "Removed")},
		`pre_tokenizer: component Metaspace with the replacement "_"`:               {"pre_tokenizer": object("type", "Metaspace", "replacement", "_")},
		"pre_tokenizer: component Digits after ByteLevel is not supported":          {"pre_tokenizer": object("type", "Sequence", "pretokenizers", []any{object("type", "ByteLevel"), object("type", "Digits", "individual_digits", true)})},
		"pre_tokenizer: neither bytes nor spaces are encoded":                       {"pre_tokenizer": nil},
		"post_processor: component OtherProcessing is not supported":                {"post_processor": object("type", "OtherProcessing")},
		`post_processor: component TemplateProcessing has no ids for "<s>"`:         {"post_processor": object("type", "TemplateProcessing", "single", []any{object("SpecialToken", object("id", "<s>"))})},
		"decoder: component CTC is not supported":                                   {"decoder": object("type", "CTC")},
		"token 258 is special and has 600 bytes":                                    {"added_tokens": []any{object("id", 258, "content", strings.Repeat("x", 600), "special", true)}},
	} {
		_, err := FromJSON("f.json", JSONSource{Tokenizer: smallJSON(changes)})
		if err == nil || !strings.HasPrefix(err.Error(), "f.json: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestFromJSONTakesWhatLiesBeside(t *testing.T) {
	add := []any{
		map[string]any{"id": 258, "content": "<s>", "special": true}, map[string]any{"id": 259, "content": "</turn>", "special": true},
		map[string]any{"id": 260, "content": "<r>", "special": true, "rstrip": true}, map[string]any{"id": 261, "content": "<l>", "special": true, "lstrip": true},
		map[string]any{"id": 262, "content": "one", "special": false, "single_word": true},
	}
	template := map[string]any{"type": "TemplateProcessing", "single": []any{map[string]any{"SpecialToken": map[string]any{"id": "<s>"}}, map[string]any{"Sequence": map[string]any{"id": "A"}}},
		"special_tokens": map[string]any{"<s>": map[string]any{"ids": []int{258}}}}
	src := JSONSource{
		Tokenizer:  smallJSON(map[string]any{"added_tokens": add, "post_processor": template}),
		Config:     []byte(`{"bos_token": {"content": "<s>"}, "eos_token": "</turn>", "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": false}`),
		Generation: []byte(`{"eos_token_id": [259, 65]}`),
	}
	tok, err := FromJSON("f", src)
	if err != nil {
		t.Fatal(err)
	}
	if tok.BOS() != 258 || tok.EOS() != 259 || !tok.AddsBOS() || !tok.IsEnd(259) || !tok.IsEnd(65) || tok.IsEnd(258) || tok.Size() != 263 {
		t.Errorf("bos %d, eos %d, adds %v, %d tokens", tok.BOS(), tok.EOS(), tok.AddsBOS(), tok.Size())
	}
	for text, want := range map[string][]int32{
		"he h":         {258, 256, 257},
		"<r> \n h":     {258, 260, 'h'},
		"h \n<l> h":    {258, 'h', 261, 257},
		"one bone one": {258, 262, ' ', 'b', 'o', 'n', 'e', ' ', 262},
	} {
		if got := tok.Encode(nil, text, EncodeOptions{AddSpecial: true, ParseSpecial: true}); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	src.Config = []byte(`{"bos_token": "<s>", "tokenizer_class": "LlamaTokenizerFast", "add_bos_token": false}`)
	if tok, err = FromJSON("f", src); err != nil || tok.AddsBOS() {
		t.Errorf("a llama tokenizer that adds no token adds one: %v", err)
	}
	src.Generation = []byte(`{"eos_token_id": 9999}`)
	if _, err = FromJSON("f", src); err == nil || !strings.Contains(err.Error(), "eos_token_id: 9999 is not one of the 263 tokens") {
		t.Errorf("error %v", err)
	}
}

// TestFromJSONLikeGGUF: the same SentencePiece model in both formats gives the same ids.
func TestFromJSONLikeGGUF(t *testing.T) {
	folder := sharedFile(t, "conformance", "safetensors", "gemma3")
	read := func(file string) []byte {
		data, _ := os.ReadFile(filepath.Join(folder, file))
		return data
	}
	fromJSON, err := FromJSON("gemma3", JSONSource{read("tokenizer.json"), read("tokenizer_config.json"), read("generation_config.json")})
	if err != nil {
		t.Fatal(err)
	}
	fromGGUF := load(t, sharedFile(t, "conformance", "arch", "gemma3.gguf"))
	for _, text := range []string{english, code, "  two  spaces", "é中文 🏽", "<|user|> hi", "a\n\n\tb"} {
		a, b := fromJSON.Encode(nil, text, EncodeOptions{}), fromGGUF.Encode(nil, text, EncodeOptions{})
		if !slices.Equal(a, b) {
			t.Errorf("%.30q: JSON %v, GGUF %v", text, a[:min(9, len(a))], b[:min(9, len(b))])
		}
	}
}

func FuzzFromJSON(f *testing.F) {
	f.Add(smallJSON(nil), "he <|end|> h")
	f.Add(smallJSON(map[string]any{"pre_tokenizer": map[string]any{"type": "Metaspace", "replacement": space}, "decoder": nil}), "a b")
	f.Add([]byte(`{"model":{"vocab":{"a":0,"<0x61>":1,"▁":2},"byte_fallback":true,"unk_token":"a","fuse_unk":true},"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"}}`), "b a")
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		if len(file) > 1<<16 || len(text) > 1<<12 {
			return
		}
		tok, err := FromJSON("fuzz", JSONSource{Tokenizer: file, Config: []byte(`{"bos_token":"a"}`)})
		if err != nil {
			return
		}
		for _, id := range tok.Encode(nil, text, EncodeOptions{AddSpecial: true, ParseSpecial: true}) {
			if id < 0 || int(id) >= tok.Size() {
				t.Fatalf("id %d of %d", id, tok.Size())
			}
		}
	})
}
