package shared

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// allFailed are the replies to calls that failed with err.
func allFailed(calls []*call, err error) []reply {
	replies := make([]reply, len(calls))
	for i := range replies {
		replies[i].err = err
	}
	return replies
}

// hung is a ledger that answers nothing until a call is given up.
type hung struct {
	calls    atomic.Int64
	patience atomic.Int64 // the longest that any call would wait
}

func (h *hung) wait(ctx context.Context) error {
	h.calls.Add(1)
	if deadline, ok := ctx.Deadline(); ok {
		h.patience.Store(max(h.patience.Load(), int64(time.Until(deadline))))
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hung) sync(ctx context.Context, calls []*call) []reply {
	return allFailed(calls, h.wait(ctx))
}

func (h *hung) alive(ctx context.Context, _ string, _ time.Duration, _ bool) (int, error) {
	return 0, h.wait(ctx)
}

func (h *hung) read(ctx context.Context, _ []string) ([]*stored, time.Time, error) {
	return nil, time.Time{}, h.wait(ctx)
}

func (h *hung) close() {}

// A Redis that hangs costs some requests the decision limit, and then none
// anything.
//
// Case C08.
func TestRedisHangs(t *testing.T) {
	h := &hung{}
	cfg := config(t, "redis://unused")
	cfg.DecisionLimit, cfg.BreakerWait = 5*time.Millisecond, time.Minute
	s := open(cfg, h, slog.New(slog.DiscardHandler), nil)
	defer s.Close()
	for range 2000 {
		r, refusal := ask(s, budget.Limits{RequestsPerMinute: 1_000_000}, 1, 1)
		if refusal != nil {
			t.Fatal(refusal)
		}
		r.Settle(1, 1)
	}
	if calls := h.calls.Load(); calls > int64(cfg.BreakerErrors) || time.Duration(h.patience.Load()) > cfg.DecisionLimit {
		t.Errorf("%d calls, of up to %v", calls, time.Duration(h.patience.Load()))
	}
	if !s.Degraded() {
		t.Error("not degraded")
	}
}

// However many ask at once, a server that accepts and says nothing gets no more
// connections than the pool has, and as many that it is still making.
//
// Case C08.
func TestConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var open atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Add(1)
			go io.Copy(io.Discard, c)
		}
	}()
	cfg := config(t, "redis://"+l.Addr().String())
	// No call is given up while we count: one that was may not have been seen to end.
	cfg.DecisionLimit, cfg.PoolSize, cfg.BreakerErrors = time.Second, 3, 1000
	s := openTest(t, cfg, nil)
	ctx, leave := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			s.Reserve(ctx, budget.Ask{Tenant: string(rune('A' + i)), Scopes: budget.OfTenant(budget.Limits{Concurrency: 1})})
		})
	}
	eventually(t, "they ask", func() bool { return open.Load() >= int64(cfg.PoolSize) })
	time.Sleep(200 * time.Millisecond) // for those that there must not be
	if n := open.Load(); n > 2*int64(cfg.PoolSize) {
		t.Errorf("%d connections", n)
	}
	leave()
	all.Wait()
}

// While Redis does not answer, a gateway has its part; what it used of it is
// charged afterwards, and the bucket is not full anew.
func TestLocalPart(t *testing.T) {
	m, url := mini(t)
	var moved atomic.Int64
	start := time.Now()
	clock := func() time.Time { return start.Add(time.Duration(moved.Load())) }
	cfg := config(t, url)
	cfg.SyncInterval, cfg.BreakerWait = 10*time.Millisecond, 10*time.Millisecond
	first, second := openTest(t, cfg, clock), openTest(t, cfg, clock)
	limits := budget.Limits{RequestsPerMinute: 600, Concurrency: 500, TokensPerDay: 1_000_000} // 10 a second, 100 at once
	for _, s := range []*Store{first, second} {
		r, _ := ask(s, limits, 10, 10)
		r.Settle(10, 10)
		eventually(t, "both are known", func() bool { return s.living() == 2 || s == first })
	}
	eventually(t, "both know it", func() bool { first.beat(false); return first.living() == 2 })
	m.SetError("LOADING the data set")
	eventually(t, "the first notices", func() bool { first.beat(false); return first.Degraded() })
	drain := func() (n int) {
		for range 1000 {
			if r, refusal := ask(first, limits, 10, 10); r != nil {
				n++
				r.Settle(10, 10)
			} else if refusal.Rule != budget.Requests {
				t.Fatal(refusal)
			}
		}
		return n
	}
	atOnce := drain()
	if atOnce < 45 || atOnce > 52 { // half of a bucket of 100, or so
		t.Errorf("%d at once", atOnce)
	}
	moved.Add(int64(2 * time.Second))
	if n := atOnce + drain(); n < 55 || n > 62 { // and half of 10 a second
		t.Errorf("%d at once and %d in all after two seconds", atOnce, n)
	}
	if r, _ := ask(first, limits, 10, 10); r != nil {
		t.Error("more was admitted")
	}
	m.SetError("")
	eventually(t, "it recovers", func() bool { return !first.Degraded() })
	moved.Add(int64(cfg.Lease / 3)) // what a gateway took with its last asks it keeps for so long
	eventually(t, "what was used is charged", func() bool {
		text, _ := m.Get(bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: "tenant"}))
		b := readBook(t, text)
		level, _ := b.V[0].(float64)
		return level < 52 && level > 40 && b.V[3] == 0.0 && b.V[4] == float64(first.Audit().Input+first.Audit().Output+20)
	})
}

