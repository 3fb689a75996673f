package ebnf

import (
	"encoding/json"
	"strings"
	"unicode"

	"github.com/forebay-io/forebay/engine/grammar"
)

const larkForm = "Lark grammar"

// JSON makes an expression of the text of a JSON Schema, for %json.
type JSON func(schema string) (grammar.Expr, error)

// Lark makes an expression of b that matches the texts of a grammar whose first rule
// is start.
func Lark(b *grammar.Builder, text string, schema JSON) (grammar.Expr, error) {
	s, err := newScan(b, larkForm, text)
	if err != nil {
		return 0, err
	}
	p := &lark{scan: s, json: schema}
	for p.space(true); p.at < len(p.text) && p.err == nil; p.space(true) {
		if p.take("%") {
			p.directive()
		} else {
			p.definition()
		}
	}
	if p.err != nil {
		return 0, p.err
	}
	if len(p.ignore) > 0 {
		whole := &rule{name: "what is ignored", body: joined(kindChoice, p.ignore), terminal: true}
		if p.look(whole); p.err != nil {
			return 0, p.err
		}
		e := b.Repeat(b.Terminal(whole.name, p.regex(whole.body)), 0, grammar.Unlimited)
		p.ignored = &e
	}
	return p.start("start")
}

// lark reads a grammar of Lark.
type lark struct {
	*scan
	json   JSON
	ignore []*node
}

func (p *lark) space(newlines bool) bool { return p.scan.space(newlines, "//", "#") }

func (p *lark) name() string { return p.word("_") }

// definition reads a rule or a terminal, by the case of its name.
func (p *lark) definition() {
	for p.take("?") || p.take("!") { // about the tree alone
	}
	r := &rule{line: p.line, name: p.name()}
	r.terminal = r.name != "" && r.name == strings.ToUpper(r.name)
	if p.take(".") { // a priority
		p.number()
	}
	p.space(false)
	switch {
	case r.name == "":
		p.stop("a rule must begin with its name and a colon")
		return
	case p.has("{") || p.has("["):
		p.stop("%s has parameters or attributes, which are not supported", r.name)
		return
	case !p.take(":"):
		p.stop("%s must be followed by a colon", r.name)
		return
	}
	r.body = p.choice(false, "")
	p.define(r)
}

// choice reads alternatives. end is what closes the group.
func (p *lark) choice(group bool, end string) *node {
	var list []*node
	for {
		list = append(list, p.sequence(group, end))
		at, line := p.at, p.line
		p.space(true)
		if !p.take("|") {
			if !group {
				p.at, p.line = at, line
			}
			return joined(kindChoice, list)
		}
	}
}

func (p *lark) sequence(group bool, end string) *node {
	var list []*node
	for p.err == nil {
		if p.space(group) && !group || p.at == len(p.text) || p.has("|") || group && p.has(end) {
			break
		}
		if p.take("->") { // an alias, about the tree alone
			p.space(false)
			p.name()
			continue
		}
		line := p.line
		n := p.item()
		if n == nil {
			break
		}
		n.line = line
		list = append(list, p.repeats(n))
	}
	return joined(kindSeq, list)
}

func (p *lark) item() *node {
	switch c := p.peek(); {
	case c == '"':
		return p.literal()
	case c == '/':
		return p.pattern()
	case p.take("("):
		return p.group(")")
	case p.take("["):
		if n := p.group("]"); n != nil {
			return p.repeat(n, 0, 1)
		}
		return nil
	case c == '<':
		p.stop("tokens of the vocabulary are not supported; write text")
		return nil
	case p.take("%json"):
		return p.schema()
	case c == '%':
		p.stop("%.12q is not supported within a rule", p.text[p.at:min(len(p.text), p.at+12)])
		return nil
	}
	name := p.name()
	switch {
	case name == "":
		p.stop("%q cannot stand here", p.char())
		return nil
	case p.has("{"):
		return p.braced(name)
	}
	return &node{kind: kindRef, name: name}
}

