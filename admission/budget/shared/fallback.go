package shared

import (
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// fallback is one gateway's part of the buckets while Redis does not answer. It
// begins with this gateway's part of the last known levels.
type fallback struct {
	on    bool
	at    time.Time
	level budget.Amounts // what may be taken; only of what refills with time
	taken budget.Amounts // since it began
}

// start opens f with a part of the levels that were known at since.
func (f *fallback) start(known *budget.Amounts, part float64, since time.Time) {
	*f = fallback{on: true, at: since}
	for k := range known {
		if budget.Buckets[k] {
			f.level[k] = known[k] * part
		}
	}
}

// refill refills f to now.
func (f *fallback) refill(part *budget.Terms, now time.Time) {
	elapsed := max(0, now.Sub(f.at)).Seconds()
	f.at = now
	for k := range f.level {
		f.level[k] = min(part.Hold[k], f.level[k]+part.Rate[k]*elapsed)
	}
}

// take takes ask from f.
func (f *fallback) take(ask *budget.Amounts) {
	for k := range ask {
		if budget.Buckets[k] {
			f.level[k] -= ask[k]
			f.taken[k] += ask[k]
		}
	}
}

// charge is what Redis must be told: what was taken, as far as the part has not
// refilled. Redis refills the bucket itself meanwhile, so what the part lacked
// before is none of it.
func (f *fallback) charge(part *budget.Terms, now time.Time) (charge budget.Amounts) {
	if !f.on {
		return charge
	}
	f.refill(part, now)
	for k := range charge {
		charge[k] = min(f.taken[k], part.Hold[k]-f.level[k])
	}
	return charge
}

// end closes f after Redis was told of taken. It returns what was taken during the
// call, which Redis has not been told.
func (f *fallback) end(taken budget.Amounts) (rest budget.Amounts) {
	rest = f.taken.Plus(-1, taken)
	*f = fallback{}
	return rest
}

// partOf are the terms of one of several gateways: its part of each refill, and at
// least one request, token and place.
func partOf(t budget.Terms, gateways int) budget.Terms {
	n := float64(gateways)
	for k := range t.Limit {
		if t.Limit[k] == 0 {
			continue
		}
		t.Rate[k] /= n
		t.Hold[k] /= n
		if rule := budget.Rule(k); rule != budget.CostDay && rule != budget.CostMonth {
			t.Hold[k] = max(1, float64(int(t.Hold[k])))
		}
	}
	return t
}
