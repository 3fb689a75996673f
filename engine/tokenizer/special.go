package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// specialBytesMax bounds the work at one position of a text. A file with longer
// special tokens is refused.
const specialBytesMax = 512

// specials finds special tokens in text: the leftmost, and the longest at that
// position. It is a trie over bytes.
type specials struct {
	nodes   []special      // by node: the token that ends there; its id is none if there is none
	edges   map[edge]int32 // to the next node
	begins  [256]int32     // the root's edges; 0 for none
	longest int
}

type edge struct {
	from int32
	by   byte
}

type special struct {
	id      int32
	control bool
	tokenFlags
}

func newSpecials(v *vocabulary) (specials, error) {
	s := specials{nodes: []special{{id: none}}, edges: map[edge]int32{}}
	for i, text := range v.texts {
		id := int32(i)
		if text == "" || !v.isControl(id) && v.kinds[id] != kindUser {
			continue
		}
		if len(text) > specialBytesMax {
			return s, fmt.Errorf("key %s: token %d is special and has %d bytes; at most %d are allowed", keyTokens, id, len(text), specialBytesMax)
		}
		if at := s.add(text); s.nodes[at].id == none { // the first duplicate wins
			s.nodes[at] = special{id, v.isControl(id), v.flags[id]}
		}
		s.longest = max(s.longest, len(text))
	}
	return s, nil
}

// add makes the nodes of a text and returns the last one.
func (s *specials) add(text string) int32 {
	node := int32(0)
	for i := range len(text) {
		next, ok := s.edges[edge{node, text[i]}]
		if !ok {
			next = int32(len(s.nodes))
			s.nodes = append(s.nodes, special{id: none})
			s.edges[edge{node, text[i]}] = next
			if node == 0 {
				s.begins[text[i]] = next
			}
		}
		node = next
	}
	return node
}

// find returns the first special token in text. It ignores control tokens after a
// Guard, and all control tokens if control is false. If there is no token, length
// is 0 and at is the end of text.
func (s *specials) find(text string, control bool) (at, length int, token special) {
	for i := range len(text) {
		node, ok := s.begins[text[i]], true
		if node == 0 {
			continue
		}
		guarded := strings.HasSuffix(text[:i], guardText)
		for end := i + 1; ok; end++ {
			found := s.nodes[node]
			if found.id != none && (!found.control || control && !guarded) && !(found.singleWord && insideWord(text, i, end)) {
				length, token = end-i, found
			}
			if end == len(text) {
				break
			}
			node, ok = s.edges[edge{node, text[end]}]
		}
		if length > 0 {
			return i, length, token
		}
	}
	return len(text), 0, special{id: none}
}

// split splits text at its first special token, whose id is none if there is none. cut
// says that the ids of rest do not depend on what is before it.
func (s *specials) split(text string, control bool) (piece string, token special, rest string, cut bool) {
	at, length, token := s.find(text, control)
	piece, rest = text[:at], text[at+length:]
	if token.rstrip {
		rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
	}
	return piece, token, rest, length > 0 && !token.rstrip
}

// insideWord reports whether letters or digits touch text[from:to].
func insideWord(text string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:from])
	after, _ := utf8.DecodeRuneInString(text[to:])
	is := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) }
	return from > 0 && is(before) || to < len(text) && is(after)
}
