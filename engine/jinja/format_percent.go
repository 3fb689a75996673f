package jinja

import (
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// percent is Python's text % values.
func (s *state) percent(text string, values any) string {
	items, used := []any{values}, 0
	if l, ok := values.(*List); ok && l.Tuple {
		items = l.Items
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "%")
		b.WriteString(before)
		if !found {
			break
		}
		v, keyed := values, strings.HasPrefix(after, "(")
		if keyed {
			key, rest, closed := strings.Cut(after[1:], ")")
			d, ok := values.(*Dict)
			if !closed || !ok {
				s.fail("format requires a mapping")
			}
			if v, ok = d.Get(key); !ok {
				s.fail("KeyError: '%s'", key)
			}
			after, used = rest, len(items)
		}
		var f spec
		if f, text = s.parseSpec(after, true); f.verb == 0 {
			s.fail("incomplete format")
		}
		if f.verb == '%' {
			b.WriteByte('%')
			continue
		}
		if !keyed {
			if used >= len(items) {
				s.fail("not enough arguments for format string")
			}
			v = items[used]
			used++
		}
		s.charge(b.Len() >> 8)
		b.WriteString(s.printf(f, v))
	}
	switch values.(type) {
	case *Dict:
	default:
		if l, ok := values.(*List); used < len(items) && (!ok || l.Tuple) {
			s.fail("not all arguments converted during string formatting")
		}
	}
	s.charge(b.Len())
	return b.String()
}

// printf formats v by one verb of percent.
func (s *state) printf(f spec, v any) string {
	s.charge(400) // the largest float64 with all its digits
	i, x, isFloat, isNumber := number(v)
	switch f.verb {
	case 's':
		return f.text(s.printed(v))
	case 'r', 'a':
		return f.text(s.shown(v, f.verb == 'a'))
	case 'c':
		return f.text(s.char(v))
	case 'd', 'i', 'u':
		if f.verb = 'd'; isFloat {
			i = s.truncated(x)
		}
	case 'x', 'X', 'o':
		isNumber = isNumber && !isFloat
	}
	if !isNumber {
		s.fail("%%%c format: a number is required, not %s", f.verb, typeName(v))
	}
	text, ok := "", f.verb != 'b' && f.verb != 'n'
	if ok {
		text, ok = f.number(i, x)
	}
	if !ok {
		s.fail("unsupported format character '%c'", f.verb)
	}
	return text
}

// truncated returns the integer part of x.
func (s *state) truncated(x float64) *big.Int {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		s.fail("cannot convert float %s to integer", floatRepr(x))
	}
	i, _ := big.NewFloat(math.Trunc(x)).Int(nil)
	return i
}

// char returns the character v, or the character with number v.
func (s *state) char(v any) string {
	switch v := v.(type) {
	case int64:
		if v >= 0 && v <= utf8.MaxRune && utf8.ValidRune(rune(v)) {
			return string(rune(v))
		}
	case string:
		if utf8.RuneCountInString(v) == 1 {
			return v
		}
	}
	s.fail("%%c requires int or char")
	return ""
}

// shown is Python's repr, or its ascii.
func (s *state) shown(v any, ascii bool) string {
	var b strings.Builder
	s.repr(&b, v)
	if !ascii {
		return b.String()
	}
	var out strings.Builder
	for _, r := range b.String() {
		if r < 0x80 {
			out.WriteRune(r)
		} else {
			escapeRune(&out, r)
		}
	}
	s.charge(out.Len())
	return out.String()
}
