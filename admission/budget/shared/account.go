package shared

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay-io/forebay/admission/budget"
)

const (
	// asksMax is how many asks one call decides.
	asksMax = 64
	// meterTicks is how many sync intervals pass before a call is made only to tell
	// Redis how many tokens streams have produced.
	meterTicks = 10
)

// account is a gateway's side of one scope's budgets.
//
// Invariant: what Redis has charged this gateway is what it has used, what running
// requests hold, and pool. So every event here changes pool, and a call charges
// what pool lacks, or gives back what it has too much.
type account struct {
	budget.Use
	store *Store
	key   string // of the book
	life  int64  // number of this account among those with its key
	// server is the breaker for the server that has the key, which may be away while
	// others of a cluster answer. It says nothing of an earlier round.
	server breaker
	round  atomic.Int64

	mu      sync.Mutex
	limits  budget.Limits // guarded by mu, as the rest
	terms   budget.Terms
	pool    budget.Amounts // charged and free: the slice; a debt is negative
	typical budget.Amounts // the last ask
	price   budget.Price   // of the last ask
	unspent float64        // output tokens that running requests hold
	running float64
	waits   budget.Waits
	fall    fallback

	// What Redis last said, at the time renewed; zero if it never did.
	renewed       time.Time
	saw           *sight
	charged, held budget.Amounts
	target        budget.Amounts // the size of a slice
	gateways      int

	seq      int64
	answered int64 // the call that was answered last; 0 for none
	syncing  bool  // a call is being made
	again    bool  // another is wanted after it
	active   bool  // the store's loop visits it
	touched  bool  // something was taken since the last call
	dirty    bool  // pool has changed since
	metered  bool  // unspent has changed since
	waiting  []*waiter
}

// waiter is an ask that waits for Redis. Its fields are guarded by its
// account's mu until done is closed.
type waiter struct {
	scope   budget.Scope
	amounts budget.Amounts
	open    budget.Amounts // the part of amounts that is given back if this gateway dies
	client  budget.Client
	gone    bool // its request does not wait any more
	decided bool
	verdict verdict
	done    chan struct{}
}

// verdict is what an account says to an ask.
type verdict struct {
	refusal  *budget.Refusal // nil: it took what the ask needs
	degraded bool            // as on_failure let it
}

// take decides on a at once, or returns a waiter.
func (b *account) take(a *budget.Ask, scope *budget.Scope, now time.Time) (verdict, *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if scope.Limits != b.limits {
		b.limits, b.terms = scope.Limits, scope.Limits.Terms(b.store.cfg.Burst)
	}
	ask := a.Amounts()
	b.typical, b.price, b.touched = ask, a.Price, true
	switch {
	case b.covers(&ask, now):
		b.pool = b.pool.Plus(-1, ask)
		b.move()
		if b.low() && b.up() {
			b.again = true
			b.start()
		}
		b.admit(&ask)
		return verdict{}, nil
	case !b.up():
		return b.fail(scope, &ask, a.Client, now), nil
	}
	w := &waiter{scope: *scope, amounts: ask, open: a.Price.OutputAmounts(ask[budget.OutputTokens]), client: a.Client, done: make(chan struct{})}
	w.open[budget.Concurrency] = ask[budget.Concurrency]
	b.waiting = append(b.waiting, w)
	b.start()
	return verdict{}, w
}

// up says that Redis may be asked, so that a request may wait for it.
func (b *account) up() bool {
	return b.store.up() && (b.server.closed() || b.round.Load() != b.store.rounds.Load())
}

// try says whether the loop may ask the account's server now; a call must follow.
func (b *account) try(now time.Time) bool {
	return b.round.Load() != b.store.rounds.Load() || b.server.try(now)
}

// heard notes how a call to the account's server ended.
func (b *account) heard(err error) {
	now := time.Now()
	if round := b.store.rounds.Load(); b.round.Swap(round) != round {
		b.server.done(succeeded, nil, now)
	}
	switch {
	case err == nil:
		b.server.done(succeeded, nil, now)
	case errors.Is(err, redis.ErrPoolTimeout):
		b.server.done(neither, err, now)
	default:
		b.server.done(failed, err, now)
	}
}

// covers says that the slice is enough for ask, and the lease has not run out.
func (b *account) covers(ask *budget.Amounts, now time.Time) bool {
	for k := range ask {
		if b.terms.Limit[k] > 0 && b.pool[k] < ask[k] {
			return false
		}
	}
	return now.Sub(b.renewed) < b.store.cfg.Lease
}

// low says that the slice is half used.
func (b *account) low() bool {
	for k := range b.pool {
		if b.target[k] > 0 && 2*b.pool[k] < b.target[k] {
			return true
		}
	}
	return false
}

// admit notes that a request holds what was taken.
func (b *account) admit(ask *budget.Amounts) {
	b.running++
	b.unspent += ask[budget.OutputTokens]
	b.Acquire()
	b.watch()
}

// move notes that pool has changed.
func (b *account) move() { b.dirty = true; b.watch() }

// watch makes the store's loop visit b.
func (b *account) watch() {
	if !b.active {
		b.active = true
		b.Acquire()
		b.store.watch(b)
	}
}

