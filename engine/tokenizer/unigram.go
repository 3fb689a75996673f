package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/gguf"
)

// unigram is SentencePiece's unigram model (Kudo, ACL 2018): text is normalised and cut into words at spaces, and
// each word into the tokens whose scores have the largest sum. A character without a token counts as one that
// is worse than all; several of them side by side become one unknown token.
type unigram struct {
	chars    *charsmap // nil: text stays as it is
	tokens   map[string]scored
	lengths  []int // of tokens in bytes, ascending
	unknown  int32
	worst    float64 // the score of a character without a token
	spaces   bool    // words are cut at spaces alone, of which several are one, not at all white space
	stripEnd bool    // the text is cut off before white space at its end
}

type scored struct {
	id    int32
	score float64
}

// unknownPenalty is how much worse than the worst token an unknown character is.
const unknownPenalty = 10

// unigramBytesMax is the length of the longest token that is looked for, so that work stays linear.
const unigramBytesMax = 512

// setUnigram sets up the encoder and returns the text of each token.
func (t *Tokenizer) setUnigram(u *unigram) ([]string, error) {
	if len(t.scores) != len(t.texts) {
		return nil, fmt.Errorf("the vocabulary has %d scores for %d tokens", len(t.scores), len(t.texts))
	}
	if u.unknown < 0 || int(u.unknown) >= len(t.texts) {
		return nil, errors.New("the vocabulary names no unknown token, which characters without a token need")
	}
	texts, seen := make([]string, len(t.texts)), map[int]bool{}
	u.tokens, u.worst = make(map[string]scored, len(t.texts)), math.Inf(1)
	for id, text := range t.texts {
		if t.isControl(int32(id)) || int32(id) == u.unknown || t.kinds[id] == kindUnused || text == "" {
			continue
		}
		if len(text) > unigramBytesMax {
			return nil, fmt.Errorf("token %d has %d bytes; allowed are %d", id, len(text), unigramBytesMax)
		}
		if score := float64(t.scores[id]); t.kinds[id] == kindNormal {
			u.tokens[text] = scored{int32(id), score}
			u.worst = min(u.worst, score)
		}
		seen[len(text)] = true
		texts[id] = strings.ReplaceAll(text, space, " ")
	}
	if len(u.tokens) == 0 || math.IsInf(u.worst, 0) {
		return nil, errors.New("the vocabulary has no tokens with finite scores")
	}
	u.worst -= unknownPenalty
	for n := range seen {
		u.lengths = append(u.lengths, n)
	}
	slices.Sort(u.lengths)
	t.strip, t.encoder = true, u
	return texts, nil
}

// readUnigram reads a GGUF file's.
func (t *Tokenizer) readUnigram(f *gguf.File) ([]string, error) {
	u := &unigram{}
	var err error
	if u.unknown, err = t.readID(f, "unknown"); err != nil {
		return nil, err
	}
	for key, want := range map[string]bool{"add_space_prefix": true, "remove_extra_whitespaces": true} {
		if is, ok, err := f.Bool("tokenizer.ggml." + key); err != nil {
			return nil, err
		} else if ok && is != want {
			return nil, fmt.Errorf("%s: key tokenizer.ggml.%s: is %v; only %v is supported in a unigram model", f.Name(), key, is, want)
		}
	}
	const key = "tokenizer.ggml.precompiled_charsmap"
	if f.Count(key) > 0 {
		raw, _, err := f.Ints(key)
		if err != nil {
			return nil, err
		}
		blob := make([]byte, len(raw))
		for i, x := range raw {
			blob[i] = byte(x)
		}
		if u.chars, err = newCharsmap(blob); err != nil {
			return nil, fmt.Errorf("%s: key %s: %w", f.Name(), key, err)
		}
	}
	t.addBOS, t.addEOS = true, true
	texts, err := t.setUnigram(u)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return texts, nil
}

// encode implements encoder.
func (u *unigram) encode(dst []int32, text string, s *scratch) []int32 {
	if u.chars != nil {
		text = u.chars.normalize(text)
	}
	if u.spaces {
		if u.stripEnd {
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		}
		return u.words(dst, joinSpaces(text), s)
	}
	for part := range strings.FieldsFuncSeq(text, unicode.IsSpace) {
		dst = u.words(dst, part, s)
	}
	return dst
}

// joinSpaces replaces several spaces by one.
func joinSpaces(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for i := range len(text) {
		if text[i] != ' ' || i == 0 || text[i-1] != ' ' {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// words appends the tokens of the words that text has between its spaces, of which the first one is implied.
// U+2581 counts as a space.
func (u *unigram) words(dst []int32, text string, s *scratch) []int32 {
	if text == "" {
		return dst
	}
	if text = strings.ReplaceAll(text, " ", space); !strings.HasPrefix(text, space) {
		text = space + text
	}
	for text != "" {
		end := strings.Index(text[len(space):], space) + len(space)
		if end < len(space) {
			end = len(text)
		}
		if s.stopped(end) {
			break
		}
		dst, text = u.word(dst, text[:end], s), text[end:]
	}
	return dst
}

// step is the best way to a position of a word: its last token, and where that begins.
type step struct {
	sum  float64
	from int32
	id   int32
}

// word appends the tokens with the best sum. Of equal sums the one whose last token begins first wins.
func (u *unigram) word(dst []int32, word string, s *scratch) []int32 {
	steps := append(s.steps[:0], step{})
	for range len(word) {
		steps = append(steps, step{sum: math.Inf(-1)})
	}
	offer := func(from, to int, sum float64, id int32) {
		if sum > steps[to].sum {
			steps[to] = step{sum, int32(from), id}
		}
	}
	for at := 0; at < len(word); {
		_, char := utf8.DecodeRuneInString(word[at:])
		known := false
		for _, n := range u.lengths {
			if at+n > len(word) {
				break
			}
			if t, ok := u.tokens[word[at:at+n]]; ok {
				offer(at, at+n, steps[at].sum+t.score, t.id)
				known = known || n == char
			}
		}
		if !known {
			offer(at, at+char, steps[at].sum+u.worst, u.unknown)
		}
		at += char
	}
	begun := len(dst)
	for at := len(word); at > 0; at = int(steps[at].from) {
		if id := steps[at].id; id != u.unknown || len(dst) == begun || dst[len(dst)-1] != id {
			dst = append(dst, id)
		}
	}
	slices.Reverse(dst[begun:])
	if s.steps = steps; cap(steps) > scratchSymbolsMax {
		s.steps = nil
	}
	return dst
}
