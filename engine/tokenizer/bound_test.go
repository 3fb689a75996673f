package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TestTokensMinHoldsForEveryKind: texts of the longest tokens, of what NFC shortens
// most, of bytes that have no token, of spaces and specials.
func TestTokensMinHoldsForEveryKind(t *testing.T) {
	kinds := map[string]*Tokenizer{"bpe": smallBPE().must(t), "spm": smallSPM().must(t)}
	m := smallBPE()
	long := strings.Repeat(alphabetText("\u0390"), 8)
	tokens := append(slices.Clone(m[keyTokens].([]string)), long)
	kinds["nfc"] = m.with("pre", "qwen2").with("tokens", tokens).
		with("token_type", append(slices.Clone(m["tokenizer.ggml.token_type"].([]int32)), 4)).must(t)
	kinds["nfc"].kinds[len(tokens)-1] = kindNormal
	gaps := slices.Clone(m["tokenizer.ggml.token_type"].([]int32))
	gaps[3+'x'] = 3 // "x" is gone
	kinds["no byte"] = m.with("token_type", gaps).must(t)
	kinds["spm no byte"] = file{}.with("model", "llama").with("tokens", []string{"a"}).with("scores", []float32{0}).must(t)
	vocab := map[string]any{"a": 0, "?": 1, space: 2}
	for name, fuse := range map[string]bool{"char fuse": true, "char": false} {
		f := smallJSON(map[string]any{"added_tokens": nil, "decoder": nil, "pre_tokenizer": map[string]any{"type": "Metaspace", "replacement": space, "prepend_scheme": "never"},
			"model": map[string]any{"type": "BPE", "vocab": vocab, "unk_token": "?", "fuse_unk": fuse}})
		tok, err := FromJSON(name, JSONSource{Tokenizer: f})
		if err != nil {
			t.Fatal(err)
		}
		kinds[name] = tok
	}
	useful := 0
	rng := rand.New(rand.NewPCG(8, 9))
	for name, tok := range kinds {
		parts := []string{"a", " ", "x", "\u1fbe\u0308\u0301", "\u1100\u1161\u11a8", "🙂", "\xff", "<|end|>", "<think>", "\u2581"}
		longest := ""
		for id := range tok.Size() {
			if b := tok.Bytes(int32(id)); len(b) > len(longest) {
				longest = string(b)
			}
		}
		parts = append(parts, longest)
		for i := range 200 {
			part := parts[i%len(parts)]
			text := strings.Repeat(part, 50)
			if i >= len(parts) {
				text += parts[rng.IntN(len(parts))] + strings.Repeat(parts[rng.IntN(len(parts))], rng.IntN(60))
			}
			if least, n := tok.TokensMin(len(text)), len(tok.Encode(nil, text, EncodeOptions{ParseSpecial: true})); least > n {
				t.Errorf("%s: %d bytes of %+q are %d tokens, and TokensMin says %d", name, len(text), part, n, least)
			}
		}
		if tok.TokensMin(1<<20) > 0 {
			useful++
		}
	}
	if useful < 4 {
		t.Errorf("TokensMin says something of %d kinds", useful)
	}
}

// alphabetText is text in GPT-2's alphabet.
func alphabetText(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.WriteRune(byteAlphabet[text[i]])
	}
	return b.String()
}

// TestNFCShrinksNoMore tries, for every character, the longest text that is it in form C.
func TestNFCShrinksNoMore(t *testing.T) {
	// No character after U+2FFFF has a decomposition.
	longest := map[rune]int{} // by the last part of a decomposition
	for r := rune(0); r < 0x30000; r++ {
		if d := []rune(norm.NFD.String(string(r))); utf8.ValidRune(r) && len(d) == 1 {
			longest[d[0]] = max(longest[d[0]], utf8.RuneLen(r))
		}
	}
	worst := 0.0
	for r := rune(0); r < 0x30000; r++ {
		if c := string(r); utf8.ValidRune(r) && norm.NFC.IsNormalString(c) {
			n := 0
			for _, d := range norm.NFD.String(c) {
				n += longest[d]
			}
			worst = max(worst, float64(n)/float64(len(c)))
		}
	}
	if worst > nfcShrink || worst <= nfcShrink-1 {
		t.Errorf("form C makes texts %g times shorter, not up to %d", worst, nfcShrink)
	}
}

// TestMergeTable against a map, with pairs that repeat; of those the first counts.
func TestMergeTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		n := rng.IntN(2000)
		table, want := newMergeTable(n), map[[2]int32]merge{}
		for i := range n {
			pair := [2]int32{int32(rng.IntN(40)), int32(rng.IntN(40))}
			table.add(pair[0], pair[1], merge{int32(i), uint32(i)})
			if _, ok := want[pair]; !ok {
				want[pair] = merge{int32(i), uint32(i)}
			}
		}
		for l := range int32(41) {
			for r := range int32(41) {
				got, ok := table.find(l, r)
				if m, is := want[[2]int32{l, r}]; ok != is || ok && got != m {
					t.Fatalf("%d, %d: got %v %v, want %v %v", l, r, got, ok, m, is)
				}
			}
		}
	}
}
