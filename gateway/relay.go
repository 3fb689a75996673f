package gateway

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file has what differs where the engine relays requests to another server
// (wire.Model.Relays): that server reads the client's own body, so members that
// nobody here knows are passed on, and parts of its answer come back as JSON.

// relayRefused are members of a request that would pass by the limits of this
// gateway. They are refused here too, if the table of unsupported fields has them.
var relayRefused = keySet(nil, "use_beam_search", "previous_response_id")

// relayRead are the known members that this server does not support and another may.
var relayRead = keySet(slices.Concat(formNames(), optionFields, optionChatFields, thinkingNames),
	"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "modalities", "audio", "suffix", "chat_template_kwargs")

// relayLimits are names for max_tokens that another server may know and this gateway
// cannot bound on the way.
var relayLimits = []string{"n_predict", "max_output_tokens"}

// relay leaves to the other server what only it can decide about.
func (f *fields) relay() {
	f.relayed, f.ignored = true, nil
	for name := range f.raw {
		if _, ok := unsupportedFields[name]; ok && !relayRefused[name] && !knownChat[name] && !knownText[name] {
			delete(f.raw, name)
		}
	}
	for _, name := range relayLimits {
		if _, given := f.given(name); given {
			f.fail(name, "%s is not supported: use max_tokens", name)
		}
	}
	if _, given := f.given("prompt_logprobs"); given {
		f.fail("prompt_logprobs", "prompt_logprobs is not supported: the server behind this gateway gives the answer alone")
	}
	for name := range f.raw {
		if relayRead[name] && f.known[name] { // else it belongs to the other route
			delete(f.raw, name)
		}
	}
	if f.flag("echo") {
		f.fail("echo", "echo is not supported: the server behind this gateway gives the answer alone")
	}
}

// relay gives every prompt the client's body.
func (c *call) relay(body []byte) {
	c.bodyBytes = len(body)
	for i := range c.prompts {
		c.prompts[i].Body = body
	}
}

// correct takes the other server's own counts in place of what was counted before
// and on the way. Where the engine is our own they are equal.
func (r *run) correct(prompt int, u *wire.Usage) {
	if r.relayed == nil {
		return
	}
	record := &r.x.record
	record.PromptTokens += u.Prompt - r.relayed[prompt].Length()
	n := r.call.options.N
	made := 0
	for _, tokens := range r.tokens[prompt*n : (prompt+1)*n] {
		made += tokens
	}
	record.CompletionTokens += u.Completion - made
}

// relayedChunk carries what another server sent of a choice.
func (a *answer) relayedChunk(b []byte, index int, e *wire.Event) []byte {
	r := e.Relayed
	if e.Text == "" && len(r.Delta) == 0 && r.Logprobs == nil {
		return b
	}
	b = append(a.chunkOpen(b), `{"index":`...)
	b = strconv.AppendInt(b, int64(index), 10)
	switch {
	case !a.chat:
		b = appendString(append(b, `,"text":`...), e.Text)
	case len(r.Delta) == 0:
		b = append(appendString(append(b, `,"delta":{"content":`...), e.Text), '}')
	case e.Text == "":
		b = append(append(append(b, `,"delta":{`...), r.Delta...), '}')
	default:
		b = appendString(append(b, `,"delta":{"content":`...), e.Text)
		b = append(append(append(b, ','), r.Delta...), '}')
	}
	b = append(b, `,"logprobs":`...)
	if r.Logprobs == nil {
		b = append(b, "null"...)
	}
	b = append(append(b, r.Logprobs...), `,"finish_reason":null}`...)
	return a.chunkClose(b)
}

// passOn writes another server's own events, its usage only where that was asked for.
func (r *streamReply) passOn(relayed *wire.Relayed) {
	b := r.x.out.Buf
	for _, line := range relayed.Lines {
		b = append(append(append(b, "data: "...), line...), "\n\n"...)
	}
	if relayed.UsageLine != nil && r.call.includeUsage {
		b, r.billed = append(append(append(b, "data: "...), relayed.UsageLine...), "\n\n"...), true
	}
	r.x.out.Buf = b
}

// gathered is what another server sent of a choice beside its text, for an answer
// that is not streamed.
type gathered struct {
	delta    mergedObject
	logprobs mergedObject
	bytes    int // received
}

// add takes the next part.
func (g *gathered) add(r *wire.Relayed) {
	g.bytes += len(r.Delta) + len(r.Logprobs)
	if len(r.Delta) > 0 {
		g.delta.merge(slices.Concat([]byte("{"), r.Delta, []byte("}")))
	}
	g.logprobs.merge(r.Logprobs)
}

// size is about how many bytes g holds.
func (g *gathered) size() int {
	if g == nil {
		return 0
	}
	return g.bytes
}

// appendRelayed appends the message of a plain answer of another server: its text,
// and its further members in the order in which they came.
func (c *choiceState) appendRelayed(b []byte) []byte {
	b = append(b, `{"role":"assistant","content":`...)
	if len(c.text) == 0 && len(c.relayed.delta) > 0 {
		b = append(b, "null"...)
	} else {
		b = appendString(b, string(c.text))
	}
	refused := false
	for i := range c.relayed.delta {
		m := &c.relayed.delta[i]
		refused = refused || m.name == "refusal"
		b = m.value.append(append(appendString(append(b, ','), m.name), ':'))
	}
	if !refused {
		b = append(b, `,"refusal":null`...)
	}
	return append(b, '}')
}

// appendLogprobs appends the logprobs member: that of the other server, or ours.
func (g *gathered) appendLogprobs(b []byte, ours *logprobList) []byte {
	if g == nil || len(g.logprobs) == 0 {
		if g != nil {
			ours = nil
		}
		return ours.append(b)
	}
	return g.logprobs.append(b)
}

// mergedObject gathers the members of deltas: texts grow, lists grow, objects merge, and
// of everything else the last counts.
type mergedObject []namedValue

type namedValue struct {
	name string
	value
}

type value struct {
	kind  byte
	text  []byte       // of a text, or JSON of anything else
	parts mergedObject // of an object
	items []value      // of a list
}

const (
	kindOther byte = iota
	kindText
	kindObject
	kindList
)

// merge takes the members of the JSON object raw into o.
func (o *mergedObject) merge(raw json.RawMessage) {
	for name, part := range members(raw) {
		if string(part) == "null" {
			continue
		}
		i := slices.IndexFunc(*o, func(m namedValue) bool { return m.name == string(name) })
		if i < 0 {
			i = len(*o)
			*o = append(*o, namedValue{name: string(name)})
		}
		(*o)[i].merge(part, namesOnce[string(name)])
	}
}

// namesOnce are the members of a tool call that are sent whole: where a server sends
// them again, they do not grow.
var namesOnce = keySet(nil, "id", "type", "name", "index")

func (v *value) merge(raw json.RawMessage, once bool) {
	switch {
	case isString(raw) && once:
		v.kind, v.text = kindText, []byte(unquote(raw))
	case isString(raw):
		v.kind, v.text = kindText, append(v.text, unquote(raw)...)
	case isObject(raw):
		v.kind = kindObject
		v.parts.merge(raw)
	case isArray(raw):
		v.kind = kindList
		for _, item := range elements(raw) {
			v.item(item)
		}
	default:
		v.kind, v.text = kindOther, bytes.Clone(raw)
	}
}

// item adds to the list v, or to that item of it that has the same index.
func (v *value) item(raw json.RawMessage) {
	if index := member(raw, "index"); index != nil {
		for i := range v.items {
			if string(v.items[i].text) == string(index) {
				v.items[i].merge(raw, false)
				return
			}
		}
		v.items = append(v.items, value{text: bytes.Clone(index)})
	} else {
		v.items = append(v.items, value{})
	}
	v.items[len(v.items)-1].merge(raw, false)
}

// withoutIndex leaves out what only parts of a stream have.
func withoutIndex(o mergedObject) mergedObject {
	return slices.DeleteFunc(slices.Clone(o), func(m namedValue) bool { return m.name == "index" })
}

func (v *value) append(b []byte) []byte {
	switch v.kind {
	case kindText:
		return appendString(b, string(v.text))
	case kindObject:
		return v.parts.append(b)
	case kindList:
		b = append(b, '[')
		for i := range v.items {
			if item := &v.items[i]; item.kind == kindObject && item.text != nil {
				b = withoutIndex(item.parts).append(commaAfter(b, i))
				continue
			}
			b = v.items[i].append(commaAfter(b, i))
		}
		return append(b, ']')
	}
	return append(b, v.text...)
}

func (o mergedObject) append(b []byte) []byte {
	b = append(b, '{')
	for i := range o {
		b = o[i].value.append(append(appendString(commaAfter(b, i), o[i].name), ':'))
	}
	return append(b, '}')
}

func commaAfter(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}
