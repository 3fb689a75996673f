package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is the format of one value: [[fill]align][sign][#][0][width][,][.precision][verb].
type spec struct {
	fill      rune
	align     byte // < > ^ = or 0
	sign      byte // + or space or 0
	alternate bool // #
	width     int
	group     byte // , or _ or 0
	precision int  // -1 if absent
	verb      byte // 0 if absent
}

// parseSpec reads a format specification of Python, or, with printf, the flags
// after a %. rest is the text after it.
func (s *state) parseSpec(text string, printf bool) (f spec, rest string) {
	f = spec{fill: ' ', precision: -1}
	if printf {
		f.align = '>'
	} else if _, size := utf8.DecodeRuneInString(text); len(text) > size && strings.IndexByte("<>=^", text[size]) >= 0 {
		f.fill, _ = utf8.DecodeRuneInString(text)
		f.align, text = text[size], text[size+1:]
	} else if text != "" && strings.IndexByte("<>=^", text[0]) >= 0 {
		f.align, text = text[0], text[1:]
	}
	for ; text != "" && strings.IndexByte("+- #0", text[0]) >= 0; text = text[1:] {
		switch c := text[0]; {
		case c == '-' && printf:
			f.align = '<'
		case c == '+' || c == ' ' && f.sign == 0:
			f.sign = c
		case c == '#':
			f.alternate = true
		case c == '0' && f.align != '<' && (printf || f.align == 0):
			f.fill, f.align = '0', '='
		}
	}
	if f.align == '<' && printf {
		f.fill = ' '
	}
	f.width, text = s.digits(text)
	if text != "" && (text[0] == ',' || text[0] == '_') && !printf {
		f.group, text = text[0], text[1:]
	}
	if strings.HasPrefix(text, ".") {
		f.precision, text = s.digits(text[1:])
	}
	if text != "" {
		f.verb, text = text[0], text[1:]
	}
	s.charge(f.width*utf8.RuneLen(f.fill) + max(f.precision, 0))
	return f, text
}

// digits reads a number; 0 if there is none.
func (s *state) digits(text string) (n int, rest string) {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	if end == 0 {
		return 0, text
	}
	n, err := strconv.Atoi(text[:end])
	if err != nil || n > s.limits.Bytes {
		s.exceed("bytes", s.limits.Bytes)
	}
	return n, text[end:]
}

// pad fills head+text up to the width; head is a sign or a prefix.
func (f spec) pad(head, text string, align byte) string {
	missing := f.width - utf8.RuneCountInString(head) - utf8.RuneCountInString(text)
	if missing <= 0 {
		return head + text
	}
	fill := func(n int) string { return strings.Repeat(string(f.fill), n) }
	if f.align != 0 {
		align = f.align
	}
	switch align {
	case '<':
		return head + text + fill(missing)
	case '^':
		return fill(missing/2) + head + text + fill(missing-missing/2)
	case '=':
		return head + fill(missing) + text
	}
	return fill(missing) + head + text
}

// text prints a string, cut to the precision.
func (f spec) text(text string) string {
	if f.precision >= 0 {
		for i := range text {
			if f.precision == 0 {
				text = text[:i]
				break
			}
			f.precision--
		}
	}
	if f.align == '=' { // only for numbers
		f.align, f.fill = '>', ' '
	}
	return f.pad("", text, '<')
}

// number prints i, or x if i is nil, by the verb. ok is false for a verb that
// does not fit.
func (f spec) number(i *big.Int, x float64) (text string, ok bool) {
	var head, digits string
	group := 3
	switch f.verb {
	case 'd', 'n', 'x', 'X', 'o', 'b':
		if i == nil || f.precision >= 0 && f.group != 0 {
			return "", false
		}
		base := map[byte]int{'x': 16, 'X': 16, 'o': 8, 'b': 2}[f.verb]
		if base == 0 {
			base = 10
		} else {
			group = 4
		}
		digits = new(big.Int).Abs(i).Text(base)
		if missing := f.precision - len(digits); missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		if f.alternate && base != 10 {
			head = "0" + string(f.verb)
		}
		if f.verb == 'X' {
			digits = strings.ToUpper(digits)
		}
		if i.Sign() < 0 {
			head = "-" + head
		}
	case 'e', 'E', 'f', 'F', 'g', 'G', '%':
		digits = f.float(math.Abs(x))
		if math.Signbit(x) && !math.IsNaN(x) {
			head = "-"
		}
	default:
		return "", false
	}
	if f.sign != 0 && !strings.HasPrefix(head, "-") {
		head = string(f.sign) + head
	}
	if f.group != 0 {
		digits = grouped(digits, group, f.group)
	}
	return f.pad(head, digits, '>'), true
}

// float prints x, which is not negative, as C's printf does.
func (f spec) float(x float64) string {
	precision, verb := f.precision, f.verb|0x20
	if precision < 0 {
		precision = 6
	}
	var text string
	switch {
	case math.IsInf(x, 0):
		text = "inf"
	case math.IsNaN(x):
		text = "nan"
	case f.verb == '%':
		return strconv.FormatFloat(x*100, 'f', precision, 64) + "%"
	case verb == 'g':
		text = general(x, max(precision, 1), f.alternate)
	default:
		text = strconv.FormatFloat(x, verb, precision, 64)
		if f.alternate && precision == 0 && verb == 'f' {
			text += "."
		}
	}
	if f.verb < 'a' {
		return strings.ToUpper(text)
	}
	return text
}

// general is C's %g: precision digits without trailing zeros, and an exponent if
// that is below -4 or not below the precision.
func general(x float64, precision int, zeros bool) string {
	text := strconv.FormatFloat(x, 'e', precision-1, 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	e, _ := strconv.Atoi(exponent)
	exponent = "e" + exponent
	if e >= -4 && e < precision {
		mantissa, exponent = strconv.FormatFloat(x, 'f', precision-1-e, 64), ""
	}
	if !zeros && strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + exponent
}

// grouped puts mark between groups of n digits before the point.
func grouped(digits string, n int, mark byte) string {
	end := strings.IndexAny(digits, ".e%in")
	if end < 0 {
		end = len(digits)
	}
	var b strings.Builder
	for i := range end {
		if i > 0 && (end-i)%n == 0 {
			b.WriteByte(mark)
		}
		b.WriteByte(digits[i])
	}
	return b.String() + digits[end:]
}

// formatValue is Python's format(v, text).
func (s *state) formatValue(v any, text string) string {
	v = plain(v)
	if text == "" {
		return s.printed(v)
	}
	f, rest := s.parseSpec(text, false)
	s.charge(400)
	i, x, isFloat, isNumber := number(v)
	word, isText := v.(string)
	ok := rest == ""
	out := ""
	switch {
	case isText && (f.verb == 0 || f.verb == 's') && f.align != '=' && f.sign == 0 && f.group == 0:
		out = f.text(word)
	case f.verb == 'c' && isNumber && !isFloat:
		out = f.pad("", s.char(v), '>')
	case f.verb == 0 && isFloat && f.precision < 0:
		f.verb = 'f' // only for the sign and the padding
		out = f.ownDigits(x)
	case f.verb == 0 && isFloat:
		f.verb = 'g'
		out, ok = f.number(nil, x)
	case f.verb == 0 && isNumber && f.precision < 0:
		f.verb = 'd'
		out, ok = f.number(i, x)
	case isNumber && (f.precision < 0 || isFloat || strings.IndexByte("eEfFgG%", f.verb) >= 0):
		var done bool
		out, done = f.number(i, x)
		ok = ok && done
	default:
		ok = false
	}
	if !ok {
		s.fail("Invalid format specifier '%s' for object of type '%s'", text, typeName(v))
	}
	return out
}

// ownDigits prints x with the shortest exact digits.
func (f spec) ownDigits(x float64) string {
	head, digits := "", floatRepr(math.Abs(x))
	if math.Signbit(x) {
		head = "-"
	} else if f.sign != 0 {
		head = string(f.sign)
	}
	if f.group != 0 {
		digits = grouped(digits, 3, f.group)
	}
	return f.pad(head, digits, '>')
}
