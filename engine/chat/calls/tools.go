package calls

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Tool is a function that the answer may call.
type Tool struct {
	Name   string
	Schema json.RawMessage // of its arguments, or nil
	Strict bool            // its schema must be followed
}

// kinds is a set of JSON types.
type kinds uint8

const (
	kindString kinds = 1 << iota
	kindNumber
	kindBool
	kindNull
	kindObject
	kindArray
	kindAny = kindString | kindNumber | kindBool | kindNull | kindObject | kindArray
)

// toolTypes are the types of a tool's arguments, for formats that write none.
type toolTypes struct {
	names []string // in the schema's order, for arguments without a name
	types map[string]kinds
}

// ReadTools reads the tools of a request: OpenAI's objects with function, or the
// functions themselves. What is no tool is left out.
func ReadTools(data json.RawMessage) []Tool {
	var list []struct {
		Name       string
		Parameters json.RawMessage
		Strict     bool
		Function   *struct {
			Name       string
			Parameters json.RawMessage
			Strict     bool
		}
	}
	if json.Unmarshal(data, &list) != nil {
		return nil
	}
	var tools []Tool
	for _, t := range list {
		if t.Function != nil {
			t.Name, t.Parameters, t.Strict = t.Function.Name, t.Function.Parameters, t.Function.Strict
		}
		if t.Name != "" {
			tools = append(tools, Tool{Name: t.Name, Schema: t.Parameters, Strict: t.Strict})
		}
	}
	return tools
}

func toolTable(tools []Tool) map[string]*toolTypes {
	table := map[string]*toolTypes{}
	for _, t := range tools {
		table[t.Name] = readTypes(t.Schema)
	}
	return table
}

// readTypes reads the types of an object schema's properties.
func readTypes(data json.RawMessage) *toolTypes {
	t := &toolTypes{types: map[string]kinds{}}
	var root schema
	if json.Unmarshal(data, &root) != nil {
		return t
	}
	t.names = propertyNames(data)
	for name, raw := range root.Properties {
		t.types[name] = schemaKinds(raw, &root, refDepthMax)
	}
	return t
}

// schema is the part of a JSON schema that says which types there are.
type schema struct {
	Properties  map[string]json.RawMessage
	Defs        map[string]json.RawMessage `json:"$defs"`
	Definitions map[string]json.RawMessage `json:"definitions"`
	Ref         string                     `json:"$ref"`
	Type        any
	Enum        []any
	Const       *any
	AnyOf       []json.RawMessage `json:"anyOf"`
	OneOf       []json.RawMessage `json:"oneOf"`
	AllOf       []json.RawMessage `json:"allOf"`
}

// refDepthMax bounds references and combinations inside each other.
const refDepthMax = 8

func schemaKinds(data json.RawMessage, root *schema, depth int) kinds {
	var s schema
	if depth == 0 || json.Unmarshal(data, &s) != nil {
		return kindAny
	}
	for prefix, defs := range map[string]map[string]json.RawMessage{"#/$defs/": root.Defs, "#/definitions/": root.Definitions} {
		if len(s.Ref) > len(prefix) && s.Ref[:len(prefix)] == prefix {
			if raw, ok := defs[s.Ref[len(prefix):]]; ok {
				return schemaKinds(raw, root, depth-1)
			}
		}
	}
	set := kindAny
	switch t := s.Type.(type) {
	case string:
		set = typeKind(t)
	case []any:
		set = 0
		for _, one := range t {
			name, _ := one.(string)
			set |= typeKind(name)
		}
	}
	if s.Enum != nil {
		set &= valueKinds(s.Enum)
	}
	if s.Const != nil {
		set &= valueKinds([]any{*s.Const})
	}
	for _, list := range [][]json.RawMessage{s.AnyOf, s.OneOf} {
		if len(list) == 0 {
			continue
		}
		var some kinds
		for _, one := range list {
			some |= schemaKinds(one, root, depth-1)
		}
		set &= some
	}
	for _, one := range s.AllOf {
		set &= schemaKinds(one, root, depth-1)
	}
	if set == 0 {
		return kindAny
	}
	return set
}

func typeKind(name string) kinds {
	switch name {
	case "string":
		return kindString
	case "number", "integer":
		return kindNumber
	case "boolean":
		return kindBool
	case "null":
		return kindNull
	case "object":
		return kindObject
	case "array":
		return kindArray
	}
	return kindAny
}

func valueKinds(values []any) (set kinds) {
	for _, v := range values {
		switch v.(type) {
		case string:
			set |= kindString
		case float64:
			set |= kindNumber
		case bool:
			set |= kindBool
		case nil:
			set |= kindNull
		case map[string]any:
			set |= kindObject
		case []any:
			set |= kindArray
		}
	}
	return set
}

// jsonKind is the type of a JSON text.
func jsonKind(text []byte) kinds {
	if !json.Valid(text) {
		return 0
	}
	switch text[0] {
	case '"':
		return kindString
	case '{':
		return kindObject
	case '[':
		return kindArray
	case 't', 'f':
		return kindBool
	case 'n':
		return kindNull
	}
	return kindNumber
}

// Argument is a property of a tool's arguments.
type Argument struct {
	Name     string
	Schema   json.RawMessage // with the definitions that it may refer to
	Required bool
	// Text says that it may be a string, and Only that it is nothing else.
	Text, Only bool
}

// Arguments lists what the schema of t has as properties, in its order.
func (t *Tool) Arguments() []Argument {
	var root struct {
		schema
		Required []string
	}
	if json.Unmarshal(t.Schema, &root) != nil {
		return nil
	}
	required := map[string]bool{}
	for _, name := range root.Required {
		required[name] = true
	}
	var list []Argument
	for _, name := range propertyNames(t.Schema) {
		raw := resolved(root.Properties[name], &root.schema)
		set := schemaKinds(raw, &root.schema, refDepthMax)
		list = append(list, Argument{
			Name: name, Schema: withDefinitions(raw, &root.schema), Required: required[name],
			Text: set&kindString != 0, Only: set == kindString,
		})
	}
	return list
}

// resolved is the definition that a schema is, where it says nothing else.
func resolved(raw json.RawMessage, root *schema) json.RawMessage {
	for range refDepthMax {
		var own map[string]json.RawMessage
		var ref string
		if json.Unmarshal(raw, &own) != nil || own["$ref"] == nil || json.Unmarshal(own["$ref"], &ref) != nil {
			break
		}
		for name := range own {
			if name != "$ref" && name != "description" && name != "title" && name != "default" {
				return raw
			}
		}
		to := root.Defs[strings.TrimPrefix(ref, "#/$defs/")]
		if to == nil {
			to = root.Definitions[strings.TrimPrefix(ref, "#/definitions/")]
		}
		if to == nil {
			break
		}
		raw = to
	}
	return raw
}

// withDefinitions is the schema of a property that stands alone.
func withDefinitions(raw json.RawMessage, root *schema) json.RawMessage {
	var own map[string]json.RawMessage
	if json.Unmarshal(raw, &own) != nil || len(root.Defs)+len(root.Definitions) == 0 {
		return raw
	}
	for name, defs := range map[string]map[string]json.RawMessage{"$defs": root.Defs, "definitions": root.Definitions} {
		if text, err := json.Marshal(defs); err == nil && len(defs) > 0 && own[name] == nil {
			raw = append([]byte(`{"`+name+`":`+string(text)+`,`), bytes.TrimLeft(bytes.TrimSpace(raw)[1:], " \n\t\r")...)
			if len(own) == 0 {
				raw = []byte(`{"` + name + `":` + string(text) + `}`)
			}
		}
	}
	return raw
}
