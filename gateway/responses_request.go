package gateway

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file reads requests of the Responses API. Each is written again as a chat, with which
// it shares everything but its spelling; what it keeps of its own is in responses.

// responses is what the answer to such a request needs of it.
type responses struct {
	repeats []byte            // members of the response that repeat the request, each with a comma in front
	custom  map[string]bool   // custom tools: functions with one argument, the text "input"
	spaces  map[string]string // the namespace of each function that came in one
	places  []string          // where in the request the schema of each tool of the chat stands
}

// responseFields are the members that the route reads itself. Those of chats are passed on.
var responseFields = keySet(nil, "input", "instructions", "text", "include", "store", "background", "conversation", "metadata",
	"truncation", "prompt", "previous_response_id", "max_tool_calls", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
	"tools", "tool_choice", "reasoning", "max_output_tokens", "stream_options", "messages", "response_format", "top_logprobs")

// responseIgnored change no answer here.
var responseIgnored = []string{"max_tool_calls", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "stream_options"}

// responseRefused are members that ask for what a server without memory cannot do, with the
// values that ask for nothing.
var responseRefused = map[string]struct{ neutral, advice string }{
	"store":                {"false", "this server keeps no responses; leave it out, or send false, and send the whole conversation in input"},
	"background":           {"false", "the answer comes on this connection"},
	"conversation":         {"", "send the whole conversation in input"},
	"previous_response_id": {"", "send the whole conversation in input"},
	"prompt":               {"", "send the text in instructions and input"},
	"messages":             {"", "send the conversation in input; messages belongs to /v1/chat/completions"},
	"response_format":      {"", "use text.format"},
}

var knownResponses = func() map[string]bool {
	all := maps.Clone(knownChat)
	maps.Copy(all, responseFields)
	return all
}()

// responsesCall reads a request of the Responses API.
func responsesCall(body []byte, l *LimitsConfig, m *wire.Model) (*call, *wire.Error) {
	f, err := parseFields(body, l.JSONDepthMax, knownResponses)
	if err != nil {
		return nil, err
	}
	f.relayed = m.Relays
	r := &responses{custom: map[string]bool{}, spaces: map[string]string{}}
	c, err := f.decodeAs(f.asChat(r), namesOfResponses, l, m)
	if err != nil {
		return nil, err
	}
	c.responses, c.schemas = r, r.places
	r.repeat(f, c)
	return c, nil
}

// decodeAs decodes a request that was written again as a chat, whose members have other names in
// the request. Errors and what was ignored are told in the words of the request.
func (f *fields) decodeAs(chat []byte, names *strings.Replacer, l *LimitsConfig, m *wire.Model) (*call, *wire.Error) {
	if f.err != nil {
		return nil, f.err
	}
	c, err := decodeCall(chat, true, l, m)
	if err != nil {
		own := *err
		own.Param, own.Message = names.Replace(own.Param), names.Replace(own.Message)
		return nil, &own
	}
	for _, name := range f.ignored {
		c.ignored = addIgnored(c.ignored, name)
	}
	if g := c.options.Grammar; g != nil {
		g.Param = names.Replace(g.Param)
	}
	if c.options.N != 1 {
		return nil, wire.InvalidParam("n", "n is not supported: there is one answer")
	}
	return c, nil
}

// namesOfResponses gives the names of a chat's members their names here.
var namesOfResponses = strings.NewReplacer("response_format.json_schema", "text.format", "response_format", "text.format",
	"max_completion_tokens", "max_output_tokens", "reasoning_effort", "reasoning.effort")

// asChat writes the request as the body of a chat.
func (f *fields) asChat(r *responses) []byte {
	for name, refused := range responseRefused {
		if raw, given := f.given(name); given && string(raw) != refused.neutral {
			f.fail(name, "%s is not supported: %s", name, refused.advice)
		}
	}
	for _, name := range responseIgnored {
		if _, given := f.given(name); given {
			f.ignore([]byte(name))
		}
	}
	if raw, given := f.given("truncation"); given && string(raw) != `"disabled"` {
		f.ignore([]byte("truncation"))
	}
	b := append([]byte(`{"messages":`), f.turns(r)...)
	for _, name := range slices.Sorted(maps.Keys(f.raw)) {
		if value := f.raw[name]; !responseFields[name] {
			b = append(append(appendString(append(b, ','), name), ':'), value...)
		}
	}
	if raw, given := f.given("max_output_tokens"); given {
		b = append(append(b, `,"max_completion_tokens":`...), raw...)
	}
	b = f.textForm(b)
	b = f.reasoningForm(b)
	b = f.logprobsForm(b)
	b = f.toolsForm(b, r)
	return append(b, '}')
}

// textForm writes text.format.
func (f *fields) textForm(b []byte) []byte {
	raw, given := f.given("text")
	if !given {
		return b
	}
	if !isObject(raw) {
		f.fail("text", `text must be an object, such as {"format":{"type":"text"}}`)
		return b
	}
	if verbosity := member(raw, "verbosity"); verbosity != nil && string(verbosity) != "null" {
		f.ignore([]byte("text.verbosity"))
	}
	format := member(raw, "format")
	switch kind := string(member(format, "type")); {
	case format == nil || string(format) == "null":
		return b
	case kind == `"json_schema"`:
		named := []byte{}
		for key, value := range members(format) {
			if string(key) != "type" {
				named = append(append(appendString(comma(named), string(key)), ':'), value...)
			}
		}
		b = append(append(b, `,"response_format":{"type":"json_schema","json_schema":{`...), named...)
		return append(b, `}}`...)
	}
	return append(append(b, `,"response_format":`...), format...)
}

