package jinja

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenText
	tokenOutput // {{
	tokenBlock  // {%
	tokenClose  // }} or %}
	tokenName
	tokenOp
	tokenString
	tokenInt
	tokenFloat
)

type token struct {
	kind tokenKind
	text string
	line int
}

// operators by length, longest first.
var operators = []string{
	"//", "**", "==", "!=", "<=", ">=",
	"+", "-", "*", "/", "%", "~", "|", "(", ")", "[", "]", "{", "}", ",", ".", ":", "<", ">", "=",
}

type lexer struct {
	src       string
	pos       int
	lineAt    int // where line was last counted
	line      int
	lineStart bool // pos is at the start of a line
	tokens    []token
}

// lex cuts a template into text and the tokens inside tags. It has already removed
// the white space around tags.
func lex(source string) []token {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.pos < len(l.src) {
		open := l.nextTag()
		text := l.src[l.pos:open]
		if open == len(l.src) {
			l.emit(tokenText, text)
			break
		}
		l.tag(text, open)
	}
	l.pos = len(l.src)
	l.emit(tokenEnd, "")
	return l.tokens
}

// nextTag returns the position of the next {{, {% or {#.
func (l *lexer) nextTag() int {
	for i := l.pos; i+1 < len(l.src); i++ {
		if l.src[i] == '{' && (l.src[i+1] == '{' || l.src[i+1] == '%' || l.src[i+1] == '#') {
			return i
		}
	}
	return len(l.src)
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.line += strings.Count(l.src[l.lineAt:l.pos], "\n")
	l.lineAt = l.pos
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

func (l *lexer) fail(message string) {
	l.emit(tokenEnd, "")
	panic(thrown{&SyntaxError{Line: l.line, Message: message}})
}

// tag handles the text before a tag and the tag itself.
func (l *lexer) tag(text string, open int) {
	kind := l.src[open+1]
	inside := open + 2
	sign := byte(0)
	if inside < len(l.src) && (l.src[inside] == '-' || l.src[inside] == '+') {
		sign = l.src[inside]
		inside++
	}
	text = l.trimBefore(text, kind, sign)
	if text != "" {
		l.emit(tokenText, text)
	}
	l.pos = inside
	switch kind {
	case '#':
		end := strings.Index(l.src[inside:], "#}")
		if end < 0 {
			l.fail("comment is not closed")
		}
		l.pos = inside + end + 2
		l.trimAfter(l.src[max(inside, l.pos-3)], true)
	case '{':
		l.emit(tokenOutput, "")
		l.inside("}}")
	case '%':
		if !l.raw() {
			l.emit(tokenBlock, "")
			l.inside("%}")
		}
	}
}

// trimBefore applies {%- and lstrip_blocks.
func (l *lexer) trimBefore(text string, kind, sign byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == '+' || kind == '{' {
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || l.lineStart) && strings.TrimLeftFunc(text[line:], isSpace) == "" {
		return text[:line]
	}
	return text
}

// trimAfter applies -%} and trim_blocks after a tag that ended at pos.
func (l *lexer) trimAfter(sign byte, block bool) {
	rest := l.src[l.pos:]
	switch {
	case sign == '-':
		l.pos += len(rest) - len(strings.TrimLeftFunc(rest, isSpace))
	case sign != '+' && block && strings.HasPrefix(rest, "\n"):
		l.pos++
	}
	l.lineStart = l.src[l.pos-1] == '\n'
}

// raw handles {% raw %}…{% endraw %} and reports whether there was one.
func (l *lexer) raw() bool {
	word, sign, after := l.bareTag(l.pos)
	if word != "raw" {
		return false
	}
	l.pos = after
	l.trimAfter(sign, false) // trim_blocks does not apply to the start of raw
	for at := l.pos; ; {
		open := strings.Index(l.src[at:], "{%")
		if open < 0 {
			l.fail("raw is not closed by endraw")
		}
		open += at
		at = open + 2
		before := byte(0)
		if at < len(l.src) && (l.src[at] == '-' || l.src[at] == '+') {
			before = l.src[at]
			at++
		}
		if word, sign, after = l.bareTag(at); word == "endraw" {
			l.emit(tokenText, l.trimBefore(l.src[l.pos:open], '%', before))
			l.pos = after
			l.trimAfter(sign, true)
			return true
		}
	}
}

// bareTag reads " word [-+]%}" at pos. If there is none, word is "".
func (l *lexer) bareTag(pos int) (word string, sign byte, after int) {
	rest := strings.TrimLeftFunc(l.src[pos:], isSpace)
	end := strings.IndexFunc(rest, func(r rune) bool { return r < 'a' || r > 'z' })
	if end < 0 {
		return "", 0, pos
	}
	word = rest[:end]
	rest = strings.TrimLeftFunc(rest[end:], isSpace)
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		sign, rest = rest[0], rest[1:]
	}
	if !strings.HasPrefix(rest, "%}") {
		return "", 0, pos
	}
	return word, sign, len(l.src) - len(rest) + 2
}

