package gateway

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// responseState is an answer of the Responses API: its items so far, and where its stream of events
// stands. It belongs to the exchange, which may have to end it before there is a reply.
type responseState struct {
	*responses
	id, model, tier string
	created         int64
	stream          bool
	items           []responseItem
	open            bool // the last item goes on
	finish          wire.Finish
	sequence        int  // of the next event
	begun           bool // the first events are sent

	// White space that stands before a message, or is none; log-probabilities of text to come.
	lead, logprobs []byte
	relayedCall    string // index of the call that another server is at
}

type itemKind uint8

const (
	messageItem itemKind = iota
	reasoningItem
	callItem
)

// responseItem is a message, reasoning or a call.
type responseItem struct {
	kind         itemKind
	id           string
	callID, name string
	text         []byte // or arguments
	logprobs     []byte // entries of the text's
	cut          bool   // it is not whole
}

func newResponse(x *exchange, c *call, model string) *responseState {
	return &responseState{responses: c.responses, id: "resp_" + x.record.ID, model: model, created: time.Now().Unix(), stream: c.stream}
}

// responseReply is the reply to a Responses request, streamed or not.
type responseReply struct {
	x    *exchange
	call *call
	r    *responseState
}

func newResponseReply(x *exchange, c *call) *responseReply {
	x.response.tier = x.tier(c.tier)
	return &responseReply{x, c, x.response}
}

func (p *responseReply) event(_, _ int, e *wire.Event) {
	r, x := p.r, p.x
	if r.stream && !x.out.Opened {
		x.openStream()
	}
	b := r.begin(x.out.Buf)
	if len(e.Logprobs) > 0 {
		l := logprobList{chat: true}
		l.add(e.Logprobs)
		r.logprobs = append(comma(r.logprobs), l.content...)
	}
	if e.Relayed != nil {
		for _, one := range elements(member(e.Relayed.Logprobs, "content")) {
			r.logprobs = append(comma(r.logprobs), one...)
		}
	}
	b = r.say(b, e.Text)
	for i := range e.Pieces {
		b = r.piece(b, &e.Pieces[i])
	}
	if e.Relayed != nil {
		b = r.relay(b, e.Relayed)
	}
	if e.Finish != wire.FinishNone {
		r.finish = e.Finish
	}
	if r.stream {
		x.out.Buf = b
	}
}

func (p *responseReply) flush() error {
	held, most := 0, p.x.g.cfg.Limits.AnswerBytesMax
	for i := range p.r.items {
		held += len(p.r.items[i].text) + len(p.r.items[i].logprobs)
	}
	if held > most {
		return failed(faultTooLarge, "a response may hold "+strconv.Itoa(most)+" bytes; ask for fewer tokens or logprobs")
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

func (p *responseReply) finish(u wire.Usage) error {
	x, r := p.x, p.r
	if r.stream && !x.out.Opened {
		x.openStream()
	}
	b := r.end(r.begin(x.out.Buf))
	status, kind := "completed", "response.completed"
	if r.finish == wire.FinishLength || r.finish == wire.FinishFilter {
		status, kind = "incomplete", "response.incomplete"
	}
	if r.stream {
		x.out.Buf = r.closed(r.object(r.opened(b, kind), status, &u, nil))
	} else {
		body := r.object(nil, status, &u, nil)
		x.openPlain(len(body))
		x.out.Buf = append(x.out.Buf, body...)
	}
	if err := x.out.Close(); err != nil {
		return err
	}
	x.noteWrite()
	return nil
}

// fail appends the events that end a stream which failed.
func (r *responseState) fail(b []byte, f *failure) []byte {
	if r.open {
		r.items[len(r.items)-1].cut, r.open = true, false
	}
	return r.closed(r.object(r.opened(r.begin(b), "response.failed"), "failed", nil, f))
}

// piece adds a part of the answer that is not plain content.
func (r *responseState) piece(b []byte, p *wire.Piece) []byte {
	switch p.Kind {
	case wire.PieceContent:
		return r.say(b, p.Text)
	case wire.PieceReasoning:
		if !r.at(reasoningItem) {
			b = r.start(b, responseItem{kind: reasoningItem, id: r.name("rs_")})
		}
		b = r.more(b, p.Text)
	case wire.PieceCall:
		b = r.start(b, responseItem{kind: callItem, id: r.name("fc_"), callID: p.ID, name: p.Name})
	case wire.PieceArguments:
		if r.at(callItem) {
			b = r.more(b, p.Text)
		}
	case wire.PieceCallEnd:
		if r.at(callItem) {
			b = r.stop(b, false)
		}
	}
	r.logprobs = r.logprobs[:0] // those of what is no text are not told
	return b
}

// relay adds what another server sent beside text: members of a chat's delta.
func (r *responseState) relay(b []byte, relayed *wire.Relayed) []byte {
	delta := append(append([]byte{'{'}, relayed.Delta...), '}')
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if text := member(delta, name); isString(text) {
			if said := unquote(text); said != "" {
				b = r.piece(b, &wire.Piece{Kind: wire.PieceReasoning, Text: said})
			}
			break
		}
	}
	for _, one := range elements(member(delta, "tool_calls")) {
		function := member(one, "function")
		id, name, arguments := member(one, "id"), member(function, "name"), member(function, "arguments")
		if index := string(member(one, "index")); isString(id) && unquote(id) != "" && (!r.at(callItem) || index != r.relayedCall) {
			r.relayedCall = index
			called := wire.Piece{Kind: wire.PieceCall, ID: unquote(id)}
			if isString(name) {
				called.Name = unquote(name)
			}
			b = r.piece(b, &called)
		}
		if isString(arguments) {
			b = r.piece(b, &wire.Piece{Kind: wire.PieceArguments, Text: unquote(arguments)})
		}
	}
	return b
}

func (r *responseState) at(kind itemKind) bool {
	return r.open && r.items[len(r.items)-1].kind == kind
}

// name is the id of the next item.
func (r *responseState) name(prefix string) string {
	return prefix + strings.TrimPrefix(r.id, "resp_") + strconv.Itoa(len(r.items))
}

// say adds content. White space alone makes no message.
func (r *responseState) say(b []byte, text string) []byte {
	if text == "" {
		return b
	}
	if !r.at(messageItem) {
		r.lead = append(r.lead, text...)
		if len(bytes.TrimSpace(r.lead)) == 0 {
			return b
		}
		text = string(r.lead)
		b = r.start(b, responseItem{kind: messageItem, id: r.name("msg_")})
	}
	return r.more(b, text)
}

// end closes what is open. An answer without text or call is an empty message.
func (r *responseState) end(b []byte) []byte {
	if r.open {
		b = r.stop(b, r.finish == wire.FinishLength || r.finish == wire.FinishFilter)
	}
	for i := range r.items {
		if r.items[i].kind != reasoningItem {
			return b
		}
	}
	b = r.start(b, responseItem{kind: messageItem, id: r.name("msg_")})
	return r.stop(b, r.finish == wire.FinishLength)
}

// input is the text of a custom tool's call.
func (i *responseItem) input() string {
	text := member(json.RawMessage(i.text), "input")
	if !json.Valid(i.text) || !isString(text) {
		return string(i.text)
	}
	return unquote(text)
}
