package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/gguf"
	"golang.org/x/text/unicode/norm"
)

// wordPiece is the tokenizer of BERT (Devlin et al., NAACL 2019): text is cleaned, cut
// into words and punctuation, and each word into the longest tokens from its beginning.
// A word without such tokens becomes the unknown token.
type wordPiece struct {
	starts    map[string]int32 // tokens that begin a word
	others    map[string]int32 // tokens that go on with one
	startMost int              // bytes of the longest of each
	otherMost int
	unknown   int32
	lowercase bool // and without accents
}

// wordRunesMax is the length from which on a word is unknown as a whole.
const wordRunesMax = 100

// readWordPiece sets up the encoder and returns the text of each token. In GGUF files
// U+2581 stands before the tokens that begin a word.
func (t *Tokenizer) readWordPiece(f *gguf.File) (texts []string, err error) {
	w := &wordPiece{starts: map[string]int32{}, others: map[string]int32{}}
	if w.unknown, err = t.readID(f, "unknown"); err != nil {
		return nil, err
	}
	if w.unknown == none {
		return nil, fmt.Errorf("%s: key tokenizer.ggml.unknown_token_id is missing; a word without tokens needs it", f.Name())
	}
	lowercase, ok, err := f.Bool("tokenizer.ggml.normalizer.lowercase")
	if err != nil {
		return nil, err
	}
	w.lowercase = lowercase || !ok
	t.addBOS, t.addEOS = true, true
	return t.setWordPiece(w, func(text string) (string, bool) { return strings.CutPrefix(text, space) }), nil
}

// continues stands in tokenizer.json before the tokens that go on with a word.
const continues = "##"

// jsonWordPiece does the same for tokenizer.json.
func (t *Tokenizer) jsonWordPiece(m *jsonModel, p *pipeline) ([]string, error) {
	unknown, ok := t.ids[m.UnkToken]
	if !ok {
		return nil, fmt.Errorf("model: unk_token %.60q is no token; a word without tokens needs one", m.UnkToken)
	}
	w := &wordPiece{starts: map[string]int32{}, others: map[string]int32{}, unknown: unknown, lowercase: p.lowercase}
	return t.setWordPiece(w, func(text string) (string, bool) {
		other, is := strings.CutPrefix(text, continues)
		return other, !is
	}), nil
}

// setWordPiece sorts the tokens by cut, which returns a token's text and whether it begins a word, and
// returns the text of each.
func (t *Tokenizer) setWordPiece(w *wordPiece, cut func(text string) (string, bool)) []string {
	texts := make([]string, len(t.texts))
	for id, whole := range t.texts {
		if t.isControl(int32(id)) {
			continue
		}
		if text, starts := cut(whole); starts {
			texts[id] = " " + text
			w.starts[text] = int32(id)
			w.startMost = max(w.startMost, len(text))
		} else {
			texts[id] = text
			w.others[text] = int32(id)
			w.otherMost = max(w.otherMost, len(text))
		}
	}
	t.strip, t.encoder = true, w
	return texts
}

// encode implements encoder.
func (w *wordPiece) encode(dst []int32, text string, s *scratch) []int32 {
	text = w.clean(text)
	for text != "" && !s.stopped(len(text)/16) {
		at := strings.IndexFunc(text, func(r rune) bool { return r != ' ' })
		if at < 0 {
			break
		}
		text = text[at:]
		n := wordLength(text)
		dst = w.word(dst, text[:n])
		text = text[n:]
	}
	return dst
}

// wordLength is the length of the word, or the punctuation mark, that text begins with.
func wordLength(text string) int {
	for i, r := range text {
		switch {
		case r == ' ' || stands(r) && i > 0:
			return i
		case stands(r):
			return utf8.RuneLen(r)
		}
	}
	return len(text)
}

// stands reports whether a character is a word of its own.
func stands(r rune) bool {
	return r < 0x80 && (r >= '!' && r <= '/' || r >= ':' && r <= '@' || r >= '[' && r <= '`' || r >= '{' && r <= '~') ||
		unicode.Is(unicode.P, r) || isIdeograph(r)
}

// ideographs are the blocks that BERT takes for Chinese.
var ideographs = [...][2]rune{
	{0x4E00, 0x9FFF}, {0x3400, 0x4DBF}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF}, {0x2F800, 0x2FA1F},
}

func isIdeograph(r rune) bool {
	for _, block := range ideographs {
		if block[0] <= r && r <= block[1] {
			return true
		}
	}
	return false
}

// clean makes white space a space, drops control characters and what is not text, and
// takes accents and capitals away where the model does not know them.
func (w *wordPiece) clean(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range text {
		switch {
		case r == '\t' || r == '\n' || r == '\r' || unicode.IsSpace(r):
			b.WriteByte(' ')
		case r == 0 || r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
		default:
			b.WriteRune(r)
		}
	}
	if !w.lowercase {
		return b.String()
	}
	cleaned := norm.NFD.String(b.String())
	b.Reset()
	for _, r := range cleaned {
		if !unicode.Is(unicode.Mn, r) {
			b.WriteString(lowered(r))
		}
	}
	return b.String()
}

// lowered is a character in lower case. One character has two: U+0130.
func lowered(r rune) string {
	if r == 'İ' {
		return "i̇"
	}
	return string(unicode.ToLower(r))
}

// word appends the tokens of a word.
func (w *wordPiece) word(dst []int32, word string) []int32 {
	if utf8.RuneCountInString(word) > wordRunesMax {
		return append(dst, w.unknown)
	}
	begun, tokens, most := len(dst), w.starts, w.startMost
	for word != "" {
		n := min(len(word), most)
		id, ok := tokens[word[:n]]
		for ; !ok && n > 1; id, ok = tokens[word[:n]] {
			n--
		}
		if !ok {
			return append(dst[:begun], w.unknown)
		}
		dst = append(dst, id)
		word, tokens, most = word[n:], w.others, w.otherMost
	}
	return dst
}
