package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// Expressions, from the loosest binding to the tightest, as in Jinja2:
// inline if, or, and, not, comparisons, + and -, ~, * / // %, **, sign, then
// postfixes ([…] .name (…)), filters and tests.

// tuple parses one item, or several items separated by commas as a tuple.
func (p *parser) tuple(item func() expr) expr {
	first := item()
	if !p.isOp(",") {
		return first
	}
	list := &listExpr{items: []expr{first}, tuple: true}
	for p.acceptOp(",") {
		if p.peek().kind == tokenClose {
			break
		}
		list.items = append(list.items, item())
	}
	return list
}

func (p *parser) expr() expr {
	p.enter()
	defer p.leave()
	value := p.or()
	for n := 0; p.acceptWord("if"); n++ {
		p.link(n)
		c := &condExpr{yes: value, cond: p.or()}
		if p.acceptWord("else") {
			c.no = p.expr()
		}
		value = c
	}
	return value
}

// link bounds a chain of n operators, because each makes the tree deeper.
func (p *parser) link(n int) {
	if n >= chainMax {
		p.fail("more than %d operators in a row", chainMax)
	}
}

func (p *parser) or() expr {
	left := p.and()
	for n := 0; p.acceptWord("or"); n++ {
		p.link(n)
		left = &logicExpr{or: true, left: left, right: p.and()}
	}
	return left
}

func (p *parser) and() expr {
	left := p.not()
	for n := 0; p.acceptWord("and"); n++ {
		p.link(n)
		left = &logicExpr{left: left, right: p.not()}
	}
	return left
}

func (p *parser) not() expr {
	if !p.isWord("not") {
		return p.compare()
	}
	p.enter()
	defer p.leave()
	p.at++
	return &notExpr{p.not()}
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) compare() expr {
	left := p.sum()
	c := &compareExpr{first: left}
	for {
		t := p.peek()
		op := ""
		switch {
		case t.kind == tokenOp && slices.Contains(comparisons, t.text):
			op = t.text
			p.at++
		case p.acceptWord("in"):
			op = "in"
		case p.isWord("not") && p.tokens[p.at+1].kind == tokenName && p.tokens[p.at+1].text == "in":
			op = "not in"
			p.at += 2
		}
		if op == "" {
			break
		}
		c.ops = append(c.ops, op)
		c.rest = append(c.rest, p.sum())
	}
	if len(c.ops) == 0 {
		return left
	}
	return c
}

// binary parses operands with left-associative operators of one level.
func (p *parser) binary(operand func() expr, ops ...string) expr {
	left := operand()
	for n := 0; ; n++ {
		t := p.peek()
		if t.kind != tokenOp || !slices.Contains(ops, t.text) {
			return left
		}
		p.link(n)
		p.at++
		left = &binaryExpr{op: t.text, left: left, right: operand()}
	}
}

func (p *parser) sum() expr     { return p.binary(p.concat, "+", "-") }
func (p *parser) concat() expr  { return p.binary(p.product, "~") }
func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }
func (p *parser) power() expr   { return p.binary(p.signed, "**") }

func (p *parser) signed() expr { return p.unary(true) }

func (p *parser) unary(filtered bool) expr {
	p.enter()
	defer p.leave()
	var value expr
	switch {
	case p.acceptOp("-"):
		value = &negateExpr{p.unary(false)}
	case p.acceptOp("+"):
		value = p.unary(false)
	default:
		value = p.postfix(p.primary())
	}
	if filtered {
		value = p.filters(value)
	}
	return value
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokenName:
		switch t.text {
		case "true", "True":
			return literal{true}
		case "false", "False":
			return literal{false}
		case "none", "None":
			return literal{nil}
		}
		if p.special != nil {
			p.special.see(t.text)
		}
		return nameExpr(t.text)
	case tokenString:
		var text strings.Builder
		text.WriteString(t.text)
		for p.peek().kind == tokenString {
			text.WriteString(p.next().text)
		}
		return literal{text.String()}
	case tokenInt:
		return literal{p.integer(t.text)}
	case tokenFloat:
		v, _ := strconv.ParseFloat(t.text, 64)
		return literal{v}
	case tokenOp:
		switch t.text {
		case "(":
			return p.paren()
		case "[":
			return &listExpr{items: p.items("]")}
		case "{":
			return p.dict()
		}
	}
	p.at = max(p.at-1, 0)
	p.fail("expected a value, found %s", describe(t))
	return nil
}

func (p *parser) paren() expr {
	if p.acceptOp(")") {
		return &listExpr{tuple: true}
	}
	first := p.expr()
	if p.acceptOp(")") {
		return first
	}
	p.needOp(",")
	return &listExpr{items: append([]expr{first}, p.items(")")...), tuple: true}
}

