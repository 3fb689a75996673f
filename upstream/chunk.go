package upstream

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/forebay-io/forebay/internal/wire"
)

// chunk is one event of an answer, with what we read of it. It is of use while the
// event's data is.
type chunk struct {
	Error   json.RawMessage
	Object  string
	Choices []chunkChoice
	Usage   *usage
	Timings *timings // of llama-server
}

type chunkChoice struct {
	Index    int
	Text     string
	Delta    json.RawMessage
	Message  json.RawMessage // in place of Delta, from a server that did not stream
	Logprobs json.RawMessage
	Finish   string
}

// read takes valid JSON apart, without encoding/json for what every token has.
func (c *chunk) read(data []byte) bool {
	return eachNamed(data, func(name, value []byte) (ok bool) {
		switch string(name) {
		case "error":
			c.Error = value
		case "object":
			return readText(value, &c.Object)
		case "choices":
			return c.readChoices(value)
		case "usage":
			c.Usage, ok = readUsage(value)
			return ok
		case "timings":
			return json.Unmarshal(value, &c.Timings) == nil
		}
		return true
	})
}

func (c *chunk) readChoices(list []byte) bool {
	c.Choices = nil
	if string(list) == "null" {
		return true
	}
	if list[0] != '[' {
		return false
	}
	for i := space(list, 1); list[i] != ']'; {
		end := valueEnd(list, i)
		if end < 0 {
			return false
		}
		var one chunkChoice
		if value := list[i:end:end]; string(value) != "null" && !one.read(value) {
			return false
		}
		c.Choices = append(c.Choices, one)
		if i = space(list, end); list[i] == ',' {
			i = space(list, i+1)
		}
	}
	return true
}

func (c *chunkChoice) read(data []byte) bool {
	return eachNamed(data, func(name, value []byte) (ok bool) {
		switch string(name) {
		case "index":
			return readInt(value, &c.Index)
		case "text":
			return readText(value, &c.Text)
		case "delta":
			c.Delta = value
		case "message":
			c.Message = value
		case "logprobs":
			c.Logprobs = value
		case "finish_reason":
			return readText(value, &c.Finish)
		}
		return true
	})
}

// readText reads a string or null, which is "".
func readText(value []byte, to *string) (ok bool) {
	if string(value) == "null" {
		*to = ""
		return true
	}
	*to, ok = unquoted(value)
	return ok
}

// readInt reads an integer or null, which changes nothing.
func readInt(value []byte, to *int) bool {
	n := 0
	for _, digit := range value {
		if digit < '0' || digit > '9' || len(value) > 9 {
			return json.Unmarshal(value, to) == nil
		}
		n = 10*n + int(digit-'0')
	}
	*to = n
	return true
}

// readUsage reads a usage or null; its details, which few events have, as they come.
func readUsage(value []byte) (u *usage, ok bool) {
	if string(value) == "null" {
		return nil, true
	}
	u = new(usage)
	ok = eachNamed(value, func(name, value []byte) bool {
		switch string(name) {
		case "prompt_tokens":
			return readInt(value, &u.Prompt)
		case "completion_tokens":
			return readInt(value, &u.Completion)
		case "prompt_tokens_details":
			return json.Unmarshal(value, &u.Details) == nil
		case "completion_tokens_details":
			return json.Unmarshal(value, &u.Made) == nil
		}
		return true
	})
	return u, ok
}

type usage struct {
	Prompt     int
	Completion int
	Details    *struct {
		Cached *int `json:"cached_tokens"`
	}
	Made *struct {
		Reasoning *int `json:"reasoning_tokens"`
	}
}

func (u *usage) reasoning() int {
	if u.Made == nil || u.Made.Reasoning == nil {
		return 0
	}
	return min(max(0, *u.Made.Reasoning), u.Completion)
}

func (u *usage) cached() int {
	if u.Details == nil || u.Details.Cached == nil {
		return 0
	}
	return min(max(0, *u.Details.Cached), u.Prompt)
}

