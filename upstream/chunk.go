package upstream

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/forebay-io/forebay/internal/wire"
)

// chunk is one event of an answer, with what we read of it.
type chunk struct {
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"`
	Message json.RawMessage `json:"message"` // of an error that is an event of its own
	Choices []chunkChoice   `json:"choices"`
	Usage   *usage          `json:"usage"`
	Timings *timings        `json:"timings"` // of llama-server
}

type chunkChoice struct {
	Index    int             `json:"index"`
	Text     *string         `json:"text"`
	Delta    json.RawMessage `json:"delta"`
	Message  json.RawMessage `json:"message"` // in place of Delta, from a server that did not stream
	Logprobs json.RawMessage `json:"logprobs"`
	Finish   *string         `json:"finish_reason"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    *struct {
		Cached *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Made *struct {
		Reasoning *int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
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
	if err := json.Unmarshal(data, c); err != nil {
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
