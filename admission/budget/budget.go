package budget

import (
	"context"
	"time"
)

// Store keeps the budgets. Its methods may be called from any goroutine.
type Store interface {
	// Reserve takes what a needs from all budgets of all its scopes, or from none.
	// The error is a *Refusal. It returns within Config.DecisionLimit even if a
	// shared store fails; ctx may end it sooner.
	Reserve(ctx context.Context, a Ask) (*Reservation, error)
	// Shared says that other processes count in the same budgets.
	Shared() bool
	// Degraded says that the shared store does not answer now, and that
	// Config.OnFailure decides.
	Degraded() bool
	// Price is what a token of a model costs.
	Price(model string) Price
	// Holders are up to most of those that have budgets in this process, in no order.
	Holders(most int) []Holder
	// Standings are the budgets of each holder at this instant, and take nothing. With
	// an error, which is of the shared store, they are what this process knows.
	Standings(ctx context.Context, holders []Holder) ([]States, error)
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
	Input  int   // uncached prompt tokens, as estimated
	Cached int   // prompt tokens in the cache, as estimated
	Output int   // tokens to reserve: a high quantile of the expected answer, at most max_tokens
	Asked  int   // output tokens that the client asked for by max_tokens, over all choices; 0 if it did not
	Price  Price // of a token; the store knows it
	Client Client
	// Elsewhere is for what does not run here, such as a request that a proxy asks
	// about: it takes Requests requests, maybe none, and none counts as running.
	Elsewhere bool
	Requests  int
}

// Client tells one client's request from others', so that one that is sent again too
// early is known.
type Client struct {
	ID uint64 // 0 is unknown
	// Alone tells that the client has no other request at this moment, so that an
	// equal one of a moment ago was this one; nil is not known.
	Alone func() bool
}

// Kinds of scopes.
const (
	KindTenant = "tenant"
	KindKey    = "key"
	KindUser   = "user"
	KindModel  = "model"
	KindClass  = "class"
	KindRoute  = "route"
)

// Scope is one holder of limits, within a tenant and a model: the tenant itself, or
// one of its keys, users, …. Each has budgets of its own.
type Scope struct {
	Kind   string // KindTenant, KindKey, …
	Name   string // within the kind; "" for the tenant
	Limits Limits
}

// OfTenant is the one scope of a tenant that has limits and nothing below it has.
func OfTenant(limits Limits) []Scope { return []Scope{{Kind: KindTenant, Limits: limits}} }

// Key names the budgets of a scope.
type Key struct{ Tenant, Model, Kind, Name string }

// Holder is a scope within a tenant and a model.
type Holder struct {
	Key
	Limits Limits
}

// Key is that of the budgets of one of a's scopes.
func (a *Ask) Key(s *Scope) Key { return Key{a.Tenant, a.Model, s.Kind, s.Name} }

// Fit makes what is only predicted fit the limits, and refuses what the client asked
// for if it never will. It is for stores.
func (a *Ask) Fit() *Refusal {
	asked := a.amounts(a.Asked)
	for i := range a.Scopes {
		s := &a.Scopes[i]
		if s.Limits.DryRun {
			continue
		}
		t := s.Limits.Terms(time.Minute)
		for k := range asked {
			if t.Limit[k] > 0 && asked[k] > t.Limit[k] {
				return &Refusal{Scope: *s, Rule: Rule(k), Limit: t.Limit[k], Needed: asked[k], TooLarge: true}
			}
		}
		a.clip(&t.Limit)
	}
	return nil
}

// clip reserves for the answer no more than a limit lets it have.
func (a *Ask) clip(limit *Amounts) {
	prompt, token := a.amounts(0), a.Price.OutputAmounts(1)
	for k := range limit {
		if limit[k] > 0 && token[k] > 0 {
			a.Output = min(a.Output, int((limit[k]-prompt[k])/token[k]))
		}
	}
}

// Amounts is what a takes from each budget.
func (a *Ask) Amounts() Amounts { return a.amounts(a.Output) }

func (a *Ask) amounts(output int) Amounts {
	all := a.Price.amounts(a.Input, a.Cached, output)
	all[Requests], all[Concurrency] = 1, 1
	if a.Elsewhere {
		all[Requests], all[Concurrency] = float64(a.Requests), 0
	}
	return all
}

// State is one budget as its tenant may see it.
type State struct {
	Limit float64 // 0: there is no such limit, and the rest is 0 too
	// Remaining is what could be admitted at this instant: at most what the
	// bucket holds, which is the burst, not the limit.
	Remaining float64
	// Reset is the time until the budget is whole again, if nothing is taken.
	Reset time.Duration
	// Used is what its bucket lacks, or what was taken in its window; of concurrency
	// what runs or waits. A debt is in it, so it may be more than the limit.
	Used float64
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
	// Adjust gives back (or takes, where negative) what a reservation made at from
	// has too much; it never refuses. Of the output that is reserved, unspent more
	// (or fewer, where negative) is yet to be generated.
	Adjust(back Amounts, unspent int, from time.Time)
	// End ends a reservation that was made at from, after its last Adjust; zero if
	// its request never came to run, since another scope refused it or since it runs
	// elsewhere.
	End(from time.Time)
	// States are the budgets at this instant.
	States() States
}

// End is how a reservation ended.
type End struct {
	Refunded      bool
	Input, Output int // charged
}
