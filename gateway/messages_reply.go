package gateway

import (
	"encoding/json"
	"strconv"

	"github.com/forebay-io/forebay/internal/wire"
)

// messageState is an answer of the Messages API: a message of blocks, of which one is open at a time, and
// where its stream stands. It belongs to the exchange, which may have to end it before there is a reply.
type messageState struct {
	items
	x         *exchange
	id, model string
	stream    bool
	begun     bool // message_start is sent
	cached    int  // tokens of the prompt that were not computed, as far as it is known
}

func newMessage(x *exchange, c *call, model string) *messageState {
	m := &messageState{x: x, id: "msg_" + x.record.ID, model: model, stream: c.stream}
	m.spelling = m
	return m
}

// messageReply is the reply to a Messages request, streamed or not.
type messageReply struct {
	x *exchange
	m *messageState
}

func (p *messageReply) event(_, _ int, e *wire.Event) {
	m, x := p.m, p.x
	if e.Cached > 0 {
		m.cached = e.Cached
	}
	if m.stream && !x.out.Opened {
		x.openStream()
	}
	b := m.items.event(m.begin(x.out.Buf), e)
	if m.stream {
		x.out.Buf = b
	}
}

func (p *messageReply) flush() error {
	if most := p.x.g.cfg.Limits.AnswerBytesMax; !p.m.stream && p.m.size() > most {
		return failed(faultTooLarge, "an answer that is not streamed may hold "+strconv.Itoa(most)+" bytes; stream it, or ask for fewer tokens")
	}
	if !p.x.out.Opened {
		return nil
	}
	if err := p.x.out.Flush(); err != nil {
		return err
	}
	p.x.noteWrite()
	return nil
}

