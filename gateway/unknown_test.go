package gateway

import (
	"fmt"
	"strings"
	"testing"
)

func TestUnknownFieldsAreIgnored(t *testing.T) {
	r := simpleRig(t, hello)
	resp := r.chat(`"store":true,"metadata":{"a":1},"service_tier":"flex","x_foo":[1,{}],"user":"u"`)
	if resp.status != 200 || object(t, resp.body)["service_tier"] != "flex" {
		t.Errorf("%d %s", resp.status, resp.body)
	}
	if got := resp.header.Get(ignoredHeader); got != "store, metadata, x_foo" {
		t.Errorf("the answer names %q as ignored", got)
	}
	r.settled()
	if got := r.recorder.Last(1)[0].Ignored; got != "store, metadata, x_foo" {
		t.Errorf("the record names %q as ignored", got)
	}
	two := `{"model":"fake","messages":[{"role":"user","content":"a"},{"role":"system","content":"b"},{"role":"system","content":"c"},{"role":"user","content":"d"},{"role":"user","content":"e"}]}`
	if resp := r.do("POST", "/v1/chat/completions", two); resp.status != 200 {
		t.Errorf("%d %s", resp.status, resp.body)
	}
}

// TestHostileNamesAreIgnored: what a client calls its fields does not reach a header
// as it is, and there is a most.
func TestHostileNamesAreIgnored(t *testing.T) {
	r := simpleRig(t, hello)
	more := ""
	for i := range 2 * ignoredMost {
		more += fmt.Sprintf(`,"f%d":1`, i)
	}
	resp := r.chat(`"a\r\nset-cookie: x":1,"":2,"` + strings.Repeat("l", 200) + `":3` + more)
	got := resp.header.Get(ignoredHeader)
	if resp.status != 200 || !strings.HasPrefix(got, "?, f0, f1") || strings.Count(got, ",") != ignoredMost-1 || resp.header.Get("Set-Cookie") != "" {
		t.Errorf("%d, ignored %q", resp.status, got)
	}
}

// TestUnknownFieldsMayBeRefused, which the configuration decides.
func TestUnknownFieldsMayBeRefused(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{UnknownFields: "refuse"}})
	resp := r.chat(`"x_foo":1`)
	if e := object(t, resp.body)["error"].(map[string]any); resp.status != 400 || e["param"] != "x_foo" {
		t.Errorf("%d %s", resp.status, resp.body)
	}
}

// TestFieldsThatWouldChangeTheAnswerAreRefused, unless they ask for nothing; those of
// the other route too, such as tools of a completion.
func TestFieldsThatWouldChangeTheAnswerAreRefused(t *testing.T) {
	r := simpleRig(t, hello)
	for path, route := range map[string]struct {
		known map[string]bool
		body  func(string) string
	}{"/v1/chat/completions": {knownChat, chatBody}, "/v1/completions": {knownText, textBody}} {
		for name, u := range unsupportedFields {
			if route.known[name] {
				continue
			}
			resp := r.do("POST", path, route.body(fmt.Sprintf(`%q:{"a":[1]}`, name)))
			if e, _ := object(t, resp.body)["error"].(map[string]any); resp.status != 400 || e["param"] != name || !strings.Contains(e["message"].(string), u.advice) {
				t.Errorf("%s: %s: %d %s", path, name, resp.status, resp.body)
			}
			for _, neutral := range append([]string{"null", `""`, "[]"}, u.neutral...) {
				if resp := r.do("POST", path, route.body(fmt.Sprintf(`%q:%s`, name, neutral))); resp.status != 200 || resp.header.Get(ignoredHeader) != "" {
					t.Errorf("%s: %s: %s: %d %s", path, name, neutral, resp.status, resp.body)
				}
			}
		}
	}
	resp := r.do("POST", "/v1/completions", textBody(`"tools":[{"type":"function","function":{"name":"f"}}]`))
	if resp.status != 400 || !strings.Contains(resp.body, "tools is not supported: it belongs to /v1/chat/completions") {
		t.Errorf("%d %s", resp.status, resp.body)
	}
}