// items parses values separated by commas up to the closing bracket.
func (p *parser) items(end string) []expr {
	var list []expr
	for !p.acceptOp(end) {
		list = append(list, p.expr())
		if !p.acceptOp(",") && !p.isOp(end) {
			p.fail("expected %q, found %s", end, describe(p.peek()))
		}
	}
	return list
}

func (p *parser) dict() expr {
	d := &dictExpr{}
	for !p.acceptOp("}") {
		d.keys = append(d.keys, p.expr())
		p.needOp(":")
		d.values = append(d.values, p.expr())
		if !p.acceptOp(",") && !p.isOp("}") {
			p.fail("expected \"}\", found %s", describe(p.peek()))
		}
	}
	return d
}

// postfix parses [index], .name and (call) after value. Each makes the tree
// deeper, so each counts as nesting.
func (p *parser) postfix(value expr) expr {
	depth := p.depth
	defer func() { p.depth = depth }()
	for {
		switch {
		case p.acceptOp("."):
			if t := p.peek(); t.kind == tokenInt {
				p.at++
				value = &itemExpr{value, literal{p.integer(t.text)}}
			} else {
				value = &attrExpr{value, p.needName()}
			}
		case p.acceptOp("["):
			value = p.subscript(value)
		case p.acceptOp("("):
			value = &callExpr{fn: value, args: p.arguments()}
		default:
			return value
		}
		p.enter()
	}
}

func (p *parser) subscript(value expr) expr {
	var parts [3]expr
	n := 0
	for !p.acceptOp("]") {
		if p.acceptOp(":") {
			if n++; n > 2 {
				p.fail("a slice has at most three parts")
			}
			continue
		}
		if parts[n] != nil {
			p.fail("expected \"]\", found %s", describe(p.peek()))
		}
		parts[n] = p.expr()
	}
	if n > 0 {
		return &sliceExpr{value, parts}
	}
	if parts[0] == nil {
		p.fail("expected a subscript")
	}
	return &itemExpr{value, parts[0]}
}

func (p *parser) arguments() arguments {
	var a arguments
	for n := 0; !p.acceptOp(")"); n++ {
		if n > argumentsMax {
			p.fail("more than %d arguments", argumentsMax)
		}
		next := p.tokens[min(p.at+1, len(p.tokens)-1)]
		switch {
		case a.unpackedNamed != nil || a.unpacked != nil && p.isOp("*"):
			p.fail("expected \")\", found %s", describe(p.peek()))
		case p.acceptOp("*"):
			a.unpacked = p.expr()
		case p.acceptOp("**"):
			a.unpackedNamed = p.expr()
		case p.peek().kind == tokenName && next.kind == tokenOp && next.text == "=":
			a.names = append(a.names, p.needName())
			p.needOp("=")
			a.named = append(a.named, p.expr())
		case len(a.names) > 0 || a.unpacked != nil:
			p.fail("a positional argument follows a named one")
		default:
			a.positional = append(a.positional, p.expr())
		}
		if !p.acceptOp(",") && !p.isOp(")") {
			p.fail("expected \")\", found %s", describe(p.peek()))
		}
	}
	return a
}

// filters parses |filter and "is test" after value, with their arguments.
func (p *parser) filters(value expr) expr {
	depth := p.depth
	defer func() { p.depth = depth }()
	for {
		switch {
		case p.acceptOp("|"):
			value = p.filterCall(value)
		case p.acceptWord("is"):
			value = p.test(value)
		case p.acceptOp("("):
			value = &callExpr{fn: value, args: p.arguments()}
		default:
			return value
		}
		p.enter()
	}
}

func (p *parser) filterCall(value expr) expr {
	f := &filterExpr{in: value, name: p.needName()}
	if p.acceptOp("(") {
		f.args = p.arguments()
	}
	return f
}

// notArguments lists the words after a test that are not its argument.
var notArguments = []string{"else", "or", "and", "if", "is", "in", "not", "recursive"}

func (p *parser) test(value expr) expr {
	t := &testExpr{in: value, negate: p.acceptWord("not")}
	if t.name = p.needName(); p.acceptOp("(") {
		t.args = p.arguments()
		return t
	}
	next := p.peek()
	switch {
	case next.kind == tokenName && slices.Contains(notArguments, next.text):
	case next.kind == tokenName, next.kind == tokenString, next.kind == tokenInt, next.kind == tokenFloat,
		p.isOp("["), p.isOp("{"):
		t.args.positional = []expr{p.postfix(p.primary())}
	}
	return t
}
