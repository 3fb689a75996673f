package ebnf

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/grammar"
)

// scan reads the text of a grammar.
type scan struct {
	lowerer
	text  string
	at    int
	line  int
	depth int // of groups
}

func newScan(b *grammar.Builder, form, text string) (*scan, error) {
	l := b.Limits()
	s := &scan{lowerer: lowerer{b: b, form: form, rules: map[string]*rule{}}, text: text, line: 1}
	switch {
	case len(text) > l.SourceSize:
		return nil, &grammar.LimitError{Limit: "bytes of a grammar", Max: l.SourceSize}
	case !utf8.ValidString(text):
		return nil, &grammar.SyntaxError{Kind: form, Line: 1, Reason: "it is not valid UTF-8"}
	}
	return s, nil
}

// stop ends the reading with an error.
func (s *scan) stop(format string, args ...any) {
	s.lowerer.fail(s.line, format, args...)
	s.at = len(s.text)
}

func (s *scan) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scan) has(prefix string) bool { return strings.HasPrefix(s.text[s.at:], prefix) }

func (s *scan) take(prefix string) bool {
	if !s.has(prefix) {
		return false
	}
	s.at += len(prefix)
	return true
}

// char takes one character.
func (s *scan) char() rune {
	r, n := utf8.DecodeRuneInString(s.text[s.at:])
	s.at += n
	if r == '\n' {
		s.line++
	}
	return r
}

// space passes over blanks and comments, which each of marks begins; newlines too, if
// so asked. It reports whether there was a newline.
func (s *scan) space(newlines bool, marks ...string) (newline bool) {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == ' ' || c == '\t' || c == '\r':
			s.at++
		case c == '\n':
			if newline = true; !newlines {
				return true
			}
			s.at++
			s.line++
		default:
			comment := false
			for _, mark := range marks {
				comment = comment || s.has(mark)
			}
			if !comment {
				return newline
			}
			for s.at < len(s.text) && s.text[s.at] != '\n' {
				s.at++
			}
		}
	}
	return newline
}

// word takes a name: letters, digits and the bytes of more.
func (s *scan) word(more string) string {
	from := s.at
	for s.at < len(s.text) {
		c := s.text[s.at]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(more, c) >= 0) {
			break
		}
		s.at++
	}
	return s.text[from:s.at]
}

// number takes a whole number.
func (s *scan) number() (n int, ok bool) {
	from := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	n, err := strconv.Atoi(s.text[from:s.at])
	return n, err == nil
}

// escape takes what follows a backslash.
func (s *scan) escape(also string) rune {
	if s.at == len(s.text) {
		s.stop("an escape has no end")
		return 0
	}
	c := s.char()
	digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[c]
	switch {
	case digits > 0:
		if s.at+digits <= len(s.text) {
			if n, err := strconv.ParseUint(s.text[s.at:s.at+digits], 16, 32); err == nil && n <= unicode.MaxRune {
				s.at += digits
				return rune(n)
			}
		}
		s.stop(`\%c needs %d hexadecimal digits of a code point`, c, digits)
	case c == 'n':
		return '\n'
	case c == 'r':
		return '\r'
	case c == 't':
		return '\t'
	case strings.ContainsRune(also, c):
		return c
	default:
		s.stop(`the escape \%c is not known`, c)
	}
	return 0
}

// quoted takes a text up to its closing quote.
func (s *scan) quoted(also string) string {
	var text strings.Builder
	s.at++
	for {
		switch {
		case s.at == len(s.text) || s.peek() == '\n':
			s.stop("a quoted text has no end")
			return ""
		case s.take(`"`):
			return text.String()
		case s.take(`\`):
			text.WriteRune(s.escape(also))
		default:
			text.WriteRune(s.char())
		}
	}
}

// deeper enters a group; it fails where they are too deep.
func (s *scan) deeper() bool {
	s.depth++
	if most := s.b.Limits().Nesting; s.depth > most {
		s.stop("groups are nested more than %d deep", most)
		return false
	}
	return true
}

// define adds a rule.
func (s *scan) define(r *rule) {
	if before, ok := s.rules[r.name]; ok {
		s.lowerer.fail(r.line, "%s is defined twice; it is on line %d too", r.name, before.line)
		return
	}
	s.rules[r.name] = r
}

func (s *scan) regexNode(re grammar.Regex) *node {
	return &node{kind: kindRegex, re: re, line: s.line}
}

// repeat is n from least to most times.
func (s *scan) repeat(n *node, least, most int) *node {
	limit := s.b.Limits().Count
	switch {
	case least > limit || most > limit:
		s.stop("a repetition of more than %d times", limit)
	case most != grammar.Unlimited && least > most:
		s.stop("a repetition of at least %d and at most %d times matches nothing", least, most)
	}
	return &node{kind: kindRepeat, list: []*node{n}, min: least, max: most, line: s.line}
}

// bounds takes {n}, {n,} or {n,m}, after the brace.
func (s *scan) bounds() (least, most int) {
	space := func() { s.space(true) }
	space()
	least, hasLeast := s.number()
	most = least
	space()
	if s.take(",") {
		space()
		n, ok := s.number()
		if most = n; !ok {
			most = grammar.Unlimited
		}
		hasLeast = hasLeast || ok
		space()
	}
	if !hasLeast || !s.take("}") {
		s.stop("a repetition must be written {n}, {n,} or {n,m}")
		return 0, 0
	}
	return least, most
}

// joined is one node of a list.
func joined(kind kind, list []*node) *node {
	if len(list) == 1 {
		return list[0]
	}
	return &node{kind: kind, list: list}
}
