package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

func filterAbs(s *state, v any, _ args) any {
	if i, f, isFloat, ok := number(v); isFloat {
		return math.Abs(f)
	} else if ok {
		return small(new(big.Int).Abs(i))
	}
	s.fail("bad operand type for abs(): '%s'", typeName(v))
	return nil
}

// needDefined fails for undefined values, as Python's conversions do.
func (s *state) needDefined(v any) {
	if u, ok := v.(Undefined); ok {
		s.fail("%s", u.what())
	}
}

func filterFloat(s *state, v any, a args) any {
	s.needDefined(v)
	if _, f, _, ok := number(v); ok {
		return f
	}
	if text, ok := v.(string); ok {
		if f, ok := s.parseFloat(text); ok {
			return f
		}
	}
	return a.get(0, "default", 0.0)
}

// digitsOf converts all decimal digits to ASCII and drops single underscores
// between digits, which Python allows in numbers.
func (s *state) digitsOf(text string) string {
	s.charge(len(text))
	text = strings.TrimFunc(text, isSpace)
	last := rune(0)
	return strings.Map(func(r rune) rune {
		before := last
		last = r
		switch {
		case r == '_' && (unicode.IsDigit(before) || unicode.IsLetter(before)):
			return -1
		case r >= 0x80 && unicode.IsDigit(r):
			zero := r
			for unicode.IsDigit(zero-1) && r-zero < 9 {
				zero--
			}
			return '0' + (r - zero)
		}
		return r
	}, text)
}

// parseFloat is Python's float(text).
func (s *state) parseFloat(text string) (float64, bool) {
	text = s.digitsOf(text)
	if strings.ContainsAny(text, "xXpP_") {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil || math.IsInf(f, 0)
}

func filterInt(s *state, v any, a args) any {
	s.needDefined(v)
	i, f, isFloat, isNumber := number(v)
	if isNumber && !isFloat {
		return small(i)
	}
	if text, ok := v.(string); ok {
		if i, ok := s.parseInt(text, a.integer(s, 1, "base", 10)); ok {
			return i
		}
		f, isFloat = s.parseFloat(text)
	}
	if isFloat && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return small(s.truncated(f))
	}
	return a.get(0, "default", int64(0))
}

// parseInt is Python's int(text, base).
func (s *state) parseInt(text string, base int) (any, bool) {
	text = s.digitsOf(text)
	if len(text) > bigBitsMax/4 || base < 0 || base == 1 || base > 36 {
		return nil, false
	}
	sign, digits := "", text
	if text != "" && (text[0] == '+' || text[0] == '-') {
		sign, digits = text[:1], text[1:]
	}
	prefix := map[int]string{16: "0x", 8: "0o", 2: "0b"}[base]
	if prefix != "" && len(digits) > 2 && strings.EqualFold(digits[:2], prefix) {
		digits = digits[2:]
	}
	if strings.ContainsAny(digits, "+-_") {
		return nil, false
	}
	i, ok := new(big.Int).SetString(sign+digits, base)
	if !ok {
		return nil, false
	}
	return small(i), true
}

func filterRound(s *state, v any, a args) any {
	i, f, isFloat, ok := number(v)
	if !ok {
		s.fail("type %s doesn't define __round__ method", typeName(v))
	}
	digits := a.integer(s, 0, "precision", 0)
	scale := math.Pow(10, float64(digits))
	switch a.text(s, 1, "method", "common") {
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	case "common":
	default:
		s.fail("method must be common, ceil or floor")
	}
	switch {
	case !isFloat && digits >= 0:
		return small(i)
	case !isFloat:
		return small(roundInt(i, min(-digits, bigBitsMax)))
	case digits < 0 || digits > 20:
		return math.RoundToEven(f*scale) / scale
	}
	// Round the exact value; f*scale is already rounded.
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	return f
}

// roundInt rounds i to a multiple of 10**zeros, ties to even.
func roundInt(i *big.Int, zeros int) *big.Int {
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(zeros)), nil)
	quotient, rest := new(big.Int), new(big.Int)
	floorDivide(quotient, rest, i, unit)
	half := rest.Lsh(rest, 1).Cmp(unit)
	if half > 0 || half == 0 && quotient.Bit(0) == 1 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return quotient.Mul(quotient, unit)
}
