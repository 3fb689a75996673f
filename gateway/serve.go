package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/wire"
)

// serve is the path of a request, in order. Whatever it returns, the caller
// ends the exchange with it: an answer, an error object or an error event; what
// the run holds given back; and one record with one outcome.
func (g *Gateway) serve(x *exchange, tenant *admission.Tenant) error {
	call, err := x.decode()
	if err != nil {
		return err
	}
	class, err := x.identify(tenant, call)
	if err != nil {
		return err
	}
	if call.counts {
		return x.count(call)
	}
	if err := x.readPin(tenant, call); err != nil {
		return err
	}
	if err := x.refuseUnprepared(tenant, class, call); err != nil {
		return err
	}
	prompts, err := x.prepare(call)
	if err != nil {
		return err
	}
	class, err = x.fit(tenant, class, prompts)
	if err != nil {
		return err
	}
	demand, err := x.price(call, class, prompts)
	if err != nil {
		return err
	}
	run := &x.run
	run.call = call
	if run.reservation, err = x.reserve(tenant, call, &demand); err != nil {
		return err
	}
	if to := x.place(call, class, prompts, &demand); to != nil {
		if usage, done, err := run.away(to, class, prompts, &demand); err != nil {
			return err
		} else if done {
			return run.reply.finish(usage)
		}
	}
	return g.compute(x, class, prompts, &demand)
}

// compute has this replica's engine serve the request when its turn has come.
func (g *Gateway) compute(x *exchange, class *admission.Class, prompts []*wire.Prompt, demand *admission.Demand) (err error) {
	run := &x.run
	demand.Age = x.age()
	if run.ticket, err = g.admission.Admit(*demand); err != nil {
		return err
	}
	x.notePromise(run.ticket.Promise())
	grant, err := x.wait(run.ticket)
	if err != nil {
		return err
	}
	run.dispatch(class, prompts, grant, x.engine.Generate)
	usage, err := run.relay()
	if err != nil {
		return err
	}
	return run.reply.finish(usage)
}

// decode reads the body into memory of our own and decodes it.
func (x *exchange) decode() (*call, error) {
	if x.g.draining.Load() {
		return nil, errDraining
	}
	body, err := readBody(x.http, x.g.cfg.Limits.BodyBytesMax)
	x.record.BytesIn = int64(len(body))
	if err != nil {
		return nil, err
	}
	state := x.engine.State()
	c, wireErr := x.decodeBody(body, &x.g.cfg.Limits, &state.Model)
	if wireErr != nil {
		return nil, wireErr
	}
	if err := x.noteIgnored(c.ignored); err != nil {
		return nil, err
	}
	x.record.Decoded = wire.Monotonic()
	x.record.Stream, x.record.Options = c.stream, c.asked
	if c.stream {
		x.timer = time.NewTimer(x.g.cfg.Timeouts.CommitLimit)
	}
	if x.g.choose(x, c.model) {
		state = x.engine.State()
	}
	switch {
	case state.Err != nil:
		return nil, state.Err
	case c.model != state.Model.ID:
		return nil, errModelNotFound(c.model)
	case !x.caller.MayModel(c.model):
		return nil, errModelForbidden()
	}
	x.record.Model = state.Model.ID
	switch {
	case c.responses != nil:
		x.ending = newResponse(x, c, state.Model.ID)
	case c.messages:
		x.ending = newMessage(x, c, state.Model.ID)
	}
	return c, nil
}

// noteIgnored lists what of the request has no effect, or refuses it, by the
// configuration.
func (x *exchange) noteIgnored(names []string) error {
	switch {
	case len(names) == 0:
		return nil
	case x.g.cfg.UnknownFields == "refuse":
		return errIgnored(names)
	}
	x.record.Ignored = strings.Join(names, ", ")
	return nil
}

// salt keeps tenants from reusing each other's prefixes. A client has no
// influence on it.
func (x *exchange) salt() string { return x.caller.Tenant.Salt() }

