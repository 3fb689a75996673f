package gateway

import (
	"errors"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/internal/wire"
)

// answerGuess is how many tokens an answer is taken to have where nothing is
// known of answers. A longer one takes more as it goes.
const answerGuess = 512

// expecter is a Controller that knows how long answers get.
type expecter interface {
	// Expected is how many tokens w will generate at most, nine times of ten.
	Expected(w *admission.Work) int
}

// reserve takes what w needs from the tenant's budgets; end gives back what is
// not used.
func (x *exchange) reserve(w *admission.Work) error {
	limits := x.tenant.Limits
	if x.g.budget == nil || limits == (budget.Limits{}) {
		return nil
	}
	ask := budget.Ask{ID: x.record.ID, Tenant: x.record.Tenant, Model: x.record.Model, Limits: limits, Input: w.UncachedTokens}
	if e, ok := x.g.admission.(expecter); ok {
		ask.Output = min(w.DecodeTokens, e.Expected(w))
	} else if ask.Output = min(w.DecodeTokens, answerGuess*w.Sequences); limits.OutputTokensPerMinute > 0 {
		ask.Output = min(ask.Output, limits.OutputTokensPerMinute)
	}
	x.asked = ask.Input
	reservation, err := x.g.budget.Reserve(x.ctx, ask)
	if err != nil {
		return x.overBudget(err)
	}
	x.reservation = reservation
	return nil
}

// overBudget puts a budget's refusal into the table of faults.
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
		x.refusedBudget = appendBudgets(nil, states)
	}
	return f
}

// settle ends the reservation, whatever has become of the request: what never
// ran, or failed by the engine's fault before its first token, costs nothing.
func (x *exchange) settle() {
	r := &x.record
	switch {
	case x.reservation == nil:
	case r.Dispatched == 0, x.engineFailed && r.CompletionTokens == 0:
		x.reservation.Refund()
	case x.ended == len(x.streams):
		x.reservation.Settle(r.PromptTokens-r.CachedTokens, r.CompletionTokens)
	default: // cut: how far its prompt was computed, nobody has said
		x.reservation.Settle(x.asked, r.CompletionTokens)
	}
}

// progress tells admission and the budgets what the request has been given.
func (x *exchange) progress(t admission.Ticket) {
	t.Progress(x.record.CompletionTokens)
	if x.reservation != nil {
		x.reservation.Used(x.record.CompletionTokens)
	}
}

// spent is what admission settles: nothing for a request that never ran.
func (x *exchange) spent() admission.Spent {
	if x.record.Dispatched == 0 {
		return admission.Spent{}
	}
	return admission.Spent{PromptTokens: x.record.PromptTokens, CompletionTokens: x.record.CompletionTokens, Whole: x.stops == x.record.Choices}
}

// noteEnd keeps what the end of a prompt's generation says.
func (x *exchange) noteEnd(e *wire.End) {
	x.ended++
	x.engineFailed = x.engineFailed || e.Err != nil
	x.record.CachedTokens += e.Usage.Cached
	if e.Timings.Finished >= x.record.Engine.Finished {
		x.record.Engine = e.Timings
	}
}
