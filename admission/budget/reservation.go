package budget

import (
	"sync"
	"time"
)

// ExtendTokens is the step in which an answer that passes its reservation
// reserves more.
const ExtendTokens = 128

// Reservation is what a request holds of the budgets of its scopes, until Settle or
// Refund. Only the first call of either counts. Neither waits for anything, so a
// client that leaves cannot stop it. Methods may be called from any goroutine.
type Reservation struct {
	audit    *Counters
	accounts []Account
	few      [3]Account // the first of accounts, so that they need no memory of their own
	from     time.Time  // on the store's clock
	price    Price
	requests float64 // that Settle charges
	runs     bool    // here, so that its end tells how long requests run
	degraded bool

	mu     sync.Mutex
	held   Amounts // guarded by mu, as the rest
	used   int     // output tokens so far, part of held
	cached int     // prompt tokens that were found in the cache
	closed bool
}

// NewReservation makes a reservation of what a needs at now. The store adds every
// account that took it, and then calls Begin, or Drop if one refused.
func NewReservation(audit *Counters, a *Ask, now time.Time) *Reservation {
	r := &Reservation{audit: audit, from: now, price: a.Price, held: a.Amounts()}
	r.requests, r.runs = r.held[Requests], !a.Elsewhere
	r.accounts = r.few[:0]
	return r
}

// Add notes that an account took what the ask needs, or with degraded that
// on_failure let it.
func (r *Reservation) Add(account Account, degraded bool) {
	r.accounts = append(r.accounts, account)
	r.degraded = r.degraded || degraded
}

// Begin counts the reservation.
func (r *Reservation) Begin() { r.audit.Reserved.Add(1) }

// Drop gives everything back, and counts a refusal.
func (r *Reservation) Drop() {
	r.audit.Refused.Add(1)
	unspent := -int(r.held[OutputTokens])
	for _, a := range r.accounts {
		a.Adjust(r.held, unspent, r.from)
		a.End(time.Time{})
	}
}

func (r *Reservation) adjust(back Amounts, unspent int) {
	for _, a := range r.accounts {
		a.Adjust(back, unspent, r.from)
	}
}

// Used says how many output tokens the request has so far. Beyond what was reserved
// it takes more, in steps of ExtendTokens; it never refuses.
func (r *Reservation) Used(outputTokens int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || outputTokens <= r.used {
		return
	}
	var back Amounts
	unspent := r.used - outputTokens
	if over := outputTokens - int(r.held[OutputTokens]); over > 0 {
		extension := (over + ExtendTokens - 1) / ExtendTokens * ExtendTokens
		back = r.price.OutputAmounts(-float64(extension))
		r.held = r.held.Plus(-1, back)
		unspent += extension
	}
	r.used = outputTokens
	r.adjust(back, unspent)
}

// Cached says how many prompt tokens were found in the cache. They count in no
// limit but those of money.
func (r *Reservation) Cached(tokens int) {
	r.mu.Lock()
	r.cached = tokens
	r.mu.Unlock()
}

// Settle charges what the request took, even if it was cancelled: the uncached
// prompt tokens that were computed, and the tokens that were generated. It gives the
// rest of the reservation back, or charges the excess.
func (r *Reservation) Settle(inputTokens, outputTokens int) {
	in, out := max(0, inputTokens), max(0, outputTokens)
	r.close(End{Input: in, Output: out})
}

// Refund gives everything back, the request itself too. It is for a request that
// admission refused after the reservation.
func (r *Reservation) Refund() { r.close(End{Refunded: true}) }

func (r *Reservation) close(e End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	var charge Amounts
	if !e.Refunded {
		charge = r.price.amounts(e.Input, r.cached, e.Output)
		charge[Requests] = r.requests
	}
	unspent := r.used - int(r.held[OutputTokens])
	r.adjust(r.held.Plus(-1, charge), unspent)
	ended := r.from
	if !r.runs {
		ended = time.Time{}
	}
	for _, a := range r.accounts {
		a.End(ended)
	}
	r.audit.End(e)
}

// Return gives back what earlier reservations were charged, and ends r as Refund does.
func (r *Reservation) Return(requests, inputTokens, outputTokens int) {
	back := r.price.amounts(inputTokens, 0, outputTokens)
	back[Requests] = float64(max(0, requests))
	r.mu.Lock()
	if !r.closed {
		r.adjust(back, 0)
	}
	r.mu.Unlock()
	r.Refund()
}

// States are the budgets of all scopes, this reservation included; of several
// with the same rule the one with the least left.
func (r *Reservation) States() (states States) {
	for _, a := range r.accounts {
		one := a.States()
		states.tighten(&one)
	}
	return states
}

// Degraded says that on_failure made it, since the shared store did not answer.
func (r *Reservation) Degraded() bool { return r.degraded }
