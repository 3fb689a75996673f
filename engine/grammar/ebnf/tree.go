package ebnf

import (
	"fmt"

	"github.com/forebay-io/forebay/engine/grammar"
)

type kind uint8

const (
	kindRegex  kind = iota // re
	kindExpr               // expr, which came from elsewhere
	kindRef                // name
	kindSeq                // list
	kindChoice             // list
	kindRepeat             // list[0], min to max times
)

// node is a part of a rule.
type node struct {
	kind     kind
	re       grammar.Regex
	expr     grammar.Expr
	name     string
	line     int
	list     []*node
	min, max int
}

// rule is a named definition.
type rule struct {
	name     string
	line     int
	body     *node
	terminal bool // of Lark: its parts are not divided by what is ignored

	state   state
	regular bool // body has no expression and no recursion
	size    int  // of its regular expression, if it is regular
	re      grammar.Regex
	made    bool // re is set
	expr    grammar.Expr
	begun   bool // expr is set
}

type state uint8

const (
	unseen state = iota
	open
	seen
)

// regularSize is the largest rule that is put into others as a regular expression.
const regularSize = 2000

// lowerer makes a grammar's rules expressions of a builder.
type lowerer struct {
	b     *grammar.Builder
	form  string // "GBNF grammar" or "Lark grammar"
	rules map[string]*rule
	// ignored may stand after every terminal of a rule; nil for nothing.
	ignored *grammar.Expr
	todo    []*rule
	err     error
}

func (l *lowerer) fail(line int, format string, args ...any) {
	if l.err == nil {
		l.err = &grammar.SyntaxError{Kind: l.form, Line: line, Reason: fmt.Sprintf(format, args...)}
	}
}

// start is the expression of the rule that a text begins with.
func (l *lowerer) start(name string) (grammar.Expr, error) {
	first, ok := l.rules[name]
	if !ok {
		l.fail(1, "there is no rule %s, with which a text begins", name)
		return 0, l.err
	}
	for _, r := range l.rules {
		l.look(r)
	}
	if l.err != nil {
		return 0, l.err
	}
	e := l.rule(first)
	for len(l.todo) > 0 && l.err == nil {
		r := l.todo[len(l.todo)-1]
		l.todo = l.todo[:len(l.todo)-1]
		l.b.Define(r.expr, l.node(r.body))
	}
	if l.ignored != nil {
		e = l.b.Seq(*l.ignored, e)
	}
	return e, l.err
}

// look finds out whether a rule is regular, and that all it refers to is there.
func (l *lowerer) look(r *rule) {
	if r.state != unseen {
		return
	}
	r.state = open
	r.size, r.regular = l.measure(r.body, r)
	r.regular = r.regular && r.size <= regularSize
	r.state = seen
	if r.terminal && !r.regular {
		l.fail(r.line, "terminal %s refers to itself or to a rule, or is larger than %d parts", r.name, regularSize)
	}
}

// measure is the size of n as a regular expression, and whether it is one.
func (l *lowerer) measure(n *node, of *rule) (size int, regular bool) {
	switch n.kind {
	case kindRegex:
		return 1, true
	case kindExpr:
		return 1, false
	case kindRef:
		r, ok := l.rules[n.name]
		switch {
		case !ok:
			l.fail(n.line, "%s is not defined", n.name)
			return 1, false
		case r.state == open:
			return 1, false
		}
		l.look(r)
		// A rule of Lark is not part of a terminal, even where it could be.
		return r.size, r.regular && (!of.terminal || r.terminal)
	}
	regular = true
	for _, part := range n.list {
		partSize, partRegular := l.measure(part, of)
		size, regular = min(size+partSize, regularSize+1), regular && partRegular
	}
	return size + 1, regular
}

// regex is a regular part.
func (l *lowerer) regex(n *node) grammar.Regex {
	switch n.kind {
	case kindRegex:
		return n.re
	case kindRef:
		r := l.rules[n.name]
		if !r.made {
			r.re, r.made = l.regex(r.body), true
		}
		return r.re
	}
	list := make([]grammar.Regex, len(n.list))
	for i, part := range n.list {
		list[i] = l.regex(part)
	}
	switch n.kind {
	case kindSeq:
		return l.b.Cat(list...)
	case kindChoice:
		return l.b.Or(list...)
	}
	return l.b.Times(list[0], n.min, n.max)
}

// isRegular says whether n may be one terminal. Where something is ignored between
// terminals, only those of the text are.
func (l *lowerer) isRegular(n *node) bool {
	if n.kind == kindRef {
		r := l.rules[n.name]
		return r.regular && (l.ignored == nil || r.terminal)
	}
	if l.ignored != nil && n.kind != kindRegex {
		return false
	}
	for _, part := range n.list {
		if !l.isRegular(part) {
			return false
		}
	}
	return n.kind != kindExpr
}

// terminal is a terminal, with what may be ignored after it.
func (l *lowerer) terminal(name string, re grammar.Regex) grammar.Expr {
	e := l.b.Terminal(name, re)
	if l.ignored != nil {
		e = l.b.Seq(e, *l.ignored)
	}
	return e
}

// rule is the expression of a rule that is not regular, which start defines.
func (l *lowerer) rule(r *rule) grammar.Expr {
	if r.regular && (l.ignored == nil || r.terminal) {
		return l.terminal(r.name, l.regex(&node{kind: kindRef, name: r.name}))
	}
	if !r.begun {
		r.expr, r.begun = l.b.Rule(r.name), true
		l.todo = append(l.todo, r)
	}
	return r.expr
}

func (l *lowerer) node(n *node) grammar.Expr {
	switch {
	case n.kind == kindRef:
		return l.rule(l.rules[n.name])
	case l.isRegular(n):
		return l.terminal("a terminal", l.regex(n))
	}
	switch n.kind {
	case kindExpr:
		if l.ignored != nil {
			return l.b.Seq(n.expr, *l.ignored)
		}
		return n.expr
	case kindSeq:
		return l.sequence(n.list)
	case kindRepeat:
		return l.b.Repeat(l.node(n.list[0]), n.min, n.max)
	}
	list := make([]grammar.Expr, len(n.list))
	for i, part := range n.list {
		list[i] = l.node(part)
	}
	return l.b.Choice(list...)
}

// sequence joins regular neighbours to one terminal.
func (l *lowerer) sequence(parts []*node) grammar.Expr {
	var list []grammar.Expr
	for i := 0; i < len(parts); {
		end := i
		for l.ignored == nil && end < len(parts) && l.isRegular(parts[end]) {
			end++
		}
		if end <= i+1 {
			list = append(list, l.node(parts[i]))
			i++
			continue
		}
		list = append(list, l.terminal("a terminal", l.regex(&node{kind: kindSeq, list: parts[i:end]})))
		i = end
	}
	return l.b.Seq(list...)
}
