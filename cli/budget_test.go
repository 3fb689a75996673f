package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// redisServer is a redis-server process of the test's own.
type redisServer struct {
	t    *testing.T
	port string
	cmd  *exec.Cmd
}

// startRedis skips the test where redis-server is not installed, unless
// FOREBAY_TEST_REQUIRE names redis.
func startRedis(t *testing.T) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ","), "redis") {
			t.Fatal("redis-server is required and not installed")
		}
		t.Skip("redis-server is not installed: budgets over several gateways are NOT tested")
	}
	r := &redisServer{t: t, port: freePorts(t, 1)[0]}
	r.start()
	t.Cleanup(r.kill)
	return r
}

func (r *redisServer) start() {
	r.t.Helper()
	r.cmd = exec.Command("redis-server", "--port", r.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", r.t.TempDir())
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "redis-server says that it is one", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+r.port)
		if err != nil {
			return false
		}
		defer c.Close()
		fmt.Fprint(c, "INFO server\r\nQUIT\r\n")
		info, _ := io.ReadAll(c)
		return strings.Contains(string(info), fmt.Sprintf("process_id:%d\r", r.cmd.Process.Pid))
	})
}

func (r *redisServer) kill() {
	r.cmd.Process.Signal(syscall.SIGKILL)
	r.cmd.Wait()
}

// sharing writes the configuration of gateways that share a tenant's limits.
func sharing(t *testing.T, r *redisServer, limits string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "forebay.yaml")
	// On a busy machine Redis may seem slow, and then each gateway decides by itself.
	text := fmt.Sprintf("budget:\n  store: redis://127.0.0.1:%s\n  decision_limit: 5s\nadmission:\n  tenants:\n    - name: acme\n      keys: [\"*\"]\n      limits: %s\n", r.port, limits)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// tally counts the answers to many requests at once.
type tally struct {
	sync.Mutex
	admitted, refused int
	others            []string
}

func (c *tally) add(a answer) {
	c.Lock()
	defer c.Unlock()
	switch wait, _ := strconv.Atoi(a.retryAfter); {
	case a.status == http.StatusOK && a.done:
		c.admitted++
	case a.status == http.StatusTooManyRequests && wait >= 1:
		c.refused++
	default:
		c.others = append(c.others, fmt.Sprint(a.status, a.retryAfter, a.raw))
	}
}

// storm sends n requests at once, spread over the gateways.
func storm(gateways []*process, n int, c *tally) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			c.add(gateways[i%len(gateways)].ask(chatBody("hi", map[string]any{"max_tokens": 1})))
		})
	}
	all.Wait()
}

// TestThreeGatewaysOneBudget has three whole Forebays on one redis-server and
// 500 requests at once of a tenant at its limit: what is admitted is the limit's,
// and all of it.
func TestThreeGatewaysOneBudget(t *testing.T) {
	const perMinute, burst = 600, 100 // ten seconds' worth
	r := startRedis(t)
	file := sharing(t, r, fmt.Sprintf("{requests_per_minute: %d}", perMinute))
	var gateways []*process
	for range 3 {
		gateways = append(gateways, serve(t, "--config", file))
	}
	eventually(t, "all gateways share the budget", func() bool {
		return !slices.ContainsFunc(gateways, func(p *process) bool { return p.metrics()["forebay_budget_degraded"] != "0" })
	})
	var c tally
	began := time.Now()
	storm(gateways, 500, &c)
	allowed := burst + perMinute*time.Since(began).Minutes()
	t.Logf("%d admitted, %d refused in %v; %.1f are allowed", c.admitted, c.refused, time.Since(began), allowed)
	if len(c.others) > 0 {
		t.Fatalf("%d other answers, one is %s", len(c.others), c.others[0])
	}
	if float64(c.admitted) > 1.01*allowed+1 {
		t.Errorf("%d were admitted, %.1f are allowed", c.admitted, allowed)
	}
	if c.admitted < burst*3/4 {
		t.Errorf("only %d of a burst of %d were admitted", c.admitted, burst)
	}
}

// TestRedisKilledUnderLoad: while Redis is gone, each gateway keeps to its
// part of the limit and says that it is on its own; when Redis is back, they
// share again, and nothing was admitted twice.
//
// Case C07.
func TestRedisKilledUnderLoad(t *testing.T) {
	const perMinute, burst = 600, 100
	r := startRedis(t)
	file := sharing(t, r, fmt.Sprintf("{requests_per_minute: %d, concurrency: 200}", perMinute))
	var gateways []*process
	for range 3 {
		gateways = append(gateways, serve(t, "--config", file))
	}
	degraded := func(want string) func() bool {
		return func() bool {
			return !slices.ContainsFunc(gateways, func(p *process) bool { return p.metrics()["forebay_budget_degraded"] != want })
		}
	}
	eventually(t, "all gateways share the budget", degraded("0"))
	var c tally
	began := time.Now()
	storm(gateways, 100, &c)
	if c.admitted < burst*3/4 {
		t.Errorf("only %d of a burst of %d were admitted", c.admitted, burst)
	}
	r.kill()
	storm(gateways, 300, &c)
	eventually(t, "they say that they are on their own", degraded("1"))
	storm(gateways, 100, &c)
	r.start()
	eventually(t, "they share again", degraded("0"))
	storm(gateways, 100, &c)
	took := time.Since(began)
	// What a gateway had leased when Redis died is spent at most once more.
	allowed := 2*burst + perMinute*took.Minutes()
	t.Logf("%d admitted, %d refused in %v; %.1f are allowed", c.admitted, c.refused, took, allowed)
	if len(c.others) > 0 {
		t.Fatalf("%d other answers, one is %s", len(c.others), c.others[0])
	}
	if float64(c.admitted) > allowed {
		t.Errorf("%d were admitted, %.1f are allowed", c.admitted, allowed)
	}
	for _, p := range gateways {
		eventually(t, "nothing runs any more", func() bool { return p.metrics()["forebay_requests_running"] == "0" })
		if a := p.ask(chatBody("hi", map[string]any{"max_tokens": 1})); a.status != http.StatusOK && a.status != http.StatusTooManyRequests {
			t.Errorf("after all it answers %d: %s", a.status, a.raw)
		}
	}
}
