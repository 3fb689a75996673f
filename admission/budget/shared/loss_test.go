package shared

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/forebay-io/forebay/admission/budget"
)

// world is three gateways and a Redis whose time a test moves.
type world struct {
	t      *testing.T
	redis  *miniredis.Miniredis
	moved  atomic.Int64
	start  time.Time
	stores []*Store
	links  []*weak
}

// weak is a link that fails as it is told. With rule it changes calls on the way.
type weak struct {
	ledger
	failing, silent bool // no call arrives; no answer does
	rule            func(c *call)
	failed          time.Time
	now             func() time.Time
}

func (l *weak) sync(ctx context.Context, calls []*call) []reply {
	if l.failing {
		l.failed = l.now()
		return allFailed(calls, errBroken)
	}
	if l.rule != nil {
		for _, c := range calls {
			l.rule(c)
		}
	}
	replies := l.ledger.sync(ctx, calls)
	if l.silent {
		l.failed = l.now()
		return allFailed(calls, errBroken)
	}
	return replies
}

func (w *world) now() time.Time { return w.start.Add(time.Duration(w.moved.Load())) }

// pass lets time pass, keys expire and gateways report.
func (w *world) pass(d time.Duration) {
	w.moved.Add(int64(d))
	w.redis.SetTime(w.now())
	w.redis.FastForward(d)
	for _, s := range w.stores {
		s.look(false)
	}
}

// byHeld is the rule that was: a bucket that Redis does not know starts empty if
// the gateway held something, or a call failed within a minute, and full otherwise.
func byHeld(l *weak) func(c *call) {
	return func(c *call) {
		had := c.Was.Plus(-1, c.Base) != budget.Amounts{} || !l.failed.IsZero() && l.now().Sub(l.failed) < time.Minute
		c.Saw = nil
		if had {
			c.Saw = &sight{At: l.now().UnixMilli(), Made: 1}
		}
	}
}

func newWorld(t *testing.T, old bool) *world { return newWorldOf(t, 3, old) }

func newWorldOf(t *testing.T, gateways int, old bool) *world {
	w := &world{t: t, start: time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)}
	m, url := mini(t)
	w.redis = m
	cfg := config(t, url)
	cfg.SyncInterval, cfg.Lease, cfg.BreakerErrors = time.Hour, 30*time.Second, 1<<30
	for range gateways {
		l, err := openRedis(cfg)
		if err != nil {
			t.Fatal(err)
		}
		link := &weak{ledger: l, now: w.now}
		if old {
			link.rule = byHeld(link)
		}
		s := open(cfg, link, slog.New(slog.DiscardHandler), w.now)
		t.Cleanup(s.Close)
		w.stores, w.links = append(w.stores, s), append(w.links, link)
	}
	for _, s := range w.stores {
		s.beat(false)
	}
	return w
}

// played is what a play came to.
type played struct {
	most         int // admitted within any 60 s
	all          int
	idle, denied int // first asks of tenants that had used nothing, and those refused
}

// play lets a tenant always ask for more than its limit at three gateways, while
// calls fail and Redis loses its data, and new tenants come.
func (w *world) play(seed uint64, limits budget.Limits, failures bool) (p played) {
	random := rand.New(rand.NewPCG(seed, 1))
	var at []time.Duration
	ask := func(tenant string) bool {
		s := w.stores[random.IntN(3)]
		r, err := s.Reserve(context.Background(), budget.Ask{Tenant: tenant, Model: "m", Scopes: budget.OfTenant(limits), Input: 1, Output: 1})
		if err != nil {
			return false
		}
		r.Settle(1, 1)
		return true
	}
	for n := 0; w.moved.Load() < int64(4*time.Minute); n++ {
		for _, l := range w.links {
			l.failing, l.silent = failures && random.IntN(20) == 0, failures && random.IntN(20) == 0
		}
		if random.IntN(40) == 0 {
			w.redis.FlushAll()
		}
		if quiet := random.IntN(150) == 0; quiet { // long enough for keys to expire
			w.pass(time.Duration(20+random.IntN(60)) * time.Second)
		}
		for range 1 + random.IntN(4) {
			if ask("busy") {
				at = append(at, time.Duration(w.moved.Load()))
			}
		}
		if n%5 == 0 {
			p.idle++
			if !ask("idle" + string(rune('0'+n))) {
				p.denied++
			}
		}
		w.pass(time.Duration(100+random.IntN(600)) * time.Millisecond)
	}
	first := 0
	for i := range at {
		for at[i]-at[first] > time.Minute {
			first++
		}
		p.most = max(p.most, i-first+1)
	}
	p.all = len(at)
	return p
}

// Over any minute no more than the limit and a burst are admitted, and a tenant that
// used nothing is never refused: whatever expires, is lost, fails or is not known.
func TestLossAndDoubt(t *testing.T) {
	limits := budget.Limits{RequestsPerMinute: 60}
	const bound = 60 + 10 + 2 // a request of each gateway whose call failed may overlap
	over, denied := 0, 0
	for seed := range uint64(6) {
		failures := seed%2 == 0
		p := newWorld(t, false).play(seed, limits, failures)
		if p.most > bound || p.most < 50 {
			t.Errorf("seed %d: %d within 60 s, bound %d", seed, p.most, bound)
		}
		if p.denied > 0 {
			t.Errorf("seed %d: %d of %d tenants that had used nothing were refused", seed, p.denied, p.idle)
		}
		was := newWorld(t, true).play(seed, limits, failures)
		over, denied = max(over, was.most), denied+was.denied
		t.Logf("seed %d: %+v; by the rule that was %+v", seed, p, was)
	}
	// The control: by the rule that was, both fail.
	if over <= bound || denied == 0 {
		t.Errorf("the rule that was passes too: %d within 60 s, %d denied", over, denied)
	}
}

