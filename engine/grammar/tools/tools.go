// Package tools makes the grammar of an answer with tool calls: reasoning aside, what
// a model may write in its format so that the parser of the format reads whole calls of
// known tools, with arguments that match their schemas.
//
// Goal: what the grammar allows, engine/chat/calls reads without a fallback. Both follow
// the same row of the table of formats.
//
// Non-goals: the lead of an answer (reasoning, channels), masks, and the choice of tokens.
//
// Names of JSON arguments come in the order of the schema, as in answers that are held
// to a schema. So do the arguments of formats with tags, each at most once, and no others
// than the schema lists.
package tools

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/grammar"
	"github.com/forebay-io/forebay/engine/grammar/schema"
)

// Options say which calls an answer may have.
type Options struct {
	// Tools may be called. The schema of one that is strict is refused if it cannot be
	// enforced; of another, arguments are then any object, and Result.Loose names it.
	Tools  []calls.Tool
	Most   int // calls; 0 for calls.CallsMax, which is what a parser takes
	Schema schema.Options
}

// Result is the calls of an answer, as an expression of the builder.
type Result struct {
	Calls grammar.Expr
	// Loose are the tools whose schema is not enforced.
	Loose []string
}

// Refusal says which tool's schema cannot be enforced.
type Refusal struct {
	Tool  string
	Cause error
}

func (r *Refusal) Error() string { return "the parameters of " + r.Tool + ": " + r.Cause.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Cause }

// compiler makes one grammar.
type compiler struct {
	b *grammar.Builder
	f *calls.Bound
	o Options
}

// Compile returns the calls of an answer in format f: at least one.
func Compile(b *grammar.Builder, f *calls.Bound, o Options) (*Result, error) {
	c := &compiler{b: b, f: f, o: o}
	r := &Result{}
	spelling := f.Spelling()
	var each []grammar.Expr
	for i := range o.Tools {
		t := &o.Tools[i]
		make := c.arguments
		if err := c.try(t); err != nil && t.Strict {
			return nil, &Refusal{t.Name, err}
		} else if err != nil {
			r.Loose = append(r.Loose, t.Name)
			make = c.anyArguments
		}
		arguments, err := make(t)
		if err != nil {
			return nil, &Refusal{t.Name, err}
		}
		var call []grammar.Expr
		for _, part := range spelling.Call {
			call = append(call, c.part(part, t.Name, arguments))
		}
		each = append(each, b.Seq(call...))
	}
	one := b.Choice(each...)
	all := one
	if o.Most != 1 {
		all = b.Seq(one, b.Repeat(b.Seq(c.text(spelling.Between), one), 0, cmp.Or(o.Most, calls.CallsMax)-1))
	}
	r.Calls = b.Seq(c.text(spelling.First), all, c.text(spelling.Last))
	return r, b.Err()
}

// try says why the schema of t cannot be enforced, or matches nothing. It does that in a
// builder of its own: a schema that cannot leaves its beginnings in it, and one that
// matches nothing would only be missing among the others.
func (c *compiler) try(t *calls.Tool) error {
	trial := &compiler{b: grammar.NewBuilder(c.b.Limits()), f: c.f, o: c.o}
	arguments, err := trial.arguments(t)
	if err == nil {
		_, err = trial.b.Compile(arguments)
	}
	return err
}

// part is a part of a call.
func (c *compiler) part(p calls.Part, name string, arguments grammar.Expr) grammar.Expr {
	b := c.b
	switch p.Hole {
	case calls.HoleName:
		if c.f.Shape == calls.JSONCalls {
			quoted, _ := json.Marshal(name)
			return c.text(string(quoted[1 : len(quoted)-1]))
		}
		return b.Terminal("name", b.Literal(name))
	case calls.HoleID:
		alnum := b.Or(b.Bytes('0', '9'), b.Bytes('a', 'z'), b.Bytes('A', 'Z'))
		return b.Terminal("id", b.Times(alnum, 9, 9))
	case calls.HoleIndex:
		return b.Terminal("index", b.Times(b.Bytes('0', '9'), 1, 4))
	case calls.HoleArguments:
		return arguments
	}
	return c.text(p.Text)
}

