package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strconv"
	"unicode/utf8"

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

// fields are the known members of the request object. The readers below take
// an explicit null for absent, and keep the first error.
type fields struct {
	raw map[string]json.RawMessage
	err *wire.Error
}

// parseFields checks the whole body and keeps the members that are in known.
// If a key is given twice, the last counts, at every level; unknown keys are
// checked and dropped.
func parseFields(body []byte, depthMax int, known map[string]bool) (*fields, *wire.Error) {
	if !utf8.Valid(body) {
		return nil, wire.Errorf(wire.Invalid, "the body is not valid UTF-8")
	}
	f := &fields{raw: make(map[string]json.RawMessage, 16)}
	s := &scanner{data: body, depth: depthMax}
	if c := s.peek(); c != '{' && s.pos < len(s.data) {
		if _, ok := s.value(); ok {
			return nil, wire.Errorf(wire.Invalid, "the body must be a JSON object")
		}
		return nil, s.err
	}
	if s.pos == len(s.data) {
		s.fail("it is empty")
		return nil, s.err
	}
	ok := s.object(func(key []byte) bool {
		value, ok := s.value()
		if !ok {
			return false
		}
		if name := keyOf(key); known[string(name)] {
			f.raw[string(name)] = value
		}
		return true
	})
	if s.space(); ok && s.pos < len(s.data) {
		s.fail("something follows the object")
	}
	return f, s.err
}

// unquote reads a checked JSON string.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// keyOf is unquote for a key. The result aliases raw if the key has no escape:
// a body may have millions of keys.
func keyOf(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	return []byte(unquote(raw))
}

func (f *fields) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = wire.InvalidParam(name, format, args...)
	}
}

// given is the raw value, or false where it is absent or null.
func (f *fields) given(name string) (json.RawMessage, bool) {
	raw, ok := f.raw[name]
	return raw, ok && string(raw) != "null"
}

func (f *fields) text(name string) string {
	raw, ok := f.given(name)
	if !ok {
		return ""
	}
	if !isString(raw) {
		f.fail(name, "%s must be a string", name)
		return ""
	}
	return unquote(raw)
}

func (f *fields) flag(name string) bool {
	raw, ok := f.given(name)
	if ok && string(raw) != "true" && string(raw) != "false" {
		f.fail(name, "%s must be true or false", name)
	}
	return ok && string(raw) == "true"
}

// whole reads a whole number; wire.Options.Check knows its range.
func (f *fields) whole(name string, absent int) int {
	raw, ok := f.given(name)
	if !ok {
		return absent
	}
	n, err := strconv.ParseInt(string(raw), 10, 32)
	if err != nil {
		f.fail(name, "%s must be a whole number of at most %d, not %s", name, math.MaxInt32, brief(raw))
	}
	return int(n)
}

// wholeIn reads a whole number from least to most, for limits of the gateway's own.
func (f *fields) wholeIn(name string, absent, least, most int) int {
	n := f.whole(name, absent)
	if _, given := f.given(name); given && (n < least || n > most) {
		f.fail(name, "%s must be a whole number from %d to %d, not %d", name, least, most, n)
	}
	return n
}

// number reads a number; wire.Options.Check knows its range.
func (f *fields) number(name string, absent float32) float32 {
	raw, ok := f.given(name)
	if !ok {
		return absent
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		f.fail(name, "%s must be a number, not %s", name, brief(raw))
	}
	return float32(x)
}

// notZero refuses a 0 that was given, where 0 means absent in wire.Options.
func (f *fields) notZero(name string, value float32, advice string) {
	if _, given := f.given(name); given && value == 0 {
		f.fail(name, "%s must be above 0; %s", name, advice)
	}
}

// The iterators below yield one value at a time: an array or object of a few
// megabytes holds millions of values, and a slice of them would be many times
// the size of the body.

// elements yields the elements of a checked array; other values have none.
func elements(raw json.RawMessage) iter.Seq2[int, json.RawMessage] {
	return func(yield func(int, json.RawMessage) bool) {
		if !isArray(raw) {
			return
		}
		s := &scanner{data: raw, depth: len(raw)}
		s.array(func(i int) bool {
			v, ok := s.value()
			return ok && yield(i, v)
		})
	}
}

// members yields the members of a checked object; other values have none. Equal
// keys come in order, and the last one counts.
func members(raw json.RawMessage) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		if !isObject(raw) {
			return
		}
		s := &scanner{data: raw, depth: len(raw)}
		s.object(func(key []byte) bool {
			v, ok := s.value()
			return ok && yield(keyOf(key), v)
		})
	}
}

// member is the value of one member, nil where there is none.
func member(raw json.RawMessage, name string) (value json.RawMessage) {
	for key, v := range members(raw) {
		if string(key) == name {
			value = v
		}
	}
	return value
}

// count is how many elements a checked array has.
func count(raw json.RawMessage) (n int) {
	for range elements(raw) {
		n++
	}
	return n
}

func isArray(raw json.RawMessage) bool  { return len(raw) > 0 && raw[0] == '[' }
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
func isString(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

// brief is a value short enough for a message.
func brief(raw []byte) string {
	if len(raw) > 32 {
		return "a value of " + strconv.Itoa(len(raw)) + " bytes"
	}
	return string(raw)
}
