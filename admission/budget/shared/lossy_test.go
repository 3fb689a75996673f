package shared

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

var errBroken = errors.New("broken")

func TestNeitherIsNoFailure(t *testing.T) {
	b := breaker{errorsMax: 1}
	b.try(time.Now())
	b.done(neither, errBroken, time.Now())
	if !b.closed() {
		t.Error("open")
	}
}

// lossy loses calls before they are done, or their answers after, and now and
// then has Redis fall back to an earlier state, as a failover may.
type lossy struct {
	ledger
	sometimes func(n int) bool
	rewind    func()
	off       atomic.Bool
}

func (l *lossy) sync(ctx context.Context, calls []*call) []reply {
	if !l.off.Load() && l.sometimes(4) {
		return allFailed(calls, errBroken)
	}
	replies := l.ledger.sync(ctx, calls)
	if !l.off.Load() {
		if l.sometimes(10) {
			l.rewind()
		}
		if l.sometimes(3) {
			return allFailed(calls, errBroken)
		}
	}
	return replies
}

// Whatever is lost on the way, in the end what is charged is what was used.
func TestLostCallsChargeOnce(t *testing.T) {
	m, url := mini(t)
	cfg := config(t, url)
	cfg.SyncInterval, cfg.BreakerErrors = 10*time.Millisecond, 1000
	limits := budget.Limits{TokensPerDay: 1_000_000, Concurrency: 10000} // slices of few requests
	key := bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: "tenant"})
	var mu sync.Mutex
	random, earlier := rand.New(rand.NewPCG(3, 3)), ""
	sometimes := func(n int) bool { mu.Lock(); defer mu.Unlock(); return random.IntN(n) == 0 }
	var stores []*Store
	var links []*lossy
	for range 3 {
		l, err := openRedis(cfg)
		if err != nil {
			t.Fatal(err)
		}
		link := &lossy{ledger: l, sometimes: sometimes, rewind: func() {
			mu.Lock()
			defer mu.Unlock()
			now, _ := m.Get(key)
			if earlier != "" && random.IntN(2) == 0 {
				m.Set(key, earlier)
				now = earlier
			}
			earlier = now
		}}
		link.off.Store(true)
		s := open(cfg, link, slog.New(slog.DiscardHandler), nil)
		t.Cleanup(s.Close)
		stores, links = append(stores, s), append(links, link)
		r, _ := ask(s, limits, 1, 1) // has a lease from here on
		r.Settle(1, 1)
	}
	for _, l := range links {
		l.off.Store(false)
	}
	storm(stores, 1500, limits, 100, 200, func(r *budget.Reservation) {
		mu.Lock()
		used, refund := random.IntN(400), random.IntN(5) == 0
		mu.Unlock()
		r.Used(used)
		if refund {
			r.Refund()
		}
		r.Settle(100, used)
	})
	for _, l := range links {
		l.off.Store(true)
	}
	want, reserved, ended, fallback := 0.0, int64(0), int64(0), int64(0)
	for _, s := range stores {
		a := s.Audit()
		want, reserved, ended, fallback = want+float64(a.Input+a.Output), reserved+a.Reserved, ended+a.Settled+a.Refunded, fallback+a.Fallback
		if _, refusal := ask(s, limits, 0, 0); refusal != nil { // a last word of each
			t.Fatal(refusal)
		}
	}
	if reserved < 1000 || ended != reserved || fallback == 0 {
		t.Errorf("%d reserved, %d ended, %d by on_failure", reserved, ended, fallback)
	}
	var used, places any
	defer func() { t.Logf("charged %v, used %v; %v places", used, want, places) }()
	eventually(t, "what is charged is what was used", func() bool {
		text, _ := m.Get(key)
		b := readBook(t, text)
		used, places = b.V[4], b.V[3]
		return used == want && places == 3.0
	})
}

// broken is a ledger that answers until it is told not to.
type broken struct {
	ledger
	down atomic.Bool
}

func (l *broken) sync(ctx context.Context, calls []*call) []reply {
	if l.down.Load() {
		return allFailed(calls, errors.New("connection refused"))
	}
	return l.ledger.sync(ctx, calls)
}

// A gateway's part is one part, however many calls fail before Redis is left alone.
func TestOnePartHoweverManyCallsFail(t *testing.T) {
	_, url := mini(t)
	cfg := config(t, url)
	cfg.SyncInterval, cfg.BreakerErrors = time.Hour, 1000
	redis, err := openRedis(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := &broken{ledger: redis}
	start := time.Now()
	s := open(cfg, l, slog.New(slog.DiscardHandler), func() time.Time { return start })
	t.Cleanup(s.Close)
	limits := budget.Limits{RequestsPerMinute: 600} // 100 at once
	if r, _ := ask(s, limits, 1, 1); r == nil {
		t.Fatal("the first of a full bucket was refused")
	}
	l.down.Store(true)
	admitted := 0
	for range 500 {
		if r, _ := ask(s, limits, 1, 1); r != nil {
			admitted++
		}
	}
	if admitted < 90 || admitted > 100 {
		t.Errorf("%d admitted of the 99 that were left", admitted)
	}
	l.down.Store(false)
	if r, _ := ask(s, limits, 1, 1); r != nil {
		t.Error("what was used meanwhile was not charged")
	}
}
