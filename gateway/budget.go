package gateway

import (
	"errors"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/internal/wire"
)

// meter holds what a request reserved of budgets. Its reservation is nil for a
// request without limits.
type meter struct {
	reservation *budget.Reservation
	input       int // uncached prompt tokens, as reserved
}

// scopes are the holders of limits that the request must pass.
func (x *exchange) scopes(tenant *admission.Tenant) (all []budget.Scope) {
	if tenant.Limits != (budget.Limits{}) {
		all = append(all, budget.Scope{Kind: "tenant", Limits: tenant.Limits})
	}
	if x.caller.Limits != (budget.Limits{}) {
		all = append(all, budget.Scope{Kind: "key", Name: x.caller.LimitsOf, Limits: x.caller.Limits})
	}
	return all
}

// reserve takes what w needs from all budgets that it must pass; settle gives back
// what is not used.
func (x *exchange) reserve(tenant *admission.Tenant, c *call, w *admission.Demand) (*meter, error) {
	m := &meter{input: w.UncachedTokens}
	if scopes := x.scopes(tenant); x.g.budget != nil && len(scopes) > 0 {
		asked := 0
		if c.options.MaxTokens > 0 {
			asked = w.DecodeTokens
		}
		r, err := x.g.budget.Reserve(x.ctx, budget.Ask{
			ID: x.record.ID, Tenant: x.record.Tenant, Model: x.record.Model, Scopes: scopes,
			Input: m.input, Output: min(w.DecodeTokens, x.g.admission.Expected(w)), Asked: asked,
		})
		if err != nil {
			return nil, x.overBudget(err)
		}
		m.reservation, x.budgets = r, r.States
	}
	x.record.Reserved = wire.Monotonic()
	return m, nil
}

// overBudget turns a budget's refusal into a failure.
func (x *exchange) overBudget(err error) error {
	var refusal *budget.Refusal
	switch {
	case x.ctx.Err() != nil:
		return errClientGone
	case !errors.As(err, &refusal):
		return err
	}
	f := &failure{fault: faultRateLimit, message: err.Error(), retryAfter: refusal.RetryAfter, predicted: refusal.RetryAfter, exact: true, reason: "budget_" + refusal.Rule.String()}
	switch {
	case refusal.TooLarge:
		f.fault, f.retryAfter, f.predicted = faultOverBudget, 0, 0
	case refusal.Rule == budget.Shared:
		f.fault, f.exact = faultLimiter, false
	case refusal.Rule == budget.Day:
		f.fault = faultQuota
	}
	if int(refusal.Rule) < len(rateNames) && !refusal.TooLarge {
		var states budget.States
		states[refusal.Rule] = budget.State{Limit: refusal.Limit, Reset: refusal.RetryAfter}
		x.budgets = func() budget.States { return states }
	}
	return f
}

// used tells the budgets how many tokens the request has been given so far.
func (m *meter) used(tokens int) {
	if m.reservation != nil {
		m.reservation.Used(tokens)
	}
}

// settle ends the reservation on every path. A request that never ran, or that
// failed by the engine's fault before its first token, costs nothing.
func (m *meter) settle(r *run) {
	record := &r.x.record
	switch {
	case m.reservation == nil:
	case record.Dispatched == 0, r.engineFailed && record.CompletionTokens == 0:
		m.reservation.Refund()
	case r.ended == len(r.streams):
		m.reservation.Settle(record.PromptTokens-record.CachedTokens, record.CompletionTokens)
	default: // cut short: how far its prompt was computed is not known
		m.reservation.Settle(m.input, record.CompletionTokens)
	}
}
