package chat

import (
	"context"
	"encoding/json"
	"strings"
)

// contentShape says which shapes of content a template supports for a role.
type contentShape struct {
	parts bool // a list of parts, of which it uses all
	only  bool // only parts, no string
}

// The contents of the examples: texts to look for, in their JSON forms.
const (
	first, second = "needleone", "needletwo"
	oneText       = `"` + first + second + `"`
	onePart       = `[{"type":"text","text":` + oneText + `}]`
	twoParts      = `[{"type":"text","text":"` + first + `"},{"type":"text","text":"` + second + `"}]`
	object        = `{"` + first + `":"v"}`
	exampleTools  = `[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string","description":"d"}},"required":[]}}}]`
	objectText    = `"{\"` + first + `\":\"v\"}"`
)

// prober renders examples.
type prober struct {
	*Template
	tools json.RawMessage
}

// probe finds out which shapes of messages the template supports. It passes tools
// to a template that is only for requests with tools.
func (t *Template) probe(tools json.RawMessage) {
	t.contents = map[string]contentShape{}
	p := prober{t, tools}
	p.probeContent("user", func(content string) string { return say("user", content) })
	filler := p.filler("user", "x")
	user := say("user", filler)
	t.takesSystem = strings.Contains(p.try(say("system", oneText)+","+user)+p.try(say("system", onePart)+","+user), first)
	p.probeContent("system", func(content string) string { return say("system", content) + "," + user })
	p.probeContent("assistant", func(content string) string { return user + "," + say("assistant", content) + "," + user })
	p.probeCalls(user)
	p.probeTools(user)
}

// leastTools is a tool with nothing that a client may leave out.
const leastTools = `[{"type":"function","function":{"name":"f"}}]`

// probeTools finds out whether the template needs tools with all that they can have.
func (p prober) probeTools(user string) {
	render := func(whole bool) bool {
		p.wantsWhole = whole
		in := Input{Messages: json.RawMessage("[" + user + "]"), Tools: json.RawMessage(leastTools)}
		_, err := p.Render(context.Background(), in)
		return err == nil
	}
	p.wantsWhole = !render(false) && render(true)
}

// probeCalls finds out how the template renders an assistant's message with tool
// calls and their results, after the message user.
func (p prober) probeCalls(user string) {
	call := func(content, arguments string) string {
		return user + `,{"role":"assistant","content":` + content +
			`,"tool_calls":[{"id":"call00001","type":"function","function":{"name":"f","arguments":` + arguments + `}}]}`
	}
	result := func(content string) string {
		return `{"role":"tool","tool_call_id":"call00001","name":"f","content":` + content + `}`
	}
	empty, arguments := p.filler("assistant", ""), object
	if !strings.Contains(p.try(call(empty, object)), first) && strings.Contains(p.try(call(empty, objectText)), first) {
		p.takesTextArgs, arguments = true, objectText
	}
	p.probeContent("tool", func(content string) string { return call(empty, arguments) + "," + result(content) })

	// Some templates handle null in the last message, and fail on it later.
	later := func(content string) string {
		return p.try(call(content, arguments) + "," + result(p.filler("tool", "x")) + "," + say("assistant", p.filler("assistant", "x")) + "," + user)
	}
	null := p.try(call("null", arguments))
	p.takesNull = strings.Contains(null, first) && !strings.Contains(null, "None") && (later("null") != "" || later(empty) == "")
}

func say(role, content string) string { return `{"role":"` + role + `","content":` + content + `}` }

// filler returns a short content in a shape that the template supports for role.
func (p prober) filler(role, text string) string {
	if p.contents[role].only {
		return `[{"type":"text","text":"` + text + `"}]`
	}
	return `"` + text + `"`
}

// try renders messages unchanged, and returns "" if that fails.
func (p prober) try(messages string) string {
	text, _ := p.Render(context.Background(), Input{Messages: json.RawMessage("[" + messages + "]"), Tools: p.tools, Verbatim: true})
	return text
}

// probeContent finds out how the template renders a role's content as a string
// and as parts.
func (p prober) probeContent(role string, messages func(content string) string) {
	text, parts := p.try(messages(oneText)), p.try(messages(twoParts))
	// raw is true if the template prints the parts as data.
	raw := func(parts string) bool {
		return strings.Count(parts, "'text'") > strings.Count(text, "'text'") || strings.Count(parts, `"text"`) > strings.Count(text, `"text"`)
	}
	shape := contentShape{parts: strings.Contains(parts, first) && strings.Contains(parts, second) && !raw(parts)}
	if !strings.Contains(text, first) {
		one := p.try(messages(onePart))
		shape.only = strings.Contains(one, first) && !raw(one)
	}
	p.contents[role] = shape
}
