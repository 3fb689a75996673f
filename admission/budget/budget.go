package budget

import (
	"context"
	"fmt"
	"time"
)

// Store keeps the budgets. Its methods may be called from any goroutine.
type Store interface {
	// Reserve takes what a needs from all budgets of all its scopes, or from none.
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
	// Scopes are the limits that the request must pass, all of them. One without
	// limits is skipped.
	Scopes []Scope
	Input  int // uncached prompt tokens, as estimated
	Output int // tokens to reserve: a high quantile of the expected answer, at most max_tokens
	Asked  int // output tokens that the client asked for by max_tokens, over all choices; 0 if it did not
}

// Scope is one holder of limits, within a tenant and a model: the tenant itself, or
// one of its keys, users, …. Each has budgets of its own.
type Scope struct {
	Kind   string // "tenant", "key", "user", …
	Name   string // within the kind; "" for the tenant
	Limits Limits
}

// OfTenant is the one scope of a tenant that has limits and nothing below it has.
func OfTenant(limits Limits) []Scope { return []Scope{{Kind: "tenant", Limits: limits}} }

// Key names the budgets of a scope.
type Key struct{ Tenant, Model, Kind, Name string }

// Key is that of the budgets of one of a's scopes.
func (a *Ask) Key(s *Scope) Key { return Key{a.Tenant, a.Model, s.Kind, s.Name} }

// Fit makes what is only predicted fit the limits, and refuses what the client asked
// for if it never will. It is for stores.
func (a *Ask) Fit() *Refusal {
	for i := range a.Scopes {
		s := &a.Scopes[i]
		t := s.Limits.Terms(time.Minute)
		asked := Amounts{1, float64(a.Input), float64(a.Asked), 1, float64(a.Input + a.Asked)}
		for k := range asked {
			if t.Limit[k] > 0 && asked[k] > t.Limit[k] {
				return &Refusal{Rule: Rule(k), Limit: int(t.Limit[k]), Needed: int(asked[k]), TooLarge: true, Scope: *s}
			}
		}
		if n := s.Limits.OutputTokensPerMinute; n > 0 {
			a.Output = min(a.Output, n)
		}
		if n := s.Limits.TokensPerDay; n > 0 {
			a.Output = min(a.Output, n-a.Input)
		}
	}
	return nil
}

// Amounts is what a takes from each budget.
func (a *Ask) Amounts() Amounts {
	in, out := float64(max(0, a.Input)), float64(max(0, a.Output))
	return Amounts{1, in, out, 1, in + out}
}

// Refusal is the error of an ask that got no reservation.
type Refusal struct {
	Scope Scope // whose limit it is
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
		return fmt.Sprintf("max_tokens asks for %d tokens, more than %s of %d; ask for fewer", r.Needed, ruleKeys[r.Rule], r.Limit)
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

// States are the budgets of a scope, or of several the ones with the least left.
type States [RuleCount]State

// tighten takes over from other every budget that has less left.
func (s *States) tighten(other *States) {
	for k := range s {
		if o := other[k]; o.Limit > 0 && (s[k].Limit == 0 || o.Remaining < s[k].Remaining) {
			s[k] = o
		}
	}
}

// Account is the budgets of one scope, as a Reservation needs it.
type Account interface {
	// Adjust gives back (or takes, where negative) what a reservation made on day
	// has too much; it never refuses. Of the output that is reserved, unspent more
	// (or fewer, where negative) is yet to be generated.
	Adjust(back Amounts, unspent int, day int64)
	// End ends a reservation that was made at from, after its last Adjust; zero if
	// its request never came to run since another scope refused it.
	End(from time.Time)
	// States are the budgets at this instant.
	States() States
}

// End is how a reservation ended.
type End struct {
	Refunded      bool
	Input, Output int // charged
}
