package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/wire"
)

// serve is the path of a request, in order. Whatever it returns, the caller
// ends the exchange with it: an answer, an error object or an error event, and
// one record with one outcome.
func (g *Gateway) serve(x *exchange) error {
	if err := x.decode(); err != nil {
		return err
	}
	if err := x.identify(); err != nil {
		return err
	}
	x.noteClass()
	prompts, err := x.prepare()
	if err != nil {
		return err
	}
	if err := x.fit(prompts); err != nil {
		return err
	}
	x.noteClass() // it may be another
	work, err := x.price(prompts)
	if err != nil {
		return err
	}
	defer x.settle()
	if err := x.reserve(&work); err != nil {
		return err
	}
	x.record.Reserved = wire.Monotonic()
	ticket, err := g.admission.Admit(work)
	if err != nil {
		return err
	}
	defer func() { ticket.Done(x.spent()) }()
	if err := x.wait(ticket); err != nil {
		return err
	}
	defer x.closeStreams()
	x.dispatch(prompts, ticket.Grant())
	usage, err := x.relay(ticket)
	if err != nil {
		return err
	}
	return x.reply.finish(usage)
}

// decode reads the body, once, into memory of our own.
func (x *exchange) decode() error {
	if x.g.draining.Load() {
		return errDraining
	}
	body, err := readBody(x.http, x.g.cfg.Limits.BodyBytesMax)
	x.record.BytesIn = int64(len(body))
	if err != nil {
		return err
	}
	state := x.g.engine.State()
	c, wireErr := decodeCall(body, x.chat, &x.g.cfg.Limits, &state.Model)
	if wireErr != nil {
		return wireErr
	}
	x.call, x.record.Decoded = c, wire.Monotonic()
	x.record.Stream = c.stream
	if c.stream {
		x.timer = time.NewTimer(x.g.cfg.Timeouts.CommitLimit)
	}
	switch {
	case state.Err != nil:
		return state.Err
	case c.model != state.Model.ID:
		return errModelNotFound(c.model)
	}
	x.record.Model = state.Model.ID
	return nil
}

// salt keeps tenants from reusing each other's prefixes. Nothing that a client
// sends takes part in it.
func (x *exchange) salt() string { return x.record.Tenant }

// prepare has the engine render, tokenize and check every prompt, and lets go
// of the body.
func (x *exchange) prepare() (prompts []*wire.Prompt, err error) {
	x.enter(stagePreparing)
	ctx, cancel := context.WithTimeout(x.ctx, x.g.cfg.Timeouts.PrepareLimit)
	prepared := make(chan struct{})
	go func() {
		defer close(prepared)
		defer x.recovered(&err)
		prompts, err = x.prepareAll(ctx)
	}()
	cut := x.await(prepared)
	cancel()
	<-prepared
	switch {
	case cut != nil:
		return nil, cut
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, failed(faultUnavailable, "the engine did not prepare the prompt within "+x.g.cfg.Timeouts.PrepareLimit.String()+"; try again, or send a shorter prompt")
	case err != nil:
		return nil, err
	}
	x.call.prompts = nil
	for _, p := range prompts {
		x.record.PromptTokens += len(p.Tokens)
		x.record.Render += p.Render
		x.record.Tokenize += p.Tokenize
	}
	x.record.Prepared = wire.Monotonic()
	return prompts, nil
}

func (x *exchange) prepareAll(ctx context.Context) ([]*wire.Prompt, error) {
	prompts := make([]*wire.Prompt, len(x.call.prompts))
	for i := range prompts {
		r := &x.call.prompts[i]
		r.ID, r.Salt = x.promptID(i), x.salt()
		p, err := x.g.engine.Prepare(ctx, r)
		if err != nil {
			return nil, err
		}
		prompts[i] = p
	}
	return prompts, nil
}

// price says what the request will cost: the prefill that is not cached, and
// the most it may decode.
func (x *exchange) price(prompts []*wire.Prompt) (admission.Work, error) {
	o, model := &x.call.options, &x.g.engine.State().Model
	n := o.N
	w := admission.Work{
		ID: x.record.ID, Tenant: x.record.Tenant, Class: x.record.Class, Route: x.record.Route, Sequences: len(prompts) * n,
		Within: x.left(), Retry: x.isRetry(), User: x.call.user,
	}
	if len(prompts) == 1 { // of several, admission could not tell whose blocks they are
		w.Blocks, w.BlockTokens = prompts[0].BlockHashes, model.PageTokens
	}
	for _, p := range prompts {
		if err := checkRoom(o.MaxTokens, x.class.OutputTokensMax, p, model); err != nil {
			return w, err
		}
		w.PromptTokens += len(p.Tokens)
		w.UncachedTokens += len(p.Tokens)
		if !o.PromptLogprobs { // which need the whole prompt computed
			w.UncachedTokens -= p.CachedTokens
		}
		w.DecodeTokens += grantTokens(o.MaxTokens, p.Room, x.class.OutputTokensMax, 0) * n
		w.Bytes += 4*len(p.Tokens) + len(p.Text)
	}
	return w, nil
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
	if x.expired() {
		return errDeadline
	}
	x.record.Admitted = wire.Monotonic()
	return nil
}

