package jinja

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// filterTruncate shortens text that is longer than length and leeway, at a space
// unless killwords is true. Lengths are characters.
func filterTruncate(s *state, v any, a args) any {
	text, end := s.printed(v), a.text(s, 2, "end", "...")
	length, leeway := a.integer(s, 0, "length", 255), 5
	if a.get(3, "leeway", nil) != nil {
		leeway = a.integer(s, 3, "leeway", leeway)
	}
	short := length - utf8.RuneCountInString(end)
	switch {
	case short < 0:
		s.fail("expected length >= %d, got %d", length-short, length)
	case leeway < 0:
		s.fail("expected leeway >= 0, got %d", leeway)
	case utf8.RuneCountInString(text)-leeway <= length:
		return text
	}
	text = string([]rune(text)[:short])
	if i := strings.LastIndexByte(text, ' '); i >= 0 && !a.flag(1, "killwords", false) {
		text = text[:i]
	}
	return text + end
}

// filterURLEncode escapes text for a path, or the pairs of a dict or list for a query.
func filterURLEncode(s *state, v any, _ args) any {
	switch v.(type) {
	case *List, *Dict:
	default:
		return s.percentEncoded(v, "/")
	}
	items := v
	if d, ok := v.(*Dict); ok {
		items = s.pairs(d)
	}
	var parts []string
	for _, item := range s.iterate(items) {
		pair := s.iterate(item)
		if len(pair) != 2 {
			s.fail("cannot encode %s as a pair", typeName(item))
		}
		part := s.percentEncoded(pair[0], "") + "=" + s.percentEncoded(pair[1], "")
		parts = append(parts, strings.ReplaceAll(part, "%20", "+"))
	}
	return strings.Join(parts, "&")
}

func (s *state) percentEncoded(v any, safe string) string {
	text := s.str(v)
	s.charge(3 * len(text))
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("_.-~"+safe, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// filterFileSize writes a number of bytes with a decimal or binary prefix.
func filterFileSize(s *state, v any, a args) any {
	base, unit := 1000.0, "B"
	prefixes := []string{"k", "M", "G", "T", "P", "E", "Z", "Y"}
	if a.flag(0, "binary", false) {
		base, unit, prefixes[0] = 1024, "iB", "K"
	}
	size, ok := filterFloat(s, v, args{pos: []any{nil}}).(float64)
	switch {
	case !ok:
		s.fail("could not convert %s to float", typeName(v))
	case size == 1:
		return "1 Byte"
	case size < base:
		return fmt.Sprintf("%d Bytes", int64(size))
	}
	for i, prefix := range prefixes {
		if size /= base; size < base || i == len(prefixes)-1 {
			return fmt.Sprintf("%.1f %s%s", size, prefix, unit)
		}
	}
	return nil
}

// filterStripTags removes comments and tags, joins words by single spaces, and
// replaces entities. What is not closed stays, with all that follows.
func filterStripTags(s *state, v any, _ args) any {
	rest := s.printed(v)
	var b strings.Builder
	for {
		s.step()
		start := strings.IndexByte(rest, '<')
		if start < 0 {
			break
		}
		from, closing := start, ">"
		if strings.HasPrefix(rest[start:], "<!--") {
			from, closing = start+len("<!--"), "-->"
		}
		end := strings.Index(rest[from:], closing)
		if end < 0 {
			break
		}
		b.WriteString(rest[:start])
		rest = rest[from+end+len(closing):]
	}
	b.WriteString(rest)
	return html.UnescapeString(strings.Join(strings.FieldsFunc(b.String(), isSpace), " "))
}
