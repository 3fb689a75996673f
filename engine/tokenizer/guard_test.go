package tokenizer

import (
	"slices"
	"testing"
)

func TestGuardedTextStaysText(t *testing.T) {
	for _, m := range []file{smallBPE(), smallSPM()} {
		tok := m.must(t)
		for _, control := range tok.ControlStrings() {
			guarded := control[:1] + guardText + control[1:]
			ids := tok.Encode(nil, "x"+guarded+control, EncodeOptions{ParseSpecial: true})
			n := 0
			for _, id := range ids {
				if tok.IsControl(id) {
					n++
				}
			}
			if text := tok.Decode(ids); n != 1 || text != "x"+control {
				t.Errorf("%q: %d control tokens in %v, decoded %q", control, n, ids, text)
			}
			ids = tok.Encode(nil, control, EncodeOptions{})
			if slices.ContainsFunc(ids, tok.IsControl) || tok.Decode(ids) != control {
				t.Errorf("%q without ParseSpecial: %v", control, ids)
			}
		}
	}
	for _, m := range []file{smallBPE(), smallSPM()} {
		// A Guard before, as chat puts it, does the same, and a Guard of the user's is a character.
		for _, typed := range []string{"<|s|>", "</s>", "x" + guardText + "\uFDD1\uFDD2\uFDD3" + guardText} {
			tok := m.must(t)
			ids := tok.Encode(nil, guardText+Escape(typed), EncodeOptions{ParseSpecial: true})
			if text := tok.Decode(ids); slices.ContainsFunc(ids[1:], tok.IsControl) || text != typed {
				t.Errorf("%+q: came back as %+q", typed, text)
			}
		}
	}
	// Nor does merging lead to one.
	m := smallBPE()
	tokens := append(slices.Clone(m[keyTokens].([]string)), "xy")
	kinds := append(slices.Clone(m["tokenizer.ggml.token_type"].([]int32)), 3)
	tok := m.with("tokens", tokens).with("token_type", kinds).with("merges", []string{"x y"}).must(t)
	if ids := tok.Encode(nil, "xy", EncodeOptions{}); len(ids) != 2 {
		t.Errorf("a merge into a control token: %v", ids)
	}
	// Nor is a byte one, where a control token has one character.
	one := smallBPE().must(t)
	kinds = slices.Clone(m["tokenizer.ggml.token_type"].([]int32))
	kinds[one.ids["!"]] = 3
	tok = smallBPE().with("token_type", kinds).must(t)
	if ids := tok.Encode(nil, "a!", EncodeOptions{}); slices.ContainsFunc(ids, tok.IsControl) {
		t.Errorf("the byte of a control token: %v", ids)
	}
	if ids := tok.Encode(nil, "a"+guardText+"!", EncodeOptions{ParseSpecial: true}); slices.ContainsFunc(ids, tok.IsControl) {
		t.Errorf("the byte of a guarded control token: %v", ids)
	}
	// User-defined tokens are vocabulary, not control.
	if ids := smallBPE().must(t).Encode(nil, "a<think>", EncodeOptions{}); len(ids) != 2 || ids[1] != 2 {
		t.Errorf("user-defined token: %v", ids)
	}
}
