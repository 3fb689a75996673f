package budget

import (
	"fmt"
	"time"
)

// Refusal is the error of an ask that got no reservation.
type Refusal struct {
	Scope Scope // whose limit it is
	Rule  Rule
	Limit float64 // of the rule; 0 for Shared
	// RetryAfter is when the budget will have room if no other request comes first.
	// Each further client is told a later time, so that they do not return at once.
	RetryAfter time.Duration
	// TooLarge says that the ask is larger than the limit: it will never fit.
	TooLarge bool
	// Needed is what the ask needs of the rule's budget.
	Needed float64
	// States are the scope's budgets now; empty if TooLarge.
	States States
	// Hold is the most that the budget ever holds, Rate what it gains a second.
	Hold, Rate float64
}

// Refuse is the refusal of an ask by a rule of t at levels.
func (t *Terms) Refuse(s *Scope, rule Rule, ask, levels *Amounts, now time.Time) *Refusal {
	return &Refusal{Scope: *s, Rule: rule, Limit: t.Limit[rule], Needed: ask[rule], Hold: t.Hold[rule], Rate: t.Rate[rule], States: t.States(levels, now)}
}

func (r *Refusal) Error() string {
	if r.Rule == Shared {
		return "the store of budgets does not answer"
	}
	limit := ruleKeys[r.Rule] + " of " + number(r.Limit)
	if r.Scope.Kind != "" && r.Scope.Kind != KindTenant {
		limit += " of this " + r.Scope.Kind
	}
	switch {
	case r.TooLarge && r.Rule == OutputTokens:
		return fmt.Sprintf("max_tokens asks for %s tokens, more than %s; ask for fewer", number(r.Needed), limit)
	case r.TooLarge:
		return fmt.Sprintf("the request needs %s, more than %s; make it smaller", number(r.Needed), limit)
	case r.Rate >= 1:
		return fmt.Sprintf("%s is used up; it allows %s at once and gains %.4g a second", limit, number(r.Hold), r.Rate)
	case r.Rate > 0:
		return fmt.Sprintf("%s is used up; it allows %s at once and gains 1 every %.3g s", limit, number(r.Hold), 1/r.Rate)
	case r.Rule == Concurrency:
		return limit + " is used up; wait for a request to end"
	}
	return limit + " is used up"
}
