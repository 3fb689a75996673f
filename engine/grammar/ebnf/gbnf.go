package ebnf

import (
	"github.com/forebay-io/forebay/engine/grammar"
)

const gbnfForm = "GBNF grammar"

// GBNF makes an expression of b that matches the texts of a grammar whose first rule
// is root.
func GBNF(b *grammar.Builder, text string) (grammar.Expr, error) {
	s, err := newScan(b, gbnfForm, text)
	if err != nil {
		return 0, err
	}
	for s.gbnfSpace(true); s.at < len(s.text) && s.err == nil; s.gbnfSpace(true) {
		r := &rule{line: s.line, name: s.word("-_")}
		s.gbnfSpace(false)
		if r.name == "" || !s.take("::=") {
			s.stop("a rule must begin with its name and ::=")
			break
		}
		s.gbnfSpace(true)
		r.body = s.gbnfChoice(false)
		s.define(r)
	}
	if s.err != nil {
		return 0, s.err
	}
	return s.start("root")
}

func (s *scan) gbnfSpace(newlines bool) bool { return s.space(newlines, "#") }

// gbnfChoice reads alternatives. In a group newlines mean nothing; elsewhere one ends
// the rule, unless the next line goes on with an alternative.
func (s *scan) gbnfChoice(group bool) *node {
	var list []*node
	for {
		list = append(list, s.gbnfSequence(group))
		at, line := s.at, s.line
		s.gbnfSpace(true)
		if !s.take("|") {
			if !group {
				s.at, s.line = at, line
			}
			return joined(kindChoice, list)
		}
		s.gbnfSpace(true)
	}
}

func (s *scan) gbnfSequence(group bool) *node {
	var list []*node
	for s.err == nil {
		if s.gbnfSpace(group) && !group || s.at == len(s.text) {
			break
		}
		c := s.peek()
		if c == '|' || c == ')' && group {
			break
		}
		line := s.line
		n := s.gbnfItem(c)
		if n == nil {
			break
		}
		n.line = line
		list = append(list, s.gbnfRepeats(n))
	}
	return joined(kindSeq, list)
}

func (s *scan) gbnfItem(c byte) *node {
	switch {
	case c == '"':
		return s.regexNode(s.b.Literal(s.quoted(`\"[]`)))
	case c == '[':
		return s.gbnfClass()
	case c == '.':
		s.at++
		return s.regexNode(s.b.Class(grammar.Complement(nil)...))
	case c == '(':
		s.at++
		if !s.deeper() {
			return nil
		}
		n := s.gbnfChoice(true)
		s.depth--
		if !s.take(")") {
			s.stop("a group has no end")
		}
		return &node{kind: kindSeq, list: []*node{n}}
	case c == '<' || c == '!':
		s.stop("tokens of the vocabulary are not supported; write text")
		return nil
	}
	name := s.word("-_")
	if name == "" {
		s.stop("%q cannot stand here", s.char())
		return nil
	}
	return &node{kind: kindRef, name: name}
}

// gbnfRepeats reads the repetitions after an item.
func (s *scan) gbnfRepeats(n *node) *node {
	for s.err == nil {
		at := s.at
		s.space(false)
		switch {
		case s.take("*"):
			n = s.repeat(n, 0, grammar.Unlimited)
		case s.take("+"):
			n = s.repeat(n, 1, grammar.Unlimited)
		case s.take("?"):
			n = s.repeat(n, 0, 1)
		case s.take("{"):
			least, most := s.bounds()
			n = s.repeat(n, least, most)
		default:
			s.at = at
			return n
		}
	}
	return n
}

// gbnfClass reads [a-z] and [^a-z].
func (s *scan) gbnfClass() *node {
	s.at++
	not := s.take("^")
	var ranges []grammar.Range
	member := func() rune {
		if s.take(`\`) {
			return s.escape(`\"[]-^`)
		}
		return s.char()
	}
	for !s.take("]") {
		if s.at == len(s.text) {
			s.stop("a class of characters has no end")
			return nil
		}
		r := grammar.Range{Lo: member()}
		r.Hi = r.Lo
		if s.has("-") && !s.has("-]") {
			s.at++
			r.Hi = member()
		}
		if r.Hi < r.Lo {
			s.stop("a range of characters goes from %q down to %q", r.Lo, r.Hi)
		}
		ranges = append(ranges, r)
	}
	if not {
		ranges = grammar.Complement(ranges)
	}
	return s.regexNode(s.b.Class(ranges...))
}
