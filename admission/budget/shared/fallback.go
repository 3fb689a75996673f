package shared

import (
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// fallback is one gateway's part of the refill while Redis does not answer. It
// begins with this gateway's part of the last known levels.
type fallback struct {
	on    bool
	at    time.Time
	level budget.Amounts // what may be taken; only of what refills with time
	debt  budget.Amounts // what was taken and has not refilled yet
}

// start opens f with a part of the last known levels.
func (f *fallback) start(t *budget.Terms, known *budget.Amounts, part float64, now time.Time) {
	*f = fallback{on: true, at: now}
	for k := budget.Requests; k <= budget.OutputTokens; k++ {
		f.level[k] = max(0, min(known[k], t.Hold[k])) * part
	}
}

// refill refills f to now.
func (f *fallback) refill(part *budget.Terms, now time.Time) {
	elapsed := max(0, now.Sub(f.at)).Seconds()
	f.at = now
	for k := budget.Requests; k <= budget.OutputTokens; k++ {
		came := part.Rate[k] * elapsed
		f.level[k] = min(part.Hold[k], f.level[k]+came)
		f.debt[k] = max(0, f.debt[k]-came)
	}
}

// take takes ask from f.
func (f *fallback) take(ask *budget.Amounts) {
	for k := budget.Requests; k <= budget.OutputTokens; k++ {
		f.level[k] -= ask[k]
		f.debt[k] += ask[k]
	}
}

// charge is what Redis must be told: what was taken and has not refilled, and
// besides debts at most one gateway's part of a burst.
func (f *fallback) charge(part *budget.Terms, now time.Time) budget.Amounts {
	if f.on {
		f.refill(part, now)
	}
	return f.debt
}

// end closes f after Redis was told charged. It returns what was taken during the
// call, which Redis has not been told.
func (f *fallback) end(charged budget.Amounts) (rest budget.Amounts) {
	for k := range rest {
		rest[k] = max(0, f.debt[k]-charged[k])
	}
	*f = fallback{}
	return rest
}

// partOf are the terms of one of several gateways: its part of each refill, and at
// least one request and one place.
func partOf(t budget.Terms, gateways int) budget.Terms {
	n := float64(gateways)
	for k := range t.Limit {
		if t.Limit[k] == 0 {
			continue
		}
		t.Rate[k] /= n
		t.Hold[k] = max(1, float64(int(t.Hold[k]/n)))
	}
	return t
}