// braced is a name before a brace: a repetition, or the arguments of a template.
func (p *lark) braced(name string) *node {
	if rest := p.text[p.at+1:]; len(rest) > 0 && (rest[0] >= '0' && rest[0] <= '9' || rest[0] == ',') {
		return &node{kind: kindRef, name: name}
	}
	p.stop("%s{…} is a template, which is not supported", name)
	return nil
}

func (p *lark) group(end string) *node {
	if !p.deeper() {
		return nil
	}
	n := p.choice(true, end)
	p.depth--
	if !p.take(end) {
		p.stop("a group has no end")
	}
	return &node{kind: kindSeq, list: []*node{n}}
}

// literal reads "text" and "text"i, and the range "a".."z".
func (p *lark) literal() *node {
	text := p.quoted(`\"/'`)
	if p.take("..") {
		if p.peek() != '"' {
			p.stop(`a range must be written "a".."z"`)
			return nil
		}
		to := []rune(p.quoted(`\"/'`))
		from := []rune(text)
		if len(from) != 1 || len(to) != 1 || from[0] > to[0] {
			p.stop(`a range must be of one character each, the first before the last`)
			return nil
		}
		return p.regexNode(p.b.Class(grammar.Range{Lo: from[0], Hi: to[0]}))
	}
	if !p.take("i") {
		return p.regexNode(p.b.Literal(text))
	}
	var list []grammar.Regex
	for _, r := range text {
		list = append(list, p.b.Class(folded([]grammar.Range{{Lo: r, Hi: r}})...))
	}
	return p.regexNode(p.b.Cat(list...))
}

// foldMost is the most characters of one class that get their other cases.
const foldMost = 1 << 12

// folded adds the other cases of every character.
func folded(ranges []grammar.Range) []grammar.Range {
	all := ranges
	left := foldMost
	for _, r := range ranges {
		for c := r.Lo; c <= r.Hi && left > 0; c++ {
			left--
			for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
				all = append(all, grammar.Range{Lo: f, Hi: f})
			}
		}
	}
	return all
}

// pattern reads /regular expression/ with flags.
func (p *lark) pattern() *node {
	p.at++
	from := p.at
	for p.at < len(p.text) && p.text[p.at] != '/' && p.text[p.at] != '\n' {
		if p.text[p.at] == '\\' {
			p.at++
		}
		p.at++
	}
	if p.at >= len(p.text) || p.text[p.at] != '/' {
		p.stop("a regular expression has no end")
		return nil
	}
	source := p.text[from:p.at]
	p.at++
	o := grammar.PatternOptions{}
	for strings.IndexByte("imslux", p.peek()) >= 0 && p.at < len(p.text) {
		switch c := p.peek(); c {
		case 'i':
			o.Alphabet = func(r []grammar.Range) grammar.Regex { return p.b.Class(folded(r)...) }
		case 'u':
		default:
			p.stop("the flag %c of a regular expression is not supported", c)
			return nil
		}
		p.at++
	}
	re, err := p.b.Pattern(source, o)
	if err != nil {
		p.stop("in /%.40s/: %v", source, err)
		return nil
	}
	return p.regexNode(re)
}

// repeats reads ?, *, +, {n,m}, ~n and ~n..m after an item.
func (p *lark) repeats(n *node) *node {
	for p.err == nil {
		at := p.at
		p.scan.space(false)
		switch {
		case p.take("*"):
			n = p.repeat(n, 0, grammar.Unlimited)
		case p.take("+"):
			n = p.repeat(n, 1, grammar.Unlimited)
		case p.has("?") && p.at == at: // before a name it is about the tree
			p.at++
			n = p.repeat(n, 0, 1)
		case p.take("{"):
			least, most := p.bounds()
			n = p.repeat(n, least, most)
		case p.take("~"):
			n = p.counted(n)
		default:
			p.at = at
			return n
		}
	}
	return n
}

