package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Undefined is the value of a name, field or item that does not exist. It
// prints as nothing and fails when it is called or looked into.
type Undefined struct{ What string }

// List is a Python list or tuple.
type List struct {
	Items []any
	Tuple bool
}

// Dict is a Python dict: keys in order of insertion.
type Dict struct {
	keys  []any
	items map[any]any
}

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{items: map[any]any{}} }

// Get returns the value of key, and whether there is one.
func (d *Dict) Get(key any) (any, bool) {
	if !hashable(key) {
		return nil, false
	}
	v, ok := d.items[key]
	return v, ok
}

// Set adds or replaces the value of key, which must be a string, number, bool or nil.
func (d *Dict) Set(key, value any) {
	if _, ok := d.items[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.items[key] = value
}

// Keys returns the keys in order. The slice is the dict's own.
func (d *Dict) Keys() []any { return d.keys }

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

func (d *Dict) remove(key any) {
	delete(d.items, key)
	for i, k := range d.keys {
		if k == key {
			d.keys = append(d.keys[:i:i], d.keys[i+1:]...)
			return
		}
	}
}

func hashable(key any) bool {
	switch key.(type) {
	case nil, bool, int64, float64, string:
		return true
	}
	return false
}

// Func is a function that a template may call. Its error ends the render.
type Func func(args []any) (any, error)

// builtin is a function of the language itself.
type builtin func(s *state, a args) any

type namespace struct{ vars map[string]any }

// typeName is Python's name of v's type, for messages.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case Undefined:
		return "Undefined"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		if v.Tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	}
	return "function"
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return v.Len() > 0
	}
	return true
}

// str is Python's str(v).
func (s *state) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case Undefined:
		return ""
	}
	var b strings.Builder
	s.repr(&b, v)
	return b.String()
}

// printed is str for a text that is about to be looked through or copied.
func (s *state) printed(v any) string {
	text := s.str(v)
	s.charge(len(text))
	return text
}

// repr writes Python's repr(v).
func (s *state) repr(b *strings.Builder, v any) {
	s.enter()
	defer s.leave()
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case Undefined:
		b.WriteString("Undefined")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		b.WriteString(v.String())
	case float64:
		b.WriteString(floatRepr(v))
	case string:
		s.charge(len(v))
		quote(b, v)
	case *List:
		s.reprList(b, v)
	case *Dict:
		b.WriteByte('{')
		for i, key := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			s.repr(b, key)
			b.WriteString(": ")
			s.repr(b, v.items[key])
		}
		b.WriteByte('}')
	default:
		b.WriteString("<" + typeName(v) + ">")
	}
	s.charge(8)
}

func (s *state) reprList(b *strings.Builder, v *List) {
	brackets := "[]"
	if v.Tuple {
		brackets = "()"
	}
	b.WriteByte(brackets[0])
	for i, item := range v.Items {
		if i > 0 {
			b.WriteString(", ")
		}
		s.repr(b, item)
	}
	if v.Tuple && len(v.Items) == 1 {
		b.WriteByte(',')
	}
	b.WriteByte(brackets[1])
}

// floatRepr is Python's repr of a float: the shortest digits that give it
// back, with an exponent below 1e-4 and from 1e16 on.
func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// quote writes Python's repr of a string.
func quote(b *strings.Builder, text string) {
	q := byte('\'')
	if strings.Contains(text, "'") && !strings.Contains(text, "\"") {
		q = '"'
	}
	b.WriteByte(q)
	for _, r := range text {
		switch {
		case r == rune(q) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r >= 0x7f && r <= 0xff && !unicode.IsPrint(r):
			fmt.Fprintf(b, `\x%02x`, r)
		case r == ' ' || unicode.IsPrint(r) || isNoncharacter(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteByte(q)
}

// isNoncharacter reports whether Unicode keeps r for a program's own use. Such
// marks pass through printing and JSON unescaped.
func isNoncharacter(r rune) bool { return r >= 0xfdd0 && r <= 0xfdef }

// number converts a bool or number for arithmetic; floats make the result a float.
func number(v any) (i *big.Int, f float64, isFloat, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return big.NewInt(1), 1, false, true
		}
		return new(big.Int), 0, false, true
	case int64:
		return big.NewInt(v), float64(v), false, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return v, f, false, true
	case float64:
		return nil, v, true, true
	}
	return nil, 0, false, false
}

// small makes an int64 of v if it fits.
func small(v *big.Int) any {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}

// length is Python's len(v).
func (s *state) length(v any) int {
	switch v := v.(type) {
	case string:
		s.work(len(v))
		return utf8.RuneCountInString(v)
	case *List:
		return len(v.Items)
	case *Dict:
		return v.Len()
	case Undefined:
		return 0
	}
	s.fail("object of type '%s' has no len()", typeName(v))
	return 0
}

// iterate lists what a loop over v sees.
func (s *state) iterate(v any) []any {
	switch v := v.(type) {
	case *List:
		return v.Items
	case *Dict:
		return v.keys
	case string:
		s.charge(16 * len(v))
		list := make([]any, 0, len(v))
		for _, r := range v {
			list = append(list, string(r))
		}
		return list
	case Undefined:
		return nil
	}
	s.fail("'%s' object is not iterable", typeName(v))
	return nil
}
