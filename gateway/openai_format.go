package gateway

import (
	"encoding/json"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file reads what form an answer must have.

// grammar is what holds the answer to a form, nil for free text.
func (f *fields) grammar() *wire.Grammar {
	return f.responseFormat()
}

// responseFormat reads OpenAI's field. The schema stays as the client wrote it: the
// order of its properties is that of the answer.
func (f *fields) responseFormat() *wire.Grammar {
	const name = "response_format"
	raw, ok := f.given(name)
	if !ok {
		return nil
	}
	form := f.object(name, raw, "type", "json_schema", "schema")
	switch string(form["type"]) {
	case `"text"`:
		return nil
	case `"json_object"`:
		if schema, ok := form["schema"]; ok { // as llama.cpp's server spells it
			return &wire.Grammar{Kind: wire.GrammarSchema, Text: string(schema), Param: name + ".schema"}
		}
		return &wire.Grammar{Kind: wire.GrammarObject, Param: name}
	case `"json_schema"`:
		return f.jsonSchema(name, form)
	}
	f.fail(name, "response_format.type must be text, json_object or json_schema")
	return nil
}

// jsonSchema reads {"type":"json_schema","json_schema":{"name":…,"schema":…,"strict":…}}.
func (f *fields) jsonSchema(name string, form map[string]json.RawMessage) *wire.Grammar {
	inner, ok := form["json_schema"]
	if !ok {
		if schema, ok := form["schema"]; ok {
			return &wire.Grammar{Kind: wire.GrammarSchema, Text: string(schema), Param: name + ".schema"}
		}
		f.fail(name, "response_format.json_schema is missing; give an object with name and schema")
		return nil
	}
	name += ".json_schema"
	named := f.object(name, inner, "name", "description", "schema", "strict")
	schema, ok := named["schema"]
	strict := string(named["strict"])
	switch {
	case !ok:
		f.fail(name, "%s.schema is missing", name)
		return nil
	case strict != "" && strict != "true" && strict != "false":
		f.fail(name, "%s.strict must be true or false", name)
	}
	return &wire.Grammar{Kind: wire.GrammarSchema, Text: string(schema), Strict: strict == "true", Param: name + ".schema"}
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
