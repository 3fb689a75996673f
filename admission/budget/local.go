package budget

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Local keeps the budgets of one process, in memory.
type Local struct {
	cfg   Config
	clock func() time.Time
	books *Shelf[*bucket]
	audit Counters
}

// NewLocal returns a store without debts. It reads the time from clock, or from
// time.Now if that is nil, and uses of cfg what does not speak of a shared store.
func NewLocal(cfg Config, clock func() time.Time) *Local {
	if clock == nil {
		clock = time.Now
	}
	l := &Local{cfg: cfg, clock: clock}
	l.books = NewShelf(cfg, func(Key) *bucket { return &bucket{local: l} })
	return l
}

// Reserve never waits.
func (l *Local) Reserve(_ context.Context, a Ask) (*Reservation, error) {
	a.Price = l.cfg.Price(a.Model)
	refusal := a.Fit()
	r := NewReservation(&l.audit, &a, l.clock())
	for i := range a.Scopes {
		if s := &a.Scopes[i]; refusal == nil && s.Limits.Any() {
			b := l.books.Open(a.Key(s))
			if refusal = b.take(&a, s, r.from); refusal == nil {
				r.Add(b, false)
			} else if s.Limits.DryRun {
				l.audit.Dry(refusal)
				refusal = nil
			}
			l.books.Close(b)
		}
	}
	if refusal != nil {
		r.Drop()
		return nil, refusal
	}
	r.Begin()
	return r, nil
}

// Shared is false.
func (l *Local) Shared() bool { return false }

// Degraded is false: a local store cannot fail.
func (l *Local) Degraded() bool { return false }

// Price is what a token of a model costs.
func (l *Local) Price(model string) Price { return l.cfg.Price(model) }

// Holders is part of Store.
func (l *Local) Holders(most int) []Holder {
	return l.books.Holders(most, func(b *bucket) Limits {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.limits
	})
}

// Standings is part of Store.
func (l *Local) Standings(_ context.Context, holders []Holder) ([]States, error) {
	all := make([]States, len(holders))
	for i := range holders {
		h := &holders[i]
		if b, ok := l.books.Find(h.Key); ok {
			all[i] = b.statesBy(h.Limits)
			l.books.Close(b)
		} else {
			all[i] = Whole(h.Limits, l.cfg.Burst, l.clock())
		}
	}
	return all, nil
}

// Audit counts how reservations ended.
func (l *Local) Audit() Audit { return l.audit.Audit() }

// Close does nothing.
func (l *Local) Close() {}

// bucket is one scope's budgets. Rates and refills are counted by
// golang.org/x/time/rate. The reservations of that package do not fit: their Cancel
// gives nothing back once their time has come, and ours are given back later, in
// part. Taking a negative number gives back; the limiter caps it at its next step.
type bucket struct {
	Use
	local *Local

	mu      sync.Mutex
	limits  Limits // guarded by mu, as the rest
	terms   Terms
	rates   [RuleCount]*rate.Limiter // nil where nothing refills
	waits   Waits
	last    time.Time // the latest instant seen
	running float64
	windows [RuleCount]int64
	used    Amounts // in these windows
}

// take takes what a needs from the bucket, all or nothing.
func (b *bucket) take(a *Ask, s *Scope, now time.Time) *Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.advance(now)
	if s.Limits != b.limits {
		b.setLimits(s.Limits, now)
	}
	ask := a.Amounts()
	levels := b.levels(now)
	if rule, missing, ok := b.terms.Short(&levels, &ask); !ok {
		refusal := b.terms.Refuse(s, rule, &ask, &levels, now)
		refusal.RetryAfter = b.waits.For(&b.terms, rule, ask[rule], missing, 1, a.Client, now)
		return refusal
	}
	b.give(Amounts{}.Plus(-1, ask), now)
	b.Acquire()
	return nil
}

// advance returns now, or the latest instant seen if that is later: a limiter that
// is told an earlier one would count the time between them twice.
func (b *bucket) advance(now time.Time) time.Time {
	if now.Before(b.last) {
		return b.last
	}
	if now.Unix()/hourSeconds != b.last.Unix()/hourSeconds {
		for k := range b.windows {
			if n := Window(Rule(k), now); n > b.windows[k] {
				b.windows[k], b.used[k] = n, 0
			}
		}
	}
	b.last = now
	return now
}

// setLimits changes the limits; what was used stays used.
func (b *bucket) setLimits(limits Limits, now time.Time) {
	b.limits, b.terms = limits, limits.Terms(b.local.cfg.Burst)
	for k := range b.rates {
		switch limit, hold := rate.Limit(b.terms.Rate[k]), int(b.terms.Hold[k]); {
		case hold == 0:
			b.rates[k] = nil
		case b.rates[k] == nil:
			b.rates[k] = rate.NewLimiter(limit, hold)
		default:
			b.rates[k].SetLimitAt(now, limit)
			b.rates[k].SetBurstAt(now, hold)
		}
	}
}

// levels are what is left of each budget; a debt is below 0.
func (b *bucket) levels(now time.Time) (levels Amounts) {
	for k, r := range b.rates {
		if r != nil {
			levels[k] = r.TokensAt(now)
		}
	}
	levels[Concurrency] = b.terms.Limit[Concurrency] - b.running
	for k := range levels {
		if Spans[k] != 0 {
			levels[k] = b.terms.Limit[k] - b.used[k]
		}
	}
	return levels
}

// give puts amounts into the budgets; it takes what is negative.
func (b *bucket) give(amounts Amounts, now time.Time) {
	for k, r := range b.rates {
		if r == nil {
			continue
		}
		// The limiter takes no more than its burst at a time.
		n, most := -int(amounts[k]), int(b.terms.Hold[k])
		for ; n > most; n -= most {
			r.ReserveN(now, most)
		}
		r.ReserveN(now, n)
	}
	b.running -= amounts[Concurrency]
	for k := range amounts {
		if Spans[k] != 0 {
			b.used[k] = max(0, b.used[k]-amounts[k])
		}
	}
}

// Adjust is part of Account.
func (b *bucket) Adjust(back Amounts, _ int, from time.Time) {
	if back == (Amounts{}) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.advance(b.local.clock())
	back.Expire(from, now)
	b.give(back, now)
}

// End is part of Account.
func (b *bucket) End(from time.Time) {
	if !from.IsZero() {
		b.mu.Lock()
		b.waits.Held(b.last.Sub(from))
		b.mu.Unlock()
	}
	b.Release()
}

// States is part of Account.
func (b *bucket) States() States {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.states(b.advance(b.local.clock()))
}

// statesBy are the states by the limits that the next request will bring.
func (b *bucket) statesBy(limits Limits) States {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.advance(b.local.clock())
	if limits != b.limits {
		b.setLimits(limits, now)
	}
	return b.states(now)
}

// states are the budgets at now. b.mu is held.
func (b *bucket) states(now time.Time) States {
	levels := b.levels(now)
	return b.terms.States(&levels, now)
}