// What one gateway has admitted it knows after a loss, and what another has.
func TestFlushGivesNoBurst(t *testing.T) {
	server := startServer(t)
	cfg := config(t, server.url())
	cfg.SyncInterval = 10 * time.Millisecond
	limits := budget.Limits{RequestsPerMinute: 60, TokensPerMonth: 100_000, CostPerDay: 5}
	for _, gateways := range []int{1, 3} {
		var stores []*Store
		for range gateways {
			stores = append(stores, openTest(t, cfg, nil))
		}
		admitted, start := 0, time.Now()
		for round := range 4 {
			for i := range 30 {
				if r, _ := ask(stores[i%gateways], limits, 10, 10); r != nil {
					admitted++
					r.Settle(10, 10)
				}
			}
			if round < 3 {
				if err := server.client().FlushAll(context.Background()).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if most := 11 + int(time.Since(start).Seconds()); admitted < 10 || admitted > most {
			t.Errorf("%d gateways: %d admitted, at most %d", gateways, admitted, most)
		}
		eventually(t, "the month keeps what was used", func() bool {
			b, err := server.book()
			return err == nil && b.V[7] == float64(20*admitted)
		})
		server.client().FlushAll(context.Background())
	}
}

// One slow answer leaves the buckets of others full.
func TestSlowCallEmptiesNoBucket(t *testing.T) {
	server := startServer(t)
	cfg := config(t, server.url())
	cfg.DecisionLimit, cfg.SyncInterval = 25*time.Millisecond, 20*time.Millisecond
	s := openTest(t, cfg, nil)
	limits := budget.Limits{RequestsPerMinute: 6}
	first := func(tenant string) error {
		r, err := s.Reserve(context.Background(), budget.Ask{Tenant: tenant, Model: "m", Scopes: budget.OfTenant(limits), Input: 1, Output: 1})
		if r != nil {
			r.Settle(1, 1)
		}
		return err
	}
	if err := first("a"); err != nil {
		t.Fatal(err)
	}
	if err := server.client().Do(context.Background(), "CLIENT", "PAUSE", "60").Err(); err != nil {
		t.Fatal(err)
	}
	if err := first("b"); err != nil {
		t.Error(err)
	}
	time.Sleep(100 * time.Millisecond)
	for _, tenant := range []string{"c", "d", "e"} {
		if err := first(tenant); err != nil {
			t.Errorf("%s, who had used nothing: %v", tenant, err)
		}
	}
	for _, tenant := range []string{"a", "b"} {
		if err := first(tenant); err == nil {
			t.Errorf("%s was admitted again", tenant)
		}
	}
}

// A key of another type is replaced, and the log names it.
func TestKeysOfAWrongTypeAreReplaced(t *testing.T) {
	server := startServer(t)
	c, ctx := server.client(), context.Background()
	var log syncBuffer
	cfg := config(t, server.url())
	cfg.BreakerErrors = 1
	key := bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: budget.KindTenant})
	c.LPush(ctx, key, "what", "is", "this")
	c.Set(ctx, "forebay:gateways", "x", 0)
	s, err := Open(cfg, slog.New(slog.NewTextHandler(&log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if r, refusal := ask(s, budget.Limits{Concurrency: 1}, 1, 1); refusal != nil || r.Degraded() {
		t.Fatal(refusal)
	}
	if text := log.String(); !strings.Contains(text, key) {
		t.Errorf("log: %q", text)
	}
	eventually(t, "gateways are counted", func() bool { s.beat(false); return s.living() == 1 && !s.Degraded() })
}

// syncBuffer is a buffer for a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// The windows of Redis are those of this process.
func TestHourAndMonthOfRedis(t *testing.T) {
	for _, at := range []time.Time{
		time.Date(2026, 1, 31, 23, 30, 0, 0, time.UTC), time.Date(2024, 2, 29, 23, 59, 0, 0, time.UTC),
		time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC), time.Date(2100, 2, 28, 12, 0, 0, 0, time.UTC),
	} {
		m, url := mini(t)
		m.SetTime(at)
		s := openTest(t, config(t, url), func() time.Time { return at })
		limits := budget.Limits{TokensPerHour: 20, TokensPerMonth: 1000}
		first, refusal := ask(s, limits, 10, 10)
		if refusal != nil {
			t.Fatal(refusal)
		}
		first.Settle(10, 10)
		_, refusal = ask(s, limits, 1, 1)
		if refusal == nil || refusal.Rule != budget.Hour || refusal.RetryAfter > time.Hour {
			t.Fatalf("%v: %v", at, refusal)
		}
		if refusal.States[budget.Month].Limit != 1000 {
			t.Errorf("%+v", refusal.States)
		}
		k := bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: budget.KindTenant})
		text, _ := m.Get(k)
		b := readBook(t, text)
		for rule := range budget.RuleCount {
			if got, want := b.P[rule], budget.Window(rule, at); got != want {
				t.Errorf("%v: window %d of %s, want %d", at, got, rule, want)
			}
		}
	}
}
