package gateway

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/internal/wire"
)

// scopes are the holders of limits that the request must pass.
func (x *exchange) scopes(tenant *admission.Tenant, user string) []budget.Scope {
	all := x.caller.Policy.Scopes(tenant, x.record.Model, x.record.Class, x.record.Route, user)
	if x.caller.Limits.Any() {
		all = append(all, budget.Scope{Kind: budget.KindKey, Name: x.caller.LimitsOf, Limits: x.caller.Limits})
	}
	return all
}

// reserve takes what w needs from all budgets that it must pass. It returns nil for
// a request without limits.
func (x *exchange) reserve(tenant *admission.Tenant, c *call, w *admission.Demand) (r *budget.Reservation, err error) {
	if scopes := x.scopes(tenant, c.user); x.g.budget != nil && len(scopes) > 0 {
		asked := 0
		if c.options.MaxTokens > 0 {
			asked = w.DecodeTokens
		}
		r, err = x.g.budget.Reserve(x.ctx, budget.Ask{
			ID: x.record.ID, Tenant: x.record.Tenant, Model: x.record.Model, Scopes: scopes,
			Input: w.UncachedTokens, Cached: w.PromptTokens - w.UncachedTokens, Client: x.client(w), Output: min(w.DecodeTokens, x.g.admission.Expected(w)), Asked: asked,
		})
		if err != nil {
			return nil, x.overBudget(err)
		}
		x.budgets = r.States
	}
	x.record.Reserved = wire.Monotonic()
	return r, nil
}

// client tells a client's request from others': by its address, its user and the
// size of what it asks for.
func (x *exchange) client(w *admission.Demand) budget.Client {
	host, _, _ := net.SplitHostPort(x.http.RemoteAddr().String())
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00%d", x.record.Tenant, host, w.User, w.PromptTokens)
	return budget.Client{ID: h.Sum64(), Alone: x.http.Alone}
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
	case budget.Spans[refusal.Rule] != 0:
		f.fault = faultQuota
	}
	if refusal.Rule < budget.RuleCount && !refusal.TooLarge {
		x.budgets, x.refusedBy = func() budget.States { return refusal.States }, refusal.Rule
	}
	return f
}
