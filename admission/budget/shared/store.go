package shared

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay-io/forebay/admission/budget"
)

// Store is a budget.Store over Redis.
type Store struct {
	cfg    budget.Config
	id     string // of this gateway, new at each start
	ledger ledger
	clock  func() time.Time
	log    *slog.Logger

	books   *budget.Shelf[*account]
	audit   budget.Counters
	breaker breaker
	rounds  atomic.Int64 // times that Redis as a whole answered again
	alive   atomic.Int64 // gateways that are alive; 0 is not known
	lives   atomic.Int64 // accounts made so far
	lost    atomic.Int64 // Unix nanoseconds: when a loss was last logged

	mu      sync.Mutex
	active  map[*account]bool // guarded by mu: those that the loop visits
	stopped bool              // guarded by mu
	calls   sync.WaitGroup    // of accounts; added to under mu, while not stopped
	quit    chan struct{}
	ended   chan struct{}
}

const (
	// pipelineMax is how many accounts' calls one round trip carries.
	pipelineMax = 64
	// lossesEvery is how often a loss is logged at most: one loses many books.
	lossesEvery = time.Minute
)

// Open returns a store for cfg, which conf has filled and checked. It connects in
// the background; until then cfg.OnFailure decides. clock is time.Now if nil;
// deadlines, and budgets in Redis, do not depend on it.
func Open(cfg budget.Config, log *slog.Logger, clock func() time.Time) (*Store, error) {
	l, err := openRedis(cfg)
	if err != nil {
		return nil, err
	}
	return open(cfg, l, log, clock), nil
}

func open(cfg budget.Config, l ledger, log *slog.Logger, clock func() time.Time) *Store {
	if clock == nil {
		clock = time.Now
	}
	s := &Store{cfg: cfg, id: rand.Text(), ledger: l, clock: clock, log: log, active: map[*account]bool{}, quit: make(chan struct{}), ended: make(chan struct{})}
	s.breaker = breaker{errorsMax: cfg.BreakerErrors, wait: cfg.BreakerWait, changed: s.note}
	s.books = budget.NewShelf(cfg, func(k budget.Key) *account {
		return &account{store: s, key: bookKey(cfg.Prefix, k), life: s.lives.Add(1), server: breaker{errorsMax: cfg.BreakerErrors, wait: cfg.BreakerWait}}
	})
	s.beat(false)
	go s.loop()
	return s
}

// note logs that Redis failed or is back. The only address in it is the error's,
// which has no password.
func (s *Store) note(open bool, err error) {
	if open {
		s.log.Warn("budgets: Redis does not answer; on_failure decides until it does", "on_failure", s.cfg.OnFailure, "error", err)
	} else {
		s.rounds.Add(1)
		s.log.Info("budgets: Redis answers again")
	}
}

// Reserve is part of budget.Store.
func (s *Store) Reserve(ctx context.Context, a budget.Ask) (*budget.Reservation, error) {
	a.Price = s.cfg.Price(a.Model)
	refusal := a.Fit()
	if refusal != nil {
		s.audit.Refused.Add(1)
		return nil, refusal
	}
	now := s.clock()
	r := budget.NewReservation(&s.audit, &a, now)
	// All are asked before any is waited for, so the wait is that of the slowest.
	var waits []wait
	for i := range a.Scopes {
		scope := &a.Scopes[i]
		if !scope.Limits.Any() || refusal != nil {
			continue
		}
		b := s.books.Open(a.Key(scope))
		defer s.books.Close(b)
		v, w := b.take(&a, scope, now)
		if w != nil {
			waits = append(waits, wait{b, w})
		} else {
			refusal = s.take(v, b, r)
		}
	}
	if err := s.awaitAll(ctx, waits, r, &refusal); err != nil {
		r.Drop()
		return nil, err
	}
	if refusal != nil {
		r.Drop()
		return nil, refusal
	}
	r.Begin()
	if r.Degraded() {
		s.audit.Fallback.Add(1)
	}
	return r, nil
}

// wait is an account and its waiter.
type wait struct {
	account *account
	waiter  *waiter
}

// awaitAll waits for the accounts that ask Redis, all within one decision limit, and
// adds those that took to r. Once one refuses, the others are not waited for. The
// error is ctx's.
func (s *Store) awaitAll(ctx context.Context, waits []wait, r *budget.Reservation, refusal **budget.Refusal) (err error) {
	if len(waits) == 0 {
		return nil
	}
	limit, cancel := context.WithTimeout(context.Background(), s.cfg.DecisionLimit)
	defer cancel()
	for _, w := range waits {
		if *refusal != nil || err != nil {
			w.account.abandon(w.waiter, r)
			continue
		}
		var v verdict
		if v, err = w.account.await(ctx, w.waiter, limit); err == nil {
			*refusal = s.take(v, w.account, r)
		}
	}
	return err
}

// take adds an account that took to r, or returns its refusal; one of a dry run is
// only counted.
func (s *Store) take(v verdict, b *account, r *budget.Reservation) *budget.Refusal {
	switch {
	case v.refusal == nil:
		r.Add(b, v.degraded)
	case v.refusal.Scope.Limits.DryRun:
		s.audit.Dry(v.refusal)
	default:
		return v.refusal
	}
	return nil
}

// Shared is part of budget.Store.
func (s *Store) Shared() bool { return true }

// Degraded is part of budget.Store.
func (s *Store) Degraded() bool { return !s.breaker.closed() }

// Price is part of budget.Store.
func (s *Store) Price(model string) budget.Price { return s.cfg.Price(model) }

// Audit is part of budget.Store.
func (s *Store) Audit() budget.Audit { return s.audit.Audit() }

