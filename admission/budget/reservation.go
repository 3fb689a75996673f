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
	day      int64      // UTC, in days since 1970
	from     time.Time  // on the store's clock
	degraded bool

	mu     sync.Mutex
	held   Amounts // guarded by mu, as the rest
	used   int     // output tokens so far, part of held
	closed bool
}

// NewReservation makes a reservation of what a needs at now. The store adds every
// account that took it, and then calls Begin, or Drop if one refused.
func NewReservation(audit *Counters, a *Ask, now time.Time) *Reservation {
	r := &Reservation{audit: audit, day: DayOf(now), from: now, held: a.Amounts()}
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
		a.Adjust(r.held, unspent, r.day)
		a.End(time.Time{})
	}
}

func (r *Reservation) adjust(back Amounts, unspent int) {
	for _, a := range r.accounts {
		a.Adjust(back, unspent, r.day)
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
		back[OutputTokens], back[Day] = -float64(extension), -float64(extension)
		r.held = r.held.Plus(-1, back)
		unspent += extension
	}
	r.used = outputTokens
	r.adjust(back, unspent)
}

// Settle charges what the request took, even if it was cancelled: the uncached
// prompt tokens that were computed, and the tokens that were generated. It gives the
// rest of the reservation back, or charges the excess.
func (r *Reservation) Settle(inputTokens, outputTokens int) {
	in, out := max(0, inputTokens), max(0, outputTokens)
	r.close(Amounts{1, float64(in), float64(out), 0, float64(in + out)}, End{Input: in, Output: out})
}

// Refund gives everything back, the request itself too. It is for a request that
// admission refused after the reservation.
func (r *Reservation) Refund() { r.close(Amounts{}, End{Refunded: true}) }

func (r *Reservation) close(charge Amounts, e End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	unspent := r.used - int(r.held[OutputTokens])
	r.adjust(r.held.Plus(-1, charge), unspent)
	for _, a := range r.accounts {
		a.End(r.from)
	}
	r.audit.End(e)
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
