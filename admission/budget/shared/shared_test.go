package shared

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/internal/conf"
)

// config is the default configuration with a store, and time enough to decide
// on a machine that does other work as well.
func config(t *testing.T, store string) budget.Config {
	t.Helper()
	cfg := budget.Config{Store: store, DecisionLimit: 2 * time.Second}
	if err := conf.Complete("budget", &cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func openTest(t *testing.T, cfg budget.Config, clock func() time.Time) *Store {
	t.Helper()
	s, err := Open(cfg, slog.New(slog.DiscardHandler), clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// mini is a Redis in this process whose clock stands still unless moved.
func mini(t *testing.T) (*miniredis.Miniredis, string) {
	m := miniredis.RunT(t)
	m.SetTime(time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC))
	return m, "redis://" + m.Addr()
}

func ask(s budget.Store, limits budget.Limits, input, output int) (*budget.Reservation, *budget.Refusal) {
	r, err := s.Reserve(context.Background(), budget.Ask{Tenant: "t", Model: "m", Scopes: budget.OfTenant(limits), Input: input, Output: output})
	var refusal *budget.Refusal
	if err != nil && !errors.As(err, &refusal) {
		panic(err)
	}
	return r, refusal
}

// book is what Redis holds.
type book struct {
	V []any                     `json:"v"`
	P []int64                   `json:"p"`
	L map[string]map[string]any `json:"L"`
	E []float64                 `json:"e"`
}

func readBook(t *testing.T, text string) (b book) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return b
}

// eventually waits for what another goroutine does soon.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

// storm sends n asks from many goroutines over the stores and returns how many
// were admitted.
func storm(stores []*Store, n int, limits budget.Limits, input, output int, done func(*budget.Reservation)) int {
	var admitted atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if r, _ := ask(stores[i%len(stores)], limits, input, output); r != nil {
				admitted.Add(1)
				done(r)
			}
		})
	}
	all.Wait()
	return int(admitted.Load())
}

// Two gateways admit no more than one would.
//
// Case C01: a check and a reservation in one step of the store.
func TestTwoGatewaysOneLimit(t *testing.T) {
	for range 20 {
		_, url := mini(t)
		cfg := config(t, url)
		cfg.Burst = time.Minute
		stores := []*Store{openTest(t, cfg, nil), openTest(t, cfg, nil)}
		got := storm(stores, 400, budget.Limits{RequestsPerMinute: 100, InputTokensPerMinute: 10000}, 100, 10, func(r *budget.Reservation) { r.Settle(100, 1) })
		if got != 100 { // Redis's clock stands still: a full bucket, and nothing more
			t.Fatalf("%d admitted, want 100", got)
		}
	}
}

// The life of a key is that of what it says, not of the last look at it.
//
// Case C02.
func TestKeyLivesNoLongerThanTheWindow(t *testing.T) {
	m, url := mini(t)
	s := openTest(t, config(t, url), nil)
	now := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
	for i := range 240 {
		m.SetTime(now.Add(time.Duration(i) * time.Second))
		r, refusal := ask(s, budget.Limits{InputTokensPerMinute: 6000}, 50, 10)
		if refusal != nil {
			t.Fatalf("request %d: %v", i, refusal)
		}
		r.Settle(50, 10)
		if ttl := m.TTL(bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: "tenant"})); ttl <= 0 || ttl > time.Minute {
			t.Fatalf("the key lives for %v", ttl)
		}
	}
}