// timings are what llama-server says of one choice, in its last events or in all.
type timings struct {
	Cached    int     `json:"cache_n"`   // prompt tokens
	Prompt    int     `json:"prompt_n"`  // prompt tokens that were computed
	PromptMS  float64 `json:"prompt_ms"` // which took so long
	Predicted int     `json:"predicted_n"`
}

func (t *timings) valid() bool {
	for _, n := range [...]int{t.Cached, t.Prompt, t.Predicted} {
		if n < 0 || n > tokensMost {
			return false
		}
	}
	return t.PromptMS >= 0 && t.PromptMS < 1e9
}

// textMax bounds what is repeated of a server's message.
const textMax = 300

func brief(text string) string {
	if len(text) > textMax {
		text = text[:textMax] + "…"
	}
	return string(bytes.ToValidUTF8([]byte(text), []byte("\ufffd")))
}

// messageOf is the message in an error object of any shape that servers use.
func messageOf(raw []byte) string {
	var object struct {
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Error   json.RawMessage `json:"error"`
	}
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return brief(text)
	case json.Unmarshal(raw, &object) != nil:
		return brief(string(raw))
	case object.Message != "":
		return brief(object.Message)
	case len(object.Error) > 0:
		return messageOf(object.Error)
	case len(object.Detail) > 0:
		return messageOf(object.Detail)
	}
	return brief(string(raw))
}

// parseChunk reads the data of an event. A server may put an error in its place, and
// not always as JSON.
func parseChunk(data []byte, failure bool) (*chunk, *wire.Error) {
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\ufffd"))
	}
	c := new(chunk)
	if !json.Valid(data) || string(data) != "null" && !c.read(data) {
		return nil, wire.Errorf(wire.Internal, "the upstream sent an event that is no JSON: %s", brief(string(data)))
	}
	switch {
	case given(c.Error):
		return nil, wire.Errorf(wire.Internal, "the upstream failed: %s", messageOf(c.Error))
	case failure || c.Object == "error":
		return nil, wire.Errorf(wire.Internal, "the upstream failed: %s", messageOf(data))
	}
	return c, nil
}

// finishes are the reasons for the end of a choice that servers give, by what they
// mean. Any other reason, such as abort, is a failure.
var finishes = map[string]wire.Finish{
	"stop": wire.FinishStop, "eos_token": wire.FinishStop, "stop_sequence": wire.FinishStop,
	"length":     wire.FinishLength,
	"tool_calls": wire.FinishCalls, "function_call": wire.FinishCalls,
	"content_filter": wire.FinishFilter,
}

// message splits a delta or a whole message into its text and its further members;
// mend corrects its tool calls.
func message(raw json.RawMessage, mend func([]byte) []byte) (text string, rest []byte, understood bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil, true
	}
	understood = eachMember(raw, func(name string, value json.RawMessage) (ok bool) {
		switch {
		case name == "role" || string(value) == "null" || string(value) == "[]" && name == "tool_calls":
		case name == "content":
			text, ok = unquoted(value)
			return ok
		default:
			if rest != nil {
				rest = append(rest, ',')
			}
			if name == "tool_calls" {
				value = mend(value)
			}
			rest = appendMember(rest, name, oneLine(value))
		}
		return true
	})
	return text, rest, understood
}

// oneLine returns JSON without anything that a reader could take for the end of a
// line: those stand only in strings, once the JSON is compact.
func oneLine(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return []byte("null")
	}
	text := b.Bytes()
	if bytes.IndexByte(text, 0xe2) < 0 && bytes.IndexByte(text, 0xc2) < 0 {
		return text
	}
	for _, end := range [...]struct{ raw, escaped string }{{"\u2028", `\u2028`}, {"\u2029", `\u2029`}, {"\u0085", `\u0085`}} {
		text = bytes.ReplaceAll(text, []byte(end.raw), []byte(end.escaped))
	}
	return text
}