func (p *lark) counted(n *node) *node {
	p.scan.space(false)
	least, ok := p.number()
	most := least
	p.scan.space(false)
	if ok && p.take("..") {
		p.scan.space(false)
		most, ok = p.number()
	}
	if !ok {
		p.stop("a repetition must be written ~n or ~n..m")
		return n
	}
	return p.repeat(n, least, most)
}

// schema reads the JSON Schema after %json.
func (p *lark) schema() *node {
	p.space(true)
	d := json.NewDecoder(strings.NewReader(p.text[p.at:]))
	var raw json.RawMessage
	if p.json == nil || d.Decode(&raw) != nil {
		p.stop("%%json must be followed by a JSON Schema")
		return nil
	}
	e, err := p.json(string(raw))
	if err != nil {
		p.stop("%%json: %v", err)
		return nil
	}
	p.line += strings.Count(p.text[p.at:p.at+int(d.InputOffset())], "\n")
	p.at += int(d.InputOffset())
	return &node{kind: kindExpr, expr: e}
}

// directive reads what follows a percent sign.
func (p *lark) directive() {
	switch name := p.name(); name {
	case "ignore":
		p.space(false)
		n := p.choice(false, "")
		p.ignore = append(p.ignore, n)
	case "import":
		p.imports()
	default:
		p.stop("%%%s is not supported", name)
	}
}

// imports reads %import common.NAME, -> ALIAS, and %import common (NAME, NAME).
func (p *lark) imports() {
	p.space(false)
	if p.name() != "common" {
		p.stop("only %%import common is supported")
		return
	}
	if p.take(".") {
		name := p.name()
		as := name
		p.space(false)
		if p.take("->") {
			p.space(false)
			as = p.name()
		}
		p.common(name, as)
		return
	}
	p.space(false)
	if !p.take("(") {
		p.stop("%%import must be written %%import common.NAME")
		return
	}
	for p.space(true); !p.take(")"); p.space(true) {
		name := p.name()
		if p.common(name, name); p.err != nil {
			return
		}
		p.space(true)
		p.take(",")
	}
}

// common defines a terminal of Lark's library.
func (p *lark) common(name, as string) {
	source, ok := commonTerminals[name]
	if !ok {
		p.stop("common.%s is not known", name)
		return
	}
	re, err := p.b.Pattern(source, grammar.PatternOptions{})
	if err != nil {
		p.stop("common.%s: %v", name, err)
		return
	}
	p.define(&rule{name: as, line: p.line, body: p.regexNode(re), terminal: true})
}

// commonTerminals are those of Lark's common library, as regular expressions.
var commonTerminals = map[string]string{
	"DIGIT": `[0-9]`, "HEXDIGIT": `[0-9a-fA-F]`, "INT": `[0-9]+`, "SIGNED_INT": `[+-]?[0-9]+`,
	"DECIMAL": `[0-9]+\.[0-9]*|\.[0-9]+`, "FLOAT": `[0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?`,
	"SIGNED_FLOAT":   `[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)`,
	"NUMBER":         `[0-9]+([eE][+-]?[0-9]+)?|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?`,
	"SIGNED_NUMBER":  `[+-]?([0-9]+([eE][+-]?[0-9]+)?|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)`,
	"ESCAPED_STRING": `"([^"\\\n]|\\.)*"`,
	"LCASE_LETTER":   `[a-z]`, "UCASE_LETTER": `[A-Z]`, "LETTER": `[a-zA-Z]`, "WORD": `[a-zA-Z]+`, "CNAME": `[a-zA-Z_][a-zA-Z0-9_]*`,
	"WS_INLINE": `[ \t]+`, "WS": `[ \t\f\r\n]+`, "CR": `\r`, "LF": `\n`, "NEWLINE": `(\r?\n)+`,
	"SH_COMMENT": `#[^\n]*`, "CPP_COMMENT": `\/\/[^\n]*`, "SQL_COMMENT": `--[^\n]*`, "C_COMMENT": `\/\*([^*]|\*+[^*\/])*\*+\/`,
}
