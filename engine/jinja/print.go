package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// str is Python's str(v).
func (s *state) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case Undefined:
		return ""
	}
	var b strings.Builder
	s.repr(&b, v)
	return b.String()
}

// printed is str, with the cost of reading or copying the text charged.
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
	case markup:
		s.charge(len(v))
		b.WriteString("Markup(")
		quote(b, string(v))
		b.WriteByte(')')
	case *namespace:
		b.WriteString("<Namespace ")
		s.repr(b, &v.vars)
		b.WriteByte('>')
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
			s.repr(b, v.at(key))
		}
		b.WriteByte('}')
	default:
		b.WriteString("<" + typeName(v) + ">")
	}
	s.charge(8)
}

func (s *state) reprList(b *strings.Builder, v *List) {
	switch v.kind {
	case iterator:
		b.WriteString("<generator>")
		return
	case rangeList:
		b.WriteString(reprRange(v))
		return
	case keysView, valuesView, itemsView:
		b.WriteString(string(v.kind) + "(")
		defer b.WriteByte(')')
	}
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

// reprRange prints range(start, stop) or range(start, stop, step). For an empty or
// short range the original arguments are unknown, so it prints equivalent ones.
func reprRange(v *List) string {
	n := len(v.Items)
	if n == 0 {
		return "range(0, 0)"
	}
	first := v.Items[0].(int64)
	if n == 1 {
		return fmt.Sprintf("range(%d, %d)", first, first+1)
	}
	step := v.Items[1].(int64) - first
	if step == 1 {
		return fmt.Sprintf("range(%d, %d)", first, first+int64(n))
	}
	return fmt.Sprintf("range(%d, %d, %d)", first, first+int64(n)*step, step)
}

// floatRepr is Python's repr of a float: the shortest digits that read back as f,
// with an exponent below 1e-4 and from 1e16 on.
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
		case r == ' ' || unicode.IsPrint(r) || isNoncharacter(r):
			b.WriteRune(r)
		default:
			escapeRune(b, r)
		}
	}
	b.WriteByte(q)
}

// escapeRune writes r as Python's escape for it.
func escapeRune(b *strings.Builder, r rune) {
	switch {
	case r <= 0xff:
		fmt.Fprintf(b, `\x%02x`, r)
	case r <= 0xffff:
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		fmt.Fprintf(b, `\U%08x`, r)
	}
}

// isNoncharacter reports whether r is a Unicode noncharacter, for a program's own
// use. Printing and JSON do not escape these.
func isNoncharacter(r rune) bool { return r >= 0xfdd0 && r <= 0xfdef }
