package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

var textPredicates = map[string]func(text string) bool{
	"isdigit":   func(text string) bool { return every(text, isDigit) },
	"isdecimal": func(text string) bool { return every(text, unicode.IsDigit) },
	"isnumeric": func(text string) bool { return every(text, unicode.IsNumber) },
	"isalpha":   func(text string) bool { return every(text, unicode.IsLetter) },
	"isalnum": func(text string) bool {
		return every(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
	},
	"isspace":     func(text string) bool { return every(text, isSpace) },
	"isupper":     func(text string) bool { return upper(text) == text && lower(text) != text },
	"islower":     func(text string) bool { return lower(text) == text && upper(text) != text },
	"isascii":     isASCII,
	"isprintable": func(text string) bool { return text == "" || every(text, unicode.IsPrint) },
	"isidentifier": func(text string) bool {
		return isWord(text) && !unicode.IsDigit([]rune(text)[0])
	},
}

// isDigit holds for Unicode's Numeric_Type Decimal, and for Digit in superscripts
// and subscripts.
func isDigit(r rune) bool {
	return unicode.IsDigit(r) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", r)
}

func isWord(text string) bool {
	return every(text, func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) })
}

type textMethod func(s *state, text string, a args) any

// method returns the bound method name of a string, list or dict, what unsafe
// returns, or nil.
func method(v any, name string) any {
	switch v := v.(type) {
	case markup:
		return method(string(v), name)
	case string:
		if m, ok := textMethods[name]; ok {
			return builtin(func(s *state, a args) any {
				s.work(len(v))
				return m(s, v, a)
			})
		}
		if is, ok := textPredicates[name]; ok {
			return builtin(func(s *state, _ args) any {
				s.work(len(v))
				return is(v)
			})
		}
	case *Dict:
		if changesDict[name] && (v.input || dictMethods[name] == nil) {
			return unsafe(v, name)
		}
		if m, ok := dictMethods[name]; ok {
			return builtin(func(s *state, a args) any { return m(s, v, a) })
		}
	case *List:
		if changesList[name] && v.kind == plainList && !v.Tuple && (v.input || listMethods[name] == nil) {
			return unsafe(v, name)
		}
		if m, ok := listMethods[name]; ok && (v.kind == plainList && !v.Tuple || v.indexed() && readsList[name]) {
			return builtin(func(s *state, a args) any { return m(s, v, a) })
		}
	}
	return nil
}

// unsafe is what a method that changes its object is where it may not: undefined,
// and an error when it is called.
func unsafe(v any, name string) any {
	return Undefined{"access to attribute '" + name + "' of '" + typeName(v) + "' object is unsafe."}
}

// The methods that change a list or dict.
var (
	changesList = map[string]bool{"append": true, "clear": true, "extend": true, "insert": true, "pop": true, "remove": true, "reverse": true, "sort": true}
	changesDict = map[string]bool{"clear": true, "pop": true, "popitem": true, "setdefault": true, "update": true}
)

// The methods are filled in init, because some of them look up methods.
var (
	textMethods map[string]textMethod
	dictMethods map[string]func(s *state, d *Dict, a args) any
	listMethods map[string]func(s *state, l *List, a args) any
)

func init() {
	textMethods = map[string]textMethod{
		"strip":        func(s *state, text string, a args) any { return stripped(s, text, a, true, true) },
		"lstrip":       func(s *state, text string, a args) any { return stripped(s, text, a, true, false) },
		"rstrip":       func(s *state, text string, a args) any { return stripped(s, text, a, false, true) },
		"split":        func(s *state, text string, a args) any { return split(s, text, a, false) },
		"rsplit":       func(s *state, text string, a args) any { return split(s, text, a, true) },
		"splitlines":   func(s *state, text string, a args) any { return lines(s, text, a) },
		"startswith":   func(s *state, text string, a args) any { return affix(s, text, a, strings.HasPrefix) },
		"endswith":     func(s *state, text string, a args) any { return affix(s, text, a, strings.HasSuffix) },
		"removeprefix": func(s *state, text string, a args) any { return strings.TrimPrefix(text, a.text(s, 0, "prefix", "")) },
		"removesuffix": func(s *state, text string, a args) any { return strings.TrimSuffix(text, a.text(s, 0, "suffix", "")) },
		"replace":      textReplace,
		"upper":        changed(upper),
		"lower":        changed(lower),
		"capitalize":   changed(capitalized),
		"casefold":     changed(folded),
		"swapcase":     changed(func(text string) string { return strings.Map(swapCase, text) }),
		"title":        func(s *state, text string, _ args) any { return title(s, text, unicode.IsLetter, titled) },
		"count": func(s *state, text string, a args) any {
			part, _, ok := window(s, text, a)
			if !ok {
				return int64(0)
			}
			return int64(strings.Count(part, a.text(s, 0, "sub", "")))
		},
		"find":   found(strings.Index, false),
		"rfind":  found(strings.LastIndex, false),
		"index":  found(strings.Index, true),
		"rindex": found(strings.LastIndex, true),
		"join":   textJoin,
		"format": formatMethod,
		"zfill":  zfill,
		"rjust":  func(s *state, text string, a args) any { return padded(s, text, a, func(n, _ int) int { return n }) },
		"ljust":  func(s *state, text string, a args) any { return padded(s, text, a, func(int, int) int { return 0 }) },
		"center": func(s *state, text string, a args) any {
			return padded(s, text, a, func(n, w int) int { return n/2 + n&w&1 })
		},
		"partition":  parted(false),
		"rpartition": parted(true),
		"expandtabs": expandTabs,
	}
}

