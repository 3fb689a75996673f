package jinja

import (
	"fmt"
	"math/big"
	"strconv"
)

// Limits of the parser. They keep a hostile file from using up memory or stack.
const (
	sourceBytesMax = 1 << 20
	nestingMax     = 200
	chainMax       = 1000
	argumentsMax   = 1000
)

// SyntaxError is an error of Parse, with its line.
type SyntaxError struct {
	Line    int
	Message string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("template line %d: %s", e.Line, e.Message)
}

// thrown carries an error up to Parse or Render.
type thrown struct{ err error }

// Template is a parsed template. Renders do not change it.
type Template struct {
	body []stmt
	// FromJSON, if set before the first Render, parses text for the filter
	// from_json. The default is ParseJSON.
	FromJSON func(text string) (any, error)
}

// Parse reads a template. It fails with a *SyntaxError.
func Parse(source string) (t *Template, err error) {
	if len(source) > sourceBytesMax {
		return nil, &SyntaxError{Line: 1, Message: fmt.Sprintf("template has %d bytes; at most %d are allowed", len(source), sourceBytesMax)}
	}
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(thrown)
			if !ok {
				panic(r)
			}
			t, err = nil, e.err
		}
	}()
	p := &parser{tokens: lex(source)}
	body, _ := p.body("")
	return &Template{body: body}, nil
}

type parser struct {
	tokens []token
	at     int
	depth  int
	loops  int // enclosing for loops, for break and continue
	// special belongs to the enclosing macro; nil outside of macros.
	special *special
}

func (p *parser) fail(format string, args ...any) {
	panic(thrown{&SyntaxError{Line: p.tokens[p.at].line, Message: fmt.Sprintf(format, args...)}})
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokenEnd {
		p.at++
	}
	return t
}

func (p *parser) isOp(op string) bool {
	t := p.peek()
	return t.kind == tokenOp && t.text == op
}

func (p *parser) isWord(word string) bool {
	t := p.peek()
	return t.kind == tokenName && t.text == word
}

// acceptOp and acceptWord consume the token if it is next.
func (p *parser) acceptOp(op string) bool {
	if p.isOp(op) {
		p.at++
		return true
	}
	return false
}

func (p *parser) acceptWord(word string) bool {
	if p.isWord(word) {
		p.at++
		return true
	}
	return false
}

func (p *parser) needOp(op string) {
	if !p.acceptOp(op) {
		p.fail("expected %q, found %s", op, describe(p.peek()))
	}
}

func (p *parser) needName() string {
	t := p.next()
	if t.kind != tokenName {
		p.at--
		p.fail("expected a name, found %s", describe(t))
	}
	return t.text
}

func (p *parser) needClose() {
	if t := p.peek(); t.kind != tokenClose {
		p.fail("expected the end of the tag, found %s", describe(t))
	}
	p.at++
}

func describe(t token) string {
	switch t.kind {
	case tokenEnd:
		return "the end of the template"
	case tokenClose:
		return "the end of the tag"
	case tokenText, tokenOutput, tokenBlock:
		return "text"
	default:
		return strconv.Quote(t.text)
	}
}

// enter bounds the nesting of expressions and blocks.
func (p *parser) enter() {
	if p.depth++; p.depth > nestingMax {
		p.fail("nested deeper than %d", nestingMax)
	}
}

func (p *parser) leave() { p.depth-- }

// integer returns the value of an integer literal.
func (p *parser) integer(text string) any {
	if v, err := strconv.ParseInt(text, 0, 64); err == nil {
		return v
	}
	if len(text) > bigBitsMax/4 {
		p.fail("a number of %d digits; at most %d are allowed", len(text), bigBitsMax/4)
	}
	v, ok := new(big.Int).SetString(text, 0)
	if !ok {
		p.fail("%q is not a number", text)
	}
	return v
}
