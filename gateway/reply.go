package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/internal/chars"
	"github.com/forebay-io/forebay/internal/wire"
)

// reply turns events into the client's answer. A streamReply writes them as they
// come; a plainReply keeps them for one object at the end.
type reply interface {
	// event takes one event of the choice at index, which answers the given prompt.
	event(index, prompt int, e *wire.Event)
	// flush sends what the events have produced so far.
	flush() error
	// finish ends a successful answer.
	finish(u wire.Usage) error
}

// ending ends a stream that failed, in the words of its API.
type ending interface {
	fail(b []byte, f *failure) []byte
}

// draft is what both kinds of reply share.
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
	logprobs *logprobList
	called   int // calls that began; streamed answers only

	// Plain answers only.
	text, reasoning []byte
	calls           []callState
	relayed         *gathered // of another server
	scored          []byte    // the prompt's log-probabilities, nil where they are not asked for
}

// newReply makes the reply to c.
func newReply(x *exchange, c *call, prompts []*wire.Prompt) reply {
	if x.hop != nil {
		return &hopReply{x}
	}
	m := &x.engine.State().Model
	if c.embeds != nil {
		return &vectorReply{x: x, call: c, model: m.ID, vectors: make([][]float32, len(prompts))}
	}
	switch state := x.ending.(type) {
	case *responseState:
		state.tier = x.tier(c.tier)
		return &responseReply{x, c, state}
	case *messageState:
		return &messageReply{x, state}
	}
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
			if c.options.Echo {
				d.echo[i].text = p.Text[:len(p.Text)-chars.Open(p.Text)]
			}
		}
	}
	if c.stream {
		// The events of several prompts would have the same indices.
		return &streamReply{draft: d, exact: len(prompts) == 1 && !c.hideReasoning}
	}
	return &plainReply{d}
}

// tier is the service_tier in the answer to a client that asked for one. It
// says how the class is served, which may differ from what was asked.
func (x *exchange) tier(asked string) string {
	switch level := x.caller.Policy.Level(x.record.Class); {
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
	scored   []byte // logprobs as JSON
}

// take keeps the prompt's log-probabilities for the other choices.
func (s *echoState) take(e *wire.Event) {
	if e.PromptLogprobs != nil {
		s.logprobs = e.PromptLogprobs
	}
}

type streamReply struct {
	draft
	exact  bool // another server's own events may be passed on
	billed bool // its usage was
}

func (r *streamReply) event(index, prompt int, e *wire.Event) {
	x := r.x
	if !x.out.Opened {
		x.openStream()
	}
	r.echo[prompt].take(e)
	c := &r.choices[index]
	if r.exact && e.Relayed != nil && e.Relayed.Exact {
		c.started = true
		r.passOn(e.Relayed)
		return
	}
	b := x.out.Buf
	if !c.started {
		c.started = true
		b = r.start(b, c, index, prompt, e)
	}
	if e.Relayed != nil {
		b = r.answer.relayedChunk(b, index, e)
	} else if !r.call.promptOnly {
		b = r.said(b, c, index, e)
	}
	if e.Finish != wire.FinishNone {
		b = r.answer.finishChunk(b, index, r.call.finishOf(e))
	}
	x.out.Buf = b
}

// said appends the chunks of what an event says. Log-probabilities go with the first.
func (r *streamReply) said(b []byte, c *choiceState, index int, e *wire.Event) []byte {
	if c.logprobs != nil {
		c.logprobs.reset()
		c.logprobs.add(e.Logprobs)
	}
	before := len(b)
	if e.Text != "" {
		b = r.answer.textChunk(b, index, e.Text, c.logprobs)
	}
	for i := range e.Pieces {
		p := &e.Pieces[i]
		if p.Kind == wire.PieceCall {
			c.called++
		}
		if len(b) > before {
			c.logprobs.reset()
		}
		b = r.answer.pieceChunk(b, index, c.called-1, p, c.logprobs)
	}
	if len(b) == before && len(e.Logprobs) > 0 {
		b = r.answer.textChunk(b, index, "", c.logprobs)
	}
	return b
}

// start appends what comes before a choice's own text; e is the choice's first event.
func (r *streamReply) start(b []byte, c *choiceState, index, prompt int, e *wire.Event) []byte {
	if r.call.chat {
		return r.answer.roleChunk(b, index, e.Text == "" && r.call.options.Tools != nil)
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
	if !r.x.out.Opened {
		return nil
	}
	if err := r.x.out.Flush(); err != nil {
		return err
	}
	r.x.noteWrite()
	return nil
}

func (r *streamReply) finish(u wire.Usage) error {
	x := r.x
	if !x.out.Opened {
		x.openStream()
	}
	if r.call.includeUsage && !r.billed {
		x.out.Buf = r.answer.usageChunk(x.out.Buf, r.call.billed(u))
	}
	x.out.Buf = append(x.out.Buf, "data: [DONE]\n\n"...)
	if err := x.out.Close(); err != nil {
		return err
	}
	x.noteWrite()
	return nil
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
		if r.call.scored {
			if index%r.call.options.N == 0 {
				r.echo[prompt].scored = appendPromptLogprobs(nil, r.echo[prompt].logprobs)
			}
			c.scored = r.echo[prompt].scored
		}
	}
	if e.Relayed != nil {
		if c.relayed == nil {
			c.relayed = new(gathered)
		}
		c.relayed.add(e.Relayed)
	}
	if !r.call.promptOnly {
		c.text = append(c.text, e.Text...)
		for i := range e.Pieces {
			c.add(&e.Pieces[i])
		}
		if c.logprobs != nil {
			c.logprobs.add(e.Logprobs)
		}
	}
	if e.Finish != wire.FinishNone {
		c.finish = r.call.finishOf(e)
	}
}

// flush sends nothing yet; it bounds what is kept.
func (r *plainReply) flush() error {
	held, most := 0, r.x.g.cfg.Limits.AnswerBytesMax
	for i := range r.choices {
		held += r.choices[i].size()
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
	x.out.Buf = append(x.out.Buf, body...)
	if err := x.out.Close(); err != nil {
		return err
	}
	x.noteWrite()
	return nil
}

// openStream commits to a 200 stream.
func (x *exchange) openStream() {
	x.out.OpenStream(x.head())
	x.timer.Reset(x.silence())
}

// openPlain commits to a 200 answer of known size.
func (x *exchange) openPlain(bodyBytes int) { x.out.OpenPlain(bodyBytes, x.head()) }

// head returns the fields of the head of a 200 answer.
func (x *exchange) head() []httpd.Field {
	if x.g.draining.Load() {
		x.http.CloseAfter()
	}
	x.record.Status = http.StatusOK
	fields := append(make([]httpd.Field, 0, 24), httpd.Field{Name: requestIDHeader, Value: publicID(&x.record)}, httpd.Field{Name: processingHeader, Value: strconv.FormatInt(x.processingMS(), 10)})
	if x.messages {
		fields = append(fields, httpd.Field{Name: messagesIDHeader, Value: publicID(&x.record)})
	}
	return x.g.cors.append(x.explained(fields), x.http)
}