// What is charged in Redis is what was used, to the token, over all ends.
//
// Case C04.
func TestChargedIsUsed(t *testing.T) {
	m, url := mini(t)
	cfg := config(t, url)
	cfg.SyncInterval = 10 * time.Millisecond
	stores := []*Store{openTest(t, cfg, nil), openTest(t, cfg, nil), openTest(t, cfg, nil)}
	limits := budget.Limits{Concurrency: 400, OutputTokensPerMinute: 100_000_000, TokensPerDay: 100_000_000}
	var random [300]int
	for i := range random {
		random[i] = rand.IntN(400)
	}
	var n atomic.Int64
	storm(stores, len(random), limits, 100, 200, func(r *budget.Reservation) {
		used := random[n.Add(1)-1]
		r.Used(used / 2)
		if used%5 == 0 {
			r.Refund()
		}
		r.Settle(100, used)
		r.Settle(100, used)
	})
	var a budget.Audit
	sum := func() {
		a = budget.Audit{}
		for _, s := range stores {
			one := s.Audit()
			a.Reserved, a.Settled, a.Refunded = a.Reserved+one.Reserved, a.Settled+one.Settled, a.Refunded+one.Refunded
			a.Input, a.Output, a.Fallback = a.Input+one.Input, a.Output+one.Output, a.Fallback+one.Fallback
		}
	}
	sum()
	if a.Reserved != 300 || a.Reserved != a.Settled+a.Refunded || a.Fallback != 0 {
		t.Errorf("audit %+v", a)
	}
	want := float64(a.Input + a.Output)
	eventually(t, "all is given back but what was used", func() bool {
		text, _ := m.Get(bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: "tenant"}))
		b := readBook(t, text)
		return b.V[3] == 0.0 && b.V[4] == want
	})
}

// A burst finds the places that are free, although other gateways had bursts just before
// and have told nothing since.
func TestABurstFindsFreePlaces(t *testing.T) {
	_, url := mini(t)
	cfg := config(t, url)
	cfg.SyncInterval = time.Hour
	limits := budget.Limits{Concurrency: 400}
	for i := range 3 {
		s := openTest(t, cfg, nil)
		n := storm([]*Store{s}, 99, limits, 100, 10, func(*budget.Reservation) {})
		if r, _ := ask(s, limits, 100, 10); r != nil { // alone, so that a slice comes with it
			n++
		}
		if n != 100 {
			t.Errorf("%d of 100 were admitted at gateway %d, of 400 places that %d use", n, i, 100*i)
		}
	}
}

