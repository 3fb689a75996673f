package gateway

import (
	"encoding/json"
	"strconv"
)

// turns writes the items of a Responses request as the messages of a chat. Reasoning, text and
// calls that follow each other are one message of the assistant.
type turns struct {
	f    *fields
	r    *responses
	list []byte
	// The assistant's message that is open.
	content, calls, reasoning []byte
	spoke                     bool
}

// turns reads instructions and input.
func (f *fields) turns(r *responses) []byte {
	t := &turns{f: f, r: r}
	if raw, given := f.given("instructions"); given {
		if isString(raw) {
			t.message(`"system"`, raw)
		} else {
			f.fail("instructions", "instructions must be a string")
		}
	}
	raw, given := f.given("input")
	switch {
	case isString(raw):
		t.message(`"user"`, raw)
	case !given || !isArray(raw) || count(raw) == 0:
		f.fail("input", "input must be a string, or an array of at least one item")
	}
	for i, item := range elements(raw) {
		t.item("input["+strconv.Itoa(i)+"]", item)
		if f.err != nil {
			break
		}
	}
	t.close()
	return append(append([]byte{'['}, t.list...), ']')
}

func (t *turns) item(at string, item json.RawMessage) {
	kind := "message"
	if raw := member(item, "type"); isString(raw) {
		kind = unquote(raw)
	}
	switch kind {
	case "message":
		t.said(at, item)
	case "reasoning":
		t.thought(item)
	case "function_call":
		t.called(at, item, member(item, "arguments"))
	case "custom_tool_call":
		input := member(item, "input")
		if !isString(input) {
			t.f.fail(at+".input", "%s.input must be a string", at)
			return
		}
		arguments := append(append([]byte(`{"input":`), input...), '}')
		t.called(at, item, appendString(nil, string(arguments)))
	case "function_call_output", "custom_tool_call_output":
		t.result(at, item)
	case "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_list_tools", "compaction":
		t.f.ignore([]byte("input/" + kind)) // what another server's own tools did; the text tells of it
	case "item_reference":
		t.f.fail(at, "%s refers to an item of an earlier response, and this server keeps none: send the items themselves, which clients do with store: false", at)
	default:
		t.f.fail(at+".type", "%s.type is %.64q, which is not supported", at, kind)
	}
}

func (t *turns) message(role string, content json.RawMessage) {
	t.close()
	t.list = append(append(comma(t.list), `{"role":`...), role...)
	t.list = append(append(append(t.list, `,"content":`...), content...), '}')
}

// said takes a message.
func (t *turns) said(at string, item json.RawMessage) {
	role := member(item, "role")
	if !isString(role) || !roles[unquote(role)] {
		t.f.fail(at+".role", "%s.role must be one of user, assistant, system, developer", at)
		return
	}
	content := t.parts(at+".content", member(item, "content"))
	if unquote(role) != "assistant" {
		t.message(string(role), content)
		return
	}
	if t.content != nil || t.calls != nil {
		t.close()
	}
	t.content, t.spoke = content, true
}

// parts writes a content of several parts as a chat has it, one text as a string.
func (t *turns) parts(at string, raw json.RawMessage) json.RawMessage {
	if isString(raw) {
		return raw
	}
	if !isArray(raw) {
		t.f.fail(at, "%s must be a string or an array of parts", at)
		return nil
	}
	list, only := []byte{}, json.RawMessage(nil)
	for i, part := range elements(raw) {
		where := at + "[" + strconv.Itoa(i) + "]"
		text := member(part, "text")
		switch kind := string(member(part, "type")); {
		case (kind == `"input_text"` || kind == `"output_text"` || kind == `"text"` || kind == `"summary_text"`) && isString(text):
			only = text
			list = append(append(append(comma(list), `{"type":"text","text":`...), text...), '}')
		case kind == `"refusal"` && isString(member(part, "refusal")):
			only = member(part, "refusal")
			list = append(append(append(comma(list), `{"type":"text","text":`...), only...), '}')
		case kind == `"input_image"` && t.f.relayed && isString(member(part, "image_url")):
			list = append(append(comma(list), `{"type":"image_url","image_url":{"url":`...), member(part, "image_url")...)
			list = append(list, "}}"...)
		default:
			t.f.fail(where, `%s must be {"type":"input_text","text":"…"}; this server takes text alone`, where)
			return nil
		}
	}
	if count(raw) == 1 && only != nil {
		return only
	}
	return append(append([]byte{'['}, list...), ']')
}

// thought takes reasoning that the answer of an earlier turn had.
func (t *turns) thought(item json.RawMessage) {
	text := ""
	for _, name := range []string{"content", "summary"} {
		for _, part := range elements(member(item, name)) {
			if one := member(part, "text"); isString(one) {
				text += unquote(one)
			}
		}
		if text != "" {
			break
		}
	}
	if t.content != nil || t.calls != nil {
		t.close()
	}
	if text != "" {
		t.reasoning, t.spoke = appendString(nil, text), true
	}
}

func (t *turns) called(at string, item, arguments json.RawMessage) {
	id, name := member(item, "call_id"), member(item, "name")
	if !isString(id) || !isString(name) || !isString(arguments) {
		t.f.fail(at, `%s must be {"type":"function_call","call_id":"…","name":"…","arguments":"{…}"}`, at)
		return
	}
	b := append(append(comma(t.calls), `{"id":`...), id...)
	b = append(append(b, `,"type":"function","function":{"name":`...), name...)
	b = append(append(b, `,"arguments":`...), arguments...)
	t.calls, t.spoke = append(b, "}}"...), true
}

// result takes what a tool gave.
func (t *turns) result(at string, item json.RawMessage) {
	id, output := member(item, "call_id"), member(item, "output")
	if !isString(id) {
		t.f.fail(at+".call_id", "%s.call_id must be a string", at)
		return
	}
	if isObject(output) {
		output = appendString(nil, string(output))
	}
	output = t.parts(at+".output", output)
	t.close()
	b := append(append(comma(t.list), `{"role":"tool","tool_call_id":`...), id...)
	t.list = append(append(append(b, `,"content":`...), output...), '}')
}

// close ends the assistant's message that is open.
func (t *turns) close() {
	if !t.spoke {
		return
	}
	b := append(comma(t.list), `{"role":"assistant","content":`...)
	if t.content == nil {
		b = append(b, "null"...)
	}
	b = append(b, t.content...)
	if t.reasoning != nil {
		b = append(append(b, `,"reasoning_content":`...), t.reasoning...)
	}
	if t.calls != nil {
		b = append(append(append(b, `,"tool_calls":[`...), t.calls...), ']')
	}
	t.list = append(b, '}')
	t.content, t.calls, t.reasoning, t.spoke = nil, nil, nil, false
}