// inside cuts the inside of a tag into tokens until closer.
func (l *lexer) inside(closer string) {
	depth := 0
	for {
		rest := strings.TrimLeftFunc(l.src[l.pos:], isSpace)
		l.pos = len(l.src) - len(rest)
		if rest == "" {
			l.fail("tag is not closed by " + closer)
		}
		if depth == 0 {
			sign := byte(0)
			if rest[0] == '-' || rest[0] == '+' && closer == "%}" {
				sign = rest[0]
			}
			if sign != 0 && strings.HasPrefix(rest[1:], closer) || strings.HasPrefix(rest, closer) {
				l.emit(tokenClose, "")
				l.pos += len(closer)
				if !strings.HasPrefix(rest, closer) {
					l.pos++
				} else {
					sign = 0
				}
				l.trimAfter(sign, closer == "%}")
				return
			}
		}
		depth += l.one(rest)
	}
}

// one emits the token at the start of rest and returns its change of the bracket
// nesting.
func (l *lexer) one(rest string) int {
	c, _ := utf8.DecodeRuneInString(rest)
	switch {
	case c == '\'' || c == '"':
		l.text(rest)
	case c >= '0' && c <= '9':
		l.number(rest)
	case c == '_' || unicode.IsLetter(c):
		end := strings.IndexFunc(rest, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if end < 0 {
			end = len(rest)
		}
		l.emit(tokenName, rest[:end])
		l.pos += end
	default:
		for _, op := range operators {
			if strings.HasPrefix(rest, op) {
				l.emit(tokenOp, op)
				l.pos += len(op)
				switch op {
				case "(", "[", "{":
					return 1
				case ")", "]", "}":
					return -1
				}
				return 0
			}
		}
		l.fail("unexpected character " + strconv.QuoteRune(c))
	}
	return 0
}

var intPrefix = regexp.MustCompile(`^0(?:[xX](?:_?[0-9a-fA-F])+|[oO](?:_?[0-7])+|[bB](?:_?[01])+)`)

func (l *lexer) number(rest string) {
	digits := func(i int) int {
		for i < len(rest) && (rest[i] >= '0' && rest[i] <= '9' || rest[i] == '_') {
			i++
		}
		return i
	}
	isDigit := func(i int) bool { return i < len(rest) && rest[i] >= '0' && rest[i] <= '9' }
	if base := intPrefix.FindString(rest); base != "" {
		l.emit(tokenInt, strings.ReplaceAll(base, "_", ""))
		l.pos += len(base)
		return
	}
	kind, end := tokenInt, digits(0)
	if end < len(rest) && rest[end] == '.' && isDigit(end+1) {
		kind, end = tokenFloat, digits(end+1)
	}
	if end < len(rest) && (rest[end] == 'e' || rest[end] == 'E') {
		exp := end + 1
		if exp < len(rest) && (rest[exp] == '+' || rest[exp] == '-') {
			exp++
		}
		if isDigit(exp) {
			kind, end = tokenFloat, digits(exp)
		}
	}
	l.emit(kind, strings.ReplaceAll(rest[:end], "_", ""))
	l.pos += end
}

// text reads a quoted string with Python's escapes.
func (l *lexer) text(rest string) {
	var b strings.Builder
	for i := 1; i < len(rest); {
		switch {
		case rest[i] == rest[0]:
			l.emit(tokenString, b.String())
			l.pos += i + 1
			return
		case rest[i] == '\\' && i+1 < len(rest):
			i += unescape(&b, rest[i:])
		default:
			b.WriteByte(rest[i])
			i++
		}
	}
	l.fail("string is not closed")
}

var escapes = map[byte]byte{
	'n': '\n', 't': '\t', 'r': '\r', '\\': '\\', '\'': '\'', '"': '"',
	'a': '\a', 'b': '\b', 'f': '\f', 'v': '\v',
}

// unescape decodes the escape at the start of s and returns its length. An
// unknown escape stays unchanged, as in Python.
func unescape(b *strings.Builder, s string) int {
	if c, ok := escapes[s[1]]; ok {
		b.WriteByte(c)
		return 2
	}
	width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
	if width > 0 && len(s) >= 2+width {
		if v, err := strconv.ParseUint(s[2:2+width], 16, 32); err == nil {
			b.WriteRune(rune(v))
			return 2 + width
		}
	}
	if s[1] == '\n' {
		return 2
	}
	if s[1] >= '0' && s[1] <= '7' {
		end := 2
		for end < min(4, len(s)) && s[end] >= '0' && s[end] <= '7' {
			end++
		}
		v, _ := strconv.ParseUint(s[1:end], 8, 32)
		b.WriteRune(rune(v))
		return end
	}
	b.WriteByte('\\')
	return 1
}

// isSpace is Python's str.isspace of one character.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}
