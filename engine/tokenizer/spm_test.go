package tokenizer

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestSPMSpaces(t *testing.T) {
	tok := smallSPM().must(t)
	for _, c := range []struct{ text, want string }{
		{"a", "▁a"}, {" a", "▁▁ a"}, {"a b", "▁a ▁ b"}, {"é", "▁ é"}, {"ö", "▁ <0xC3> <0xB6>"},
		{"</s>a", "</s> ▁a"}, {"a</s></s> a", "▁a </s> </s> ▁▁ a"},
	} {
		var got []string
		for _, id := range tok.Encode(nil, c.text, EncodeOptions{ParseSpecial: true}) {
			got = append(got, tok.Text(id))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
	if got := smallSPM().with("add_space_prefix", false).must(t).Encode(nil, "a", EncodeOptions{}); len(got) != 1 || tok.Text(got[0]) != "a" {
		t.Errorf("without the prefix: %v", got)
	}
	if got := tok.Encode(nil, "", EncodeOptions{AddSpecial: true}); !slices.Equal(got, []int32{1}) {
		t.Errorf("an empty text: %v", got)
	}
	if got := tok.Decode(tok.Encode(nil, " a  b ", EncodeOptions{AddSpecial: true})); got != " a  b " {
		t.Errorf("decoded %q", got)
	}
}

func TestGemma4MergesCharactersWithinLines(t *testing.T) {
	m := smallSPM().with("scores", nil).with("model", "gemma4")
	tokens := append(slices.Clone(m[keyTokens].([]string)), "\n", "\n\n", "\na", "a▁b")
	kinds := append(slices.Clone(m["tokenizer.ggml.token_type"].([]int32)), 1, 1, 1, 1)
	tok := m.with("tokens", tokens).with("token_type", kinds).
		with("merges", []string{"a b", "▁ a", "\n \n", "\n a", "b c"}).must(t)
	for text, want := range map[string][]string{
		"abc a": {"<s>", "ab", "c", "▁a"}, "a\n\na": {"<s>", "a", "\n\n", "a"}, "ö": {"<s>", "<0xC3>", "<0xB6>"},
	} {
		var got []string
		for _, id := range tok.Encode(nil, text, EncodeOptions{AddSpecial: true}) {
			got = append(got, tok.Text(id))
		}
		if !slices.Equal(got, want) || tok.Decode(tok.Encode(nil, text, EncodeOptions{})) != text {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLongestSpecialWins(t *testing.T) {
	m := smallBPE()
	tokens := append(slices.Clone(m[keyTokens].([]string)), "<|end|>>", "<|e")
	kinds := append(slices.Clone(m["tokenizer.ggml.token_type"].([]int32)), 3, 3)
	tok := m.with("tokens", tokens).with("token_type", kinds).must(t)
	n := int32(len(tokens))
	for text, want := range map[string][]int32{"<|end|>>": {n - 2}, "<|end|><|e": {1, n - 1}} {
		if got := tok.Encode(nil, text, EncodeOptions{ParseSpecial: true}); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

func TestSPMAcrossWordsAndEqualScores(t *testing.T) {
	m := smallSPM()
	tokens := append(slices.Clone(m[keyTokens].([]string)), "c▁", "c▁c", "x", "y", "z", "xy", "yz")
	kinds := append(slices.Clone(m["tokenizer.ggml.token_type"].([]int32)), 1, 1, 1, 1, 1, 1, 1)
	scores := append(slices.Clone(m["tokenizer.ggml.scores"].([]float32)), 9, 9, -5, -5, -5, float32(math.Copysign(0, -1)), 0)
	tok := m.with("tokens", tokens).with("token_type", kinds).with("scores", scores).with("add_space_prefix", false).must(t)
	for text, want := range map[string][]string{"c c": {"c▁c"}, "xyz": {"xy", "z"}} {
		var got []string
		for _, id := range tok.Encode(nil, text, EncodeOptions{}) {
			got = append(got, tok.Text(id))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
