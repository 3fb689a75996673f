package gateway

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/internal/wire"
)

// reply turns events into the client's answer. A streamReply writes as they
// come, a plainReply keeps them for one object at the end.
type reply interface {
	// event takes one event of the choice at index; prompt says whose it is.
	event(index, prompt int, e *wire.Event)
	// flush sends what the events so far have made.
	flush() error
	// finish ends a successful answer.
	finish(u wire.Usage) error
}

// draft is what both kinds of reply are made of.
type draft struct {
	x       *exchange
	call    *call
	answer  answer
	choices []choiceState
	echo    []echoState // of each prompt
}

// choiceState is what is known of one choice of the answer.
type choiceState struct {
	started  bool
	finish   wire.Finish
	text     []byte // plain answers only
	logprobs *logprobList
}

// newReply makes the reply, now that the prompts are known.
func newReply(x *exchange, c *call, prompts []*wire.Prompt) reply {
	m := &x.g.engine.State().Model
	d := draft{
		x:       x,
		call:    c,
		answer:  answer{chat: c.chat, id: "cmpl-" + x.record.ID, created: time.Now().Unix(), model: m.ID, mark: m.Fingerprint, tier: x.tier(c.tier), usage: c.includeUsage},
		choices: make([]choiceState, len(prompts)*c.options.N),
		echo:    make([]echoState, len(prompts)),
	}
	if c.chat {
		d.answer.id = "chat" + d.answer.id
	}
	for i := range d.choices {
		if c.options.Logprobs {
			d.choices[i].logprobs = &logprobList{chat: c.chat}
		}
	}
	for i, p := range prompts {
		if c.echo {
			d.echo[i].text = p.Text
		}
	}
	if c.stream {
		return &streamReply{d}
	}
	return &plainReply{d}
}

// tier is the service_tier to tell a client that asked for one: what its class
// is like, which may be another.
func (x *exchange) tier(asked string) string {
	switch level := x.g.policy.Level(x.record.Class); {
	case asked == "":
		return ""
	case level > 0:
		return "flex"
	case asked == "priority":
		return "priority"
	}
	return "default"
}

// echoState is a prompt that is part of its choices' text.
type echoState struct {
	text     string
	logprobs []wire.TokenLogprob
}

// take keeps the prompt's log-probabilities for the other choices.
func (s *echoState) take(e *wire.Event) {
	if e.PromptLogprobs != nil {
		s.logprobs = e.PromptLogprobs
	}
}

type streamReply struct{ draft }

func (r *streamReply) event(index, prompt int, e *wire.Event) {
	x := r.x
	if !x.out.opened {
		x.openStream()
	}
	r.echo[prompt].take(e)
	c := &r.choices[index]
	b := x.out.buf
	if !c.started {
		c.started = true
		b = r.start(b, c, index, prompt)
	}
	if !r.call.promptOnly && (e.Text != "" || len(e.Logprobs) > 0) {
		if c.logprobs != nil {
			c.logprobs.reset()
			c.logprobs.add(e.Logprobs)
		}
		b = r.answer.textChunk(b, index, e.Text, c.logprobs)
	}
	if e.Finish != wire.FinishNone {
		b = r.answer.finishChunk(b, index, r.call.finishOf(e))
	}
	x.out.buf = b
}

// start appends what comes before a choice's own text.
func (r *streamReply) start(b []byte, c *choiceState, index, prompt int) []byte {
	if r.call.chat {
		return r.answer.roleChunk(b, index)
	}
	if !r.call.echo {
		return b
	}
	if c.logprobs != nil {
		c.logprobs.reset()
		c.logprobs.add(r.echo[prompt].logprobs)
	}
	return r.answer.textChunk(b, index, r.echo[prompt].text, c.logprobs)
}

func (r *streamReply) flush() error {
	if !r.x.out.opened {
		return nil
	}
	if err := r.x.out.flush(); err != nil {
		return err
	}
	r.x.noteWrite()
	return nil
}

