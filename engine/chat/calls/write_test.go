package calls

import (
	"encoding/json"
	"testing"
)

// TestWriteAndRead: what Write writes in any format, its parser reads.
func TestWriteAndRead(t *testing.T) {
	tools := ReadTools(json.RawMessage(`[{"name":"paint","parameters":{"type":"object","properties":{"who":{"type":"string"},"n":{"type":"integer"},"x":{"type":"number"},"yes":{"type":"boolean"},"no":{"type":"null"},"parts":{"type":"array"},"deep":{"type":"object"}}}},{"name":"look-up_2"}]`))
	lists := [][]Call{
		{{ID: "a", Name: "paint", Arguments: `{"who":"Zoë \"Q\" <b>\n two","n":-3,"x":1.5,"yes":true,"no":null,"parts":[1,"a",[],{"k":false}],"deep":{"p":{"q":"r, s"}}}`}},
		{{ID: "a", Name: "paint", Arguments: `{"who":"x"}`}, {ID: "b", Name: "look-up_2", Arguments: "{}"}},
		{{ID: "a", Name: "look-up_2"}, {ID: "b", Name: "paint", Arguments: `{"n":7}`}, {ID: "c", Name: "paint", Arguments: `{"who":""}`}},
	}
	for _, f := range Formats {
		for _, list := range lists {
			text := f.Write(list, 4)
			a := parse(t, f.Bind(nil), Options{Tools: tools, FirstCall: 4}, false, text)
			if len(a.calls) != len(list) || a.content != "" || a.result.Open || a.result.Fallbacks > 0 {
				t.Errorf("%s: %q\nread as %+v", f.Name, text, a)
				continue
			}
			for i, want := range list {
				got := a.calls[i]
				if want.Arguments == "" {
					want.Arguments = "{}"
				}
				if got.name != want.Name || canonical([]byte(got.args)) != canonical([]byte(want.Arguments)) {
					t.Errorf("%s: %q\nread as %+v", f.Name, text, got)
				}
			}
		}
	}
}