// A place that is freed on one gateway is there for another at once.
func TestPlaceIsFreed(t *testing.T) {
	_, url := mini(t)
	cfg := config(t, url)
	cfg.SyncInterval = 10 * time.Millisecond
	stores := []*Store{openTest(t, cfg, nil), openTest(t, cfg, nil)}
	for i := range 60 {
		var r *budget.Reservation
		eventually(t, "the place is free", func() bool { r, _ = ask(stores[i%2], budget.Limits{Concurrency: 1}, 10, 100); return r != nil })
		for _, s := range stores {
			if _, refusal := ask(s, budget.Limits{Concurrency: 1}, 10, 100); refusal == nil || refusal.Rule != budget.Concurrency {
				t.Fatalf("a second request got %v", refusal)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // the client's end takes nothing from Settle
		if _, err := stores[0].Reserve(ctx, budget.Ask{Tenant: "t", Model: "m", Scopes: budget.OfTenant(budget.Limits{Concurrency: 1})}); err == nil {
			t.Fatal("a third was admitted")
		}
		r.Settle(10, 5)
	}
}

// Clocks of gateways say nothing.
//
// Case C11.
func TestClocksOfGateways(t *testing.T) {
	run := func(skews ...time.Duration) int {
		m, url := mini(t)
		cfg := config(t, url)
		start := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
		var stores []*Store
		for _, skew := range skews {
			stores = append(stores, openTest(t, cfg, func() time.Time { return time.Now().Add(skew) }))
		}
		admitted := 0
		for i := range 1000 { // 10 s of 100 a second, at a limit of 50
			m.SetTime(start.Add(time.Duration(i) * 10 * time.Millisecond))
			if r, _ := ask(stores[i%len(stores)], budget.Limits{RequestsPerMinute: 3000}, 1, 1); r != nil {
				admitted++
				r.Settle(1, 1)
			}
		}
		return admitted
	}
	even, skewed := run(0, 0), run(30*time.Second, -30*time.Second)
	if even < 990 || even > 1000 || skewed < even*98/100 || skewed > even*102/100 {
		t.Errorf("%d admitted, %d with clocks that differ", even, skewed)
	}
}

// A gateway that dies gives back its places and what its answers had not used.
func TestDeadGatewayIsForgotten(t *testing.T) {
	m, url := mini(t)
	cfg := config(t, url)
	cfg.SyncInterval = 10 * time.Millisecond
	limits := budget.Limits{Concurrency: 3, OutputTokensPerMinute: 60000, TokensPerDay: 10000}
	dead := openTest(t, cfg, nil)
	for range 3 {
		r, refusal := ask(dead, limits, 100, 1000)
		if refusal != nil {
			t.Fatal(refusal)
		}
		r.Used(300)
	}
	eventually(t, "Redis knows how far the answers came", func() bool {
		text, _ := m.Get(bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: "tenant"}))
		for _, l := range readBook(t, text).L {
			if h, ok := l["h"].([]any); ok && h[2] == 2100.0 {
				return true
			}
		}
		return false
	})
	dead.mu.Lock() // from here on it is dead
	dead.active = map[*account]bool{}
	dead.mu.Unlock()
	s := openTest(t, cfg, nil)
	if _, refusal := ask(s, limits, 1, 1); refusal == nil || refusal.Rule != budget.Concurrency {
		t.Fatalf("got %v", refusal)
	}
	m.SetTime(time.Date(2026, 8, 1, 10, 0, 31, 0, time.UTC))
	r, refusal := ask(s, limits, 1, 1)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if got := r.States()[budget.Day].Remaining; got != 10000-3*400-2 {
		t.Errorf("%v tokens left of the day", got)
	}
	text, _ := m.Get(bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: "tenant"}))
	if e := readBook(t, text).E; e[0] != 1 || e[1] != 3 || e[2] != 2100 {
		t.Errorf("expired: %v", e)
	}
}

// In steady state Redis is off the path of requests.
func TestSliceNeedsNoRoundTrip(t *testing.T) {
	m, url := mini(t)
	s := openTest(t, config(t, url), nil)
	limits := budget.Limits{RequestsPerMinute: 60_000_000, InputTokensPerMinute: 600_000_000, OutputTokensPerMinute: 600_000_000, Concurrency: 1000, TokensPerDay: 1_000_000_000_000}
	r, _ := ask(s, limits, 10, 10)
	r.Settle(10, 10)
	before := m.CommandCount()
	const n = 10000
	for range n {
		r, refusal := ask(s, limits, 10, 10)
		if refusal != nil {
			t.Fatal(refusal)
		}
		r.Settle(10, 10)
	}
	if commands := m.CommandCount() - before; commands > n/50 {
		t.Errorf("%d requests took %d commands", n, commands)
	}
}

