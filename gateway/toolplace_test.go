package gateway

import (
	"context"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

// TestAToolsSchemaIsNamedByItsPlace: the engine knows the tools that may be called, by their
// names; the client is told which of its own tools is at fault.
func TestAToolsSchemaIsNamedByItsPlace(t *testing.T) {
	cfg := scripted(hello)
	cfg.Prepare = func(context.Context, *wire.Request) *wire.Error {
		at := wire.ToolPlace("b")
		return wire.InvalidParam(at, "%s/properties/x/pattern: pattern cannot be enforced: it looks back", at)
	}
	r := newRig(t, rigConfig{fake: cfg})
	const b = `{"type":"function","function":{"name":"b","strict":true,"parameters":{}}}`
	const flat = `{"type":"function","name":"b","strict":true,"parameters":{}}`
	for _, c := range []struct{ route, body, param string }{
		{"chat/completions", chatBody(`"tools":[{"type":"function","function":{"name":"a"}},` + b + `]`), "tools[1].function.parameters"},
		{"chat/completions", chatBody(`"tools":[{"type":"function","function":{"name":"a"}},` + b + `],"tool_choice":{"type":"function","function":{"name":"b"}}`), "tools[1].function.parameters"},
		{"chat/completions", chatBody(`"tools":[{"type":"function","function":{"name":"a"}}]`), wire.ToolPlace("b")}, // no tool of the request
		{"responses", responseBody(`"tools":[{"type":"web_search"},` + flat + `]`), "tools[1].parameters"},
		{"responses", responseBody(`"tools":[{"type":"web_search"},` + b + `]`), "tools[1].function.parameters"},
		{"responses", responseBody(`"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"a"},` + flat + `]}]`), "tools[0].tools[1].parameters"},
	} {
		got := r.do("POST", "/v1/"+c.route, c.body)
		if code, param := errorOf(t, got.body); got.status != 400 || param != c.param || !strings.Contains(strings.ReplaceAll(got.body, `\"`, `"`), `"`+c.param+`/properties/x/pattern: pattern`) {
			t.Errorf("%s: %d %s %q, want param %s: %s", c.body, got.status, code, param, c.param, got.body)
		}
	}
}
