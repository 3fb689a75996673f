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
	raw, err := os.ReadFile("testdata/wordpiece.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Lowercase bool
		Tokens    []string
		Cases     []struct {
			Text string
			IDs  []int32
		}
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		tok := wordPieceOf(t, v.Tokens, v.Lowercase)
		for _, c := range v.Cases {
			if got := tok.Encode(nil, c.Text, EncodeOptions{}); !slices.Equal(got, c.IDs) {
				t.Errorf("lowercase %v, %q: got %v, want %v", v.Lowercase, c.Text, got, c.IDs)
			}
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
