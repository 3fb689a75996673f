package gateway

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// call is a decoded request for the engine.
type call struct {
	chat         bool
	model        string
	prompts      []wire.Request // without ID and Salt
	options      wire.Options
	asked        telemetry.Options // the same as the client wrote it
	stream       bool
	includeUsage bool
	tier         string   // service_tier, or ""
	user         string   // the client's own user, or ""
	ignored      []string // names of unknown members
	bodyBytes    int      // of the request, where the engine relays it and so keeps it; else 0
	pin          wire.Pin
	echo         bool
	embeds       *embeds         // of the routes that make vectors, else nil
	responses    *responses      // of a request of the Responses API, else nil
	messages     bool            // it is a request of the Messages API
	counts       bool            // which asks for the number of its prompt's tokens alone
	schemas      []string        // where the schema of each tool stands, where that is not as in a chat
	held         *wire.HeldCalls // tool calls that follow their schemas, or nil
	scored       bool            // the answer has the prompt's log-probabilities as vLLM gives them
	// hideReasoning is set where the client wants none of it.
	hideReasoning bool
	// promptOnly is set for an echo of zero tokens: the answer is the prompt alone.
	promptOnly bool
}

// finishOf is the finish reason for the client.
func (c *call) finishOf(e *wire.Event) wire.Finish {
	if c.promptOnly {
		return wire.FinishLength
	}
	return e.Finish
}

// billed is the usage for the client.
func (c *call) billed(u wire.Usage) wire.Usage {
	if c.promptOnly {
		u.Completion = 0
	}
	return u
}

var (
	tiers = keySet(nil, "auto", "default", "flex", "priority")
	roles = keySet(nil, "system", "developer", "user", "assistant", "tool", "function")
)

func keySet(shared []string, own ...string) map[string]bool {
	set := map[string]bool{}
	for _, k := range append(own, shared...) {
		set[k] = true
	}
	return set
}

// decoder reads the body of a request for model m.
type decoder func(body []byte, l *LimitsConfig, m *wire.Model) (*call, *wire.Error)

func chatCall(body []byte, l *LimitsConfig, m *wire.Model) (*call, *wire.Error) {
	return decodeCall(body, true, l, m)
}

func textCall(body []byte, l *LimitsConfig, m *wire.Model) (*call, *wire.Error) {
	return decodeCall(body, false, l, m)
}

