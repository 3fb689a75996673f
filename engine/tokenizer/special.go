package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// specialBytesMax bounds the work at one place of a text; a file with longer
// special tokens is refused.
const specialBytesMax = 512

// specials finds special tokens in text: the leftmost, and there the longest.
type specials struct {
	ids     map[string]special
	lengths [256][]int // by first byte, longest first
	longest int
}

type special struct {
	id      int32
	control bool
	tokenFlags
}

func newSpecials(v *vocabulary) (specials, error) {
	s := specials{ids: map[string]special{}}
	for i, text := range v.texts {
		id := int32(i)
		if text == "" || !v.isControl(id) && v.kinds[id] != kindUser {
			continue
		}
		if len(text) > specialBytesMax {
			return s, fmt.Errorf("key %s: token %d is special and has %d bytes; at most %d are allowed", keyTokens, id, len(text), specialBytesMax)
		}
		if _, dup := s.ids[text]; dup {
			continue
		}
		s.ids[text] = special{id, v.isControl(id), v.flags[id]}
		s.longest = max(s.longest, len(text))
		if l := &s.lengths[text[0]]; !slices.Contains(*l, len(text)) {
			*l = append(*l, len(text))
		}
	}
	for i := range s.lengths {
		slices.SortFunc(s.lengths[i], func(a, b int) int { return b - a })
	}
	return s, nil
}

// find returns the first special token in text, of control tokens only those
// without a Guard before them, and none where control is false; length is 0 and at the
// text's end where there is none.
func (s *specials) find(text string, control bool) (at, length int, token special) {
	for i := range len(text) {
		for _, n := range s.lengths[text[i]] {
			if n > len(text)-i {
				continue
			}
			found, ok := s.ids[text[i:i+n]]
			if ok && (!found.control || control && !strings.HasSuffix(text[:i], guardText)) && !(found.singleWord && insideWord(text, i, i+n)) {
				return i, n, found
			}
		}
	}
	return len(text), 0, special{id: none}
}

// insideWord reports whether letters or digits touch text[from:to].
func insideWord(text string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:from])
	after, _ := utf8.DecodeRuneInString(text[to:])
	is := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) }
	return from > 0 && is(before) || to < len(text) && is(after)
}
