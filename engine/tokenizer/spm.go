package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/gguf"
)

// spm is SentencePiece BPE: spaces become U+2581, text begins as characters, and
// the neighbours that form the token with the highest score are merged first. A
// character without a token becomes the tokens of its bytes.
type spm struct {
	ids        map[string]int32 // tokens that text can become
	priorities []uint32         // by id: the highest score is 0
	byteIDs    [256]int32
	joints
}

// joints has a bit for each pair of bytes at which two characters meet inside a
// token. No merge crosses any other border, so a text can be cut at all other
// borders and its parts encoded one by one.
type joints [256][4]uint64

// note marks a border inside a token.
func (j *joints) note(last, first byte) { j[last][first>>6] |= 1 << (first & 63) }

// word returns the length of text up to the first border that no token crosses.
// Spaces in text count as U+2581.
func (j *joints) word(text string) int {
	for i := 1; i < len(text); i++ {
		last, first := text[i-1], text[i]
		if last == ' ' {
			last = space[len(space)-1]
		}
		if first == ' ' {
			first = space[0]
		}
		if utf8.RuneStart(first) && j[last][first>>6]>>(first&63)&1 == 0 {
			return i
		}
	}
	return len(text)
}

const space = "\u2581"

// readSPM sets up the encoder and returns the bytes of each token.
func (t *Tokenizer) readSPM(f *gguf.File) (bytes []string, err error) {
	spaced, ok, err := f.Bool("tokenizer.ggml.add_space_prefix")
	if err != nil {
		return nil, err
	}
	if spaced || !ok {
		t.prefix, t.strip = prefix{everywhere: true}, true
	}
	t.addBOS = true
	if _, ok, err = f.Uint("tokenizer.ggml.bos_token_id"); err != nil {
		return nil, err
	} else if !ok {
		t.addBOS = false
	}
	unknown, err := t.readID(f, "unknown")
	if err != nil {
		return nil, err
	}
	m := &spm{ids: make(map[string]int32, len(t.texts)), priorities: make([]uint32, len(t.texts))}
	for c := range m.byteIDs {
		m.byteIDs[c] = unknown
	}
	bytes = make([]string, len(t.texts))
	for id, text := range t.texts {
		switch {
		case t.isControl(int32(id)):
			continue
		case t.kinds[id] == kindByte:
			c, ok := parseByte(text)
			if !ok {
				return nil, fmt.Errorf("%s: key %s: %w", f.Name(), keyTokens, notByte(id, text))
			}
			m.byteIDs[c] = int32(id)
			bytes[id] = string([]byte{c})
			continue
		}
		bytes[id] = strings.ReplaceAll(text, space, " ")
		m.priorities[id] = descending(t.scores[id])
		if t.ids[text] == int32(id) {
			m.ids[text] = int32(id)
		}
		for i := range text {
			if i > 0 {
				m.note(text[i-1], text[i])
			}
		}
	}
	t.encoder = m
	return bytes, nil
}

// parseByte reads a byte token's text, <0xNN>.
func parseByte(text string) (c byte, ok bool) {
	if len(text) == 6 && strings.HasPrefix(text, "<0x") && text[5] == '>' {
		c, err := strconv.ParseUint(text[3:5], 16, 8)
		return byte(c), err == nil
	}
	return 0, false
}

func notByte(id int, text string) error {
	return fmt.Errorf("token %d is a byte token but called %.60q, not <0x00> to <0xFF>", id, text)
}

// descending maps scores to numbers: a higher score gives a smaller number.
func descending(score float32) uint32 {
	bits := math.Float32bits(score + 0) // -0 becomes 0
	if bits>>31 == 0 {
		return ^bits &^ (1 << 31)
	}
	return bits
}

func (m *spm) pair(s *scratch, left, right *symbol) (int32, uint32, bool) {
	id, ok := m.ids[string(s.text[left.start:right.end])]
	if !ok {
		return none, 0, false
	}
	return id, m.priorities[id], true
}

func (m *spm) encode(dst []int32, text string, s *scratch) []int32 {
	for text != "" && !s.stopped(len(text)) {
		n := m.word(text)
		dst = s.cached(dst, text[:n], m)
		text = text[n:]
	}
	return dst
}

func (m *spm) merged(dst []int32, word string, s *scratch) []int32 {
	s.text = s.text[:0]
	s.symbols = slices.Grow(s.symbols[:0], len(word))
	for len(word) > 0 {
		_, size := utf8.DecodeRuneInString(word)
		start, at := int32(len(s.text)), int32(len(s.symbols))
		if word[0] == ' ' {
			s.text = append(s.text, space...)
		} else {
			s.text = append(s.text, word[:size]...)
		}
		id, ok := m.ids[string(s.text[start:])]
		if !ok {
			id = none
		}
		s.symbols = append(s.symbols, symbol{id, start, int32(len(s.text)), at - 1, at + 1})
		word = word[size:]
	}
	s.symbols[len(s.symbols)-1].next = -1
	s.merge(m)
	for i := int32(0); i >= 0; i = s.symbols[i].next {
		sym := s.symbols[i]
		if sym.id != none {
			dst = append(dst, sym.id)
			continue
		}
		for _, c := range s.text[sym.start:sym.end] {
			if id := m.byteIDs[c]; id != none {
				dst = append(dst, id)
			}
		}
	}
	return dst
}
