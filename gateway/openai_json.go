package gateway

import (
	"encoding/json"
	"fmt"

	"github.com/forebay-io/forebay/internal/wire"
)

// scanner checks JSON (RFC 8259) in one pass and hands out raw values. It
// keeps the first error and then does not move.
type scanner struct {
	data  []byte
	pos   int
	depth int // levels still allowed
	err   *wire.Error
}

func (s *scanner) fail(format string, args ...any) bool {
	if s.err == nil {
		s.err = wire.Errorf(wire.Invalid, "the body is not valid JSON: %s at offset %d", fmt.Sprintf(format, args...), s.pos)
	}
	return false
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek is the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.pos == len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

// value checks one value and returns its bytes without surrounding space.
func (s *scanner) value() (json.RawMessage, bool) {
	c := s.peek()
	start := s.pos
	ok := false
	switch {
	case s.pos == len(s.data):
		ok = s.fail("it ends too early")
	case c == '{':
		ok = s.object(func([]byte) bool { _, ok := s.value(); return ok })
	case c == '[':
		ok = s.array(func(int) bool { _, ok := s.value(); return ok })
	case c == '"':
		ok = s.text()
	case c == '-' || '0' <= c && c <= '9':
		ok = s.number()
	default:
		ok = s.literal("true") || s.literal("false") || s.literal("null") || s.fail("unexpected %q", c)
	}
	return s.data[start:s.pos:s.pos], ok
}

// object walks an object; member is called at each value, with the raw key in
// its quotes, and must consume the value.
func (s *scanner) object(member func(key []byte) bool) bool {
	return s.list('}', func(int) bool {
		s.space()
		start := s.pos
		if s.peek() != '"' {
			return s.fail("expected a key in quotes")
		}
		if !s.text() {
			return false
		}
		key := s.data[start:s.pos]
		if s.peek() != ':' {
			return s.fail("expected ':' after a key")
		}
		s.pos++
		return member(key)
	})
}

// array walks an array; element must consume the value.
func (s *scanner) array(element func(i int) bool) bool { return s.list(']', element) }

// list walks from an opening bracket past the closing one.
func (s *scanner) list(closing byte, item func(i int) bool) bool {
	if s.depth == 0 {
		return s.fail("it is nested too deeply")
	}
	s.depth--
	defer func() { s.depth++ }()
	s.pos++
	for i := 0; ; i++ {
		c := s.peek()
		switch {
		case c == closing:
			s.pos++
			return true
		case i > 0 && c != ',':
			return s.fail("expected ',' or %q", closing)
		case i > 0:
			s.pos++
		}
		if !item(i) {
			return false
		}
	}
}

func (s *scanner) literal(word string) bool {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return false
	}
	s.pos += len(word)
	return true
}

func (s *scanner) text() bool {
	for s.pos++; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return true
		case c < 0x20:
			return s.fail("control byte %#02x inside a string", c)
		case c == '\\':
			if !s.escape() {
				return false
			}
		}
	}
	return s.fail("it ends inside a string")
}

// escape moves from a backslash to the escape's last byte.
func (s *scanner) escape() bool {
	s.pos++
	if s.pos == len(s.data) {
		return s.fail("it ends inside a string")
	}
	switch s.data[s.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			s.pos++
			if s.pos == len(s.data) || !isHex(s.data[s.pos]) {
				return s.fail("a \\u escape needs four hexadecimal digits")
			}
		}
		return true
	}
	return s.fail("unknown escape")
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (s *scanner) number() bool {
	if s.data[s.pos] == '-' {
		s.pos++
	}
	if s.pos < len(s.data) && s.data[s.pos] == '0' {
		s.pos++
	} else if !s.digits() {
		return false
	}
	if s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		if !s.digits() {
			return false
		}
	}
	if s.pos < len(s.data) && s.data[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.data) && (s.data[s.pos] == '+' || s.data[s.pos] == '-') {
			s.pos++
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start || s.fail("a number needs digits here")
}
