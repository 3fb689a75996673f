package gateway

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/forebay-io/forebay/internal/wire"
)

// call is a decoded request of either generation route.
type call struct {
	chat         bool
	model        string
	prompts      []wire.Request // all but ID, Salt and Options set
	options      wire.Options
	stream       bool
	includeUsage bool
	tier         string // service_tier to echo, or ""
	echo         bool
	// promptOnly answers an echo of zero tokens: the prompt, and nothing new.
	promptOnly bool
}

// maxTokensMax is the most that may be asked for. What the context cannot
// hold is cut to what it can.
const maxTokensMax = math.MaxInt32

const (
	stopsMax     = 4
	stopBytesMax = 4096
)

var (
	knownShared = []string{
		"model", "stream", "stream_options", "max_tokens", "n", "temperature", "top_p", "top_k", "min_p", "seed",
		"repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "stop", "ignore_eos", "logprobs", "service_tier", "response_format",
	}
	knownChat = keySet(knownShared, "messages", "tools", "tool_choice", "functions", "function_call", "max_completion_tokens", "top_logprobs", "chat_template_kwargs", "modalities", "audio")
	knownText = keySet(knownShared, "prompt", "echo", "best_of", "suffix")
	tiers     = keySet(nil, "auto", "default", "flex", "priority")
	roles     = keySet(nil, "system", "developer", "user", "assistant", "tool", "function")
)

func keySet(shared []string, own ...string) map[string]bool {
	set := map[string]bool{}
	for _, k := range append(own, shared...) {
		set[k] = true
	}
	return set
}

// decodeCall reads a chat or a legacy completion request. What it returns
// aliases body. Unknown fields are ignored, null is absent, and of equal keys
// the last counts; what is known and not supported is refused, never ignored.
func decodeCall(body []byte, chat bool, l *LimitsConfig) (*call, *wire.Error) {
	known := knownText
	if chat {
		known = knownChat
	}
	f, err := parseFields(body, l.JSONDepthMax, known)
	if err != nil {
		return nil, err
	}
	c := &call{chat: chat, model: f.text("model"), stream: f.flag("stream")}
	if _, ok := f.given("model"); !ok || c.model == "" {
		f.fail("model", "model must name the model; GET /v1/models lists what is served")
	}
	if chat {
		c.chatFields(f, l)
	} else {
		c.textFields(f, l)
	}
	c.sharedFields(f, l)
	if f.err != nil {
		return nil, f.err
	}
	return c, nil
}

func (c *call) sharedFields(f *fields, l *LimitsConfig) {
	o := &c.options
	o.N = f.whole("n", 1, 1, l.ChoicesMax)
	o.Temperature = f.number("temperature", 1, 0, 2)
	o.TopP = f.number("top_p", 1, 0, 1)
	if _, given := f.given("top_p"); given && o.TopP == 0 {
		f.fail("top_p", "top_p must be above 0 and at most 1; use temperature 0 for the likeliest token")
	}
	// -1 is how other servers spell "all".
	o.TopK = max(0, f.whole("top_k", 0, -1, math.MaxInt32))
	o.MinP = f.number("min_p", 0, 0, 1)
	o.RepetitionPenalty = f.number("repetition_penalty", 1, 0.01, 100)
	o.PresencePenalty = f.number("presence_penalty", 0, -2, 2)
	o.FrequencyPenalty = f.number("frequency_penalty", 0, -2, 2)
	o.IgnoreEOS = f.flag("ignore_eos")
	o.Seed = f.seed()
	o.Stop = f.stops()
	o.LogitBias = f.logitBias(l.LogitBiasMax)
	if tier := f.text("service_tier"); tiers[tier] {
		c.tier = tier
	}
	if raw, ok := f.given("response_format"); ok {
		if m, isObject := members(raw); !isObject || string(m["type"]) != `"text"` {
			f.fail("response_format", `response_format other than {"type":"text"} is not supported yet`)
		}
	}
	if raw, ok := f.given("stream_options"); ok {
		m, isObject := members(raw)
		switch usage := string(m["include_usage"]); {
		case !isObject:
			f.fail("stream_options", "stream_options must be an object")
		case !c.stream:
			f.fail("stream_options", "stream_options is only allowed when stream is true")
		case usage != "" && usage != "null" && usage != "true" && usage != "false":
			f.fail("stream_options.include_usage", "stream_options.include_usage must be true or false")
		default:
			c.includeUsage = usage == "true"
		}
	}
}