// dispatch starts one generation for each prompt, as it was granted.
func (x *exchange) dispatch(prompts []*wire.Prompt, granted admission.Grant) {
	x.noteGrant(granted)
	x.reply = newReply(x, prompts)
	x.tokens, x.tokenAt = make([]int, x.record.Choices), make([]int64, x.record.Choices)
	x.intervals = x.g.recorder.Intervals(x.record.Class)
	x.record.Serial = x.g.serials.Add(uint64(len(prompts))) - uint64(len(prompts)) + 1
	x.record.Dispatched = wire.Monotonic()
	x.g.capture.Started(&x.record)
	x.enter(stageGenerating)
	x.streams = make([]*wire.Stream, 0, len(prompts))
	for i, p := range prompts {
		options := x.call.options
		options.MaxTokens = grantTokens(options.MaxTokens, p.Room, x.class.OutputTokensMax, granted.OutputTokens)
		// Prompts are independent draws, and a seed names each of them.
		options.Seed += uint64(i)
		x.streams = append(x.streams, x.g.engine.Generate(&wire.Generation{
			ID: x.promptID(i), Serial: x.record.Serial + uint64(i), Prompt: p, Options: options, Salt: x.salt(),
			Class: granted.Class, Level: granted.Level, Key: granted.Key, Long: granted.Long, TokenGoal: granted.TokenGoal,
			Trace: x.record.Trace, Notify: x.notify,
		}))
	}
}

func (x *exchange) closeStreams() {
	for _, s := range x.streams {
		s.Close()
	}
}

// noteGrant keeps how the request runs.
func (x *exchange) noteGrant(granted admission.Grant) {
	r := &x.record
	if granted.Class != r.Class {
		if r.DemotedFrom == "" {
			r.DemotedFrom = r.Class
		}
		r.Class = granted.Class
	}
	r.FirstTokenGoal, r.TokenGoal = granted.FirstTokenGoal, granted.TokenGoal
	r.WaitReason, r.WaitPredicted = granted.Why.String(), int64(granted.Predicted)
	if granted.Waited < time.Millisecond { // as the headers count, it did not wait
		r.WaitReason = admission.WhyNot.String()
	}
}

// relay hands every event to the reply until all streams have ended.
func (x *exchange) relay(ticket admission.Ticket) (usage wire.Usage, err error) {
	for live := len(x.streams); live > 0; {
		if err := x.await(x.notify); err != nil {
			return usage, err
		}
		now := wire.Monotonic()
		for prompt, s := range x.streams {
			x.events = s.Take(x.events[:0])
			for i := range x.events {
				e := &x.events[i]
				if e.End == nil {
					index := prompt*x.call.options.N + e.Choice
					x.note(index, e, now)
					x.reply.event(index, prompt, e)
					continue
				}
				live--
				x.noteEnd(e.End)
				if e.End.Err != nil {
					return usage, e.End.Err
				}
				usage.Prompt += e.End.Usage.Prompt
				usage.Cached += e.End.Usage.Cached
				usage.Completion += e.End.Usage.Completion
			}
			clear(x.events)
		}
		x.record.Taken = now
		if now-x.shown > showInterval {
			x.show(now)
		}
		x.progress(ticket)
		if err := x.reply.flush(); err != nil {
			return usage, err
		}
	}
	return usage, nil
}

// note keeps the counts and instants of one event of the choice at index.
func (x *exchange) note(index int, e *wire.Event, now int64) {
	r := &x.record
	if more := e.TokenCount - x.tokens[index]; more > 0 {
		r.CompletionTokens += more
		if last := x.tokenAt[index]; last != 0 {
			x.intervals.Observe(now-last, more)
		}
		x.tokens[index], x.tokenAt[index] = e.TokenCount, now
	}
	if e.Finish == wire.FinishStop {
		x.stops++
	}
	if e.Text == "" {
		return
	}
	if r.FirstToken == 0 {
		r.FirstToken = now
	}
	r.LastToken = now
}