// Close gives back what is free and ends the leases. A request that still runs is
// charged for the tokens that it has.
func (s *Store) Close() {
	s.mu.Lock()
	stopped := s.stopped
	s.stopped = true
	s.mu.Unlock()
	if stopped {
		return
	}
	close(s.quit)
	<-s.ended
	s.calls.Wait()
	if s.breaker.closed() {
		s.look(true)
		s.beat(true)
	}
	s.ledger.close()
}

// up says that Redis as a whole may be asked.
func (s *Store) up() bool { return s.breaker.closed() }

func (s *Store) living() int { return int(s.alive.Load()) }

// lose notes that Redis has lost a lease.
func (s *Store) lose(key string, now time.Time) {
	s.audit.Lost.Add(1)
	if last := s.lost.Load(); now.UnixNano()-last > int64(lossesEvery) && s.lost.CompareAndSwap(last, now.UnixNano()) {
		s.log.Warn("budgets: Redis does not know what this gateway held, since it lost its data or did not hear of the gateway for budget.lease; its budgets go on from what the gateways know", "key", key)
	}
}

// begin runs f in the background, unless the store is closed.
func (s *Store) begin(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.calls.Go(f)
	return true
}

// watch makes the loop visit b.
func (s *Store) watch(b *account) {
	s.mu.Lock()
	s.active[b] = true
	s.mu.Unlock()
}

// loop tells Redis at intervals what was used, and that this gateway is alive.
func (s *Store) loop() {
	defer close(s.ended)
	tick := time.NewTicker(s.cfg.SyncInterval)
	defer tick.Stop()
	const beats = 10 // in a lease
	every := int(max(1, s.cfg.Lease/beats/s.cfg.SyncInterval))
	for n := 1; ; n++ {
		select {
		case <-s.quit:
			return
		case <-tick.C:
		}
		// While the breaker is open both try in turn: the server of a cluster that keeps
		// the list of gateways may be the one that is away.
		if n%every == 0 || !s.up() && n%2 == 0 {
			s.beat(false)
		}
		if s.up() || n%2 == 1 {
			s.look(false)
		}
	}
}

// beat tells that this gateway is alive.
func (s *Store) beat(leave bool) {
	s.ask(func(ctx context.Context) error {
		n, err := s.ledger.alive(ctx, s.id, s.cfg.Lease, leave)
		if err == nil {
			s.alive.Store(int64(n))
		}
		return err
	})
}

// look tells Redis what has changed in all active accounts, several in a round
// trip.
func (s *Store) look(leave bool) {
	s.mu.Lock()
	accounts := make([]*account, 0, len(s.active))
	for b := range s.active {
		accounts = append(accounts, b)
	}
	s.mu.Unlock()
	var batch []*dialogue
	for i, b := range accounts {
		if d := s.visit(b, leave); d != nil {
			batch = append(batch, d)
		}
		if len(batch) == pipelineMax || len(batch) > 0 && i == len(accounts)-1 {
			s.sync(batch)
			for _, d := range batch {
				d.account.free()
			}
			batch = nil
		}
	}
}

// visit opens a dialogue if Redis must be told something about b, and takes b off
// the loop if it holds nothing any more.
func (s *Store) visit(b *account, leave bool) *dialogue {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch now := s.clock(); {
	case b.syncing:
	case !leave && b.wants(now) && !b.try(time.Now()):
	case leave || b.wants(now):
		b.syncing = true
		return b.open(now, leave)
	case b.held == budget.Amounts{} && b.running == 0 && b.pool == budget.Amounts{}:
		b.active = false
		b.Release()
		s.mu.Lock()
		delete(s.active, b)
		s.mu.Unlock()
	}
	return nil
}

// free ends what visit began, and serves the asks that came in between.
func (b *account) free() {
	b.mu.Lock()
	b.syncing = false
	if len(b.waiting) > 0 {
		b.start()
	}
	b.mu.Unlock()
}

// sync makes the calls of some dialogues and ends them.
func (s *Store) sync(all []*dialogue) {
	calls := make([]*call, len(all))
	for i, d := range all {
		calls[i] = d.call
	}
	var replies []reply
	refused := s.ask(func(ctx context.Context) error {
		replies = s.ledger.sync(ctx, calls)
		return verdictOf(replies)
	}) == errLeftAlone
	now := s.clock()
	for i, d := range all {
		if refused {
			d.close(nil, false, now)
			continue
		}
		r := &replies[i]
		d.account.heard(r.err)
		d.close(r, r.err == nil && !r.Stale && len(r.Verdicts) == len(d.asks), now)
	}
}

// verdictOf is what replies say of Redis as a whole: nil if any call was done. So one
// server of a cluster that is away does not end the calls to the others.
func verdictOf(replies []reply) (err error) {
	for i := range replies {
		if err = replies[i].err; err == nil {
			return nil
		}
	}
	return err
}

// errLeftAlone is the error of a call that the breaker does not let through.
var errLeftAlone = errors.New("left alone for a moment after failures")

// ask makes one call, within the decision limit and as the breaker allows.
func (s *Store) ask(f func(context.Context) error) error {
	if !s.breaker.try(time.Now()) {
		return errLeftAlone
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.DecisionLimit)
	err := f(ctx)
	cancel()
	switch {
	case err == nil:
		s.breaker.done(succeeded, nil, time.Now())
	case errors.Is(err, redis.ErrPoolTimeout): // our own connections are all in use
		s.breaker.done(neither, err, time.Now())
	default:
		s.breaker.done(failed, err, time.Now())
	}
	return err
}