// regex matches a text of the format: markers that are tokens as those tokens. A line end
// of tags may be missing.
func (c *compiler) regex(text string) grammar.Regex {
	b := c.b
	var list []grammar.Regex
	loose := c.f.Shape == calls.Tagged || c.f.Shape == calls.JSONCalls
	c.f.Cut(text, func(text string) {
		for i, line := range strings.Split(text, "\n") {
			if i > 0 && loose {
				list = append(list, b.Times(b.Literal("\n"), 0, 1))
			} else if i > 0 {
				list = append(list, b.Literal("\n"))
			}
			list = append(list, b.Literal(line))
		}
	}, func(id int32) { list = append(list, b.Token(id)) })
	return b.Cat(list...)
}

func (c *compiler) text(text string) grammar.Expr {
	return c.b.Terminal("marker", c.regex(text))
}

// Text matches content that holds none of markers, as far as text can spell them.
func Text(b *grammar.Builder, f *calls.Bound, markers ...string) grammar.Regex {
	text := b.Text()
	for _, marker := range markers {
		isText := false
		f.Cut(marker, func(string) { isText = true }, func(int32) {})
		if marker != "" && isText {
			text = b.And(text, b.Not(b.Cat(b.Everything(), b.Literal(marker), b.Everything())))
		}
	}
	return text
}

// Content is what may stand before the calls of an answer, or in their place: text in
// which nothing begins as a call. calls says whether calls follow.
func Content(b *grammar.Builder, f *calls.Bound, follow bool) grammar.Regex {
	space := b.Times(b.Or(b.Literal(" "), b.Literal("\n")), 0, 8)
	markers := append([]string{f.ThinkOpen}, f.Open...)
	text := Text(b, f, append(markers, f.Tried...)...)
	if !f.Bare {
		return text
	}
	if follow {
		return space
	}
	white := b.Times(b.Or(b.Literal(" "), b.Literal("\n"), b.Literal("\t"), b.Literal("\r")), 0, grammar.Unlimited)
	return b.And(text, b.Not(b.Cat(white, b.Or(b.Literal("["), b.Literal("{")), b.Everything())))
}

// arguments is the arguments of t.
func (c *compiler) arguments(t *calls.Tool) (grammar.Expr, error) {
	switch c.f.Shape {
	case calls.Tagged, calls.Pythonic, calls.Braces:
		return c.listed(t)
	}
	return c.json(objectSchema(t.Schema), t.Strict)
}

// anyArguments is what a tool may get whose schema is not enforced.
func (c *compiler) anyArguments(*calls.Tool) (grammar.Expr, error) {
	switch c.f.Shape {
	case calls.Tagged, calls.Pythonic, calls.Braces:
		return c.b.Seq(), nil
	}
	return c.json(`{"type":"object"}`, false)
}

// opens are the words by which an object may have more properties than it lists.
var opens = []string{"additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames", "minProperties", "allOf", "anyOf", "oneOf", "not", "if", "$ref", "$dynamicRef", "dependentSchemas", "dependencies"}

// objectSchema is a schema of arguments, which are always an object. It has no other
// properties than it lists, unless it says something about others: a function takes its
// own arguments.
func objectSchema(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	var root map[string]json.RawMessage
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &root) != nil || len(root) == 0 {
		return `{"type":"object"}`
	}
	text := string(raw)
	if root["type"] == nil {
		text = `{"type":"object",` + text[1:]
	}
	if root["properties"] != nil && !slices.ContainsFunc(opens, func(word string) bool { return root[word] != nil }) {
		text = `{"additionalProperties":false,` + text[1:]
	}
	return text
}

// json matches JSON by a schema.
func (c *compiler) json(text string, strict bool) (grammar.Expr, error) {
	o := c.o.Schema
	o.Strict = strict
	r, err := schema.Compile(c.b, text, o)
	if err != nil {
		return 0, err
	}
	return r.Value, nil
}

// errUnsupported says that a schema needs what a format has no way to write.
func (c *compiler) errUnsupported(what string) error {
	return fmt.Errorf("%s cannot be enforced in the format in which this model calls (%s)", what, c.f.Name)
}
