package gateway

import (
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

type streamReply struct {
	x    *exchange
	echo []echoState
}

func (r *streamReply) event(index, prompt int, e *wire.Event) {
	x := r.x
	if !x.opened {
		x.open()
	}
	r.echo[prompt].take(e)
	c := &x.choices[index]
	b := x.out.buf
	if !c.started {
		c.started = true
		b = r.start(b, c, index, prompt)
	}
	if e.Text != "" && !x.call.promptOnly || len(e.Logprobs) > 0 && !x.call.promptOnly {
		if c.logprobs != nil {
			c.logprobs.reset()
			c.logprobs.add(e.Logprobs)
		}
		b = x.answer.textChunk(b, index, e.Text, c.logprobs)
	}
	if e.Finish != wire.FinishNone {
		c.finish = e.Finish
		if x.call.promptOnly {
			c.finish = wire.FinishLength
		}
		b = x.answer.finishChunk(b, index, c.finish)
	}
	x.out.buf = b
}

// start appends what comes before a choice's own text.
func (r *streamReply) start(b []byte, c *choiceState, index, prompt int) []byte {
	if r.x.call.chat {
		return r.x.answer.roleChunk(b, index)
	}
	if !r.x.call.echo {
		return b
	}
	if c.logprobs != nil {
		c.logprobs.reset()
		c.logprobs.add(r.echo[prompt].logprobs)
	}
	return r.x.answer.textChunk(b, index, r.echo[prompt].text, c.logprobs)
}

func (r *streamReply) flush() error {
	x := r.x
	if !x.opened {
		return nil
	}
	if err := x.out.flush(); err != nil {
		return err
	}
	if x.record.FirstToken != 0 && x.record.FirstWrite == 0 {
		x.record.FirstWrite = wire.Monotonic()
	}
	return nil
}

func (r *streamReply) finish(u wire.Usage) error {
	x := r.x
	if !x.opened {
		x.open()
	}
	if x.call.includeUsage {
		x.out.buf = x.answer.usageChunk(x.out.buf, u)
	}
	x.out.buf = append(x.out.buf, "data: [DONE]\n\n"...)
	return x.out.close()
}

type plainReply struct {
	x    *exchange
	echo []echoState
}

func (r *plainReply) event(index, prompt int, e *wire.Event) {
	x := r.x
	r.echo[prompt].take(e)
	c := &x.choices[index]
	if !c.started {
		c.started = true
		c.text = append(c.text, r.echo[prompt].text...)
		if c.logprobs != nil {
			c.logprobs.add(r.echo[prompt].logprobs)
		}
	}
	if !x.call.promptOnly {
		c.text = append(c.text, e.Text...)
		if c.logprobs != nil {
			c.logprobs.add(e.Logprobs)
		}
	}
	if e.Finish != wire.FinishNone {
		c.finish = e.Finish
		if x.call.promptOnly {
			c.finish = wire.FinishLength
		}
	}
}

func (r *plainReply) flush() error { return nil }

func (r *plainReply) finish(u wire.Usage) error {
	x := r.x
	if x.ctx.Err() != nil {
		return errClientGone
	}
	writeJSON(x.http, fasthttp.StatusOK, x.answer.whole(nil, x.choices, u))
	x.record.Status = fasthttp.StatusOK
	if x.record.FirstToken != 0 {
		x.record.FirstWrite = wire.Monotonic()
	}
	return nil
}
