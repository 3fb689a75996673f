package jinja

import "strings"

// markup is a string that is safe in HTML: a result of the filters safe and
// escape. Joining it with another string escapes that string.
type markup string

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// escaped returns v as markup.
func (s *state) escaped(v any) markup {
	if m, ok := v.(markup); ok {
		return m
	}
	text := s.str(v)
	s.charge(5 * len(text)) // the longest entity
	return markup(escaper.Replace(text))
}

// plain converts markup to a string, for code that treats both alike.
func plain(v any) any {
	if m, ok := v.(markup); ok {
		return string(m)
	}
	return v
}

// joined returns a + b of two strings. If one is markup, the other is escaped.
func (s *state) joined(a, b any) any {
	_, left := a.(markup)
	_, right := b.(markup)
	if left || right {
		return markup(s.join(string(s.escaped(a)), string(s.escaped(b))))
	}
	return s.join(a.(string), b.(string))
}

// keepsMarkup lists the filters that get markup as markup; the others get a string.
var keepsMarkup = map[string]bool{"safe": true, "e": true, "escape": true, "string": true, "default": true, "d": true}
