package gateway

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// responseState is an answer of the Responses API: its items so far, and where its stream of events
// stands. It belongs to the exchange, which may have to end it before there is a reply.
type responseState struct {
	*responses
	items
	id, model, tier string
	created         int64
	stream          bool
	sequence        int    // of the next event
	begun           bool   // the first events are sent
	logprobs        []byte // log-probabilities of text to come
}

func newResponse(x *exchange, c *call, model string) *responseState {
	r := &responseState{responses: c.responses, id: "resp_" + x.record.ID, model: model, created: time.Now().Unix(), stream: c.stream}
	r.spelling = r
	return r
}

// responseReply is the reply to a Responses request, streamed or not.
type responseReply struct {
	x    *exchange
	call *call
	r    *responseState
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
	b = r.items.event(b, e)
	if r.stream {
		x.out.Buf = b
	}
}

func (p *responseReply) flush() error {
	if most := p.x.g.cfg.Limits.AnswerBytesMax; p.r.size() > most {
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
	if r.cut() {
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
		r.all[len(r.all)-1].cut, r.open = true, false
	}
	return r.closed(r.object(r.opened(r.begin(b), "response.failed"), "failed", nil, f))
}

// itemPrefixes begin the ids of items.
var itemPrefixes = [...]string{messageItem: "msg_", reasoningItem: "rs_", callItem: "fc_"}

// input is the text of a custom tool's call.
func (i *item) input() string {
	text := member(json.RawMessage(i.text), "input")
	if !json.Valid(i.text) || !isString(text) {
		return string(i.text)
	}
	return unquote(text)
}
