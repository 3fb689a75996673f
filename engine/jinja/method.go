package jinja

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

var textPredicates = map[string]func(text string) bool{
	"isdigit": func(text string) bool { return every(text, unicode.IsDigit) },
	"isalpha": func(text string) bool { return every(text, unicode.IsLetter) },
	"isalnum": func(text string) bool {
		return every(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
	},
	"isspace": func(text string) bool { return every(text, isSpace) },
	"isupper": func(text string) bool { return strings.ToUpper(text) == text && strings.ToLower(text) != text },
	"islower": func(text string) bool { return strings.ToLower(text) == text && strings.ToUpper(text) != text },
}

// method is the bound method called name of a string, list or dict, or nil.
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
		if m, ok := dictMethods[name]; ok {
			return builtin(func(s *state, a args) any { return m(s, v, a) })
		}
	case *List:
		if m, ok := listMethods[name]; ok && (v.kind == plainList && !v.Tuple || v.indexed() && readsList[name]) {
			return builtin(func(s *state, a args) any { return m(s, v, a) })
		}
	}
	return nil
}

// The methods are filled in init because some of them look methods up.
var (
	textMethods map[string]func(s *state, text string, a args) any
	dictMethods map[string]func(s *state, d *Dict, a args) any
	listMethods map[string]func(s *state, l *List, a args) any
)

func init() {
	textMethods = map[string]func(s *state, text string, a args) any{
		"strip":  func(s *state, text string, a args) any { return stripped(s, text, a, true, true) },
		"lstrip": func(s *state, text string, a args) any { return stripped(s, text, a, true, false) },
		"rstrip": func(s *state, text string, a args) any { return stripped(s, text, a, false, true) },
		"split":  func(s *state, text string, a args) any { return split(s, text, a, false) },
		"rsplit": func(s *state, text string, a args) any { return split(s, text, a, true) },
		"splitlines": func(s *state, text string, _ args) any {
			s.charge(len(text))
			text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
			if text == "" {
				return &List{}
			}
			return s.texts(strings.Split(strings.TrimSuffix(text, "\n"), "\n"))
		},
		"startswith":   func(s *state, text string, a args) any { return affix(s, text, a, strings.HasPrefix) },
		"endswith":     func(s *state, text string, a args) any { return affix(s, text, a, strings.HasSuffix) },
		"removeprefix": func(s *state, text string, a args) any { return strings.TrimPrefix(text, a.text(s, 0, "prefix", "")) },
		"removesuffix": func(s *state, text string, a args) any { return strings.TrimSuffix(text, a.text(s, 0, "suffix", "")) },
		"replace":      textReplace,
		"upper":        func(s *state, text string, _ args) any { s.charge(len(text)); return strings.ToUpper(text) },
		"lower":        func(s *state, text string, _ args) any { s.charge(len(text)); return strings.ToLower(text) },
		"title":        func(s *state, text string, _ args) any { return title(s, text, unicode.IsLetter) },
		"capitalize": func(s *state, text string, _ args) any {
			s.charge(len(text))
			_, size := utf8.DecodeRuneInString(text)
			return strings.ToUpper(text[:size]) + strings.ToLower(text[size:])
		},
		"count": func(s *state, text string, a args) any { return int64(strings.Count(text, a.text(s, 0, "sub", ""))) },
		"find": func(s *state, text string, a args) any {
			return runeIndex(text, strings.Index(text, a.text(s, 0, "sub", "")))
		},
		"rfind": func(s *state, text string, a args) any {
			return runeIndex(text, strings.LastIndex(text, a.text(s, 0, "sub", "")))
		},
		"join": func(s *state, text string, a args) any {
			for _, v := range s.iterate(a.get(0, "iterable", nil)) {
				if _, ok := v.(string); !ok {
					s.fail("sequence item: expected str instance, %s found", typeName(v))
				}
			}
			return filterJoin(s, a.get(0, "iterable", nil), args{pos: []any{text}})
		},
		"format": formatMethod,
		"zfill":  func(s *state, text string, a args) any { return padded(s, text, a, '0', 1) },
		"rjust":  func(s *state, text string, a args) any { return padded(s, text, a, ' ', 1) },
		"ljust":  func(s *state, text string, a args) any { return padded(s, text, a, ' ', 0) },
		"center": func(s *state, text string, a args) any { return padded(s, text, a, ' ', 0.5) },
		"partition": func(s *state, text string, a args) any {
			before, after, found := strings.Cut(text, a.text(s, 0, "sep", ""))
			sep := ""
			if found {
				sep = a.text(s, 0, "sep", "")
			}
			return &List{Items: []any{before, sep, after}, Tuple: true}
		},
	}
}

func every(text string, is func(rune) bool) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool { return !is(r) }) < 0
}

func runeIndex(text string, at int) int64 {
	if at < 0 {
		return -1
	}
	return int64(utf8.RuneCountInString(text[:at]))
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

// texts makes a list of strings.
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
			head := strings.TrimLeftFunc(rest, isSpace)
			return s.texts(append([]string{head}, fields[len(fields)-n:]...))
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

// title upper-cases the first character of each run of word characters.
func title(s *state, text string, isWord func(rune) bool) any {
	s.charge(len(text))
	inside := false
	return strings.Map(func(r rune) rune {
		first := !inside
		inside = isWord(r)
		if first {
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, text)
}

// padded fills text up to a width; share is how much of it goes to the left.
func padded(s *state, text string, a args, fill rune, share float64) any {
	width := a.integer(s, 0, "width", 80)
	pad := width - utf8.RuneCountInString(text)
	if pad <= 0 {
		return text
	}
	s.chargeTimes(1, int64(width))
	left := int(float64(pad) * share)
	return strings.Repeat(string(fill), left) + text + strings.Repeat(string(fill), pad-left)
}

// formatMethod is str.format with {}, {0}, {name} and simple widths after a colon.
func formatMethod(s *state, text string, a args) any {
	var b strings.Builder
	next := 0
	for text != "" {
		at := strings.IndexAny(text, "{}")
		if at < 0 {
			break
		}
		b.WriteString(text[:at])
		text = text[at:]
		if strings.HasPrefix(text, "{{") || strings.HasPrefix(text, "}}") {
			b.WriteByte(text[0])
			text = text[2:]
			continue
		}
		end := strings.IndexByte(text, '}')
		if text[0] == '}' || end < 0 {
			s.fail("single '%c' encountered in format string", text[0])
		}
		name, flags, _ := strings.Cut(text[1:end], ":")
		text = text[end+1:]
		if name == "" {
			name = strconv.Itoa(next)
			next++
		}
		var v any = Undefined{}
		if i, err := strconv.Atoi(name); err == nil {
			v = a.get(i, "", v)
		} else {
			v = a.get(unlimited, name, v)
		}
		if _, missing := v.(Undefined); missing {
			s.fail("no argument for {%s} in format string", name)
		}
		b.WriteString(s.formatField(flags, v))
	}
	s.charge(b.Len() + len(text))
	return b.String() + text
}

// formatField prints v as {:flags} does, for a width, precision and type.
func (s *state) formatField(flags string, v any) string {
	verb := byte(0)
	if n := len(flags); n > 0 && strings.IndexByte("sdfx", flags[n-1]) >= 0 {
		verb, flags = flags[n-1], flags[:n-1]
	}
	if len(flags) > 5 || strings.Trim(flags, "0123456789.") != "" {
		s.fail("format specifier '%s' is not supported", flags)
	}
	return s.formatOne(flags, verb, v)
}
