package gateway

import (
	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/wire"
)

// serve is the path of a request, in order. Whatever it returns, the caller
// ends the exchange with it: an answer, an error object or an error event, and
// one record with one outcome.
func (g *Gateway) serve(x *exchange) error {
	call, err := x.decode()
	if err != nil {
		return err
	}
	x.identify(call)
	prompts, err := x.prepare(call)
	if err != nil {
		return err
	}
	ticket, err := g.admission.Admit(x.price(call, prompts))
	if err != nil {
		return err
	}
	defer func() { ticket.Done(x.spent) }()
	if err := x.wait(ticket); err != nil {
		return err
	}
	streams := x.dispatch(call, prompts)
	defer closeAll(streams)
	if err := x.relay(streams); err != nil {
		return err
	}
	return x.reply.finish(x.usage)
}

// identify settles who asks and in which class. Every client is the one
// default tenant, and every request interactive.
func (x *exchange) identify(c *call) {
	x.record.Tenant, x.record.Class = "default", "interactive"
	x.record.Stream = c.stream
	x.record.Model = x.g.engine.State().Model.ID
	x.record.Prompts, x.record.Choices = len(c.prompts), len(c.prompts)*c.options.N
}

// price says what the request will cost: the prefill that is not cached, and
// the most it may decode.
func (x *exchange) price(c *call, prompts []*wire.Prompt) admission.Work {
	w := admission.Work{
		Tenant: x.record.Tenant, Class: x.record.Class,
		Sequences: len(prompts) * c.options.N,
		Bytes:     int(x.record.BytesIn),
	}
	for _, p := range prompts {
		w.UncachedTokens += len(p.Tokens) - p.CachedTokens
		w.DecodeTokens += p.MaxTokens * c.options.N
		w.Bytes += 4*len(p.Tokens) + len(p.Text)
	}
	return w
}

// wait returns when the ticket's turn has come.
func (x *exchange) wait(t admission.Ticket) error {
	x.enter(stageQueued)
	if err := x.await(t.Ready()); err != nil {
		return err
	}
	if err := t.Err(); err != nil {
		return err
	}
	x.record.Admitted = wire.Monotonic()
	return nil
}

// dispatch starts one generation for each prompt. Closing the streams is up
// to the caller.
func (x *exchange) dispatch(c *call, prompts []*wire.Prompt) []*wire.Stream {
	x.begin(c, prompts)
	streams := make([]*wire.Stream, len(prompts))
	for i, p := range prompts {
		options := c.options
		// Prompts are independent draws, and a seed names each of them.
		options.Seed += uint64(i)
		streams[i] = x.g.engine.Generate(&wire.Generation{
			ID: x.promptID(i), Prompt: p, Options: options,
			Class: x.record.Class, Key: x.record.Arrived,
			Trace: x.record.Trace, Notify: x.notify,
		})
	}
	x.record.Dispatched = wire.Monotonic()
	x.enter(stageGenerating)
	return streams
}

func closeAll(streams []*wire.Stream) {
	for _, s := range streams {
		s.Close()
	}
}

// relay hands every event to the reply until all streams have ended.
func (x *exchange) relay(streams []*wire.Stream) error {
	for live := len(streams); live > 0; {
		if err := x.await(x.notify); err != nil {
			return err
		}
		for prompt, s := range streams {
			x.events = s.Take(x.events[:0])
			for i := range x.events {
				e := &x.events[i]
				x.note(prompt, e)
				if e.End != nil {
					live--
					if e.End.Err != nil {
						return e.End.Err
					}
					continue
				}
				x.reply.event(prompt*x.call.options.N+e.Choice, prompt, e)
			}
			clear(x.events)
		}
		if err := x.reply.flush(); err != nil {
			return err
		}
	}
	return nil
}
