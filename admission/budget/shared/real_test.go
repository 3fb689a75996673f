package shared

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay-io/forebay/admission/budget"
)

// server is a redis-server process of the test's own.
type server struct {
	t       *testing.T
	port    string
	process *exec.Cmd
}

// startServer skips the test where redis-server is not installed, unless
// FOREBAY_TEST_REQUIRE names redis.
func startServer(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ","), "redis") {
			t.Fatal("redis-server is required and not installed")
		}
		t.Skip("redis-server is not installed: what only a real one shows is NOT tested")
	}
	s := &server{t: t, port: freePort(t)}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) url() string { return "redis://127.0.0.1:" + s.port }

// start waits until the server says that it is one, and which.
func (s *server) start() {
	s.t.Helper()
	s.process = exec.Command("redis-server", "--port", s.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.t.TempDir())
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "redis-server answers", func() bool {
		info, err := s.client().Info(context.Background(), "server").Result()
		return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r", s.process.Process.Pid)) && strings.Contains(info, "redis_version:")
	})
}

func (s *server) kill() {
	s.process.Process.Kill()
	s.process.Wait()
}

func (s *server) client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + s.port})
	s.t.Cleanup(func() { c.Close() })
	return c
}

func (s *server) book() (book, error) {
	text, err := s.client().Get(context.Background(), bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: "tenant"})).Result()
	if err != nil {
		return book{}, err
	}
	return readBook(s.t, text), nil
}

func three(t *testing.T, cfg budget.Config) []*Store {
	skews := []time.Duration{0, 30 * time.Second, -30 * time.Second}
	var stores []*Store
	for _, skew := range skews {
		stores = append(stores, openTest(t, cfg, func() time.Time { return time.Now().Add(skew) }))
	}
	return stores
}

// 500 requests at once over three gateways, whose clocks differ by a minute.
func TestThreeGatewaysOneRedis(t *testing.T) {
	server := startServer(t)
	cfg := config(t, server.url())
	cfg.Burst = time.Minute
	stores := three(t, cfg)
	limits := budget.Limits{RequestsPerMinute: 200, OutputTokensPerMinute: 60000, Concurrency: 1000}
	start := time.Now()
	got := storm(stores, 500, limits, 10, 100, func(r *budget.Reservation) { r.Settle(10, 100) })
	came := int(200 * time.Since(start).Minutes())
	if most := 200 + came + 2; got < 200 || got > most {
		t.Errorf("%d admitted, want 200 to %d", got, most)
	}
}

// Places are never given twice, whatever happens at once.
func TestConcurrencyOverThreeGateways(t *testing.T) {
	server := startServer(t)
	cfg := config(t, server.url())
	cfg.SyncInterval = 10 * time.Millisecond
	stores := three(t, cfg)
	const places = 20
	var running, most, admitted atomic.Int64
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			for range 4 {
				r, _ := ask(stores[i%3], budget.Limits{Concurrency: places}, 10, 100)
				if r == nil {
					time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					continue
				}
				n := running.Add(1)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
				admitted.Add(1)
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
				running.Add(-1)
				r.Settle(10, 3)
			}
		})
	}
	all.Wait()
	if most.Load() > places || admitted.Load() < places {
		t.Errorf("%d at once, %d in all", most.Load(), admitted.Load())
	}
	eventually(t, "all places are free", func() bool { b, err := server.book(); return err == nil && b.V[3] == 0.0 })
}

