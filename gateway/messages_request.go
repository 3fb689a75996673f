package gateway

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file reads requests of Anthropic's Messages API. Each is written again as a chat, as those of the
// Responses API are. Source: Anthropic's API reference, version 2023-06-01.

// messagesRead are the members that the route reads itself. Those of chats are passed on.
var messagesRead = keySet(nil, "messages", "system", "max_tokens", "stop_sequences", "metadata", "tools", "tool_choice", "thinking", "output_config", "output_format",
	"service_tier", "stop", "max_completion_tokens", "response_format", "parallel_tool_calls", "reasoning_effort", "include_reasoning", "user", "continue_final_message")

// messagesRefused are members of a chat that have another name here.
var messagesRefused = map[string]string{
	"stop": "stop_sequences", "max_completion_tokens": "max_tokens", "response_format": "output_config.format", "user": "metadata.user_id",
	"parallel_tool_calls": "tool_choice.disable_parallel_tool_use", "reasoning_effort": "output_config.effort", "continue_final_message": "a last message of the assistant",
}

var knownMessages = func() map[string]bool {
	all := maps.Clone(knownChat)
	maps.Copy(all, messagesRead)
	return all
}()

// namesOfMessages gives the names of a chat's members their names here.
var namesOfMessages = strings.NewReplacer("response_format.json_schema", "output_config.format", "response_format", "output_config.format", "max_completion_tokens", "max_tokens",
	"reasoning_effort", "output_config.effort", "continue_final_message", "a last message of the assistant")

// messagesCall reads a request of the Messages API.
func messagesCall(body []byte, l *LimitsConfig, m *wire.Model) (*call, *wire.Error) {
	f, err := parseFields(body, l.JSONDepthMax, knownMessages)
	if err != nil {
		return nil, err
	}
	f.relayed = m.Relays
	chat, places := f.messagesAsChat()
	c, err := f.decodeAs(chat, namesOfMessages, l, m)
	if err != nil {
		if strings.HasPrefix(err.Param, "stop") && f.err == nil {
			err = wire.InvalidParam("stop_sequences", "%s", strings.Replace(err.Message, "stop", "stop_sequences", 1))
		}
		return nil, err
	}
	c.messages, c.schemas = true, places
	return c, nil
}

// countCall reads a request that asks how many tokens its prompt has.
func countCall(body []byte, l *LimitsConfig, m *wire.Model) (*call, *wire.Error) {
	c, err := messagesCall(body, l, m)
	if err == nil {
		c.counts, c.stream = true, false
	}
	return c, err
}

// messagesAsChat writes the request as the body of a chat; places say where the schema of each tool stands.
func (f *fields) messagesAsChat() (chat []byte, places []string) {
	for name, instead := range messagesRefused {
		if _, given := f.given(name); given {
			f.fail(name, "%s is not supported here: use %s", name, instead)
		}
	}
	d := &dialogue{f: f}
	d.read()
	b := append(append([]byte(`{"messages":[`), d.list...), ']')
	if d.continues {
		b = append(b, `,"continue_final_message":true,"add_generation_prompt":false`...)
	}
	for _, name := range slices.Sorted(maps.Keys(f.raw)) {
		if value := f.raw[name]; !messagesRead[name] {
			b = append(append(appendString(append(b, ','), name), ':'), value...)
		}
	}
	for _, same := range [][2]string{{"max_tokens", "max_completion_tokens"}, {"stop_sequences", "stop"}} {
		if raw, given := f.given(same[0]); given {
			b = append(append(appendString(append(b, ','), same[1]), ':'), raw...)
		}
	}
	if raw, _ := f.given("metadata"); isString(member(raw, "user_id")) {
		b = append(append(b, `,"user":`...), member(raw, "user_id")...)
	}
	if raw, given := f.given("service_tier"); given && string(raw) == `"standard_only"` {
		b = append(b, `,"service_tier":"default"`...)
	} else if given {
		b = append(append(b, `,"service_tier":`...), raw...)
	}
	b = f.outputForm(b)
	return f.messagesTools(b)
}

