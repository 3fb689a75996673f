package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/gguf"
)

// charBPE is BPE over characters: spaces become U+2581, text begins as characters,
// and neighbours are merged in the order of the merges in the file. A character
// without a token becomes the tokens of its bytes. SentencePiece tokenizers have
// this form in tokenizer.json.
type charBPE struct {
	pretokenizer
	chars   map[string]int32
	merges  mergeTable
	words   map[string]int32 // by text; only with ignoreMerges
	byteIDs [256]int32
	unknown int32 // for characters without tokens for their bytes; none drops them
	fuse    bool  // several unknowns in a row become one
	spaces  bool  // a space is U+2581
	// whole means that a piece cannot be cut further: it may be one token without
	// merges, or fuse its unknown characters.
	whole bool
	joints
}

// readGemma4 sets up gemma 4's encoder, whose words are lines, and returns the text
// of each token.
func (t *Tokenizer) readGemma4(f *gguf.File) (texts []string, err error) {
	c := &charBPE{pretokenizer: pretokenizer{splitters: []splitter{splitNewlines}}, spaces: true}
	if c.unknown, err = t.readID(f, "unknown"); err != nil {
		return nil, err
	}
	t.addBOS = true
	merges, err := t.readMerges(f)
	if err != nil {
		return nil, err
	}
	if texts, err = t.setCharBPE(c, merges); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return texts, nil
}

// setCharBPE makes c the encoder and returns the text of each token.
func (t *Tokenizer) setCharBPE(c *charBPE, list []mergeParts) (texts []string, err error) {
	merges := make(chan error, 1)
	go func() { merges <- c.merges.read(list, &t.vocabulary, &c.joints) }()
	c.chars, texts = map[string]int32{}, make([]string, len(t.texts))
	if c.ignoreMerges {
		c.words = make(map[string]int32, len(t.texts))
	}
	for i := range c.byteIDs {
		c.byteIDs[i] = none
	}
	for i, text := range t.texts {
		id := int32(i)
		switch {
		case t.isControl(id):
			continue
		case t.kinds[id] == kindByte:
			b, ok := parseByte(text)
			if !ok {
				return nil, notByte(i, text)
			}
			c.byteIDs[b] = id
			texts[id] = string([]byte{b})
			continue
		}
		texts[id] = text
		if c.spaces {
			texts[id] = strings.ReplaceAll(text, space, " ")
		}
		if t.ids[text] != id {
			continue
		}
		if utf8.RuneCountInString(text) == 1 {
			c.chars[text] = id
		}
		if c.ignoreMerges {
			c.words[text] = id
		}
	}
	c.whole = c.ignoreMerges || c.fuse && slices.Contains(c.byteIDs[:], none)
	t.encoder = c
	return texts, <-merges
}

func (c *charBPE) pair(_ *scratch, left, right *symbol) (int32, uint32, bool) {
	if left.id == none || right.id == none {
		return none, 0, false
	}
	m, ok := c.merges.find(left.id, right.id)
	return m.id, m.rank, ok
}

func (c *charBPE) encode(dst []int32, text string, s *scratch) []int32 {
	if c.nfc {
		text = nfc(text)
	}
	return cut(dst, text, c.splitters, s, c.piece)
}

// piece encodes one piece that the splitters cut.
func (c *charBPE) piece(dst []int32, text string, s *scratch) []int32 {
	for text != "" && !s.stopped(len(text)/16) {
		n := len(text)
		if !c.whole {
			n = c.word(text)
		}
		dst = s.cached(dst, text[:n], c)
		text = text[n:]
	}
	return dst
}

// splitBeforeSpaces cuts before every space.
func splitBeforeSpaces(text string) int {
	for i, r := range text {
		if i > 0 && (r == ' ' || string(r) == space) {
			return i
		}
	}
	return len(text)
}

func (c *charBPE) merged(dst []int32, word string, s *scratch) []int32 {
	s.text = s.text[:0]
	s.symbols = slices.Grow(s.symbols[:0], len(word))
	for len(word) > 0 {
		_, size := utf8.DecodeRuneInString(word)
		start, at := int32(len(s.text)), int32(len(s.symbols))
		if word[0] == ' ' && c.spaces {
			s.text = append(s.text, space...)
		} else {
			s.text = append(s.text, word[:size]...)
		}
		id, ok := c.chars[string(s.text[start:])]
		if !ok {
			id = none
		}
		s.symbols = append(s.symbols, symbol{id, start, int32(len(s.text)), at - 1, at + 1})
		word = word[size:]
	}
	if id, ok := c.words[string(s.text)]; ok {
		return append(dst, id)
	}
	s.symbols[len(s.symbols)-1].next = -1
	s.merge(c)
	from := len(dst)
	for i := int32(0); i >= 0; i = s.symbols[i].next {
		sym := s.symbols[i]
		if sym.id != none {
			dst = append(dst, sym.id)
			continue
		}
		dst = c.fallBack(dst, from, s.text[sym.start:sym.end])
	}
	return dst
}

// fallBack appends the tokens of a character's bytes, or the unknown token.
func (c *charBPE) fallBack(dst []int32, from int, char []byte) []int32 {
	n := len(dst)
	for _, b := range char {
		if c.byteIDs[b] == none {
			dst = dst[:n]
			if c.unknown != none && !(c.fuse && n > from && dst[n-1] == c.unknown) {
				dst = append(dst, c.unknown)
			}
			return dst
		}
		dst = append(dst, c.byteIDs[b])
	}
	return dst
}
