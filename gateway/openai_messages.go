package gateway

import (
	"encoding/json"
	"strconv"
)

// messages checks roles and content, and returns the client's own bytes.
func (f *fields) messages(countMax int) json.RawMessage {
	raw, _ := f.given("messages")
	switch n := count(raw); {
	case n == 0:
		f.fail("messages", "messages must be an array of at least one message")
		return nil
	case n > countMax:
		f.fail("messages", "messages may hold at most %d entries, not %d", countMax, n)
		return nil
	}
	for i, message := range elements(raw) {
		f.message("messages["+strconv.Itoa(i)+"]", message)
	}
	return raw
}

func (f *fields) message(at string, raw json.RawMessage) {
	if !isObject(raw) {
		f.fail(at, "%s must be an object", at)
		return
	}
	var role, content, calls json.RawMessage
	for key, value := range members(raw) {
		switch string(key) {
		case "role":
			role = value
		case "content":
			content = value
		case "tool_calls":
			calls = value
		}
	}
	if !isString(role) || !roles[unquote(role)] {
		f.fail(at+".role", "%s.role must be one of system, developer, user, assistant, tool, function", at)
		return
	}
	f.content(at+".content", content, unquote(role) == "assistant")
	f.calls(at+".tool_calls", calls)
}

// content checks a message's content. It is optional in a message of the
// assistant, which may have tool calls or a refusal instead.
func (f *fields) content(at string, raw json.RawMessage, assistant bool) {
	switch {
	case isString(raw), f.relayed, assistant && (len(raw) == 0 || string(raw) == "null"):
		return
	case assistant && !isArray(raw):
		f.fail(at, "%s must be a string, an array of text parts, or null", at)
	case !isArray(raw):
		f.fail(at, "%s must be a string or an array of text parts", at)
	}
	for j, part := range elements(raw) {
		kind, ok := textPart(part)
		if !ok || kind == "refusal" && !assistant {
			where := at + "[" + strconv.Itoa(j) + "]"
			also := ""
			if assistant {
				also = ` or {"type":"refusal","refusal":"…"}`
			}
			f.fail(where, `%s must be {"type":"text","text":"…"}%s; other kinds of parts are not supported`, where, also)
			return
		}
	}
}

// textPart returns the type of a part that holds text: text, or refusal, which
// holds what the assistant said instead. Both have the text under the type's name.
func textPart(raw json.RawMessage) (kind string, ok bool) {
	var name, text, refusal json.RawMessage
	for key, value := range members(raw) {
		switch string(key) {
		case "type":
			name = value
		case "text":
			text = value
		case "refusal":
			refusal = value
		}
	}
	switch string(name) {
	case `"text"`:
		return "text", isString(text)
	case `"refusal"`:
		return "refusal", isString(refusal)
	}
	return "", false
}