// outputForm writes what the answer is to be like: output_config, or output_format as it was named
// before, and thinking.
func (f *fields) outputForm(b []byte) []byte {
	config, given := f.given("output_config")
	if given && !isObject(config) {
		f.fail("output_config", `output_config must be an object, such as {"format":{"type":"json_schema","schema":{…}}}`)
		return b
	}
	form := member(config, "format")
	if old, given := f.given("output_format"); given && form == nil {
		form = old
	}
	switch schema := member(form, "schema"); {
	case form == nil || string(form) == "null":
	case string(member(form, "type")) != `"json_schema"` || !isObject(schema):
		f.fail("output_config.format", `output_config.format must be {"type":"json_schema","schema":{…}}`)
	default:
		b = append(append(b, `,"response_format":{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":`...), schema...)
		b = append(b, "}}"...)
	}
	if effort := member(config, "effort"); effort != nil && string(effort) != "null" {
		b = append(append(b, `,"reasoning_effort":`...), effort...)
	}
	if raw, given := f.given("thinking"); given && !f.relayed { // chats of other servers do not know it
		if string(member(raw, "display")) == `"omitted"` {
			b = append(b, `,"include_reasoning":false`...)
		}
		if string(member(raw, "type")) == `"between_tools"` { // a model here thinks where its template has it
			raw = json.RawMessage(`{"type":"adaptive"}`)
		}
		b = append(append(b, `,"thinking":`...), raw...)
	}
	return b
}

// messagesTools writes the tools that the client runs, and tool_choice. Tools of Anthropic's own have no
// schema here; they are left out, and named.
func (f *fields) messagesTools(b []byte) (chat []byte, places []string) {
	raw, given := f.given("tools")
	if given && !isArray(raw) {
		f.fail("tools", "tools must be an array")
	}
	list := []byte{}
	for i, tool := range elements(raw) {
		at := "tools[" + strconv.Itoa(i) + "]"
		name, kind, schema := member(tool, "name"), member(tool, "type"), member(tool, "input_schema")
		switch own := kind == nil || string(kind) == "null" || string(kind) == `"custom"`; {
		case !own && isString(kind):
			f.ignore([]byte("tools/" + unquote(kind)))
			continue
		case !own || !isString(name) || !isObject(schema):
			f.fail(at, `%s must be {"name":"…","input_schema":{…}}`, at)
			return nil, nil
		case !isToolName(unquote(name)):
			f.fail(at+".name", "%s.name must have at most %d bytes, and only letters, digits and _ - . : / $", at, toolNameBytesMax)
			return nil, nil
		}
		places = append(places, at+".input_schema")
		list = append(append(comma(list), `{"type":"function","function":{"name":`...), name...)
		for _, key := range []string{"description", "strict"} {
			if value := member(tool, key); value != nil && string(value) != "null" {
				list = append(append(appendString(append(list, ','), key), ':'), value...)
			}
		}
		list = append(append(append(list, `,"parameters":`...), schema...), "}}"...)
	}
	if len(list) > 0 {
		b = append(append(append(b, `,"tools":[`...), list...), ']')
	}
	choice, given := f.given("tool_choice")
	if given {
		b = f.messagesChoice(b, choice)
	}
	return append(b, '}'), places
}

func (f *fields) messagesChoice(b []byte, choice json.RawMessage) []byte {
	b = append(b, `,"tool_choice":`...)
	switch kind := string(member(choice, "type")); {
	case kind == `"auto"` || kind == `"none"`:
		b = append(b, kind...)
	case kind == `"any"`:
		b = append(b, `"required"`...)
	case kind == `"tool"` && isString(member(choice, "name")):
		b = append(append(b, `{"type":"function","function":{"name":`...), member(choice, "name")...)
		b = append(b, "}}"...)
	default:
		f.fail("tool_choice", `tool_choice must be {"type":"auto"}, {"type":"any"}, {"type":"none"} or {"type":"tool","name":"…"}`)
	}
	switch alone := member(choice, "disable_parallel_tool_use"); string(alone) {
	case "true":
		b = append(b, `,"parallel_tool_calls":false`...)
	case "", "null", "false":
	default:
		f.fail("tool_choice.disable_parallel_tool_use", "tool_choice.disable_parallel_tool_use must be true or false")
	}
	return b
}
