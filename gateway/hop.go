package gateway

import (
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/gateway/siblings"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// This file is the way of a request that came from a sibling. It is that of any other
// (serve.go), but that the sibling has read, identified, priced and charged it, and
// that its answer are the engine's events as they are. It makes no second hop.

// routeSibling is the route in records of requests that siblings sent. Their clients'
// gateways count what clients see.
const routeSibling = telemetry.RouteSibling

// hopBeat is the silence after which a sibling is told that its request still waits.
const hopBeat = time.Second

// ServeSiblings answers siblings on ln until Shutdown.
func (g *Gateway) ServeSiblings(ln net.Listener) error { return g.hops.Serve(g.siblings.Guard(ln)) }

// hopHandler is where the requests of siblings come in.
type hopHandler struct{ g *Gateway }

// Serve implements httpd.Handler.
func (h hopHandler) Serve(c httpd.Request) {
	g := h.g
	path := c.Path()
	switch {
	case c.Method() == http.MethodPost && path == siblings.NewsPath:
		h.news(c)
		return
	case c.Method() != http.MethodPost || path != siblings.HopPath && path != siblings.CancelPath:
		writeFailure(c, failed(faultPathNotFound, "siblings POST to "+siblings.HopPath+", "+siblings.CancelPath+" and "+siblings.NewsPath))
		return
	case g.draining.Load() && path == siblings.HopPath:
		writeFailure(c, errDraining)
		return
	}
	parcel, err := g.siblings.Open(path, string(c.Header(siblings.SignatureHeader)), string(c.Header(siblings.FormatHeader)), c.TakeBody())
	if err != nil {
		writeFailure(c, &failure{fault: faultUnauthorized, message: err.Error()})
		return
	}
	if path == siblings.CancelPath {
		g.recall(c, parcel)
		return
	}
	state := g.engine.State()
	caller := g.identity.Vouched(parcel.Tenant, parcel.Key)
	switch {
	case state.Err != nil:
		writeFailure(c, g.failureOf(state.Err))
	case parcel.Fingerprint != state.Model.Fingerprint:
		writeFailure(c, failed(faultModelNotFound, "this replica serves another model, or by other kernels"))
	case caller == nil:
		writeFailure(c, failed(faultForbidden, "there is no tenant "+parcel.Tenant+" in admission.tenants of this replica"))
	default:
		g.siblings.Taken()
		x := g.newExchange(c, caller, &route{name: routeSibling})
		x.hop = parcel
		x.record.ServedBy = g.siblings.Name()
		x.timer = time.NewTimer(hopBeat)
		var err error
		defer func() { x.endHop(err) }()
		defer x.recovered(&err)
		err = g.serveHop(x)
	}
}

// news answers a sibling that asks what is new here.
func (h hopHandler) news(c httpd.Request) {
	answer, signature, err := h.g.siblings.News(string(c.Header(siblings.SignatureHeader)), string(c.Header(siblings.FormatHeader)), c.Body())
	if err != nil {
		writeFailure(c, &failure{fault: faultUnauthorized, message: err.Error()})
		return
	}
	c.SetHeader(siblings.SignatureHeader, signature)
	c.Answer(http.StatusOK, "application/json", answer)
}

// Expect, Unread and Full implement httpd.Handler.
func (h hopHandler) Expect(httpd.Request) bool                 { return true }
func (h hopHandler) Unread(c httpd.Request, why httpd.Why)     { h.g.unread(c, why) }
func (h hopHandler) Full() (fields []httpd.Field, body []byte) { return fullAnswer() }

// recall ends a request that its sibling does not want any more. What it computed
// goes out in its own stream.
func (g *Gateway) recall(c httpd.Request, parcel *siblings.Parcel) {
	g.mu.Lock()
	for x := range g.live {
		if x.hop != nil && x.hop.From == parcel.From && x.hop.ID == parcel.ID {
			x.recalled.Store(true)
			x.cancel()
		}
	}
	g.mu.Unlock()
	c.AnswerEmpty(http.StatusOK)
}

// serveHop is serve for a request of a sibling.
func (g *Gateway) serveHop(x *exchange) error {
	call, class, err := x.unpack()
	if err != nil {
		return err
	}
	prompts, err := x.prepare(call)
	if err != nil {
		return err
	}
	// The tokens alone do not say how the template ended, nor how many calls came
	// before: the answer is read by what the sibling rendered.
	sent := x.hop.Generation.Prompt
	prompts[0].Text, prompts[0].Calls, prompts[0].Unenforced = sent.Text, sent.Calls, sent.Unenforced
	demand, err := x.price(call, class, prompts)
	if err != nil {
		return err
	}
	demand.User, demand.Retry = x.hop.User, x.hop.Retry
	x.run.call = call
	x.record.Reserved = wire.Monotonic()
	return g.compute(x, class, prompts, &demand)
}

// unpack makes of a parcel what decode and identify make of a client's request.
func (x *exchange) unpack() (*call, *admission.Class, error) {
	p := x.hop
	x.record.Model = x.g.engine.State().Model.ID
	if !x.caller.Policy.HasClass(p.Class) {
		return nil, nil, failed(faultForbidden, "this replica has no class "+p.Class)
	}
	class, err := x.caller.Policy.Class(&x.caller.Tenant, admission.Wish{Name: p.Class})
	if err != nil {
		return nil, nil, &failure{fault: faultInvalid, message: err.Error()}
	}
	x.noteClass(class)
	c := &call{prompts: []wire.Request{{Tokens: p.Generation.Prompt.Tokens}}, options: p.Generation.Options, stream: true}
	if err := c.options.Check(&x.g.engine.State().Model); err != nil {
		return nil, nil, err
	}
	x.record.Decoded = wire.Monotonic()
	x.record.Arrived -= min(max(0, p.AgeNS), int64(time.Hour)) // goals count from the client
	x.record.Stream, x.record.Prompts, x.record.Choices = true, 1, c.options.N
	if p.LeftMS > 0 {
		left := time.Duration(min(p.LeftMS, deadlineMax.Milliseconds())) * time.Millisecond
		x.deadline, x.due = time.NewTimer(left), wire.Monotonic()+int64(left)
	}
	x.record.Identified = wire.Monotonic()
	return c, class, nil
}

// hopReply passes the engine's events on.
type hopReply struct{ x *exchange }

func (r *hopReply) event(_, _ int, e *wire.Event) { r.x.pass(e) }

func (r *hopReply) flush() error {
	if !r.x.out.Opened {
		return nil
	}
	err := r.x.out.Flush()
	if err == nil {
		r.x.noteWrite()
	}
	return err
}

func (r *hopReply) finish(wire.Usage) error {
	r.x.pass(&wire.Event{End: &wire.End{Usage: r.x.run.usage[0]}})
	err := r.x.out.Close()
	if err == nil {
		r.x.noteWrite()
	}
	return err
}

// pass appends an event to the answer.
func (x *exchange) pass(e *wire.Event) {
	if !x.out.Opened {
		x.openStream()
	}
	x.out.Buf = append(x.out.Buf, "data: "...)
	x.out.Buf = base64.StdEncoding.AppendEncode(x.out.Buf, wire.AppendEvent(nil, e))
	x.out.Buf = append(x.out.Buf, "\n\n"...)
}

// endHop ends an exchange with a sibling. It hears first what the engine computed, to
// tell the sibling, whose request it is.
func (x *exchange) endHop(err error) {
	x.run.cancel()
	x.run.finish(x.g.cfg.Timeouts.CancelLimit)
	if err != nil && (x.out.Opened || x.recalled.Load()) {
		end := &wire.End{Err: x.faultOf(err)}
		if len(x.run.usage) > 0 {
			end.Usage = x.run.usage[0]
		}
		x.pass(&wire.Event{End: end})
		x.out.Flush() // the sibling may have gone
	}
	x.tell(err)
	x.record.Finished = wire.Monotonic()
	x.g.recorder.Finish(&x.record)
	x.g.unregister(x)
}

// faultOf is err as an engine would say it.
func (x *exchange) faultOf(err error) *wire.Error {
	var e *wire.Error
	switch f := x.g.failureOf(err); {
	case x.recalled.Load():
		return wire.Errorf(wire.Canceled, "the request was canceled")
	case errors.As(err, &e):
		return e
	default:
		return wire.Errorf(wire.Unavailable, "%s", f.message)
	}
}