// Redis is killed under load of many times the limit and comes back empty.
func TestRedisKilledAndRestarted(t *testing.T) {
	server := startServer(t)
	cfg := config(t, server.url())
	cfg.DecisionLimit, cfg.BreakerWait, cfg.SyncInterval = 100*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond
	cfg.Burst = time.Second
	stores := three(t, cfg)
	limits := budget.Limits{RequestsPerMinute: 6000, OutputTokensPerMinute: 60_000_000, Concurrency: 10000} // 100 a second
	var admitted, degraded atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				if r, _ := ask(stores[i%3], limits, 10, 100); r != nil {
					admitted.Add(1)
					if r.Degraded() {
						degraded.Add(1)
					}
					r.Settle(10, rand.IntN(150))
				}
			}
		})
	}
	start := time.Now()
	each := func(is bool) func() bool {
		return func() bool {
			return !slices.ContainsFunc(stores, func(s *Store) bool { return s.Degraded() != is })
		}
	}
	time.Sleep(500 * time.Millisecond)
	server.kill()
	eventually(t, "all notice", each(true))
	time.Sleep(500 * time.Millisecond)
	server.start()
	eventually(t, "all recover", each(false))
	time.Sleep(500 * time.Millisecond)
	close(stop)
	all.Wait()
	// One burst, what came by time, and a slice of each.
	if most := 100 + 100*time.Since(start).Seconds() + 60; float64(admitted.Load()) > most {
		t.Errorf("%d admitted, want at most %.0f", admitted.Load(), most)
	}
	t.Logf("%d admitted in %v, %d of them while Redis was away", admitted.Load(), time.Since(start), degraded.Load())
	if degraded.Load() == 0 || admitted.Load() < 100 {
		t.Errorf("%d admitted, %d while Redis was away", admitted.Load(), degraded.Load())
	}
	var reserved, ended int64
	for _, s := range stores {
		a := s.Audit()
		reserved, ended = reserved+a.Reserved, ended+a.Settled+a.Refunded
	}
	if reserved != admitted.Load() || ended != reserved {
		t.Errorf("%d admitted, %d reserved, %d ended", admitted.Load(), reserved, ended)
	}
	eventually(t, "all places are free", func() bool { b, err := server.book(); return err == nil && b.V[3] == 0.0 })
}

// FLUSHALL under running requests: they keep their places, and no number falls
// below zero.
func TestFlush(t *testing.T) {
	server := startServer(t)
	cfg := config(t, server.url())
	cfg.SyncInterval = 10 * time.Millisecond
	s := openTest(t, cfg, nil)
	limits := budget.Limits{Concurrency: 2, RequestsPerMinute: 60, TokensPerDay: 1000}
	first, _ := ask(s, limits, 100, 100)
	second, _ := ask(s, limits, 100, 100)
	if first == nil || second == nil {
		t.Fatal("not admitted")
	}
	if err := server.client().FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	first.Used(50) // has it told
	eventually(t, "the loss is noticed", func() bool { first.Used(1); return s.Audit().Lost == 1 })
	if _, refusal := ask(s, limits, 1, 1); refusal == nil {
		t.Error("a third was admitted beside two that run")
	}
	for _, r := range []*budget.Reservation{first, second} {
		r.Settle(100, 60)
		r.Settle(100, 60)
	}
	eventually(t, "places are free, and the day keeps what was used", func() bool {
		b, err := server.book()
		return err == nil && b.V[3] == 0.0 && b.V[4] == 320.0
	})
}

// The commands that docs/budgets.md lists are enough.
func TestACL(t *testing.T) {
	server := startServer(t)
	args := strings.Fields("ACL SETUSER forebay on >p%w ~forebay:* resetchannels +evalsha +eval +script|load +get +set +time +zadd +zrem +zremrangebyscore +zcard +pexpire")
	words := make([]any, len(args))
	for i, a := range args {
		words[i] = a
	}
	if err := server.client().Do(context.Background(), words...).Err(); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, config(t, "redis://forebay:p%25w@127.0.0.1:"+server.port), nil)
	r, refusal := ask(s, budget.Limits{RequestsPerMinute: 60}, 1, 1)
	if refusal != nil || r.Degraded() || s.Degraded() {
		t.Fatal(refusal)
	}
	r.Settle(1, 1)
	// A value that is not a book is replaced.
	server.client().Set(context.Background(), bookKey("forebay", budget.Key{Tenant: "u", Model: "m", Kind: "tenant"}), "{]", 0)
	if r, err := s.Reserve(context.Background(), budget.Ask{Tenant: "u", Model: "m", Scopes: budget.OfTenant(budget.Limits{Concurrency: 1})}); err != nil || r.Degraded() {
		t.Error(err)
	}
	if s.living() != 1 {
		t.Error("it is not counted as living")
	}
}