func (r *streamReply) finish(u wire.Usage) error {
	x := r.x
	if !x.out.opened {
		x.openStream()
	}
	if r.call.includeUsage {
		x.out.buf = r.answer.usageChunk(x.out.buf, r.call.billed(u))
	}
	x.out.buf = append(x.out.buf, "data: [DONE]\n\n"...)
	return x.out.close()
}

type plainReply struct{ draft }

func (r *plainReply) event(index, prompt int, e *wire.Event) {
	r.echo[prompt].take(e)
	c := &r.choices[index]
	if !c.started {
		c.started = true
		c.text = append(c.text, r.echo[prompt].text...)
		if c.logprobs != nil {
			c.logprobs.add(r.echo[prompt].logprobs)
		}
	}
	if !r.call.promptOnly {
		c.text = append(c.text, e.Text...)
		if c.logprobs != nil {
			c.logprobs.add(e.Logprobs)
		}
	}
	if e.Finish != wire.FinishNone {
		c.finish = r.call.finishOf(e)
	}
}

// flush sends nothing yet, and bounds what is kept.
func (r *plainReply) flush() error {
	held, most := 0, r.x.g.cfg.Limits.AnswerBytesMax
	for i := range r.choices {
		held += len(r.choices[i].text) + r.choices[i].logprobs.size()
	}
	if held > most {
		return failed(faultTooLarge, "an answer that is not streamed may hold "+strconv.Itoa(most)+" bytes; stream it, or ask for fewer tokens, choices or logprobs")
	}
	return nil
}

func (r *plainReply) finish(u wire.Usage) error {
	x := r.x
	body := r.answer.whole(nil, r.choices, r.call.billed(u))
	x.openPlain(len(body))
	x.out.buf = append(x.out.buf, body...)
	if err := x.out.close(); err != nil {
		return err
	}
	x.noteWrite()
	return nil
}

// openStream commits to a 200 stream. Its headers keep proxies from buffering
// and compressing.
func (x *exchange) openStream() {
	chunked := x.http.Request.Header.IsHTTP11()
	if !chunked {
		x.http.SetConnectionClose()
	}
	x.appendHead("text/event-stream; charset=utf-8\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no")
	if chunked {
		x.out.buf = append(x.out.buf, "Transfer-Encoding: chunked\r\n"...)
	}
	x.out.buf = append(x.out.buf, "\r\n"...)
	x.out.open(chunked)
	x.timer.Reset(x.g.cfg.Timeouts.KeepAlive)
}

// openPlain commits to a 200 answer of known size.
func (x *exchange) openPlain(bodyBytes int) {
	x.appendHead("application/json\r\nContent-Length: " + strconv.Itoa(bodyBytes))
	x.out.buf = append(x.out.buf, "\r\n"...)
	x.out.open(false)
}

// appendHead appends the status line and the headers, the first of which is
// the content type.
func (x *exchange) appendHead(contentType string) {
	request := &x.http.Request.Header
	if request.ConnectionClose() || x.g.draining.Load() {
		x.http.SetConnectionClose()
	}
	x.record.Status = fasthttp.StatusOK
	b := append(make([]byte, 0, 1024), "HTTP/1.1 200 OK\r\nContent-Type: "...)
	b = append(b, contentType...)
	b = append(b, "\r\n"+requestIDHeader+": "...)
	b = append(b, publicID(&x.record)...)
	b = append(b, "\r\n"+processingHeader+": "...)
	b = strconv.AppendInt(b, x.processingMS(), 10)
	b = append(b, "\r\nDate: "...)
	b = fasthttp.AppendHTTPDate(b, time.Now())
	b = append(b, "\r\n"...)
	for _, field := range x.explained() {
		b = append(append(append(append(b, field.name...), ": "...), field.value...), "\r\n"...)
	}
	b = x.g.cors.appendHeaders(b, request.Peek("Origin"))
	switch {
	case x.http.Response.ConnectionClose():
		b = append(b, "Connection: close\r\n"...)
	case !request.IsHTTP11():
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	x.out.buf = b
}