// reasoningForm writes reasoning without what only asks for another kind of report.
func (f *fields) reasoningForm(b []byte) []byte {
	raw, given := f.given("reasoning")
	if !given {
		return b
	}
	if !isObject(raw) {
		f.fail("reasoning", `reasoning must be an object, such as {"effort":"low"}`)
		return b
	}
	for _, name := range []string{"summary", "generate_summary"} {
		if value := member(raw, name); value != nil && string(value) != "null" {
			f.ignore([]byte("reasoning." + name))
		}
	}
	if effort := member(raw, "effort"); f.relayed && effort != nil { // chats of other servers know this name
		return append(append(b, `,"reasoning_effort":`...), effort...)
	}
	if f.relayed {
		return b
	}
	return append(append(b, `,"reasoning":`...), raw...)
}

// logprobsForm reads top_logprobs, and include, of which the log-probabilities alone exist here.
func (f *fields) logprobsForm(b []byte) []byte {
	include, given := f.given("include")
	if given && !isArray(include) {
		f.fail("include", "include must be an array of strings")
	}
	wanted := false
	for i, one := range elements(include) {
		switch {
		case !isString(one):
			f.fail("include", "include holds %s at index %d, which is not a string", brief(one), i)
		case unquote(one) == "message.output_text.logprobs":
			wanted = true
		default:
			f.ignore([]byte("include/" + unquote(one)))
		}
	}
	top, given := f.given("top_logprobs")
	if wanted || given && string(top) != "0" {
		b = append(b, `,"logprobs":true`...)
		if given {
			b = append(append(b, `,"top_logprobs":`...), top...)
		}
	}
	return b
}

// toolsForm writes the functions among the tools, and tool_choice. Tools that another server
// would run are left out, and named.
func (f *fields) toolsForm(b []byte, r *responses) []byte {
	raw, given := f.given("tools")
	if given && !isArray(raw) {
		f.fail("tools", "tools must be an array")
	}
	list := []byte{}
	for i, tool := range elements(raw) {
		list = f.flatTool("tools["+strconv.Itoa(i)+"]", tool, "", list, r)
	}
	if len(list) > 0 {
		b = append(append(append(b, `,"tools":[`...), list...), ']')
	}
	choice, given := f.given("tool_choice")
	if !given || f.err != nil {
		return b
	}
	if isObject(choice) {
		switch kind := string(member(choice, "type")); kind {
		case `"function"`, `"allowed_tools"`:
		case `"custom"`:
			choice = append(append([]byte(`{"type":"function","name":`), member(choice, "name")...), '}')
		default:
			f.fail("tool_choice", "tool_choice asks for a tool of type %s, which this server does not run", brief(member(choice, "type")))
		}
	}
	return append(append(b, `,"tool_choice":`...), choice...)
}

// flatTool adds a tool as chats have it.
func (f *fields) flatTool(at string, tool json.RawMessage, space string, list []byte, r *responses) []byte {
	name := member(tool, "name")
	switch kind := string(member(tool, "type")); {
	case kind == `"namespace"` && space == "" && isString(name):
		for i, one := range elements(member(tool, "tools")) {
			list = f.flatTool(at+".tools["+strconv.Itoa(i)+"]", one, unquote(name), list, r)
		}
		return list
	case kind == `"function"` && isObject(member(tool, "function")): // as chats have it
		r.places = append(r.places, at+".function.parameters")
		return append(comma(list), tool...)
	case (kind == `"function"` || kind == `"custom"`) && isString(name):
		r.places = append(r.places, at+".parameters")
		list = append(append(comma(list), `{"type":"function","function":{"name":`...), name...)
		if text := member(tool, "description"); text != nil && string(text) != "null" {
			list = append(append(list, `,"description":`...), text...)
		}
		if kind == `"custom"` {
			r.custom[unquote(name)] = true
			if format := member(tool, "format"); format != nil && string(member(format, "type")) != `"text"` {
				f.ignore([]byte("tools/custom/format"))
			}
			return append(list, `,"parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}}`...)
		}
		for _, key := range []string{"parameters", "strict"} {
			if value := member(tool, key); value != nil {
				list = append(append(append(append(list, `,"`...), key...), `":`...), value...)
			}
		}
		if space != "" {
			r.spaces[unquote(name)] = space
		}
		return append(list, "}}"...)
	case isString(member(tool, "type")) && kind != `"function"` && kind != `"custom"`:
		f.ignore([]byte("tools/" + unquote(member(tool, "type"))))
		return list
	}
	f.fail(at, `%s must be {"type":"function","name":"…","parameters":{…}}`, at)
	return list
}

// repeat keeps what a response repeats of its request.
func (r *responses) repeat(f *fields, c *call) {
	b := []byte{}
	put := func(name, absent string) {
		raw, given := f.given(name)
		if !given {
			raw = json.RawMessage(absent)
		}
		b = append(append(append(append(b, `,"`...), name...), `":`...), raw...)
	}
	put("instructions", "null")
	put("max_output_tokens", "null")
	put("metadata", "{}")
	put("parallel_tool_calls", "true")
	put("reasoning", `{"effort":null,"summary":null}`)
	put("temperature", "1")
	put("text", `{"format":{"type":"text"}}`)
	put("tool_choice", `"auto"`)
	put("tools", "[]")
	put("top_logprobs", "0")
	put("top_p", "1")
	if c.user != "" {
		put("user", "null")
	}
	r.repeats = append(b, `,"truncation":"disabled","background":false,"store":false,"previous_response_id":null,"max_tool_calls":null`...)
}
