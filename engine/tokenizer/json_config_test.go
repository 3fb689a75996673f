package tokenizer

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// TestTokensWithARoleAreControl: tokenizer.json calls them plain, what lies beside says more.
func TestTokensWithARoleAreControl(t *testing.T) {
	add := []any{
		map[string]any{"id": 258, "content": "<|im_end|>", "special": false}, map[string]any{"id": 259, "content": "<turn>", "special": false},
		map[string]any{"id": 260, "content": "<both>", "special": false}, map[string]any{"id": 261, "content": "<tool>", "special": false},
	}
	config := `{"bos_token": "!", "eos_token": {"content": "<turn>"}, "added_tokens_decoder": {
		"260": {"content": "<both>", "special": true}, "262": {"content": "<new>", "special": true}, "263": {"content": "<plain>"}}}`
	tok, err := FromJSON("f", JSONSource{Tokenizer: smallJSON(map[string]any{"added_tokens": add}), Config: []byte(config)})
	if err != nil {
		t.Fatal(err)
	}
	for text, id := range map[string]int32{"<|im_end|>": 258, "<turn>": 259, "<both>": 260, "<new>": 262} {
		if ids := tok.Encode(nil, text, EncodeOptions{}); slices.ContainsFunc(ids, tok.IsControl) || tok.Decode(ids) != text {
			t.Errorf("%s as text: %v", text, ids)
		}
		if ids := tok.Encode(nil, text, EncodeOptions{ParseSpecial: true}); !slices.Equal(ids, []int32{id}) || !tok.IsControl(id) {
			t.Errorf("%s as control: %v", text, ids)
		}
	}
	if ids := tok.Encode(nil, "<plain>!", EncodeOptions{}); !slices.Equal(ids, []int32{263, '!'}) || tok.Decode(ids) != "<plain>!" {
		t.Errorf("plain tokens: %v", ids)
	}
	for want, config := range map[string]string{
		`"x" is no id`:                           `{"added_tokens_decoder": {"x": {"content": "<new>"}}}`,
		`"<new>" has the id 65 of another token`: `{"added_tokens_decoder": {"65": {"content": "<new>"}}}`,
	} {
		if _, err := FromJSON("f", JSONSource{Tokenizer: smallJSON(nil), Config: []byte(config)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestSplitTrailingIsLinear counts nothing but would not end in a test's time.
func TestSplitTrailingIsLinear(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
	}{{strings.Repeat(" ", 1<<22) + "1", 1<<22 + 1}, {" \n  a \n", 1}, {"\na", 2}, {"a  ", 1}, {" \t", 2}} {
		if n := splitTrailing(c.text); n != c.want {
			t.Errorf("%.8q: %d, want %d", c.text, n, c.want)
		}
	}
}

// TestCharacterBPEStops: a piece of character BPE is a whole text.
func TestCharacterBPEStops(t *testing.T) {
	file := smallJSON(map[string]any{"pre_tokenizer": map[string]any{"type": "Metaspace", "replacement": space, "split": false, "prepend_scheme": "never"}, "decoder": nil})
	tok, err := FromJSON("f", JSONSource{Tokenizer: file})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	text := strings.Repeat("he he ", 1<<18)
	ids := tok.encoder.encode(nil, text, &scratch{ctx: ctx})
	if len(ids) > len(text)/8 {
		t.Errorf("%d tokens of %d bytes after the end", len(ids), len(text))
	}
}
