package chat

import (
	"context"
	"encoding/json"
	"strings"
)

// contentShape says in which shapes a template takes the content of a role.
type contentShape struct {
	parts bool // a list of parts
	only  bool // no text beside it
}

// What examples are made of: texts to look for, and how they are sent.
const (
	first, second = "needleone", "needletwo"
	oneText       = `"` + first + second + `"`
	twoParts      = `[{"type":"text","text":"` + first + `"},{"type":"text","text":"` + second + `"}]`
	object        = `{"` + first + `":"v"}`
	objectText    = `"{\"` + first + `\":\"v\"}"`
)

// probe finds out what shapes of messages the template handles.
func (t *Template) probe() {
	t.contents = map[string]contentShape{}
	say := func(role, content string) string { return `{"role":"` + role + `","content":` + content + `}` }
	call := func(content, arguments string) string {
		return `{"role":"assistant","content":` + content +
			`,"tool_calls":[{"id":"call00001","type":"function","function":{"name":"f","arguments":` + arguments + `}}]}`
	}
	filler, empty := `"x"`, `""`
	t.probeContent("user", func(content string) string { return say("user", content) })
	if t.contents["user"].only {
		filler, empty = `[{"type":"text","text":"x"}]`, `[]`
	}
	user := say("user", filler)
	t.probeContent("system", func(content string) string { return say("system", content) + "," + user })
	t.probeContent("assistant", func(content string) string { return user + "," + say("assistant", content) + "," + user })

	withCall := func(content, arguments string) string { return t.try(user + "," + call(content, arguments)) }
	arguments := object
	if !strings.Contains(withCall(empty, object), first) && strings.Contains(withCall(empty, objectText), first) {
		t.takesTextArgs, arguments = true, objectText
	}
	result := func(content string) string {
		return `{"role":"tool","tool_call_id":"call00001","name":"f","content":` + content + `}`
	}
	t.probeContent("tool", func(content string) string { return user + "," + call(empty, arguments) + "," + result(content) })

	// Some templates handle null in the last message, and fail on it later.
	later := func(content string) string {
		return t.try(user + "," + call(content, arguments) + "," + result(filler) + "," + say("assistant", filler) + "," + user)
	}
	null := withCall("null", arguments)
	t.takesNull = strings.Contains(null, first) && !strings.Contains(null, "None") && (later("null") != "" || later(empty) == "")
}

// try renders messages as they are; what fails gives nothing.
func (t *Template) try(messages string) string {
	text, _ := t.Render(context.Background(), Input{Messages: json.RawMessage("[" + messages + "]"), Verbatim: true})
	return text
}

// probeContent sees what becomes of a role's content as text and as two parts.
func (t *Template) probeContent(role string, messages func(content string) string) {
	text, parts := t.try(messages(oneText)), t.try(messages(twoParts))
	var shape contentShape
	shape.parts = strings.Contains(parts, first) && strings.Contains(parts, second)
	for _, raw := range []string{"'text'", `"text"`} { // parts printed as data
		shape.parts = shape.parts && strings.Count(parts, raw) <= strings.Count(text, raw)
	}
	shape.only = shape.parts && !strings.Contains(text, first)
	t.contents[role] = shape
}