// decodeCall reads a chat or a legacy completion request for model m. What it
// returns aliases body. Unknown fields are ignored, null is absent, and the last
// of equal keys counts. A field that is not supported and would change the answer is
// refused.
func decodeCall(body []byte, chat bool, l *LimitsConfig, m *wire.Model) (*call, *wire.Error) {
	known := knownText
	if chat {
		known = knownChat
	}
	f, err := parseFields(body, l.JSONDepthMax, known)
	if err != nil {
		return nil, err
	}
	if m.Relays {
		f.relay()
	}
	c := &call{chat: chat, model: f.text("model"), stream: f.flag("stream")}
	if _, ok := f.given("model"); !ok || c.model == "" {
		f.fail("model", "model must name the model; GET /v1/models lists what is served")
	}
	if chat {
		c.chatFields(f, l, m)
	} else {
		c.textFields(f, l)
	}
	c.sharedFields(f, l)
	f.refuseUnsupported()
	c.asked, c.ignored = c.askedOptions(f), f.ignored
	if m.Relays {
		c.relay(body)
	}
	if f.err != nil {
		return nil, f.err
	}
	if err := c.options.Check(m); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *call) sharedFields(f *fields, l *LimitsConfig) {
	o := &c.options
	o.N = f.wholeIn("n", 1, 1, l.ChoicesMax)
	o.Temperature = f.number("temperature", 1)
	o.TopP = f.number("top_p", 1)
	f.notZero("top_p", o.TopP, "use temperature 0 for the likeliest token")
	if o.TopK = f.whole("top_k", 0); o.TopK == -1 { // as other servers spell "all"
		o.TopK = 0
	}
	o.MinP = f.number("min_p", 0)
	o.RepetitionPenalty = f.number("repetition_penalty", 1)
	f.notZero("repetition_penalty", o.RepetitionPenalty, "1 does nothing")
	o.PresencePenalty = f.number("presence_penalty", 0)
	o.FrequencyPenalty = f.number("frequency_penalty", 0)
	o.IgnoreEOS = f.flag("ignore_eos")
	o.Seed = f.seed()
	o.Stop = f.stops()
	o.LogitBias = f.logitBias(l.LogitBiasMax)
	c.readTier(f)
	c.user = f.text("user")
	f.moreOptions(o, l)
	f.repetition(o)
	f.mirostat(o)
	c.scorePrompt(f)
	o.Grammar = f.grammar()
	c.holdCalls()
	c.checkContinue(f)
	for i := range c.prompts {
		c.prompts[i].Grammar = o.Grammar
	}
	if raw, ok := f.given("stream_options"); ok {
		switch usage := string(member(raw, "include_usage")); {
		case !isObject(raw):
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

func (c *call) readTier(f *fields) {
	c.tier = f.text("service_tier")
	if _, given := f.given("service_tier"); given && !tiers[c.tier] {
		f.fail("service_tier", "service_tier must be one of auto, default, flex, priority")
	}
}

// askedOptions is what the record keeps of the options.
func (c *call) askedOptions(f *fields) telemetry.Options {
	o := &c.options
	asked := telemetry.Options{
		MaxTokens: o.MaxTokens, TopK: o.TopK, Temperature: o.Temperature, TopP: o.TopP,
		FrequencyPenalty: o.FrequencyPenalty, PresencePenalty: o.PresencePenalty, StopTexts: len(o.Stop),
	}
	if o.Grammar != nil {
		asked.Grammar = o.Grammar.Kind.String()
	}
	_, asked.HasTemperature = f.given("temperature")
	_, asked.HasTopP = f.given("top_p")
	return asked
}

func (c *call) chatFields(f *fields, l *LimitsConfig, m *wire.Model) {
	request := wire.Request{}
	request.Messages = f.messages(l.MessagesMax)
	c.toolFields(f, &request, l.ToolsMax)
	c.thinkingFields(f, &request, m)
	for _, name := range []string{"functions", "function_call", "audio"} {
		if _, ok := f.given(name); ok {
			f.fail(name, "%s is not supported", name)
		}
	}
	if raw, ok := f.given("modalities"); ok {
		if n := count(raw); n == 0 {
			f.fail("modalities", `modalities must be ["text"]`)
		}
		for _, kind := range elements(raw) {
			if string(kind) != `"text"` {
				f.fail("modalities", `modalities other than ["text"] are not supported`)
			}
		}
	}
	if raw, ok := f.given("chat_template_kwargs"); ok {
		if !isObject(raw) {
			f.fail("chat_template_kwargs", "chat_template_kwargs must be an object")
		}
		request.TemplateOptions = raw
	}
	f.ending(&request)
	c.options.MaxTokens = f.answerTokens("max_tokens", 0)
	c.options.MaxTokens = f.answerTokens("max_completion_tokens", c.options.MaxTokens)
	f.otherLimits(&c.options)
	c.options.Logprobs = f.flag("logprobs")
	c.options.TopLogprobs = f.whole("top_logprobs", 0)
	if _, given := f.given("top_logprobs"); given && !c.options.Logprobs {
		f.fail("top_logprobs", "top_logprobs is only allowed when logprobs is true")
	}
	c.prompts = []wire.Request{request}
}

// What the legacy route is documented to do: its max_tokens where none is
// given, and the most tokens that its logprobs may name at each position.
const (
	defaultTextTokens = 16
	textLogprobsMax   = 5
)

func (c *call) textFields(f *fields, l *LimitsConfig) {
	c.prompts = f.prompts("prompt", l.PromptsMax)
	c.echo = f.flag("echo")
	if c.promptOnly = c.echo && f.whole("max_tokens", defaultTextTokens) == 0; c.promptOnly {
		c.options.MaxTokens = 1
	} else {
		c.options.MaxTokens = f.answerTokens("max_tokens", defaultTextTokens)
		f.otherLimits(&c.options)
		c.options.Echo = c.echo
	}
	if _, c.options.Logprobs = f.given("logprobs"); c.options.Logprobs {
		c.options.TopLogprobs = f.wholeIn("logprobs", 0, 0, textLogprobsMax)
		c.options.PromptLogprobs, c.options.PromptTop = c.echo, c.options.TopLogprobs
	}
	n := f.whole("n", 1)
	if best := f.whole("best_of", n); best != n {
		f.fail("best_of", "best_of other than n is not supported; leave it out")
	}
	if f.text("suffix") != "" {
		f.fail("suffix", "suffix is not supported")
	}
}

// answerTokens reads a client's limit on the answer. It refuses 0, which means
// absent in wire.Options.
func (f *fields) answerTokens(name string, absent int) int {
	n := f.whole(name, absent)
	if _, given := f.given(name); given && n < 1 {
		f.fail(name, "%s must be at least 1, or absent", name)
	}
	return n
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

func (f *fields) stops() (all []string) {
	raw, ok := f.given("stop")
	if ok && !isArray(raw) {
		return f.stop(nil, raw)
	}
	for i, one := range elements(raw) {
		if i > wire.StopsMax { // enough for Options.Check to refuse them
			break
		}
		all = f.stop(all, one)
	}
	return all
}

func (f *fields) stop(all []string, raw json.RawMessage) []string {
	if !isString(raw) {
		f.fail("stop", "stop must be a string or an array of strings")
		return nil
	}
	return append(all, unquote(raw))
}

// logitBias keeps the order of the keys, so that biases are added in one order.
func (f *fields) logitBias(countMax int) (all []wire.LogitBias) {
	raw, ok := f.given("logit_bias")
	if ok && !isObject(raw) {
		f.fail("logit_bias", "logit_bias must be an object of token ids and biases")
	}
	at := map[int64]int{}
	for key, value := range members(raw) {
		id, err := strconv.ParseInt(string(key), 10, 32)
		bias, biasErr := strconv.ParseFloat(string(value), 32)
		i, again := at[id]
		switch {
		case err != nil || strconv.FormatInt(id, 10) != string(key) || id < 0:
			f.fail("logit_bias", "logit_bias key %.32q is not a token id", key)
		case biasErr != nil:
			f.fail("logit_bias", "logit_bias of token %d must be a number, not %s", id, brief(value))
		case again:
			all[i].Bias = float32(bias)
		case len(all) == countMax:
			f.fail("logit_bias", "logit_bias may hold at most %d token ids", countMax)
		default:
			at[id] = len(all)
			all = append(all, wire.LogitBias{Token: int32(id), Bias: float32(bias)})
		}
		if f.err != nil {
			return nil
		}
	}
	return all
}

// prompts reads the four forms: a string, strings, token ids, lists of token ids.
func (f *fields) prompts(name string, countMax int) []wire.Request {
	const allowed = "%s must be a string, an array of strings, an array of token ids, or an array of such arrays, and not empty"
	raw, ok := f.given(name)
	if ok && isString(raw) {
		text := unquote(raw)
		return []wire.Request{{Text: &text}}
	}
	var all []wire.Request
	var kind byte // of the elements, by their first byte
	for i, item := range elements(raw) {
		switch {
		case i == 0 && item[0] != '"' && item[0] != '[':
			return []wire.Request{{Tokens: f.tokens(name, raw)}}
		case i == 0:
			kind = item[0]
		case i == countMax:
			f.fail(name, "%s may hold at most %d texts", name, countMax)
			return nil
		}
		r := wire.Request{}
		switch {
		case item[0] != kind:
			f.fail(name, allowed, name)
			return nil
		case kind == '[':
			r.Tokens = f.tokens(name, item)
		default:
			text := unquote(item)
			r.Text = &text
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		f.fail(name, allowed, name)
	}
	return all
}

// tokens reads an array of at least one token id.
func (f *fields) tokens(name string, raw json.RawMessage) (ids []int32) {
	for i, item := range elements(raw) {
		id, err := strconv.ParseInt(string(item), 10, 32)
		if err != nil || id < 0 {
			f.fail(name, "%s holds %s at index %d, which is not a token id", name, brief(item), i)
			return nil
		}
		if ids == nil {
			ids = make([]int32, 0, 1+bytes.Count(raw, []byte(",")))
		}
		ids = append(ids, int32(id))
	}
	if len(ids) == 0 {
		f.fail(name, "%s must not hold an empty array of token ids", name)
	}
	return ids
}