func (c *call) chatFields(f *fields, l *LimitsConfig) {
	request := wire.Request{}
	request.Messages = f.messages(l.MessagesMax)
	if raw, ok := f.given("tools"); ok {
		tools, isArray := elements(raw)
		switch {
		case !isArray:
			f.fail("tools", "tools must be an array")
		case len(tools) > l.ToolsMax:
			f.fail("tools", "tools may hold at most %d entries, not %d", l.ToolsMax, len(tools))
		case len(tools) > 0:
			request.Tools = raw
		}
	}
	if raw, ok := f.given("tool_choice"); ok && string(raw) != `"auto"` {
		if string(raw) != `"none"` {
			f.fail("tool_choice", `tool_choice other than "auto" or "none" is not supported: the reply is free text and tool calls in it are not parsed`)
		}
		request.Tools = nil
	}
	for _, name := range []string{"functions", "function_call", "audio"} {
		if _, ok := f.given(name); ok {
			f.fail(name, "%s is not supported", name)
		}
	}
	if raw, ok := f.given("modalities"); ok {
		if list, _ := elements(raw); len(list) != 1 || string(list[0]) != `"text"` {
			f.fail("modalities", `modalities other than ["text"] are not supported`)
		}
	}
	if raw, ok := f.given("chat_template_kwargs"); ok {
		if raw[0] != '{' {
			f.fail("chat_template_kwargs", "chat_template_kwargs must be an object")
		}
		request.TemplateOptions = raw
	}
	c.options.MaxTokens = f.whole("max_tokens", 0, 1, maxTokensMax)
	if n := f.whole("max_completion_tokens", 0, 1, maxTokensMax); n > 0 {
		c.options.MaxTokens = n
	}
	c.options.Logprobs = f.flag("logprobs")
	c.options.TopLogprobs = f.whole("top_logprobs", 0, 0, 20)
	if _, given := f.given("top_logprobs"); given && !c.options.Logprobs {
		f.fail("top_logprobs", "top_logprobs is only allowed when logprobs is true")
	}
	c.prompts = []wire.Request{request}
}

// defaultTextTokens is the legacy route's documented max_tokens when none is given.
const defaultTextTokens = 16

func (c *call) textFields(f *fields, l *LimitsConfig) {
	c.prompts = f.prompts(l.PromptsMax)
	c.echo = f.flag("echo")
	least := 1
	if c.echo {
		least = 0
	}
	c.options.MaxTokens = f.whole("max_tokens", defaultTextTokens, least, maxTokensMax)
	if c.options.MaxTokens == 0 {
		c.promptOnly, c.options.MaxTokens = true, 1
	}
	if top := f.whole("logprobs", -1, 0, 5); top >= 0 {
		c.options.Logprobs, c.options.TopLogprobs = true, top
		c.options.PromptLogprobs = c.echo
	}
	n := f.whole("n", 1, 1, l.ChoicesMax)
	if best := f.whole("best_of", n, 1, l.ChoicesMax); best != n {
		f.fail("best_of", "best_of other than n is not supported; leave it out")
	}
	if f.text("suffix") != "" {
		f.fail("suffix", "suffix is not supported")
	}
}

func (f *fields) seed() uint64 {
	raw, ok := f.given("seed")
	if !ok {
		return rand.Uint64()
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return uint64(n)
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		f.fail("seed", "seed must be a whole number of at most 64 bits, not %s", brief(raw))
	}
	return n
}

func (f *fields) stops() []string {
	raw, ok := f.given("stop")
	if !ok {
		return nil
	}
	list, isArray := elements(raw)
	if !isArray {
		list = []json.RawMessage{raw}
	}
	if len(list) > stopsMax {
		f.fail("stop", "stop may hold at most %d strings, not %d", stopsMax, len(list))
		return nil
	}
	var stops []string
	for _, raw := range list {
		if raw[0] != '"' || len(raw) == 2 || len(raw) > stopBytesMax {
			f.fail("stop", "stop must be a string, or an array of strings, of 1 to %d bytes", stopBytesMax)
			return nil
		}
		stops = append(stops, unquote(raw))
	}
	return stops
}

