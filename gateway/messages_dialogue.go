package gateway

import (
	"encoding/json"
	"strconv"
	"strings"
)

// dialogue writes the messages of a Messages request as those of a chat.
type dialogue struct {
	f         *fields
	list      []byte
	continues bool // the answer goes on with the last message
}

// read reads system and messages.
func (d *dialogue) read() {
	if raw, given := d.f.given("system"); given {
		d.system(raw)
	}
	raw, _ := d.f.given("messages")
	if !isArray(raw) || count(raw) == 0 {
		d.f.fail("messages", "messages must be an array of at least one message")
	}
	for i, message := range elements(raw) {
		if d.message("messages["+strconv.Itoa(i)+"]", message); d.f.err != nil {
			return
		}
	}
}

// billing begins a block that coding agents put before the system prompt for Anthropic's servers alone. It
// changes with every request, so no beginning of a prompt would be the same as the last one's.
const billing = "x-anthropic-billing-header:"

func (d *dialogue) system(raw json.RawMessage) {
	parts := []byte{}
	for i, block := range elements(raw) {
		if text := member(block, "text"); isString(text) && strings.HasPrefix(unquote(text), billing) {
			d.f.ignore([]byte("system/x-anthropic-billing-header"))
		} else {
			parts = d.part(parts, "system["+strconv.Itoa(i)+"]", block)
		}
	}
	switch {
	case isString(raw):
		d.add("system", raw)
	case !isArray(raw):
		d.f.fail("system", "system must be a string or an array of text blocks")
	case len(parts) > 0:
		d.add("system", wholeContent(parts))
	}
}

// add appends a message; more are members behind its content, each with a comma in front.
func (d *dialogue) add(role string, content json.RawMessage, more ...byte) {
	d.list = append(append(append(comma(d.list), `{"role":"`...), role...), `","content":`...)
	d.list = append(append(append(d.list, content...), more...), '}')
}

func (d *dialogue) message(at string, raw json.RawMessage) {
	role, content := string(member(raw, "role")), member(raw, "content")
	d.continues = role == `"assistant"`
	switch {
	case role != `"user"` && role != `"assistant"` && role != `"system"`:
		d.f.fail(at+".role", "%s.role must be user or assistant", at)
	case isString(content):
		d.add(unquote(json.RawMessage(role)), content)
	case !isArray(content) || count(content) == 0:
		d.f.fail(at+".content", "%s.content must be a string or an array of at least one block", at)
	case role == `"assistant"`:
		d.answered(at+".content", content)
	default:
		d.asked(at+".content", unquote(json.RawMessage(role)), content)
	}
}

// asked takes the blocks of a user: results of tools are messages of their own, before the rest.
func (d *dialogue) asked(at, role string, blocks json.RawMessage) {
	parts := []byte{}
	for i, block := range elements(blocks) {
		where := at + "[" + strconv.Itoa(i) + "]"
		if string(member(block, "type")) == `"tool_result"` {
			d.result(where, block)
		} else {
			parts = d.part(parts, where, block)
		}
	}
	if len(parts) > 0 {
		d.add(role, wholeContent(parts))
	}
}

// result takes what a tool gave. The model sees from its text whether it failed.
func (d *dialogue) result(at string, block json.RawMessage) {
	id, content := member(block, "tool_use_id"), member(block, "content")
	if !isString(id) {
		d.f.fail(at+".tool_use_id", "%s.tool_use_id must be a string", at)
		return
	}
	switch {
	case content == nil || string(content) == "null":
		content = json.RawMessage(`""`)
	case isArray(content):
		parts := []byte{}
		for i, one := range elements(content) {
			parts = d.part(parts, at+".content["+strconv.Itoa(i)+"]", one)
		}
		content = wholeContent(parts)
	case !isString(content):
		d.f.fail(at+".content", "%s.content must be a string or an array of blocks", at)
	}
	d.add("tool", content, append([]byte(`,"tool_call_id":`), id...)...)
}

// answered takes the blocks of an earlier answer.
func (d *dialogue) answered(at string, blocks json.RawMessage) {
	parts, calls, thought := []byte{}, []byte{}, ""
	for i, block := range elements(blocks) {
		where := at + "[" + strconv.Itoa(i) + "]"
		switch kind := string(member(block, "type")); kind {
		case `"thinking"`:
			if text := member(block, "thinking"); isString(text) {
				thought += unquote(text)
			}
		case `"redacted_thinking"`:
			d.f.ignore([]byte("messages/redacted_thinking")) // only Anthropic can read it
		case `"tool_use"`:
			calls = d.called(calls, where, block)
		default:
			parts = d.part(parts, where, block)
		}
	}
	content, more := json.RawMessage("null"), []byte{}
	if len(parts) > 0 {
		content = wholeContent(parts)
	}
	if thought != "" {
		more = appendString(append(more, `,"reasoning_content":`...), thought)
	}
	if len(calls) > 0 {
		more = append(append(append(more, `,"tool_calls":[`...), calls...), ']')
	}
	d.continues = len(parts) > 0 && len(calls) == 0
	d.add("assistant", content, more...)
}

func (d *dialogue) called(calls []byte, at string, block json.RawMessage) []byte {
	id, name, input := member(block, "id"), member(block, "name"), member(block, "input")
	if !isString(id) || !isString(name) || !isObject(input) {
		d.f.fail(at, `%s must be {"type":"tool_use","id":"…","name":"…","input":{…}}`, at)
		return calls
	}
	calls = append(append(comma(calls), `{"id":`...), id...)
	calls = append(append(calls, `,"type":"function","function":{"name":`...), name...)
	return append(appendString(append(calls, `,"arguments":`...), string(input)), "}}"...)
}

// part appends a block as a part of a chat's content. What another server's own tools did is left out, and
// named: the text tells of it.
func (d *dialogue) part(parts []byte, at string, block json.RawMessage) []byte {
	kind, source := string(member(block, "type")), member(block, "source")
	text := member(block, "text")
	if kind == `"document"` && string(member(source, "type")) == `"text"` {
		kind, text = `"text"`, member(source, "data")
	}
	switch {
	case kind == `"text"` && isString(text):
		return append(append(append(comma(parts), `{"type":"text","text":`...), text...), '}')
	case kind == `"image"` && d.f.relayed && isString(member(source, "url")):
		return append(append(append(comma(parts), `{"type":"image_url","image_url":{"url":`...), member(source, "url")...), "}}"...)
	case kind == `"image"` && d.f.relayed && isString(member(source, "data")) && isString(member(source, "media_type")):
		url := "data:" + unquote(member(source, "media_type")) + ";base64," + unquote(member(source, "data"))
		return append(appendString(append(comma(parts), `{"type":"image_url","image_url":{"url":`...), url), "}}"...)
	case kind == `"server_tool_use"` || strings.HasSuffix(kind, `_tool_result"`):
		d.f.ignore([]byte("messages/" + unquote(json.RawMessage(kind))))
		return parts
	}
	d.f.fail(at, `%s must be {"type":"text","text":"…"}; this server takes text alone`, at)
	return parts
}

// wholeContent is the content of parts: the text itself where it is one.
func wholeContent(parts []byte) json.RawMessage {
	list := append(append([]byte{'['}, parts...), ']')
	if count(list) == 1 {
		for _, only := range elements(list) {
			if text := member(only, "text"); text != nil {
				return text
			}
		}
	}
	return list
}