func (p *messageReply) finish(u wire.Usage) error {
	x, m := p.x, p.m
	if m.stream && !x.out.Opened {
		x.openStream()
	}
	m.cached = u.Cached
	b := m.end(m.begin(x.out.Buf))
	if m.stream {
		b = append(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
		b = append(m.appendStop(b), `},"usage":`...)
		x.out.Buf = append(appendMessageUsage(b, &u), "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
	} else {
		body := m.object(nil, &u)
		x.openPlain(len(body))
		x.out.Buf = append(x.out.Buf, body...)
	}
	if err := x.out.Close(); err != nil {
		return err
	}
	x.noteWrite()
	return nil
}

// fail implements ending.
func (m *messageState) fail(b []byte, f *failure) []byte {
	return append(f.appendMessagesError(append(b, "event: error\ndata: "...)), "\n\n"...)
}

// begin sends message_start, once.
func (m *messageState) begin(b []byte) []byte {
	if m.begun || !m.stream {
		return b
	}
	m.begun = true
	b = append(b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	return append(m.object(b, &wire.Usage{Prompt: m.x.record.PromptTokens, Cached: m.cached}), "}\n\n"...)
}

// blockHead begins an event of the last block.
func (m *messageState) blockHead(b []byte, kind string) []byte {
	b = append(append(append(b, "event: "...), kind...), "\ndata: {\"type\":\""...)
	b = append(append(b, kind...), `","index":`...)
	return strconv.AppendInt(b, int64(len(m.all)-1), 10)
}

// started implements spelling.
func (m *messageState) started(b []byte, i *item) []byte {
	if !m.stream {
		return b
	}
	b = append(m.blockHead(b, "content_block_start"), `,"content_block":`...)
	return append(i.block(b), "}\n\n"...)
}

// thoughtSignature stands where Anthropic's servers prove that they wrote a thought. Clients ask for one and send it
// back; nothing here reads it.
const thoughtSignature = "Zm9yZWJheQ=="

// deltas are what a block grows by.
var deltas = [...]string{
	messageItem:   `{"type":"text_delta","text":`,
	reasoningItem: `{"type":"thinking_delta","thinking":`,
	callItem:      `{"type":"input_json_delta","partial_json":`,
}

// grown implements spelling.
func (m *messageState) grown(b []byte, i *item, text string) []byte {
	if !m.stream || text == "" {
		return b
	}
	i.text = i.text[:0] // a stream does not repeat it
	b = append(append(m.blockHead(b, "content_block_delta"), `,"delta":`...), deltas[i.kind]...)
	return append(appendString(b, text), "}}\n\n"...)
}

// stopped implements spelling.
func (m *messageState) stopped(b []byte, i *item) []byte {
	if !m.stream {
		return b
	}
	if i.kind == reasoningItem {
		b = append(m.blockHead(b, "content_block_delta"), `,"delta":{"type":"signature_delta","signature":"`+thoughtSignature+"\"}}\n\n"...)
	}
	return append(m.blockHead(b, "content_block_stop"), "}\n\n"...)
}

// block appends a block of content.
func (i *item) block(b []byte) []byte {
	switch i.kind {
	case reasoningItem:
		signature := thoughtSignature
		if len(i.text) == 0 {
			signature = ""
		}
		b = appendString(append(b, `{"type":"thinking","thinking":`...), string(i.text))
		b = appendString(append(b, `,"signature":`...), signature)
	case callItem:
		b = appendString(append(b, `{"type":"tool_use","id":`...), i.callID)
		b = append(appendString(append(b, `,"name":`...), i.name), `,"input":`...)
		if input := json.RawMessage(i.text); isObject(input) && json.Valid(input) {
			b = append(b, input...)
		} else { // it was cut
			b = append(b, "{}"...)
		}
	default:
		b = appendString(append(b, `{"type":"text","text":`...), string(i.text))
	}
	return append(b, '}')
}

// object appends the message; while it is streamed it has no content yet.
func (m *messageState) object(b []byte, u *wire.Usage) []byte {
	b = appendString(append(b, `{"id":`...), m.id)
	b = appendString(append(b, `,"type":"message","role":"assistant","model":`...), m.model)
	b = append(b, `,"content":[`...)
	for i := range m.all {
		b = m.all[i].block(commaAfter(b, i))
	}
	b = append(m.appendStop(append(b, "],"...)), `,"usage":`...)
	return append(appendMessageUsage(b, u), '}')
}

// appendStop appends why the message ended.
func (m *messageState) appendStop(b []byte) []byte {
	switch {
	case m.finish == wire.FinishNone:
		return append(b, `"stop_reason":null,"stop_sequence":null`...)
	case m.stopText != "":
		return appendString(append(b, `"stop_reason":"stop_sequence","stop_sequence":`...), m.stopText)
	}
	reason := map[wire.Finish]string{wire.FinishStop: "end_turn", wire.FinishLength: "max_tokens", wire.FinishCalls: "tool_use", wire.FinishFilter: "refusal"}[m.finish]
	return append(append(append(b, `"stop_reason":"`...), reason...), `","stop_sequence":null`...)
}

// appendMessageUsage appends counts of tokens; those of the input come in two parts.
func appendMessageUsage(b []byte, u *wire.Usage) []byte {
	b = strconv.AppendInt(append(b, `{"input_tokens":`...), int64(u.Prompt-u.Cached), 10)
	b = strconv.AppendInt(append(b, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`...), int64(u.Cached), 10)
	b = strconv.AppendInt(append(b, `,"output_tokens":`...), int64(u.Completion), 10)
	b = strconv.AppendInt(append(b, `,"output_tokens_details":{"thinking_tokens":`...), int64(u.Reasoning), 10)
	return append(b, "}}"...)
}

// messagesErrors are the types of errors that Anthropic's API has, by status.
var messagesErrors = map[int]string{401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error",
	500: "api_error", 503: "overloaded_error", 504: "timeout_error"}

// appendMessagesError appends the error as the Messages API has it, with the code and the parameter of ours.
func (f *failure) appendMessagesError(b []byte) []byte {
	row := &faults[f.fault]
	kind, listed := messagesErrors[row.status]
	if !listed {
		kind = "invalid_request_error"
	}
	b = append(append(append(b, `{"type":"error","error":{"type":"`...), kind...), `","message":`...)
	b = append(appendString(b, f.message), `,"code":"`...)
	b = append(append(b, row.code...), '"')
	if f.param != "" {
		b = appendString(append(b, `,"param":`...), f.param)
	}
	return append(b, "}}"...)
}

// count answers how many tokens the prompt has.
func (x *exchange) count(c *call) error {
	prompts, err := x.prepare(c)
	if err != nil {
		return err
	}
	body := append(strconv.AppendInt([]byte(`{"input_tokens":`), int64(prompts[0].Length()), 10), '}')
	x.openPlain(len(body))
	x.out.Buf = append(x.out.Buf, body...)
	return x.out.Close()
}
