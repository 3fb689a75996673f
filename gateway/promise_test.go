package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/telemetry"
)

// revoker admits everybody, and refuses each while it waits.
type revoker struct {
	admission.Controller
	refusal *admission.Refusal
}

type revokedTicket struct {
	admission.Ticket
	refusal *admission.Refusal
}

func (c revoker) Admit(d admission.Demand) (admission.Ticket, error) {
	t, err := c.Controller.Admit(d)
	return revokedTicket{t, c.refusal}, err
}

func (t revokedTicket) Err() error { return t.refusal }

// TestRefusalsKeepTheirPrediction: the record of a request that never started has
// what was predicted for it, and says whether it had been promised anything.
func TestRefusalsKeepTheirPrediction(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{RequestsPerMinute: 1})})
	queue := r.gw.admission
	no := func(why admission.Reason) *admission.Refusal {
		return &admission.Refusal{Reason: why, Message: "no", Predicted: 1500 * time.Millisecond}
	}
	for _, c := range []struct {
		key       string
		by        admission.Controller
		outcome   telemetry.Outcome
		predicted time.Duration
		promise   telemetry.Promise
		when      string
	}{
		{"sk-full", refuser{queue, no(admission.Late)}, telemetry.Late, 1500 * time.Millisecond, telemetry.PromiseNone, "arrival"},
		{"sk-full", revoker{queue, no(admission.Revoked)}, telemetry.Revoked, 1500 * time.Millisecond, telemetry.PromiseRevoked, "later"},
		{"sk-poor", queue, telemetry.OK, 0, telemetry.PromiseKept, ""},
		{"sk-poor", queue, telemetry.RateLimited, 0, telemetry.PromiseNone, "arrival"}, // its wait is for the budget, not for a token
	} {
		r.gw.admission = c.by
		r.as(c.key, chatBody(""))
		r.settled()
		rec := r.recorder.Last(1)[0]
		if p := rec.Promise(rec.Finished); rec.Outcome != c.outcome || rec.WaitPredicted != int64(c.predicted) || p != c.promise || (rec.Accepted != 0) != (c.promise != telemetry.PromiseNone) {
			t.Errorf("%v: %v, predicted %v, promise %q, accepted at %d", c.outcome, rec.Outcome, time.Duration(rec.WaitPredicted), p, rec.Accepted)
		}
		if series := fmt.Sprintf(`forebay_refusal_seconds_count{class="interactive",outcome=%q,when=%q} 1`, c.outcome, c.when); strings.Contains(r.metrics(), series+"\n") != (c.when != "") {
			t.Errorf("%v: not counted as refused, or wrongly: %s", c.outcome, series)
		}
	}
}

// promiser tells everybody a promise, and grants something else later.
type promiser struct {
	admission.Controller
	promise admission.Promise
	grant   admission.Grant
}

type promisedTicket struct {
	admission.Ticket
	by promiser
}

func (c promiser) Admit(d admission.Demand) (admission.Ticket, error) {
	t, err := c.Controller.Admit(d)
	return promisedTicket{t, c}, err
}

func (t promisedTicket) Promise() admission.Promise { return t.by.promise }

func (t promisedTicket) Grant() admission.Grant { return t.by.grant }

// TestAPromiseKeepsItsGoal: what a request was told on arrival is what it is judged
// by, although its price or its class is another when it starts.
func TestAPromiseKeepsItsGoal(t *testing.T) {
	r := simpleRig(t, hello)
	queue := r.gw.admission
	for name, c := range map[string]struct {
		by      promiser
		goal    time.Duration // of the record
		promise telemetry.Promise
	}{
		"as told":       {promiser{promise: admission.Promise{Goal: time.Hour, Predicted: time.Minute}, grant: admission.Grant{Class: "interactive", FirstTokenGoal: time.Hour}}, time.Hour, telemetry.PromiseKept},
		"dearer now":    {promiser{promise: admission.Promise{Goal: 1, Predicted: time.Minute}, grant: admission.Grant{Class: "interactive", FirstTokenGoal: time.Hour}}, 1, telemetry.PromiseBroken},
		"demoted later": {promiser{promise: admission.Promise{Goal: time.Hour, Predicted: time.Minute}, grant: admission.Grant{Class: "offline"}}, 0, telemetry.PromiseRevoked},
		"demoted first": {promiser{promise: admission.Promise{Predicted: time.Minute}, grant: admission.Grant{Class: "offline"}}, 0, telemetry.PromiseNone},
	} {
		c.by.Controller = queue
		r.gw.admission = c.by
		r.chat("")
		r.settled()
		rec := r.recorder.Last(1)[0]
		if p := rec.Promise(rec.Finished); p != c.promise || rec.FirstTokenGoal != c.goal || rec.Promised != c.by.promise.Goal || rec.WaitPredicted != int64(time.Minute) || rec.Class != c.by.grant.Class {
			t.Errorf("%s: %q, promised %v, goal %v, predicted %v, class %s", name, p, rec.Promised, rec.FirstTokenGoal, time.Duration(rec.WaitPredicted), rec.Class)
		}
	}
}