// Case C07: open and closed; local is TestLocalPart.
func TestFailModes(t *testing.T) {
	for mode, want := range map[string]func(*budget.Reservation, *budget.Refusal) bool{
		"open": func(r *budget.Reservation, _ *budget.Refusal) bool { return r != nil && r.Degraded() },
		"closed": func(_ *budget.Reservation, refusal *budget.Refusal) bool {
			return refusal != nil && refusal.Rule == budget.Shared && refusal.RetryAfter > 0
		},
	} {
		cfg := config(t, "redis://unused")
		cfg.DecisionLimit, cfg.OnFailure = time.Millisecond, mode
		s := open(cfg, &hung{}, slog.New(slog.DiscardHandler), nil)
		for range 100 {
			if r, refusal := ask(s, budget.Limits{RequestsPerMinute: 6}, 1, 1); !want(r, refusal) {
				t.Errorf("%s: %v, %v", mode, r, refusal)
			}
		}
		s.Close()
	}
}

func TestBreaker(t *testing.T) {
	now := time.Now()
	var changes []bool
	b := breaker{errorsMax: 2, wait: time.Second, changed: func(open bool, _ error) { changes = append(changes, open) }}
	step := func(after time.Duration, want bool, r result) {
		t.Helper()
		now = now.Add(after)
		if got := b.try(now); got != want {
			t.Fatalf("try: %v, want %v", got, want)
		}
		if want {
			b.done(r, nil, now)
		}
	}
	step(0, true, failed)
	step(0, true, succeeded) // a failure alone opens nothing
	step(0, true, failed)
	step(0, true, failed)
	step(0, false, 0)
	step(time.Second, true, neither) // tells nothing, and the next may try
	step(0, true, failed)
	step(time.Second/2, false, 0)
	step(time.Second/2, true, succeeded)
	step(0, true, succeeded)
	if len(changes) != 2 || !changes[0] || changes[1] {
		t.Errorf("changes %v", changes)
	}
	b.errors = 2
	if !b.try(now.Add(time.Hour)) || b.try(now.Add(time.Hour)) {
		t.Error("one may try, and one alone")
	}
}

// Neither an error nor a log line has the password.
func TestSecretsStayIn(t *testing.T) {
	const secret = "hunter2"
	for _, url := range []string{"http://u:" + secret + "@h", "redis://u:" + secret + "%@h:1", "redis://:" + secret + "@h:x", secret} {
		if _, err := Open(config(t, url), slog.Default(), nil); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", url, err)
		}
	}
	var log bytes.Buffer
	cfg := config(t, "redis://u:"+secret+"@127.0.0.1:1")
	cfg.BreakerErrors = 1
	s, err := Open(cfg, slog.New(slog.NewTextHandler(&log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if text := log.String(); !strings.Contains(text, "Redis does not answer") || strings.Contains(text, secret) {
		t.Errorf("log: %q", text)
	}
}

// Books whose account this gateway has forgotten meanwhile go on.
func TestForgottenAccountGoesOn(t *testing.T) {
	m, url := mini(t)
	cfg := config(t, url)
	cfg.BucketsMax, cfg.SyncInterval = 16, 10*time.Millisecond
	s := openTest(t, cfg, nil)
	limits := budget.Limits{TokensPerDay: 1000, Concurrency: 5}
	for round := range 3 {
		r, refusal := ask(s, limits, 100, 100)
		if refusal != nil {
			t.Fatal(refusal)
		}
		r.Settle(100, 50)
		eventually(t, "it is settled and let go", func() bool {
			text, _ := m.Get(bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: "tenant"}))
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.active) == 0 && readBook(t, text).V[4] == float64(150*(round+1))
		})
		for i := range 40 {
			s.books.Close(s.books.Open(budget.Key{Tenant: "another", Model: string(rune('A' + i))}))
		}
	}
}

func TestKeysAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, pair := range [][2]string{{"a", "b"}, {"a:b", ""}, {"a", ":b"}, {"a}", "b"}, {"a%7D", "b"}, {"", "a:b"}} {
		key := bookKey("p", budget.Key{Tenant: pair[0], Model: pair[1], Kind: "tenant"})
		if seen[key] || strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 {
			t.Errorf("%q gives %q", pair, key)
		}
		seen[key] = true
	}
}

// Over any minute, three gateways that are all asked for more than the limit
// admit limit + burst + a hundredth.
//
// Case C24.
func TestAnyMinuteOverGateways(t *testing.T) {
	m, url := mini(t)
	var moved atomic.Int64
	start := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
	clock := func() time.Time { return start.Add(time.Duration(moved.Load())) }
	cfg := config(t, url)
	stores := []*Store{openTest(t, cfg, clock), openTest(t, cfg, clock), openTest(t, cfg, clock)}
	const limit, burst = 60_000, 10_000
	var at []time.Duration
	for n := 0; moved.Load() < int64(90*time.Second); n++ {
		for i := range 12 { // 2000 tokens a second, twice the limit
			if r, _ := ask(stores[(n+i)%3], budget.Limits{InputTokensPerMinute: limit}, 100, 1); r != nil {
				at = append(at, time.Duration(moved.Load()))
				if i%7 == 0 {
					r.Refund()
					at = at[:len(at)-1]
				} else {
					r.Settle(100, 1)
				}
			}
		}
		moved.Add(int64(600 * time.Millisecond))
		m.SetTime(clock())
	}
	most, first := 0, 0
	for i := range at {
		for at[i]-at[first] > time.Minute {
			first++
		}
		most = max(most, (i-first+1)*100)
	}
	if most > limit+burst+limit/100 || most < limit {
		t.Errorf("%d within 60 s", most)
	}
	if len(at)*100 < limit*3/2*97/100 {
		t.Errorf("%d in all: less than the limit", len(at)*100)
	}
}
