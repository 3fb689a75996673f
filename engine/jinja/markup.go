package jinja

import "strings"

// markup is a string that is safe to be part of HTML: what the filters safe
// and escape give. Joined with other strings, it escapes them.
type markup string

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// escaped is v as markup.
func (s *state) escaped(v any) markup {
	if m, ok := v.(markup); ok {
		return m
	}
	text := s.str(v)
	s.charge(5 * len(text)) // the longest entity
	return markup(escaper.Replace(text))
}

// plain makes a string of markup, for all that treats the two alike.
func plain(v any) any {
	if m, ok := v.(markup); ok {
		return string(m)
	}
	return v
}

// joined is a + b of two strings, escaped where one of them is markup.
func (s *state) joined(a, b any) any {
	_, left := a.(markup)
	_, right := b.(markup)
	if left || right {
		return markup(s.join(string(s.escaped(a)), string(s.escaped(b))))
	}
	return s.join(a.(string), b.(string))
}

// keepsMarkup are the filters whose value stays markup; to the others it is a string.
var keepsMarkup = map[string]bool{"safe": true, "e": true, "escape": true, "string": true, "default": true, "d": true}