func BenchmarkSharedReserveSettle(b *testing.B) {
	m := miniredis.RunT(b)
	cfg := budget.Config{Store: "redis://" + m.Addr(), DecisionLimit: time.Second}
	conf.Complete("budget", &cfg)
	s, err := Open(cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	limits := budget.Limits{RequestsPerMinute: 1e9, InputTokensPerMinute: 1e9, OutputTokensPerMinute: 1e9, Concurrency: 1e6, TokensPerDay: 1e12}
	b.ReportAllocs()
	for b.Loop() {
		if r, _ := ask(s, limits, 1, 1); r != nil {
			r.Settle(1, 1)
		}
	}
}

// Cancels at any moment leave nothing behind, here or in Redis.
func TestRandomCancelsLeaveZero(t *testing.T) {
	m, url := mini(t)
	s := openTest(t, config(t, url), nil)
	limits := budget.Limits{Concurrency: 1_000_000, OutputTokensPerMinute: 1_000_000_000, TokensPerDay: 1_000_000_000_000}
	var all sync.WaitGroup
	for seed := range uint64(4) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, 7))
			for range 25000 {
				ctx, cancel := context.WithCancel(context.Background())
				if random.IntN(3) == 0 {
					cancel()
				}
				r, err := s.Reserve(ctx, budget.Ask{Tenant: "t", Model: "m", Scopes: budget.OfTenant(limits), Input: 10, Output: 100})
				cancel()
				if err != nil {
					continue
				}
				switch random.IntN(3) {
				case 0:
					r.Refund()
				case 1:
					r.Used(random.IntN(300))
				}
				r.Settle(0, 0)
			}
		})
	}
	all.Wait()
	if a := s.Audit(); a.Settled+a.Refunded != a.Reserved || a.Reserved < 60_000 || a.Fallback != 0 {
		t.Errorf("audit %+v", a)
	}
	eventually(t, "nothing is held", func() bool {
		text, _ := m.Get(bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: "tenant"}))
		b := readBook(t, text)
		return b.V[3] == 0.0 && b.V[4] == 0.0
	})
	b := s.books.Open(budget.Key{Tenant: "t", Model: "m", Kind: "tenant"})
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running != 0 || b.unspent != 0 {
		t.Errorf("%v running, %v unspent", b.running, b.unspent)
	}
}

// Waiting as a refusal says is enough, and those refused together are told
// different times.
func TestRetryAfter(t *testing.T) {
	m, url := mini(t)
	s := openTest(t, config(t, url), nil)
	limits := budget.Limits{RequestsPerMinute: 60}
	for range 10 {
		r, refusal := ask(s, limits, 1, 1)
		if refusal != nil {
			t.Fatal(refusal)
		}
		r.Settle(1, 1)
	}
	var waits []time.Duration
	for range 30 {
		_, refusal := ask(s, limits, 1, 1)
		if refusal == nil || refusal.Rule != budget.Requests || refusal.Limit != 60 {
			t.Fatalf("got %v", refusal)
		}
		waits = append(waits, refusal.RetryAfter)
	}
	if waits[0] != time.Second || waits[29] < 29*time.Second || waits[29] > 30*time.Second {
		t.Errorf("%v to %v", waits[0], waits[29])
	}
	m.SetTime(time.Date(2026, 8, 1, 10, 0, 1, 0, time.UTC))
	if _, refusal := ask(s, limits, 1, 1); refusal != nil {
		t.Error(refusal)
	}
}

// A request that one scope refuses takes nothing of the others.
func TestScopesAllOrNone(t *testing.T) {
	m, url := mini(t)
	cfg := config(t, url)
	cfg.SyncInterval = 10 * time.Millisecond
	s := openTest(t, cfg, nil)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			r, err := s.Reserve(context.Background(), budget.Ask{Tenant: "t", Model: "m", Input: 10, Output: 10, Scopes: []budget.Scope{
				{Kind: "tenant", Limits: budget.Limits{TokensPerDay: 10_000, Concurrency: 100}},
				{Kind: "key", Name: "a", Limits: budget.Limits{TokensPerDay: 200}},
			}})
			if err != nil {
				return
			}
			admitted.Add(1)
			r.Settle(10, 10)
		})
	}
	all.Wait()
	if got := admitted.Load(); got != 10 {
		t.Errorf("%d admitted of the 10 that the key may", got)
	}
	for _, k := range []budget.Key{{Tenant: "t", Model: "m", Kind: "tenant"}, {Tenant: "t", Model: "m", Kind: "key", Name: "a"}} {
		eventually(t, "both are charged for those alone", func() bool {
			text, _ := m.Get(bookKey("forebay", k))
			b := readBook(t, text)
			return b.V[4] == 200.0 && b.V[3] == 0.0
		})
	}
	if a := s.Audit(); a.Reserved != 10 || a.Settled != 10 || a.Refused != 40 {
		t.Errorf("%+v", a)
	}
}