// prepare has the engine render and tokenize every prompt, and releases the body.
func (x *exchange) prepare(c *call) ([]*wire.Prompt, error) {
	x.enter(stagePreparing)
	prompts, err, ok := x.prepareNow(c.prompts)
	if !ok {
		prompts, err = x.prepareAside(c.prompts)
	}
	if err != nil {
		return nil, c.placed(err)
	}
	c.prompts = nil
	for _, p := range prompts {
		x.record.PromptTokens += p.Length()
		x.record.Render += p.Render
		x.record.Tokenize += p.Tokenize
		x.record.Compile += p.Compile
	}
	if err := x.noteIgnored(c.withoutEffect(prompts[0].Unenforced)); err != nil {
		return nil, err
	}
	x.record.Prepared = wire.Monotonic()
	return prompts, nil
}

// prepareNow prepares a prompt that an engine can prepare at once.
func (x *exchange) prepareNow(requests []wire.Request) (prompts []*wire.Prompt, err error, ok bool) {
	quick, ok := x.engine.(wire.Quick)
	if !ok || len(requests) != 1 {
		return nil, nil, false
	}
	r := &requests[0]
	r.ID, r.Salt = x.promptID(0), x.salt()
	p, err, ok := quick.PrepareNow(r)
	return []*wire.Prompt{p}, err, ok
}

// prepareAside prepares the prompts while it watches the client and the deadlines.
func (x *exchange) prepareAside(requests []wire.Request) (prompts []*wire.Prompt, err error) {
	ctx, cancel := context.WithTimeout(x.ctx, x.g.cfg.Timeouts.PrepareLimit)
	prepared := make(chan struct{})
	go func() {
		defer close(prepared)
		defer x.recovered(&err)
		prompts, err = x.prepareAll(ctx, requests)
	}()
	cut := x.await(prepared)
	cancel()
	<-prepared
	switch {
	case cut != nil:
		return nil, cut
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, failed(faultUnavailable, "the engine did not prepare the prompt within "+x.g.cfg.Timeouts.PrepareLimit.String()+"; try again, or send a shorter prompt")
	}
	return prompts, err
}

func (x *exchange) prepareAll(ctx context.Context, requests []wire.Request) ([]*wire.Prompt, error) {
	prompts := make([]*wire.Prompt, len(requests))
	for i := range prompts {
		r := &requests[i]
		r.ID, r.Salt = x.promptID(i), x.salt()
		p, err := x.engine.Prepare(ctx, r)
		if err != nil {
			return nil, err
		}
		prompts[i] = p
	}
	return prompts, nil
}

// price says what the request may cost at most: the prefill that is not cached,
// and the tokens of its answers.
func (x *exchange) price(c *call, class *admission.Class, prompts []*wire.Prompt) (admission.Demand, error) {
	o, model := &c.options, &x.engine.State().Model
	w := admission.Demand{
		ID: x.record.ID, Tenant: x.record.Tenant, Class: x.record.Class, Route: x.record.Route, Group: x.record.Group, Form: c.asked.Grammar, Sequences: c.atOnce(len(prompts)) * o.N,
		Within: x.within(), Retry: x.isRetry(), User: c.user, BodyBytes: x.tellingBytes(c), Draw: x.draw,
	}
	if len(prompts) == 1 { // of several prompts, admission could not tell which one the blocks belong to
		w.Blocks, w.BlockTokens = prompts[0].BlockHashes, model.PageTokens
	}
	for _, p := range prompts {
		if err := checkRoom(o.MaxTokens, class.OutputTokensMax, p, model); err != nil {
			return w, err
		}
		w.PromptTokens += p.Length()
		w.UncachedTokens += p.Length()
		if !o.PromptLogprobs { // which need the whole prompt computed
			w.UncachedTokens -= p.CachedTokens
		}
		if !o.Embed {
			w.DecodeTokens += grantTokens(o.MaxTokens, p.Room, class.OutputTokensMax, 0) * o.N
		}
		w.Bytes += 4*len(p.Tokens) + len(p.Text)
	}
	w.Bytes += c.bodyBytes
	return w, nil
}

// wait returns when the ticket's turn has come, with what it was granted.
func (x *exchange) wait(t admission.Ticket) (admission.Grant, error) {
	x.enter(stageQueued)
	if err := x.await(t.Ready()); err != nil {
		return admission.Grant{}, err
	}
	if err := t.Err(); err != nil {
		return admission.Grant{}, err
	}
	if x.expired() {
		return admission.Grant{}, errDeadline
	}
	x.record.Admitted = wire.Monotonic()
	return t.Grant(), nil
}
