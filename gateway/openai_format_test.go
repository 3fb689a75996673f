package gateway

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/internal/wire"
)

// TestForms: every spelling that asks for a form of the answer, on both routes.
func TestForms(t *testing.T) {
	schema := func(param string) *wire.Grammar {
		return &wire.Grammar{Kind: wire.GrammarSchema, Text: `{"b":1, "a":2}`, Param: param}
	}
	text := func(kind wire.GrammarKind, text, param string) *wire.Grammar {
		return &wire.Grammar{Kind: kind, Text: text, Param: param}
	}
	const gbnf, lark = `root ::= \"a\"`, `start: \"a\" # ::=`
	for field, want := range map[string]*wire.Grammar{
		`"response_format":{"type":"text"}`: nil, `"grammar":""`: nil, `"guided_choice":[]`: nil, `"guided_json_object":false`: nil, `"structured_outputs":{}`: nil, `"structured_outputs":null`: nil,
		`"response_format":{"type":"json_object"}`:                                                                  text(wire.GrammarObject, "", "response_format"),
		`"response_format":{"type":"json_object","schema":{"b":1, "a":2}}`:                                          schema("response_format.schema"),
		`"response_format":{"type":"json_schema","schema":{"b":1, "a":2}}`:                                          schema("response_format.schema"),
		`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"b":1, "a":2}}}`:               schema("response_format.json_schema.schema"),
		`"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":null,"schema":{"b":1, "a":2}}}`: schema("response_format.json_schema.schema"),
		`"response_format":{"type":"json","value":{"b":1, "a":2}}`:                                                  schema("response_format.value"),
		`"response_format":{"type":"regex","pattern":"a|b"}`:                                                        text(wire.GrammarRegex, "a|b", "response_format.pattern"),
		`"response_format":{"type":"regex","value":"a|b"}`:                                                          text(wire.GrammarRegex, "a|b", "response_format.value"),
		`"response_format":{"type":"grammar","grammar":"` + gbnf + `"}`:                                             text(wire.GrammarGBNF, `root ::= "a"`, "response_format.grammar"),
		`"guided_json":{"b":1, "a":2}`:                                                                              schema("guided_json"),
		`"guided_json":"{\"b\":1, \"a\":2}"`:                                                                        schema("guided_json"),
		`"json_schema":{"b":1, "a":2}`:                                                                              schema("json_schema"),
		`"format":{"b":1, "a":2}`:                                                                                   schema("format"),
		`"format":"json"`:                                                                                           text(wire.GrammarObject, "", "format"),
		`"guided_json_object":true`:                                                                                 text(wire.GrammarObject, "", "guided_json_object"),
		`"guided_regex":"a|b"`:                                                                                      text(wire.GrammarRegex, "a|b", "guided_regex"),
		`"regex":"a|b"`:                                                                                             text(wire.GrammarRegex, "a|b", "regex"),
		`"guided_choice":["a", "b"]`:                                                                                text(wire.GrammarChoice, `["a", "b"]`, "guided_choice"),
		`"guided_grammar":"` + gbnf + `"`:                                                                           text(wire.GrammarGBNF, `root ::= "a"`, "guided_grammar"),
		`"guided_grammar":"` + lark + `"`:                                                                           text(wire.GrammarLark, `start: "a" # ::=`, "guided_grammar"),
		`"grammar":"` + gbnf + `"`:                                                                                  text(wire.GrammarGBNF, `root ::= "a"`, "grammar"),
		`"ebnf":"` + gbnf + `"`:                                                                                     text(wire.GrammarGBNF, `root ::= "a"`, "ebnf"),
		`"grammar":{"type":"json","value":{"b":1, "a":2}}`:                                                          schema("grammar.value"),
		`"grammar":{"type":"regex","value":"a|b"}`:                                                                  text(wire.GrammarRegex, "a|b", "grammar.value"),
		`"structured_outputs":{"json":{"b":1, "a":2}}`:                                                              schema("structured_outputs.json"),
		`"structured_outputs":{"json":null,"choice":["a"]}`:                                                         text(wire.GrammarChoice, `["a"]`, "structured_outputs.choice"),
		`"structured_outputs":{"json_object":true,"regex":null}`:                                                    text(wire.GrammarObject, "", "structured_outputs.json_object"),
		`"structured_outputs":{"grammar":"` + lark + `","disable_any_whitespace":true}`:                             {Kind: wire.GrammarLark, Text: `start: "a" # ::=`, Compact: true, Param: "structured_outputs.grammar"},
		`"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"description":"d","schema":true}},"guided_regex":""`: {Kind: wire.GrammarSchema, Text: "true", Strict: true, Param: "response_format.json_schema.schema"},
	} {
		for _, chat := range []bool{true, false} {
			body := textBody(field)
			if chat {
				body = chatBody(field)
			}
			c, err := decodeCall([]byte(body), chat, limits(), &wire.Model{})
			if err != nil {
				t.Errorf("%s: %v", field, err)
				continue
			}
			if diff := cmp.Diff(want, c.options.Grammar); diff != "" || c.prompts[0].Grammar != c.options.Grammar || len(c.ignored) > 0 {
				t.Errorf("%s: ignored %v, %s", field, c.ignored, diff)
			}
		}
	}
}

func TestRefusedForms(t *testing.T) {
	for field, want := range map[string]string{
		`"response_format":{"type":"json_object"},"guided_regex":"a"`: "guided_regex", `"grammar":"root ::= x","json_schema":{}`: "grammar",
		`"guided_regex":7`: "guided_regex", `"guided_choice":["a",1]`: "guided_choice", `"guided_choice":"a"`: "guided_choice", `"guided_choice":{}`: "guided_choice",
		`"format":"xml"`: "format", `"format":7`: "format", `"guided_json_object":1`: "guided_json_object", `"grammar":7`: "grammar", `"grammar":{"type":"x","value":1}`: "grammar",
		`"structured_outputs":7`: "structured_outputs", `"structured_outputs":{"json":{},"regex":"a"}`: "structured_outputs",
		`"structured_outputs":{"structural_tag":{}}`:                                "structured_outputs.structural_tag",
		`"structured_outputs":{"json":{},"whitespace_pattern":" "}`:                 "structured_outputs.whitespace_pattern",
		`"structured_outputs":{"json":{},"disable_additional_properties":true}`:     "structured_outputs.disable_additional_properties",
		`"structured_outputs":{"json":{},"disable_any_whitespace":1}`:               "structured_outputs",
		`"response_format":{"type":"regex"}`:                                        "response_format",
		`"response_format":{"type":"grammar","grammar":7}`:                          "response_format.grammar",
		`"guided_whitespace_pattern":" "`:                                           "guided_whitespace_pattern",
		`"grammar":"root ::= x","grammar_lazy":true`:                                "grammar_lazy",
		`"guided_choice":["a"],"stop":["a"]`:                                        "stop",
		`"structural_tag":{"x":1}`:                                                  "structural_tag",
		`"response_format":{"type":"structural_tag","structures":[],"triggers":[]}`: "response_format",
	} {
		_, err := decodeCall([]byte(chatBody(field)), true, limits(), &wire.Model{})
		if err == nil || err.Kind != wire.Invalid || err.Param != want {
			t.Errorf("%s: %v, want param %s", field, err, want)
		}
	}
	c := decodeText(t, chatBody(`"response_format":{"type":"json_object","x":1},"structured_outputs":{"disable_fallback":true}`), true)
	if got := strings.Join(c.ignored, " "); got != "response_format.x structured_outputs.disable_fallback" {
		t.Errorf("ignored %s", got)
	}
}