// fail decides while Redis does not answer.
func (b *account) fail(scope *budget.Scope, ask *budget.Amounts, client budget.Client, now time.Time) verdict {
	cfg := &b.store.cfg
	if cfg.OnFailure == "closed" {
		return verdict{refusal: &budget.Refusal{Scope: *scope, Rule: budget.Shared, RetryAfter: cfg.BreakerWait}}
	}
	part := partOf(b.terms, b.living())
	if !b.fall.on {
		since := b.renewed
		if since.IsZero() {
			since = now
		}
		known := b.known(since)
		b.fall.start(&known, 1/float64(b.living()), since)
	}
	b.fall.refill(&part, now)
	if cfg.OnFailure == "local" {
		levels := b.fallLevels(&part, now)
		if rule, missing, ok := part.Short(&levels, ask); !ok {
			refusal := b.terms.Refuse(scope, rule, ask, &levels, now)
			refusal.RetryAfter = b.waits.For(&part, rule, ask[rule], missing, 1, client, now)
			return verdict{refusal: refusal}
		}
	}
	b.fall.take(ask)
	// Budgets that do not refill with time are charged in full when Redis is back.
	for k := range ask {
		if !budget.Buckets[k] {
			b.pool[k] -= ask[k]
		}
	}
	b.move()
	b.admit(ask)
	return verdict{degraded: true}
}

// fallLevels are what is left of this gateway's part.
func (b *account) fallLevels(part *budget.Terms, now time.Time) budget.Amounts {
	levels, known := b.fall.level, b.known(now)
	levels[budget.Concurrency] = part.Hold[budget.Concurrency] - b.running
	for k := range levels {
		if budget.Spans[k] != 0 {
			levels[k] = known[k]/float64(b.living()) + min(0, b.pool[k])
		}
	}
	return levels
}

// known are the levels that Redis last said, by the limits of now; of a window that
// is over by then, all.
func (b *account) known(now time.Time) budget.Amounts {
	if b.saw == nil {
		return b.terms.Hold
	}
	levels := b.saw.Values
	now = time.UnixMilli(b.saw.At).Add(now.Sub(b.renewed)) // by Redis's clock
	for k := range levels {
		switch {
		case budget.Buckets[k]:
		case budget.Spans[k] != 0 && budget.Window(budget.Rule(k), now) > b.saw.Windows[k]:
			levels[k] = b.terms.Limit[k]
		default:
			levels[k] = b.terms.Limit[k] - levels[k]
		}
	}
	return levels
}

// living is how many gateways are alive, as far as known.
func (b *account) living() int { return max(1, b.gateways, b.store.living()) }

// others is of how many other gateways a state says what they were charged: none where
// all that is missing refills within minutes.
func (b *account) others() int {
	for k, limit := range b.terms.Limit {
		if limit > 0 && budget.Spans[k] != 0 {
			return b.store.cfg.GatewaysMax - 1
		}
	}
	return 0
}

// await waits until Redis decides on w, or until limit, when on_failure must. The
// error is ctx's: then nothing was taken.
func (b *account) await(ctx context.Context, w *waiter, limit context.Context) (verdict, error) {
	select {
	case <-w.done:
		return w.verdict, nil
	case <-limit.Done():
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.decided {
		return w.verdict, nil
	}
	b.leave(w)
	if err := ctx.Err(); err != nil {
		return verdict{}, err
	}
	return b.fail(&w.scope, &w.amounts, w.client, b.store.clock()), nil
}

// abandon ends w without waiting. What it was given already, r gives back.
func (b *account) abandon(w *waiter, r *budget.Reservation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !w.decided:
		b.leave(w)
	case w.verdict.refusal == nil:
		r.Add(b, w.verdict.degraded)
	}
}

// leave takes w off those that wait. b.mu is held.
func (b *account) leave(w *waiter) {
	w.gone = true
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
}

// Adjust is part of budget.Account.
func (b *account) Adjust(back budget.Amounts, unspent int, from time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unspent += float64(unspent)
	if back == (budget.Amounts{}) {
		b.metered = true
		return
	}
	back.Expire(from, b.store.clock())
	b.running -= back[budget.Concurrency]
	b.pool = b.pool.Plus(1, back)
	b.move()
}

// End is part of budget.Account.
func (b *account) End(from time.Time) {
	if !from.IsZero() {
		b.mu.Lock()
		b.waits.Held(b.store.clock().Sub(from))
		b.mu.Unlock()
	}
	b.Release()
}

// States is part of budget.Account: what Redis last said, refilled to this instant,
// and what is free here.
func (b *account) States() budget.States {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.states(b.store.clock())
}

// states are the budgets at now. b.mu is held.
func (b *account) states(now time.Time) budget.States {
	levels := b.known(now)
	switch {
	case b.fall.on:
		part := partOf(b.terms, b.living())
		b.fall.refill(&part, now)
		levels = b.fallLevels(&part, now)
	case b.saw != nil:
		levels = levels.Plus(max(0, now.Sub(b.renewed)).Seconds(), b.terms.Rate).Plus(1, b.pool)
	}
	for k := range levels {
		levels[k] = min(levels[k], b.terms.Hold[k])
	}
	return b.terms.States(&levels, now)
}
