package cli

import (
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"
)

// TestStructuredAnswers asks a running server for JSON on both routes, plain and
// streamed: what comes is an instance of the schema, or it is a 400.
func TestStructuredAnswers(t *testing.T) {
	p := serve(t)
	format := func(schema string) map[string]any {
		return map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "person", "schema": json.RawMessage(schema)}}
	}
	const schema = `{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":120}},
		"required":["name","age"],"additionalProperties":false}`
	type person struct {
		Name *string `json:"name"`
		Age  *int    `json:"age"`
	}
	valid := func(text string) bool {
		var got person
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		return d.Decode(&got) == nil && got.Name != nil && got.Age != nil && *got.Age >= 0 && *got.Age <= 120
	}
	for _, temperature := range []float64{0, 1} {
		body := chatBody("Who?", map[string]any{"response_format": format(schema), "temperature": temperature, "seed": 7})
		plain := p.ask(body)
		if plain.status != 200 || !valid(plain.text) || !strings.Contains(plain.raw, `"finish_reason":"stop"`) {
			t.Errorf("temperature %v: %d %q", temperature, plain.status, plain.raw)
		}
		body["stream"] = true
		if streamed := <-p.stream(body); streamed.text != plain.text {
			t.Errorf("streamed %q, plain %q", streamed.text, plain.text)
		}
	}
	response, err := p.postTo(t.Context(), "/v1/completions", map[string]any{"model": "forebay-demo", "prompt": []string{"a", "b"}, "n": 2, "temperature": 1,
		"response_format": format(schema), "max_tokens": 200})
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := io.ReadAll(response.Body)
	response.Body.Close()
	var reply struct{ Choices []struct{ Text string } }
	if err := json.Unmarshal(raw, &reply); err != nil || len(reply.Choices) != 4 {
		t.Fatalf("%s: %v", raw, err)
	}
	for _, c := range reply.Choices {
		if !valid(c.Text) {
			t.Errorf("%q is no person", c.Text)
		}
	}
	cut := p.ask(chatBody("Who?", map[string]any{"response_format": map[string]string{"type": "json_object"}, "max_tokens": 2}))
	if cut.status != 200 || !strings.HasPrefix(cut.text, "{") || !strings.Contains(cut.raw, `"finish_reason":"length"`) {
		t.Errorf("%d %q", cut.status, cut.raw)
	}
	bad := p.ask(chatBody("Who?", map[string]any{"response_format": format(`{"properties":{"a":{"$dynamicRef":"#x"}}}`)}))
	if bad.status != 400 || !strings.Contains(bad.raw, `schema/properties/a/$dynamicRef: $dynamicRef cannot be enforced`) || !strings.Contains(bad.raw, `"param":"response_format.json_schema.schema"`) {
		t.Errorf("%d %s", bad.status, bad.raw)
	}
	for name, want := range map[string]string{`forebay_engine_grammars_total{result="found"}`: "5", `forebay_engine_grammars_total{result="refused"}`: "1", `forebay_engine_grammars_total{result="failed"}`: "0"} {
		eventually(t, name+" is "+want, func() bool { return p.metrics()[name] == want })
	}
}

// TestFormsOfOtherServers: a spelling of each kind, by its user.
func TestFormsOfOtherServers(t *testing.T) {
	p := serve(t)
	for want, field := range map[string]map[string]any{
		`^(yes|no)$`:          {"guided_choice": []string{"yes", "no"}},
		`^[0-9]{3}-[a-z]{2}$`: {"guided_regex": "[0-9]{3}-[a-z]{2}"},
		`^a+b$`:               {"grammar": "root ::= \"a\" root | \"ab\""},
		`^\((true|false)\)$`:  {"structured_outputs": map[string]any{"grammar": "start: \"(\" %json {\"type\":\"boolean\"} \")\""}},
		`^\{"a":"(x|y)"\}$`:   {"structured_outputs": map[string]any{"json": json.RawMessage(`{"properties":{"a":{"enum":["x","y"]}},"required":["a"],"type":"object","additionalProperties":false}`), "disable_any_whitespace": true}},
		`^(true|false|null)$`: {"format": json.RawMessage(`{"type":["boolean","null"]}`)},
	} {
		field["temperature"], field["max_tokens"] = 1, 400
		a := p.ask(chatBody("Well?", field))
		if ok, err := regexp.MatchString(want, a.text); !ok || err != nil || a.status != 200 {
			t.Errorf("%v: %d %q, want %s", field, a.status, a.raw, want)
		}
	}
	bad := p.ask(chatBody("Well?", map[string]any{"grammar": "root ::= \"a\"\n  x"}))
	if bad.status != 400 || !strings.Contains(bad.raw, "grammar: GBNF grammar, line 2: a rule must begin with its name") {
		t.Errorf("%d %s", bad.status, bad.raw)
	}
}
