package jinja

import "slices"

// body parses up to and including one of the closing words and returns that word.
// Without words it parses to the end of the template.
func (p *parser) body(open string, words ...string) ([]stmt, string) {
	p.enter()
	defer p.leave()
	var list []stmt
	for {
		switch t := p.next(); t.kind {
		case tokenEnd:
			if len(words) > 0 {
				p.fail("%s is not closed by %s", open, words[len(words)-1])
			}
			return list, ""
		case tokenText:
			list = append(list, textStmt(t.text))
		case tokenOutput:
			value := p.tuple(p.expr)
			p.needClose()
			list = append(list, &outputStmt{t.line, value})
		case tokenBlock:
			word := p.needName()
			if slices.Contains(words, word) {
				return list, word
			}
			list = append(list, p.block(word, t.line))
		default:
			p.fail("unexpected %s", describe(t))
		}
	}
}

func (p *parser) block(word string, line int) stmt {
	switch word {
	case "if":
		return p.ifBlock(line)
	case "for":
		return p.forBlock(line)
	case "set":
		return p.set(line)
	case "macro":
		return p.macro(line)
	case "call":
		return p.callBlock(line)
	case "filter":
		return p.filterBlock(line)
	case "with":
		return p.with(line)
	case "generation":
		p.needClose()
		body, _ := p.body(word, "endgeneration")
		p.needClose()
		return &scopeStmt{body: body}
	case "block": // without inheritance a block is its own content
		p.needName()
		p.needClose()
		body, _ := p.body(word, "endblock")
		if p.peek().kind == tokenName {
			p.needName()
		}
		p.needClose()
		return &scopeStmt{body: body}
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%s outside of a loop", word)
		}
		p.needClose()
		return jumpStmt(map[string]jump{"break": jumpBreak, "continue": jumpContinue}[word])
	}
	p.fail("unknown tag %q", word)
	return nil
}

func (p *parser) ifBlock(line int) stmt {
	s := &ifStmt{line: line}
	for {
		s.conds = append(s.conds, p.tuple(p.or))
		p.needClose()
		body, word := p.body("if", "elif", "else", "endif")
		s.bodies = append(s.bodies, body)
		if word == "else" {
			p.needClose()
			s.otherwise, word = p.body("if", "endif")
		}
		if word == "endif" {
			p.needClose()
			return s
		}
	}
}

func (p *parser) forBlock(line int) stmt {
	s := &forStmt{line: line, targets: p.targets()}
	if !p.acceptWord("in") {
		p.fail("expected \"in\", found %s", describe(p.peek()))
	}
	s.over = p.tuple(p.or)
	if p.acceptWord("if") {
		s.cond = p.expr()
	}
	s.recursive = p.acceptWord("recursive")
	p.needClose()
	p.loops++
	body, word := p.body("for", "else", "endfor")
	p.loops--
	s.body = body
	if word == "else" {
		p.needClose()
		s.otherwise, _ = p.body("for", "endfor")
	}
	p.needClose()
	return s
}

// target is the left side of an assignment: one name or several.
type target struct {
	name string
	list []target // nil for a name
}

// targets parses one target, or several separated by commas.
func (p *parser) targets() target {
	p.enter()
	defer p.leave()
	one := func() target {
		if p.acceptOp("(") {
			t := p.targets()
			p.needOp(")")
			return t
		}
		name := p.needName()
		switch name {
		case "true", "false", "none", "True", "False", "None":
			p.fail("%s cannot be assigned to", name)
		}
		return target{name: name}
	}
	first := one()
	if !p.isOp(",") {
		return first
	}
	t := target{list: []target{first}}
	for p.acceptOp(",") {
		if p.isOp("=") || p.isOp(")") || p.isWord("in") {
			break
		}
		t.list = append(t.list, one())
	}
	return t
}

func (p *parser) set(line int) stmt {
	s := &setStmt{line: line, target: p.targets()}
	if s.target.list == nil && p.acceptOp(".") {
		s.field = p.needName()
	}
	if p.acceptOp("=") {
		s.value = p.tuple(p.expr)
		p.needClose()
		return s
	}
	if s.target.list != nil {
		p.fail("expected \"=\", found %s", describe(p.peek()))
	}
	block := &captured{}
	s.value = p.filters(block)
	p.needClose()
	block.body, _ = p.body("set", "endset")
	p.needClose()
	return s
}

func (p *parser) filterBlock(line int) stmt {
	block := &captured{}
	value := p.filterCall(block)
	value = p.filters(value)
	p.needClose()
	block.body, _ = p.body("filter", "endfilter")
	p.needClose()
	return &outputStmt{line, value}
}

func (p *parser) with(line int) stmt {
	s := &withStmt{line: line}
	for p.peek().kind != tokenClose {
		s.names = append(s.names, target{name: p.needName()})
		p.needOp("=")
		s.values = append(s.values, p.expr())
		if !p.acceptOp(",") {
			break
		}
	}
	p.needClose()
	s.body, _ = p.body("with", "endwith")
	p.needClose()
	return s
}

func (p *parser) macro(line int) stmt {
	m := &macroStmt{line: line, name: p.needName()}
	p.needOp("(")
	p.parameters(m)
	p.needClose()
	p.macroBody(m, "macro", "endmacro")
	return m
}

func (p *parser) callBlock(line int) stmt {
	m := &macroStmt{line: line, name: "caller"}
	if p.acceptOp("(") {
		p.parameters(m)
	}
	c, ok := p.expr().(*callExpr)
	if !ok {
		p.fail("call needs a macro call")
	}
	p.needClose()
	p.macroBody(m, "call", "endcall")
	c.caller = m
	return &outputStmt{line, c}
}

// macroBody parses the body of m and notes which special names it uses. break and
// continue in it cannot leave the macro.
func (p *parser) macroBody(m *macroStmt, open, end string) {
	loops, outer := p.loops, p.special
	p.loops, p.special = 0, &m.special
	m.body, _ = p.body(open, end)
	p.loops, p.special = loops, outer
	p.needClose()
	if outer != nil {
		outer.varargs = outer.varargs || m.special.varargs
		outer.kwargs = outer.kwargs || m.special.kwargs
		outer.caller = outer.caller || m.special.caller
	}
}

func (p *parser) parameters(m *macroStmt) {
	for !p.acceptOp(")") {
		m.params = append(m.params, p.needName())
		if len(m.params) > argumentsMax {
			p.fail("more than %d parameters", argumentsMax)
		}
		var value expr
		if p.acceptOp("=") {
			value = p.expr()
		}
		m.defaults = append(m.defaults, value)
		if !p.acceptOp(",") && !p.isOp(")") {
			p.fail("expected \")\", found %s", describe(p.peek()))
		}
	}
}
