package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/grammar"
)

func Example() {
	g, ignored, err := Grammar(grammar.NewBuilder(grammar.DefaultLimits()), `{"type":"object","properties":{"n":{"type":"integer","minimum":10},"hint":{"nullable":true}},"required":["n"],
		"additionalProperties":false}`, Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	a := g.NewAutomaton()
	for _, text := range []string{`{"n": 12}`, `{"n": 9}`, `{"n":10,"m":1}`} {
		ok, _ := a.Accepts(text)
		fmt.Println(text, ok)
	}
	fmt.Println("without effect:", ignored[0].Pointer)
	_, _, err = Grammar(grammar.NewBuilder(grammar.DefaultLimits()), `{"items":{"$dynamicRef":"#x"}}`, Options{})
	fmt.Println(err)
	// Output:
	// {"n": 12} true
	// {"n": 9} false
	// {"n":10,"m":1} false
	// without effect: /properties/hint/nullable
	// schema/items/$dynamicRef: $dynamicRef: dynamic references are not supported
}

func compiled(t *testing.T, text string, o Options) *grammar.Automaton {
	t.Helper()
	g, _, err := Grammar(grammar.NewBuilder(grammar.DefaultLimits()), text, o)
	if err != nil {
		t.Fatal(err)
	}
	return g.NewAutomaton()
}

func TestTexts(t *testing.T) {
	person := `{"properties":{"name":{"type":"string"},"tags":{"items":{"type":"integer"},"type":"array"}},"required":["name"],"type":"object","additionalProperties":false}`
	for _, c := range []struct {
		schema  string
		o       Options
		yes, no []string
	}{
		{person, Options{}, []string{
			`{"name":"a","tags":[1,2]}`, `{"name": "a", "tags": [1, 2]}`, "{\n  \"name\": \"a\",\n  \"tags\": [\n    1,\n    2\n  ]\n}", `{"name":"a","tags":[]}`,
			"{\n    \"name\": \"a\"\n}",
		}, []string{
			` {"name":"a"}`, `{"name":"a"} `, `{ "name":"a"}`, `{"name"  :"a"}`, `{"name":  "a"}`, "{\n\n\"name\":\"a\"}", "{\"name\":\"a\"\n\n}", "{\t\"name\":\"a\"}",
			"{\n" + strings.Repeat(" ", indent+1) + `"name":"a"}`, `{"name":"a",}`, `{"name":"a","name":"b"}`, `{"tags":[]}`, `{"name":"a","tags":[1,]}`, `{}`,
		}},
		{person, Options{Compact: true}, []string{`{"name":"a","tags":[1,2]}`}, []string{`{"name": "a"}`, `{"name":"a", "tags":[]}`, "{\n\"name\":\"a\"}"}},
		{`{"type":"string","maxLength":2}`, Options{}, []string{`"ab"`, `"é😀"`, `"\n\u0001"`, `"\ud83d\ude00\u00e9"`, `"\/"`, `""`},
			[]string{`"abc"`, `"\ud83d"`, `"\ude00\ud83d"`, "\"\n\"", `"\x"`, "\"\xff\"", `"a`}},
		{`{"type":"string","pattern":"^[^a]$"}`, Options{}, []string{`"b"`, `"\""`, `"\u0001"`, `"é"`}, []string{`"a"`, `"\u0061"`, `"bb"`}},
		{`{"type":"number"}`, Options{}, []string{"0", "-0", "1.5", "-12.25e-3", "1E5"}, []string{"01", "1.", ".5", "+1", "1e", "- 1", "Infinity", "NaN", "1e1000"}},
		{`{"type":"integer","minimum":-3,"exclusiveMaximum":12}`, Options{}, []string{"-3", "-1", "0", "9", "11"}, []string{"-4", "12", "1.0", "1e1", "100"}},
		{`{"minimum":1.25,"maximum":10.5,"type":"number"}`, Options{}, []string{"1.25", "1.250", "1.3", "2", "10", "10.5", "10.4999"}, []string{"1.2", "1", "1.24999", "10.51", "11", "-2", "0", "1e1"}},
		{`{"type":"number","multipleOf":0.01,"minimum":0}`, Options{}, []string{"0", "1.25", "3.1", "7.000"}, []string{"1.255", "-1"}},
		{`{"enum":["a","b\"c",1,null,{"x":[true]}]}`, Options{}, []string{`"a"`, `"b\"c"`, "1", "1.0", "null", `{"x": [true]}`}, []string{`"c"`, "2", "true", `{"x":[false]}`, `{}`}},
		{`{"not":{"enum":["a",0]}}`, Options{}, []string{`"b"`, `"ab"`, `""`, "1", "0.5", "{}"}, []string{`"a"`, "0", "0.0", "-0", "0e1"}},
		{`{"oneOf":[{"minLength":1,"type":"string"},{"maxLength":3,"type":"string"}]}`, Options{}, []string{`""`, `"abcd"`}, []string{`"a"`, "1"}},
		{`{"x-forebay":{"oneOf":"anyOf"},"oneOf":[{"minLength":1,"type":"string"},{"maxLength":3,"type":"string"}]}`, Options{}, []string{`""`, `"abcd"`, `"a"`}, []string{"1"}},
		{`{"type":"array","uniqueItems":true,"items":{"enum":["a","b",3]},"minItems":2}`, Options{}, []string{`["a","b"]`, `[3,"b","a"]`}, []string{`["a"]`, `["a","a"]`, `["a",3,"a"]`, `[]`}},
		{`{"type":"array","contains":{"const":1},"maxContains":2,"items":{"type":"integer"}}`, Options{}, []string{"[1]", "[2,1]", "[1,2,1,3]"}, []string{"[]", "[2]", "[1,1,1]"}},
		{`{"type":"object","minProperties":1,"maxProperties":2,"additionalProperties":{"type":"null"},"properties":{"a":{"type":"integer"}}}`, Options{},
			[]string{`{"a":1}`, `{"b":null}`, `{"a":1,"b":null}`, `{"b":null,"c":null}`}, []string{`{}`, `{"a":null}`, `{"a":1,"b":null,"c":null}`, `{"b":1}`}},
		{`{"type":"object","propertyNames":{"pattern":"^[a-z]{2}$"},"maxProperties":1}`, Options{}, []string{`{}`, `{"ab":1}`}, []string{`{"a":1}`, `{"AB":1}`}},
		{`{"type":"object","if":{"properties":{"kind":{"const":"a"}},"required":["kind"]},"then":{"required":["x"]},"properties":{"kind":{"enum":["a","b"]},"x":{"type":"integer"}}}`, Options{},
			[]string{`{"kind":"a","x":1}`, `{"kind":"b"}`, `{"x":1}`, `{}`}, []string{`{"kind":"a"}`}},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/definitions/s","maxLength":1}},"definitions":{"s":{"type":"string"}}}`, Options{},
			[]string{`{"a":"long"}`}, []string{`{"a":1}`}},
		{`{"properties":{"a":{"$ref":"#/$defs/s","maxLength":1}},"$defs":{"s":{"type":"string"}}}`, Options{}, []string{`{"a":"l"}`}, []string{`{"a":"long"}`}},
		{`{"type":"string","format":"date"}`, Options{}, []string{`"2024-02-29"`, `"2023-12-31"`}, []string{`"2023-02-29"`, `"2023-13-01"`, `"1900-02-29"`}},
		{`{"type":"string","format":"hostname","maxLength":20}`, Options{}, []string{`"a.de"`, `"xn--mnchen-3ya.de"`, `"xn--ll-0ea"`}, []string{`"xn--mnchen-3ya.de.com"`, `"xn--mnchen-3yb"`, `"xn--4dbc5h"`, `""`}},
		{`{"type":"string","format":"hostname","pattern":"[.]de$"}`, Options{}, []string{`"a.de"`}, []string{`"xn--mnchen-3ya"`, `"xn--mnchen-3ya.com"`}},
		{`{"type":"string","format":"hostname","pattern":"example"}`, Options{}, []string{`"an.example.de"`}, []string{`"a.de"`}},
		{`{"type":"string","not":{"format":"hostname"}}`, Options{}, []string{`"a b"`, `"-a"`, `""`}, []string{`"a"`, `"xn--mnchen-3ya"`, `"xn--4dbc5h"`}}, // the last is left out of the format, and of its negation
		{`{"type":"string","not":{"format":"email"}}`, Options{}, []string{`"a"`, `"a@b@c"`}, []string{`"a@b.de"`, `"a@xn--4dbc5h"`}},
		{`{"oneOf":[{"$ref":"#/$defs/cat"},{"$ref":"#/$defs/dog"}],"discriminator":{"propertyName":"kind","mapping":{"cat":"#/$defs/cat"}},"$defs":{
			"cat":{"title":"Cat","type":"object","properties":{"kind":{"const":"cat","default":"cat"},"lives":{"type":"integer"}},"required":["kind","lives"]},
			"dog":{"title":"Dog","type":"object","properties":{"kind":{"const":"dog"}},"required":["kind"]}}}`, Options{Strict: true},
			[]string{`{"kind":"cat","lives":9}`, `{"kind":"dog"}`, `{"kind":"dog","lives":"x"}`}, []string{`{"kind":"cat"}`, `{"kind":"cow"}`, `{}`}},
		{`{"type":"object","allOf":[{"$ref":"#/$defs/base"},{"patternProperties":{"^x-":{"type":"null"}}}],"properties":{"b":{"type":"integer"}},
			"unevaluatedProperties":false,"$defs":{"base":{"properties":{"a":{"type":"integer"}}}}}`, Options{},
			[]string{`{"b":1,"a":2,"x-y":null}`, `{}`, `{"x-y":null}`}, []string{`{"c":1}`, `{"b":1,"x-y":2}`, `{"a":"s"}`}},
		{`{"type":"array","allOf":[{"prefixItems":[{"type":"integer"}]}],"unevaluatedItems":{"type":"string"}}`, Options{},
			[]string{`[]`, `[1]`, `[1,"a"]`}, []string{`["a"]`, `[1,2]`}},
		{`{"type":"string","format":"telephone"}`, Options{}, []string{`"anything"`}, []string{"1"}},
	} {
		a := compiled(t, c.schema, c.o)
		for _, text := range c.yes {
			if !accepts(t, a, text) {
				t.Errorf("%s: %s is not accepted", c.schema, stuck(a, text))
			}
		}
		for _, text := range c.no {
			if accepts(t, a, text) {
				t.Errorf("%s: %s is accepted", c.schema, text)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		schema           string
		o                Options
		pointer, keyword string
	}{
		{`{"properties":{"a":{"uniqueItems":true}}}`, Options{}, "/properties/a/uniqueItems", "uniqueItems"},
		{`{"properties":{"a/b":{"pattern":"(a)\\1"}}}`, Options{}, "/properties/a~1b/pattern", "pattern"},
		{`{"$ref":"https://example.com/x.json"}`, Options{}, "/$ref", "$ref"},
		{`{"type":"strin"}`, Options{}, "/type", "type"},
		{`{"type":"string","minLength":"3"}`, Options{}, "/minLength", "minLength"},
		{`{"enum":[]}`, Options{}, "/enum", "enum"},
		{`{"anyOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}`, Options{}, "/unevaluatedProperties", "unevaluatedProperties"},
		{`{"not":{"uniqueItems":true}}`, Options{}, "/not", "not"},
		{`{"multipleOf":0}`, Options{}, "/multipleOf", "multipleOf"},
		{`{"items":{"nullable":true}}`, Options{Strict: true}, "/items/nullable", "nullable"},
		{`{"format":"telephone"}`, Options{Strict: true}, "/format", "format"},
		{`{"properties":{"a":{},"b":{}}}`, Options{Limits: Limits{Properties: 1}}, "/properties", "properties"},
		{`{"properties":{"a":true},"properties":{}}`, Options{}, "/properties", "properties"},
		{`{"a":1`, Options{}, "", ""},
	} {
		_, _, err := Grammar(grammar.NewBuilder(grammar.DefaultLimits()), c.schema, c.o)
		r := (*Refusal)(nil)
		if !errors.As(err, &r) {
			t.Errorf("%s: %v", c.schema, err)
		} else if r.Pointer != c.pointer || r.Keyword != c.keyword {
			t.Errorf("%s: refused for %q at %q: %s", c.schema, r.Keyword, r.Pointer, r.Reason)
		}
	}
}
