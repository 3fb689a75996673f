package gateway

import (
	"errors"
	"fmt"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/siblings"
	"github.com/forebay-io/forebay/internal/wire"
)

// This file is the way of a request to a sibling: the choice, the hop out, and the
// way back when it fails.

// Headers that say where a request was computed, and why.
const (
	servedByHeader  = "X-Forebay-Served-By"
	placementHeader = "X-Forebay-Placement"
)

// place chooses who serves the request; nil is this replica.
func (x *exchange) place(c *call, class *admission.Class, prompts []*wire.Prompt, w *admission.Demand) *siblings.Candidate {
	g := x.g.siblings
	if g == nil {
		return nil
	}
	x.record.ServedBy = g.Name()
	// A hop carries one prompt. Log-probabilities of the prompt need all of it computed, and
	// a prompt is pinned where its client asked.
	if c.pin.Asked || len(prompts) > 1 || len(prompts[0].Tokens) == 0 || c.options.PromptLogprobs || c.options.Embed || c.promptOnly {
		x.record.Placement = siblings.WhyKind.String()
		g.Kept()
		return nil
	}
	p := prompts[0]
	choice := g.Choose(&siblings.Query{
		Class: class.Name, Blocks: p.BlockHashes, PageTokens: x.g.engine.State().Model.PageTokens,
		PromptTokens: len(p.Tokens), Uncached: w.UncachedTokens,
	})
	x.record.Placement, x.record.FirstTokenHere = choice.Why.String(), choice.Here
	if choice.To != nil {
		x.record.FirstTokenThere = choice.To.FirstToken
		g.Use(p.BlockHashes)
	}
	return choice.To
}

// away has a sibling serve the request. It reports false where the hop failed before
// the client was given anything: then the request is as if it had never left.
func (r *run) away(to *siblings.Candidate, class *admission.Class, prompts []*wire.Prompt, w *admission.Demand) (usage wire.Usage, done bool, err error) {
	x := r.x
	x.record.ServedBy, x.record.Away = to.Name, true
	x.record.Admitted = wire.Monotonic()
	grant := admission.Grant{Class: class.Name, FirstTokenGoal: class.FirstTokenGoal, TokenGoal: class.TokenGoal}
	r.dispatch(class, prompts, grant, func(g *wire.Generation) *wire.Stream {
		sent := *g.Prompt
		sent.BlockHashes = nil // the sibling computes its own
		g.Prompt = &sent
		p := &siblings.Parcel{
			From: x.g.siblings.Name(), ID: g.ID, Fingerprint: x.g.engine.State().Model.Fingerprint, Tenant: x.record.Tenant, Key: x.record.Key,
			Class: class.Name, Route: x.record.Route, User: w.User, Retry: w.Retry, AgeNS: int64(x.age()), PublicID: publicID(&x.record), Generation: g,
		}
		if left := x.within() - x.age(); x.due != 0 {
			p.LeftMS = max(1, left.Milliseconds())
		}
		return x.g.siblings.Send(to, p, g.Notify)
	})
	usage, err = r.relay()
	var fault *wire.Error
	if err == nil || !errors.As(err, &fault) || fault.Kind != wire.Unavailable || r.begun() {
		return usage, true, err
	}
	x.g.log.Debug("a hop failed; the request is served here", "id", x.record.ID, "sibling", to.Name, "error", fault.Message)
	x.g.siblings.Fallback()
	r.returned()
	return usage, false, nil
}

// begun tells whether anything of an answer has come.
func (r *run) begun() bool {
	for _, n := range r.tokens {
		if n > 0 {
			return true
		}
	}
	return r.x.record.FirstToken != 0
}

// returned makes the run as it was before it was dispatched.
func (r *run) returned() {
	for _, s := range r.streams {
		s.Close()
	}
	r.streams, r.usage, r.live, r.engineFailed = nil, nil, 0, false
	record := &r.x.record
	record.ServedBy, record.Away, record.Placement = r.x.g.siblings.Name(), false, siblings.WhyFailed.String()
	record.Admitted, record.Dispatched, record.Serial, record.Taken = 0, 0, 0, 0
	r.x.enter(stageQueued)
}

// placement says why the request was computed where it was, for people.
func (x *exchange) placement() string {
	r := &x.record
	text := r.Placement
	if r.FirstTokenHere > 0 {
		text += fmt.Sprintf("; here=%dms", r.FirstTokenHere.Round(time.Millisecond).Milliseconds())
	}
	if r.FirstTokenThere > 0 {
		text += fmt.Sprintf("; there=%dms", r.FirstTokenThere.Round(time.Millisecond).Milliseconds())
	}
	return text
}
