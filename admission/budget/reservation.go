package budget

import (
	"sync"
	"time"
)

// ExtendTokens is the step in which an answer that passes its reservation
// reserves more.
const ExtendTokens = 128

// Reservation is what a request holds of its tenant's budgets, until Settle or
// Refund. Only the first call of either counts. Neither waits for anything, so a
// client that leaves cannot stop it. Methods may be called from any goroutine.
type Reservation struct {
	account  Account
	day      int64     // UTC, in days since 1970
	from     time.Time // on the store's clock
	degraded bool

	mu     sync.Mutex
	held   Amounts // guarded by mu, as the rest
	used   int     // output tokens so far, part of held
	closed bool
}

// NewReservation makes a reservation for an account that took what a needs at now.
// It is for stores.
func NewReservation(account Account, a *Ask, now time.Time, degraded bool) *Reservation {
	return &Reservation{account: account, day: DayOf(now), from: now, degraded: degraded, held: a.Amounts()}
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
	r.account.Adjust(back, unspent, r.day)
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
	e.From = r.from
	r.account.Adjust(r.held.Plus(-1, charge), unspent, r.day)
	r.account.End(e)
}

// States are the tenant's budgets, this reservation included.
func (r *Reservation) States() States { return r.account.States() }

// Degraded says that on_failure made it, since the shared store did not answer.
func (r *Reservation) Degraded() bool { return r.degraded }
