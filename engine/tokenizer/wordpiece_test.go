package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestWordPiece holds the ids to those of Hugging Face's tokenizers 0.23 (BertNormalizer,
// BertPreTokenizer, WordPiece), for a small vocabulary with and without capitals.
func TestWordPiece(t *testing.T) {
	for _, v := range wordPieceCases(t) {
		v.check(t, wordPieceOf(t, v.Tokens, v.Lowercase))
	}
}

// A wordPieceCase is a vocabulary, with the ids that Hugging Face's tokenizers give to texts.
type wordPieceCase struct {
	Lowercase bool
	Tokens    []string
	Cases     []struct {
		Text string
		IDs  []int32
	}
}

func wordPieceCases(t *testing.T) (all []wordPieceCase) {
	t.Helper()
	raw, err := os.ReadFile("testdata/wordpiece.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func (v wordPieceCase) check(t *testing.T, tok *Tokenizer) {
	t.Helper()
	for _, c := range v.Cases {
		if got := tok.Encode(nil, c.Text, EncodeOptions{}); !slices.Equal(got, c.IDs) {
			t.Errorf("lowercase %v, %q: got %v, want %v", v.Lowercase, c.Text, got, c.IDs)
		}
	}
}

func wordPieceOf(t *testing.T, tokens []string, lowercase bool) *Tokenizer {
	t.Helper()
	kinds := make([]int32, len(tokens))
	for i, text := range tokens {
		if kinds[i] = int32(kindNormal); strings.HasPrefix(text, "[") && len(text) > 3 {
			kinds[i] = int32(kindControl)
		}
	}
	return file{}.with("model", "bert").with("tokens", tokens).with("token_type", kinds).with("normalizer.lowercase", lowercase).
		with("unknown_token_id", uint32(1)).with("bos_token_id", uint32(2)).with("eos_token_id", uint32(3)).with("seperator_token_id", uint32(3)).must(t)
}

// TestWordPieceAddsSpecialTokens before and after the text, which decodes without them.
func TestWordPieceAddsSpecialTokens(t *testing.T) {
	tok := wordPieceOf(t, []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", space + "sea", "side", space + "the", space + "!"}, true)
	ids := tok.Encode(nil, "The seaside! [SEP]", EncodeOptions{AddSpecial: true})
	if want := []int32{2, 6, 4, 5, 7, 1, 1, 1, 3}; !slices.Equal(ids, want) { // the client's [SEP] is text
		t.Errorf("got %v, want %v", ids, want)
	}
	if got := tok.Decode(ids[1:5]); got != "the seaside !" {
		t.Errorf("decoded %q", got)
	}
}

// object is a JSON object of keys and values in turn.
func object(pairs ...any) map[string]any {
	o := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		o[pairs[i].(string)] = pairs[i+1]
	}
	return o
}

// jsonWordPieces is a tokenizer.json with the tokens of a GGUF file, and changes to it.
func jsonWordPieces(tokens []string, lowercase bool, changes map[string]any) []byte {
	vocab, added := map[string]int{}, []any{}
	for id, text := range tokens {
		start, starts := strings.CutPrefix(text, space)
		switch {
		case starts:
			vocab[start] = id
		case strings.HasPrefix(text, "[") && len(text) > 3:
			vocab[text], added = id, append(added, object("id", id, "content", text, "special", true))
		default:
			vocab[continues+text] = id
		}
	}
	whole := map[string]any{
		"added_tokens":   added,
		"normalizer":     object("type", "BertNormalizer", "clean_text", true, "handle_chinese_chars", true, "strip_accents", nil, "lowercase", lowercase),
		"pre_tokenizer":  object("type", "BertPreTokenizer"),
		"post_processor": object("type", "BertProcessing", "cls", []any{"[CLS]", 2}, "sep", []any{"[SEP]", 3}),
		"decoder":        object("type", "WordPiece", "prefix", "##", "cleanup", true),
		"model":          object("type", "WordPiece", "unk_token", "[UNK]", "continuing_subword_prefix", "##", "max_input_chars_per_word", 100, "vocab", vocab),
	}
	for key, v := range changes {
		whole[key] = v
	}
	text, _ := json.Marshal(whole)
	return text
}

// TestWordPieceOfJSON: the ids of the GGUF file's tokenizer, which are the reference's.
func TestWordPieceOfJSON(t *testing.T) {
	all := wordPieceCases(t)
	for _, v := range all {
		tok, err := FromJSON("wordpiece", JSONSource{Tokenizer: jsonWordPieces(v.Tokens, v.Lowercase, nil)})
		if err != nil {
			t.Fatal(err)
		}
		v.check(t, tok)
		if got := tok.Encode(nil, "", EncodeOptions{AddSpecial: true}); !slices.Equal(got, []int32{2, 3}) || !tok.AddsBOS() {
			t.Errorf("around a text: %v", got)
		}
		if got := tok.Pair(nil, []int32{7}, []int32{8}); !slices.Equal(got, []int32{2, 7, 3, 8, 3}) {
			t.Errorf("a pair: %v", got)
		}
	}
	tokens := all[0].Tokens
	special := func(id string) map[string]any { return object("SpecialToken", object("id", id)) }
	text := func(id string) map[string]any { return object("Sequence", object("id", id)) }
	roberta := object("type", "TemplateProcessing", "special_tokens", object("c", object("ids", []int{2}), "s", object("ids", []int{3})),
		"single", []any{special("c"), text("A"), special("s")}, "pair", []any{special("c"), text("A"), special("s"), special("s"), text("B"), special("s")})
	tok, err := FromJSON("t", JSONSource{Tokenizer: jsonWordPieces(tokens, true, map[string]any{"post_processor": roberta})})
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Pair(nil, []int32{7}, []int32{8}); !slices.Equal(got, []int32{2, 7, 3, 3, 8, 3}) {
		t.Errorf("a pair by a template: %v", got)
	}
	for want, changes := range map[string]map[string]any{
		"BertNormalizer are supported with a model of type WordPiece alone": {"normalizer": nil},
		"strip_accents as lowercase or null":                                {"normalizer": object("type", "BertNormalizer", "lowercase", true, "strip_accents", false)},
		"unk_token \"[NO]\" is no token":                                    {"model": object("type", "WordPiece", "unk_token", "[NO]", "continuing_subword_prefix", "##", "vocab", map[string]int{"a": 0})},
		"continuing_subword_prefix and max_input_chars_per_word are not":    {"model": object("type", "WordPiece", "continuing_subword_prefix", "@@", "vocab", map[string]int{"a": 0})},
		"post_processor: puts the id 99999 around a text":                   {"post_processor": object("type", "BertProcessing", "cls", []any{"[CLS]", 99999}, "sep", []any{"[SEP]", 3})},
	} {
		if _, err := FromJSON("t", JSONSource{Tokenizer: jsonWordPieces(tokens, true, changes)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
