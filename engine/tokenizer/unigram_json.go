package tokenizer

import (
	"errors"
	"fmt"
)

const typeUnigram = "Unigram"

// unigramParts are what tokenizer.json has around a unigram model.
type unigramParts struct {
	chars    *charsmap
	words    bool // WhitespaceSplit
	stripEnd bool
	joined   bool // several spaces count as one
}

// twoSpaces is the pattern by which converters join spaces.
const twoSpaces = " {2,}"

// normalizer reads a component of a unigram model's; ok is false for one that others have too.
func (u *unigramParts) normalizer(c *component) (ok bool, err error) {
	switch {
	case c.Type == "Precompiled":
		if u.chars != nil {
			return true, errors.New("component Precompiled is there twice")
		}
		u.chars, err = newCharsmap(c.Charsmap)
		return true, err
	case c.Type == "Strip" && c.StripRight:
		u.stripEnd = true // the beginning makes no difference, since words are cut at spaces
		return true, nil
	case c.Type == "Replace" && c.Pattern.Regex != nil && *c.Pattern.Regex == twoSpaces && (c.Content == " " || c.Content == space):
		u.joined = true
		return true, nil
	}
	return false, nil
}

// jsonUnigram sets up the encoder.
func (t *Tokenizer) jsonUnigram(m *jsonModel, p *pipeline) ([]string, error) {
	parts := p.unigram
	switch {
	case m.ByteFallback:
		return nil, errors.New("model: byte_fallback is true, which is not supported in a model of type Unigram")
	case !p.spaces || p.byteLevel || p.words || p.prefix != prefix{everywhere: true, unlessSpace: true}:
		return nil, errors.New("pre_tokenizer: a model of type Unigram is supported with Metaspace that puts a space before every word, and nothing else")
	case !parts.words && !parts.joined:
		return nil, fmt.Errorf("a model of type Unigram is supported with WhitespaceSplit, or with spaces joined by Replace of %q", twoSpaces)
	case m.UnkID == nil:
		return nil, errors.New("model: unk_id is missing; characters without a token need it")
	}
	u := &unigram{chars: parts.chars, unknown: *m.UnkID, spaces: !parts.words, stripEnd: parts.stripEnd}
	t.prefix = prefix{} // every word has one
	t.scores = make([]float32, len(t.texts))
	for i, e := range m.Vocab {
		t.scores[e.id] = m.Scores[i]
	}
	return t.setUnigram(u)
}