// changed returns a method that changes letters. Its result can be three times as
// long.
func changed(to func(string) string) textMethod {
	return func(s *state, text string, _ args) any {
		s.charge(3 * len(text))
		return to(text)
	}
}

func textJoin(s *state, text string, a args) any {
	items := s.iterate(a.get(0, "iterable", nil))
	for i, v := range items {
		if _, ok := plain(v).(string); !ok {
			s.fail("sequence item %d: expected str instance, %s found", i, typeName(v))
		}
	}
	return filterJoin(s, &List{Items: items}, args{pos: []any{text}})
}

func every(text string, is func(rune) bool) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool { return !is(r) }) < 0
}

func stripped(s *state, text string, a args, left, right bool) any {
	drop := isSpace
	if chars := a.get(0, "chars", nil); chars != nil {
		set, ok := chars.(string)
		if !ok {
			s.fail("strip arg must be None or str")
		}
		s.work(len(set) * min(len(text), 64))
		drop = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	if left {
		text = strings.TrimLeftFunc(text, drop)
	}
	if right {
		text = strings.TrimRightFunc(text, drop)
	}
	return text
}

func affix(s *state, text string, a args, has func(text, part string) bool) any {
	v := a.get(0, "prefix", nil)
	text, _, inside := window(s, text, a)
	if !inside {
		return false
	}
	if part, ok := v.(string); ok {
		return has(text, part)
	}
	l, ok := v.(*List)
	if !ok || !l.Tuple {
		s.fail("first arg must be str or a tuple of str, not %s", typeName(v))
	}
	return slices.ContainsFunc(l.Items, func(v any) bool {
		part, ok := v.(string)
		return ok && has(text, part)
	})
}

// texts returns a List of strings.
func (s *state) texts(list []string) *List {
	s.charge(32 * len(list))
	out := &List{Items: make([]any, len(list))}
	for i, text := range list {
		out.Items[i] = text
	}
	return out
}

func split(s *state, text string, a args, fromRight bool) any {
	n := a.integer(s, 1, "maxsplit", -1)
	separator := a.get(0, "sep", nil)
	if separator == nil {
		s.charge(16 * len(text))
		fields := strings.FieldsFunc(text, isSpace)
		if n < 0 || n >= len(fields) {
			return s.texts(fields)
		}
		if fromRight {
			rest := strings.TrimRightFunc(text, isSpace)
			for range n {
				rest = strings.TrimRightFunc(rest[:strings.LastIndexFunc(rest, isSpace)], isSpace)
			}
			return s.texts(append([]string{rest}, fields[len(fields)-n:]...))
		}
		rest := strings.TrimLeftFunc(text, isSpace)
		for range n {
			rest = strings.TrimLeftFunc(rest[strings.IndexFunc(rest, isSpace):], isSpace)
		}
		return s.texts(append(fields[:n:n], rest))
	}
	sep, ok := separator.(string)
	if !ok || sep == "" {
		s.fail("split needs a separator that is not empty, not %s", typeName(separator))
	}
	s.charge(32 * strings.Count(text, sep))
	if n < 0 {
		return s.texts(strings.Split(text, sep))
	}
	if !fromRight {
		return s.texts(strings.SplitN(text, sep, n+1))
	}
	var parts []string
	for ; n > 0; n-- {
		at := strings.LastIndex(text, sep)
		if at < 0 {
			break
		}
		parts = append(parts, text[at+len(sep):])
		text = text[:at]
	}
	parts = append(parts, text)
	slices.Reverse(parts)
	return s.texts(parts)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func textReplace(s *state, text string, a args) any {
	before, after := a.text(s, 0, "old", ""), a.text(s, 1, "new", "")
	n := a.integer(s, 2, "count", -1)
	s.chargeTimes(len(after)+1, int64(strings.Count(text, before)))
	s.charge(len(text))
	return strings.Replace(text, before, after, n)
}

// padded pads text to a width. left returns how many of the missing characters go
// before it.
func padded(s *state, text string, a args, left func(missing, width int) int) any {
	width, fill := a.integer(s, 0, "width", 80), a.text(s, 1, "fillchar", " ")
	if utf8.RuneCountInString(fill) != 1 {
		s.fail("The fill character must be exactly one character long")
	}
	missing := width - utf8.RuneCountInString(text)
	if missing <= 0 {
		return text
	}
	s.chargeTimes(len(fill), int64(width))
	n := left(missing, width)
	return strings.Repeat(fill, n) + text + strings.Repeat(fill, missing-n)
}

// zfill pads with zeros after the sign.
func zfill(s *state, text string, a args) any {
	sign := ""
	if text != "" && (text[0] == '+' || text[0] == '-') {
		sign = text[:1]
	}
	f := spec{fill: '0', align: '=', width: a.integer(s, 0, "width", 0)}
	s.chargeTimes(1, int64(f.width))
	return f.pad(sign, text[len(sign):], '=')
}

// window returns text[start:end] for arguments 1 and 2, and the number of
// characters before it. ok is false if start is beyond the end.
func window(s *state, text string, a args) (part string, before int64, ok bool) {
	start, end := a.get(1, "start", nil), a.get(2, "end", nil)
	if start == nil && end == nil {
		return text, 0, true
	}
	n := int64(utf8.RuneCountInString(text))
	if before, ok = start.(int64); ok && before > n {
		return "", 0, false
	}
	before = s.sliceEnd(start, 0, n, 1)
	return s.slice(text, start, end, int64(1)).(string), before, true
}

// found returns find, rfind, index or rindex.
func found(at func(text, part string) int, needed bool) textMethod {
	return func(s *state, text string, a args) any {
		sub := a.text(s, 0, "sub", "")
		part, before, ok := window(s, text, a)
		if i := at(part, sub); ok && i >= 0 {
			return before + int64(utf8.RuneCountInString(part[:i]))
		}
		if needed {
			s.fail("substring not found")
		}
		return int64(-1)
	}
}

// parted returns partition or rpartition.
func parted(last bool) textMethod {
	return func(s *state, text string, a args) any {
		sep := a.text(s, 0, "sep", "")
		if sep == "" {
			s.fail("empty separator")
		}
		at, parts := strings.Index(text, sep), []any{text, "", ""}
		if last {
			at, parts = strings.LastIndex(text, sep), []any{"", "", text}
		}
		if at >= 0 {
			parts = []any{text[:at], sep, text[at+len(sep):]}
		}
		return &List{Items: parts, Tuple: true}
	}
}

// lines is str.splitlines, with all of Python's line boundaries.
func lines(s *state, text string, a args) *List {
	s.charge(len(text))
	keep := a.flag(0, "keepends", false)
	var list []string
	for text != "" {
		at := strings.IndexFunc(text, func(r rune) bool {
			return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
		})
		if at < 0 {
			list = append(list, text)
			break
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		if strings.HasPrefix(text[at:], "\r\n") {
			size = 2
		}
		s.charge(16)
		if keep {
			list = append(list, text[:at+size])
		} else {
			list = append(list, text[:at])
		}
		text = text[at+size:]
	}
	return s.texts(list)
}

// expandTabs replaces each tab by spaces up to the next multiple of the tab size.
func expandTabs(s *state, text string, a args) any {
	size, column := a.integer(s, 0, "tabsize", 8), 0
	s.chargeTimes(max(size, 0), int64(strings.Count(text, "\t")))
	s.charge(len(text))
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\t':
			if size > 0 {
				b.WriteString(strings.Repeat(" ", size-column%size))
				column += size - column%size
			}
			continue
		case r == '\n' || r == '\r':
			column = -1
		}
		b.WriteRune(r)
		column++
	}
	return b.String()
}

func swapCase(r rune) rune {
	if unicode.IsUpper(r) {
		return unicode.ToLower(r)
	}
	return unicode.ToUpper(r)
}
