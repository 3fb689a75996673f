package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
)

func TestMergesThatAreMissingAreRefused(t *testing.T) {
	for what, m := range map[string]file{"is missing": smallBPE().with("merges", nil), "is empty": smallBPE().with("merges", []string{})} {
		if _, err := m.tokenizer(t); err == nil || !strings.Contains(err.Error(), "small.gguf: key tokenizer.ggml.merges "+what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Control strings that the file calls normal text, or of which it says nothing, are
// control tokens, and the operator is told.
func TestControlStringsCalledNormal(t *testing.T) {
	m := smallBPE()
	tokens := append(slices.Clone(m[keyTokens].([]string)), "<|im_start|>", "<|x y|>", "<||>", "<div>")
	normal := make([]int32, len(tokens))
	for i := range normal {
		normal[i] = 1
	}
	for name, m := range map[string]file{
		"called normal": m.with("tokens", tokens).with("token_type", normal),
		"no types":      m.with("tokens", tokens).with("token_type", nil),
	} {
		tok := m.must(t)
		if d := tok.Doubts(); len(d) != 1 || !strings.Contains(d[0], `calls 3 control strings normal text (the first is token 0, "<|s|>")`) {
			t.Errorf("%s: %q", name, d)
		}
		for text, control := range map[string]bool{"<|s|>": true, "<|end|>": true, "<|im_start|>": true, "<|x y|>": false, "<||>": false, "<div>": false, "<think>": false} {
			id := int32(slices.Index(tokens, text))
			if tok.IsControl(id) != control {
				t.Errorf("%s: %s is a control token: %v, want %v", name, text, !control, control)
			}
			ids := tok.Encode(nil, text, EncodeOptions{ParseSpecial: true})
			if (len(ids) == 1 && ids[0] == id) != control {
				t.Errorf("%s: a template's %s becomes %v", name, text, ids)
			}
			if ids := tok.Encode(nil, text, EncodeOptions{}); slices.Contains(ids, id) {
				t.Errorf("%s: a user's %s becomes %v", name, text, ids)
			}
		}
		if !tok.IsEnd(1) {
			t.Errorf("%s: <|end|> does not end an answer", name)
		}
	}
}

func TestDoubts(t *testing.T) {
	for _, m := range []file{smallBPE(), smallSPM()} {
		if d := m.must(t).Doubts(); len(d) > 0 {
			t.Errorf("a whole file: %q", d)
		}
	}
	bpe, spm := smallBPE(), smallSPM()
	tokens, kinds := slices.Clone(bpe[keyTokens].([]string)), slices.Clone(bpe["tokenizer.ggml.token_type"].([]int32))
	tokens[1] = "<|other|>"
	holes := slices.Clone(bpe[keyTokens].([]string))
	holes[3+'q'], holes[3+0xff] = "<|hole1|>", "<|hole2|>" // no character has the byte 0xFF
	holeKinds := slices.Clone(kinds)
	holeKinds[3+'q'], holeKinds[3+0xff] = 5, 5
	flat := make([]float32, len(spm["tokenizer.ggml.scores"].([]float32)))
	for want, m := range map[string]file{
		"no token ends an answer": bpe.with("tokens", tokens).with("token_type", kinds).with("eos_token_id", nil),
		"1 bytes have no token":   bpe.with("tokens", holes).with("token_type", holeKinds),
		"the same score":          spm.with("scores", flat),
	} {
		if d := m.must(t).Doubts(); len(d) != 1 || !strings.Contains(d[0], want) {
			t.Errorf("%q, want %q", d, want)
		}
	}
}

// FuzzParts leaves out and contradicts parts of a tokenizer: it is refused, or what it
// makes of a text is sound.
func FuzzParts(f *testing.F) {
	for drop := range uint16(10) {
		f.Add(drop%2 == 0, uint16(1)<<drop, int32(drop), "ab <|end|> é\xff")
	}
	f.Fuzz(func(t *testing.T, spm bool, drop uint16, n int32, text string) {
		m := smallBPE()
		if spm {
			m = smallSPM()
		}
		kinds := slices.Clone(m["tokenizer.ggml.token_type"].([]int32))
		kinds[uint32(n)%uint32(len(kinds))] = n%8 + 1
		m = m.with("token_type", kinds)
		for i, key := range []string{"token_type", "merges", "scores", "bos_token_id", "eos_token_id", "unknown_token_id", "pre", "tokens", "model"} {
			if drop>>i&1 == 1 {
				m = m.with(key, nil)
			}
		}
		if drop>>9&1 == 1 {
			m = m.with("eos_token_id", uint32(n))
		}
		b := &gguftest.Builder{}
		for k, v := range m {
			b.Set(k, v)
		}
		parsed, err := gguf.Parse("small.gguf", b.Bytes())
		if err != nil {
			t.Skip()
		}
		tok, err := FromGGUF(parsed)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "small.gguf: ") || !strings.Contains(err.Error(), "tokenizer.ggml.") {
				t.Errorf("the error names no key: %v", err)
			}
			return
		}
		for _, id := range tok.Encode(nil, text, EncodeOptions{AddSpecial: true, ParseSpecial: true}) {
			if !tok.valid(id) {
				t.Errorf("token %d of %d", id, tok.Size())
			}
		}
	})
}
