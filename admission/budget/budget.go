package budget

import (
	"context"
	"fmt"
	"time"
)

// Store keeps the budgets. Its methods may be called from any goroutine.
type Store interface {
	// Reserve takes what a needs from all of its tenant's budgets, or from none.
	// The error is a *Refusal. It returns within Config.DecisionLimit even if a
	// shared store fails; ctx may end it sooner.
	Reserve(ctx context.Context, a Ask) (*Reservation, error)
	// Degraded says that the shared store does not answer now, and that
	// Config.OnFailure decides.
	Degraded() bool
	// Audit counts how reservations ended.
	Audit() Audit
	// Close gives back what is held in a shared store. Reservations may be settled
	// after it; that has no effect on others.
	Close()
}

// Ask is what a request needs.
type Ask struct {
	ID     string // for messages only
	Tenant string
	Model  string
	Limits Limits
	Input  int // uncached prompt tokens, as estimated
	Output int // tokens to reserve: a high quantile of the expected answer, at most max_tokens
}

// Amounts is what a takes from each budget.
func (a *Ask) Amounts() Amounts {
	in, out := float64(max(0, a.Input)), float64(max(0, a.Output))
	return Amounts{1, in, out, 1, in + out}
}

// Refusal is the error of an ask that got no reservation.
type Refusal struct {
	Rule  Rule
	Limit int // of the rule; 0 for Shared
	// RetryAfter is when the budget will have room if no other request comes first.
	// Each further refusal is told a later time, so that they do not return at once.
	RetryAfter time.Duration
	// TooLarge says that the ask is larger than the limit: it will never fit.
	TooLarge bool
	// Needed is what the ask needs of the rule's budget.
	Needed int
}

func (r *Refusal) Error() string {
	switch {
	case r.Rule == Shared:
		return "the store of budgets does not answer"
	case r.TooLarge && r.Rule == OutputTokens:
		return fmt.Sprintf("the answer may take %d tokens, more than %s of %d; ask for fewer with max_tokens", r.Needed, ruleKeys[r.Rule], r.Limit)
	case r.TooLarge:
		return fmt.Sprintf("the request needs %d, more than %s of %d; make it smaller", r.Needed, ruleKeys[r.Rule], r.Limit)
	}
	return fmt.Sprintf("%s of %d is used up", ruleKeys[r.Rule], r.Limit)
}

// State is one budget as its tenant may see it.
type State struct {
	Limit int // 0: there is no such limit, and the rest is 0 too
	// Remaining is what could be admitted at this instant: at most what the
	// bucket holds, which is the burst, not the limit.
	Remaining int
	// Reset is the time until the budget is whole again, if nothing is taken.
	Reset time.Duration
}

// States are the budgets of a tenant and a model.
type States [RuleCount]State

// Account is one tenant's budgets for one model, as a Reservation needs it.
type Account interface {
	// Adjust gives back (or takes, where negative) what a reservation made on day
	// has too much; it never refuses. Of the output that is reserved, unspent more
	// (or fewer, where negative) is yet to be generated.
	Adjust(back Amounts, unspent int, day int64)
	// End counts a reservation's end, after its last Adjust.
	End(e End)
	// States are the budgets at this instant.
	States() States
}

// End is how a reservation ended.
type End struct {
	From          time.Time // when it was made
	Refunded      bool
	Input, Output int // charged
}
