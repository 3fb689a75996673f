package tools

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/grammar"
)

// This file is of formats that list arguments by name, with values that are no JSON, or
// only in part: tags, Python, and braces.

// listed is the arguments of t, in the order of its schema.
func (c *compiler) listed(t *calls.Tool) (grammar.Expr, error) {
	list := t.Arguments()
	if t.Strict {
		if err := c.closed(t, list); err != nil {
			return 0, err
		}
	}
	b := c.b
	// rest[n][some] is what may follow where n arguments are decided, and some were given.
	rest := make([][2]grammar.Expr, len(list)+1)
	rest[len(list)] = [2]grammar.Expr{b.Seq(), b.Seq()}
	for i := len(list) - 1; i >= 0; i-- {
		for some := range 2 {
			argument, err := c.argument(&list[i], some == 1, t.Strict)
			if err != nil {
				return 0, err
			}
			body := b.Seq(argument, rest[i+1][1])
			if !list[i].Required {
				body = b.Choice(body, rest[i+1][some])
			}
			rule := b.Rule("arguments")
			b.Define(rule, body)
			rest[i][some] = rule
		}
	}
	return rest[0][0], nil
}

// closed refuses what a strict schema says about its object that a list cannot hold.
func (c *compiler) closed(t *calls.Tool, list []calls.Argument) error {
	var root map[string]json.RawMessage
	if len(t.Schema) == 0 || json.Unmarshal(t.Schema, &root) != nil {
		return nil
	}
	for _, word := range []string{"$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "minProperties", "maxProperties", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies"} {
		if root[word] != nil {
			return c.errUnsupported(word + " of the arguments")
		}
	}
	names := map[string]bool{}
	for _, a := range list {
		names[a.Name] = true
	}
	var required []string
	_ = json.Unmarshal(root["required"], &required)
	for _, name := range required {
		if !names[name] {
			return c.errUnsupported("required " + strconv.Quote(name) + " without a property of that name")
		}
	}
	return nil
}

// argument is one argument with its name.
func (c *compiler) argument(a *calls.Argument, some, strict bool) (grammar.Expr, error) {
	b := c.b
	value, err := c.value(a, strict)
	if err != nil {
		return 0, err
	}
	if c.f.Shape == calls.Tagged {
		before, after := c.f.Argument(a.Name, a.Text)
		if !c.f.Newlines {
			return b.Seq(c.text(before), value, c.text(after)), nil
		}
		// A line end that is the tags' own must be there: without it, one of the value
		// would be taken for it.
		line := b.Terminal("line", b.Literal("\n"))
		return b.Seq(c.text(before[:len(before)-1]), line, value, line, c.text(after[1:])), nil
	}
	if !word(a.Name) {
		return 0, c.errUnsupported("the name " + strconv.Quote(a.Name))
	}
	sign, separator := ":", ","
	if c.f.Shape == calls.Pythonic {
		sign, separator = "=", ", "
	}
	if !some {
		separator = ""
	}
	return b.Seq(c.text(separator+a.Name+sign), value), nil
}

// word reports whether name can stand without quotes.
func word(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool {
		return !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) < 0 && (name[0] > '9' || name[0] < '0')
}

// value is the value of an argument.
func (c *compiler) value(a *calls.Argument, strict bool) (grammar.Expr, error) {
	b := c.b
	if c.f.Shape == calls.Pythonic || !a.Text {
		return c.json(string(a.Schema), strict)
	}
	text, err := c.textValue(a, strict)
	if err != nil {
		return 0, err
	}
	if c.f.Shape == calls.Braces {
		text = b.Cat(c.regex(c.f.Escape), text, c.regex(c.f.Escape))
	}
	return b.Terminal("value", text), nil
}

// textRules are the keywords of a string that its text can be held to.
type textRules struct {
	Enum      []any
	Const     any
	Pattern   *string
	MinLength int
	MaxLength *int
}

// known are the keywords that textValue follows, or that mean nothing to it.
var known = map[string]bool{
	"type": true, "enum": true, "const": true, "pattern": true, "minLength": true, "maxLength": true, "title": true, "description": true,
	"default": true, "examples": true, "$comment": true, "deprecated": true, "$defs": true, "definitions": true, "nullable": true,
}

// textValue is a string as it stands, without quotes.
func (c *compiler) textValue(a *calls.Argument, strict bool) (grammar.Regex, error) {
	b := c.b
	var words map[string]json.RawMessage
	var rules textRules
	_ = json.Unmarshal(a.Schema, &words)
	if json.Unmarshal(a.Schema, &rules) != nil {
		rules = textRules{}
	}
	for word := range words {
		if strict && !known[word] {
			return 0, c.errUnsupported(word + " of " + strconv.Quote(a.Name))
		}
	}
	if strict && !a.Only && (rules.Pattern != nil || rules.MaxLength != nil || rules.MinLength > 0 || words["type"] == nil && words["enum"] == nil && words["const"] == nil) {
		return 0, c.errUnsupported(strconv.Quote(a.Name) + ", which may be a string or something else,")
	}
	stop := c.f.Escape
	if c.f.Shape == calls.Tagged {
		stop = c.f.ValueClose
	}
	text := Text(b, c.f, stop)
	if rules.Const != nil {
		rules.Enum = []any{rules.Const}
	}
	if rules.Enum != nil {
		var texts []string
		for _, v := range rules.Enum {
			s, ok := v.(string)
			if !ok {
				raw, _ := json.Marshal(v)
				s = string(raw)
			}
			texts = append(texts, s)
		}
		return b.And(text, b.Literals(texts)), nil
	}
	if !a.Only {
		return text, nil
	}
	if rules.MinLength > 0 || rules.MaxLength != nil {
		most := grammar.Unlimited
		if rules.MaxLength != nil {
			most = *rules.MaxLength
		}
		character := b.Class(grammar.Range{Lo: 0, Hi: 0x10FFFF})
		text = b.And(text, b.Times(character, rules.MinLength, most))
	}
	if rules.Pattern != nil {
		pattern, err := b.Pattern(*rules.Pattern, grammar.PatternOptions{Search: true})
		if err != nil && strict {
			return 0, err
		}
		if err == nil {
			text = b.And(text, pattern)
		}
	}
	return text, nil
}