func (f *fields) logitBias(countMax int) (all []wire.LogitBias) {
	raw, ok := f.given("logit_bias")
	if !ok {
		return nil
	}
	m, isObject := members(raw)
	if !isObject || len(m) > countMax {
		f.fail("logit_bias", "logit_bias must be an object of at most %d token ids", countMax)
		return nil
	}
	for key, value := range m {
		id, err := strconv.ParseInt(key, 10, 32)
		bias, biasErr := strconv.ParseFloat(string(value), 32)
		switch {
		case err != nil || id < 0:
			f.fail("logit_bias", "logit_bias key %.32q is not a token id", key)
		case biasErr != nil || bias < -100 || bias > 100:
			f.fail("logit_bias", "logit_bias of token %d must be a number from -100 to 100, not %s", id, brief(value))
		}
		all = append(all, wire.LogitBias{Token: int32(id), Bias: float32(bias)})
	}
	return all
}

// messages checks roles and content, and returns the client's own bytes.
func (f *fields) messages(countMax int) json.RawMessage {
	raw, _ := f.given("messages")
	list, isArray := elements(raw)
	switch {
	case !isArray || len(list) == 0:
		f.fail("messages", "messages must be an array of at least one message")
		return nil
	case len(list) > countMax:
		f.fail("messages", "messages may hold at most %d entries, not %d", countMax, len(list))
		return nil
	}
	for i, message := range list {
		f.message("messages["+strconv.Itoa(i)+"]", message)
	}
	return raw
}

func (f *fields) message(at string, raw json.RawMessage) {
	m, isObject := members(raw)
	if !isObject {
		f.fail(at, "%s must be an object", at)
		return
	}
	if role := m["role"]; len(role) == 0 || role[0] != '"' || !roles[unquote(role)] {
		f.fail(at+".role", "%s.role must be one of system, developer, user, assistant, tool, function", at)
	}
	content := m["content"]
	if len(content) == 0 || content[0] == '"' || string(content) == "null" {
		return
	}
	parts, isArray := elements(content)
	if !isArray {
		f.fail(at+".content", "%s.content must be a string, null, or an array of text parts", at)
		return
	}
	for j, part := range parts {
		p, _ := members(part)
		if text := p["text"]; string(p["type"]) != `"text"` || len(text) == 0 || text[0] != '"' {
			where := at + ".content[" + strconv.Itoa(j) + "]"
			f.fail(where, `%s must be {"type":"text","text":"…"}; other kinds of parts are not supported`, where)
			return
		}
	}
}

// prompts reads the four forms: a string, strings, token ids, lists of token ids.
func (f *fields) prompts(countMax int) []wire.Request {
	const allowed = "prompt must be a string, an array of strings, an array of token ids, or an array of such arrays, and not empty"
	raw, ok := f.given("prompt")
	if ok && raw[0] == '"' {
		text := unquote(raw)
		return []wire.Request{{Text: &text}}
	}
	list, isArray := elements(raw)
	if !isArray || len(list) == 0 {
		f.fail("prompt", allowed)
		return nil
	}
	if c := list[0][0]; c != '"' && c != '[' {
		return []wire.Request{{Tokens: f.tokens(list)}}
	}
	if len(list) > countMax {
		f.fail("prompt", "prompt may hold at most %d prompts, not %d", countMax, len(list))
		return nil
	}
	var all []wire.Request
	for _, item := range list {
		var r wire.Request
		ids, isArray := elements(item)
		switch {
		case item[0] != list[0][0] || isArray && len(ids) == 0:
			f.fail("prompt", allowed)
			return nil
		case isArray:
			r.Tokens = f.tokens(ids)
		default:
			text := unquote(item)
			r.Text = &text
		}
		all = append(all, r)
	}
	return all
}

func (f *fields) tokens(list []json.RawMessage) []int32 {
	ids := make([]int32, len(list))
	for i, raw := range list {
		id, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil || id < 0 {
			f.fail("prompt", "prompt holds %s at index %d, which is not a token id", brief(raw), i)
			return nil
		}
		ids[i] = int32(id)
	}
	return ids
}
