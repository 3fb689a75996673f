package gateway

import (
	"bytes"
	"encoding/json"
	"iter"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/forebay-io/forebay/internal/wire"
)

// fields are the known members of the request object. The readers below take
// an explicit null for absent, and keep the first error.
type fields struct {
	raw     map[string]json.RawMessage
	known   map[string]bool
	ignored []string // names of unknown members, at most ignoredMost
	relayed bool     // another server reads the request, and decides about the parts of messages
	err     *wire.Error
}

// parseFields checks the whole body and keeps the members that are in known or in
// unsupportedFields. If a key is given twice, the last counts, at every level; of
// unknown keys the name is kept.
func parseFields(body []byte, depthMax int, known map[string]bool) (*fields, *wire.Error) {
	if !utf8.Valid(body) {
		return nil, wire.Errorf(wire.Invalid, "the body is not valid UTF-8")
	}
	if bytes.HasPrefix(body, []byte("\ufeff")) {
		return nil, wire.Errorf(wire.Invalid, "the body begins with a byte order mark; send it without")
	}
	f := &fields{raw: make(map[string]json.RawMessage, 16), known: known}
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
		name := keyOf(key)
		if _, listed := unsupportedFields[string(name)]; listed || known[string(name)] {
			f.raw[string(name)] = value
		} else if string(value) != "null" {
			f.ignore(name)
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
	return f.wholeOf(name, raw)
}

// wholeOf reads the value of a member that may be inside another one.
func (f *fields) wholeOf(name string, raw json.RawMessage) int {
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
