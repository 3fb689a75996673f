package gateway

import (
	"encoding/json"
	"strings"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file reads what form an answer must have, in the spellings of OpenAI, vLLM,
// llama.cpp's server, SGLang, Ollama and TGI. All become one wire.Grammar.

// form is a field that holds the answer to a form. What asks for nothing gives nil.
type form struct {
	name string
	read func(f *fields, name string, raw json.RawMessage) *wire.Grammar
}

var forms = []form{
	{"response_format", (*fields).responseFormat},
	{"structured_outputs", (*fields).structuredOutputs},
	{"guided_json", (*fields).schemaForm},
	{"json_schema", (*fields).schemaForm},
	{"format", (*fields).ollamaForm},
	{"guided_json_object", (*fields).objectForm},
	{"guided_regex", textForm(wire.GrammarRegex)},
	{"regex", textForm(wire.GrammarRegex)},
	{"guided_choice", (*fields).choiceForm},
	{"guided_grammar", (*fields).grammarForm},
	{"grammar", (*fields).grammarForm},
	{"ebnf", textForm(wire.GrammarGBNF)},
}

// formNames are the names of forms.
func formNames() (names []string) {
	for _, form := range forms {
		names = append(names, form.name)
	}
	return names
}

// grammar is what holds the answer to a form, nil for free text.
func (f *fields) grammar() (g *wire.Grammar) {
	from := ""
	for _, form := range forms {
		raw, ok := f.given(form.name)
		if !ok || string(raw) == `""` || string(raw) == "[]" {
			continue
		}
		one := form.read(f, form.name, raw)
		switch {
		case one == nil:
		case g != nil:
			f.fail(form.name, "%s and %s cannot be combined; give one of them", from, form.name)
		default:
			g, from = one, form.name
		}
	}
	return g
}

// responseFormat reads OpenAI's field, with the types that others have added. The
// schema stays as the client wrote it: the order of its properties is that of the
// answer.
func (f *fields) responseFormat(name string, raw json.RawMessage) *wire.Grammar {
	o := f.object(name, raw, "type", "json_schema", "schema", "value", "pattern", "grammar")
	kind := o["type"]
	delete(o, "type")
	one := func(member string, read func(*fields, string, json.RawMessage) *wire.Grammar) *wire.Grammar {
		value, ok := o[member]
		if !ok {
			f.fail(name, "%s.%s is missing", name, member)
			return nil
		}
		return read(f, name+"."+member, value)
	}
	switch string(kind) {
	case `"text"`:
		return nil
	case `"json_object"`:
		if _, ok := o["schema"]; ok { // llama.cpp
			return one("schema", (*fields).schemaForm)
		}
		return &wire.Grammar{Kind: wire.GrammarObject, Param: name}
	case `"json_schema"`:
		if _, ok := o["schema"]; ok && o["json_schema"] == nil {
			return one("schema", (*fields).schemaForm)
		}
		return one("json_schema", (*fields).namedSchema)
	case `"json"`: // TGI
		return one("value", (*fields).schemaForm)
	case `"regex"`: // TGI and Together
		if _, ok := o["pattern"]; ok {
			return one("pattern", textForm(wire.GrammarRegex))
		}
		return one("value", textForm(wire.GrammarRegex))
	case `"grammar"`: // Fireworks
		return one("grammar", (*fields).grammarForm)
	}
	f.fail(name, "%s.type must be text, json_object, json_schema, regex or grammar", name)
	return nil
}

// namedSchema reads {"name":…,"schema":…,"strict":…}.
func (f *fields) namedSchema(name string, raw json.RawMessage) *wire.Grammar {
	o := f.object(name, raw, "name", "description", "schema", "strict")
	schema, ok := o["schema"]
	if !ok {
		f.fail(name, "%s.schema is missing", name)
		return nil
	}
	return &wire.Grammar{Kind: wire.GrammarSchema, Text: string(schema), Strict: f.bool(name, o, "strict"), Param: name + ".schema"}
}

// structuredOutputs reads vLLM's object, of which one member says what is asked for.
func (f *fields) structuredOutputs(name string, raw json.RawMessage) *wire.Grammar {
	readers := []form{
		{"json", (*fields).schemaForm}, {"json_object", (*fields).objectForm}, {"regex", textForm(wire.GrammarRegex)},
		{"choice", (*fields).choiceForm}, {"grammar", (*fields).grammarForm},
	}
	o := f.object(name, raw, "json", "json_object", "regex", "choice", "grammar", "disable_any_whitespace",
		"structural_tag", "whitespace_pattern", "disable_additional_properties")
	compact := f.bool(name, o, "disable_any_whitespace")
	var g *wire.Grammar
	for _, r := range readers {
		value, ok := o[r.name]
		if !ok {
			continue
		}
		one := r.read(f, name+"."+r.name, value)
		if one != nil && g != nil {
			f.fail(name, "%s may have one of json, json_object, regex, choice and grammar", name)
		}
		if one != nil {
			g = one
		}
	}
	_, tag := o["structural_tag"]
	_, space := o["whitespace_pattern"]
	switch {
	case tag:
		f.fail(name+".structural_tag", "%s.structural_tag is not supported", name)
	case space:
		f.fail(name+".whitespace_pattern", "%s.whitespace_pattern is not supported; disable_any_whitespace allows none", name)
	case f.bool(name, o, "disable_additional_properties"):
		f.fail(name+".disable_additional_properties", `%s.disable_additional_properties is not supported; write "additionalProperties": false in the schema`, name)
	}
	if g != nil {
		g.Compact = compact
	}
	return g
}

// schemaForm reads a schema: an object or a boolean, or a text that holds one.
func (f *fields) schemaForm(name string, raw json.RawMessage) *wire.Grammar {
	text := string(raw)
	if isString(raw) {
		text = unquote(raw)
	}
	return &wire.Grammar{Kind: wire.GrammarSchema, Text: text, Param: name}
}

func (f *fields) objectForm(name string, raw json.RawMessage) *wire.Grammar {
	switch string(raw) {
	case "true":
		return &wire.Grammar{Kind: wire.GrammarObject, Param: name}
	case "false":
	default:
		f.fail(name, "%s must be true or false", name)
	}
	return nil
}

// ollamaForm reads "json" or a schema.
func (f *fields) ollamaForm(name string, raw json.RawMessage) *wire.Grammar {
	switch {
	case string(raw) == `"json"`:
		return &wire.Grammar{Kind: wire.GrammarObject, Param: name}
	case isObject(raw):
		return f.schemaForm(name, raw)
	}
	f.fail(name, `%s must be "json" or a JSON Schema`, name)
	return nil
}

func textForm(kind wire.GrammarKind) func(*fields, string, json.RawMessage) *wire.Grammar {
	return func(f *fields, name string, raw json.RawMessage) *wire.Grammar {
		if !isString(raw) {
			f.fail(name, "%s must be a string", name)
			return nil
		}
		return &wire.Grammar{Kind: kind, Text: unquote(raw), Param: name}
	}
}

func (f *fields) choiceForm(name string, raw json.RawMessage) *wire.Grammar {
	for i, one := range elements(raw) {
		if !isString(one) {
			f.fail(name, "%s holds %s at index %d, which is not a string", name, brief(one), i)
			return nil
		}
	}
	if count(raw) == 0 {
		f.fail(name, "%s must be an array of strings", name)
		return nil
	}
	return &wire.Grammar{Kind: wire.GrammarChoice, Text: string(raw), Param: name}
}

// grammarForm reads a grammar, GBNF where its rules are written with ::= and Lark
// otherwise, or TGI's object of type and value.
func (f *fields) grammarForm(name string, raw json.RawMessage) *wire.Grammar {
	if isObject(raw) {
		o := f.object(name, raw, "type", "value")
		switch value := o["value"]; {
		case value == nil:
		case string(o["type"]) == `"json"`:
			return f.schemaForm(name+".value", value)
		case string(o["type"]) == `"regex"`:
			return textForm(wire.GrammarRegex)(f, name+".value", value)
		}
		f.fail(name, `%s must be a grammar, or {"type":"json"|"regex","value":…}`, name)
		return nil
	}
	g := textForm(wire.GrammarLark)(f, name, raw)
	if g != nil && isGBNF(g.Text) {
		g.Kind = wire.GrammarGBNF
	}
	return g
}

// isGBNF tells GBNF from Lark, as vLLM does.
func isGBNF(text string) bool {
	for line := range strings.Lines(text) {
		if code, _, _ := strings.Cut(line, "#"); strings.Contains(code, "::=") {
			return true
		}
	}
	return false
}

// object reads the members of an object that are not null. Those that are not in
// known are noted as ignored.
func (f *fields) object(name string, raw json.RawMessage, known ...string) map[string]json.RawMessage {
	if !isObject(raw) {
		f.fail(name, "%s must be an object", name)
	}
	set, all := keySet(known), map[string]json.RawMessage{}
	for key, value := range members(raw) {
		switch {
		case string(value) == "null":
			delete(all, string(key))
		case set[string(key)]:
			all[string(key)] = value
		default:
			f.ignore([]byte(name + "." + string(key)))
		}
	}
	return all
}

// bool reads a member of an object that is true, false or absent.
func (f *fields) bool(name string, o map[string]json.RawMessage, member string) bool {
	raw := string(o[member])
	if raw != "" && raw != "true" && raw != "false" {
		f.fail(name, "%s.%s must be true or false", name, member)
	}
	return raw == "true"
}
