package shared

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/internal/ports"
)

// inTime is eventually for what several servers must agree on.
func inTime(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	free, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	return free[0]
}

// launch starts a redis-server with flags until the test ends.
func launch(t *testing.T, port string, flags ...string) *exec.Cmd {
	t.Helper()
	process := exec.Command("redis-server", append(flags, "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir())...)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Process.Kill(); process.Wait() })
	inTime(t, "redis-server answers at "+port, func() bool { return direct(t, port).Ping(context.Background()).Err() == nil })
	return process
}

func direct(t *testing.T, port string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

// launchCluster starts a cluster of three masters and as many replicas of the first.
func launchCluster(t *testing.T, replicas int) (ports []string, processes []*exec.Cmd) {
	t.Helper()
	ctx := context.Background()
	for range 3 + replicas {
		port := freePort(t)
		ports = append(ports, port)
		processes = append(processes, launch(t, port, "--cluster-enabled", "yes", "--cluster-node-timeout", "500", "--save", "", "--appendonly", "no",
			"--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"))
	}
	const slots = 16384
	for i, port := range ports[:3] {
		if err := direct(t, port).ClusterAddSlotsRange(ctx, i*slots/3, (i+1)*slots/3-1).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i, port := range ports {
		c := direct(t, port)
		if err := c.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.ClusterMeet(ctx, "127.0.0.1", ports[0]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	settled := func() bool {
		for _, port := range ports {
			text, err := direct(t, port).ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(text, "cluster_state:ok") || !strings.Contains(text, fmt.Sprint("cluster_known_nodes:", len(ports))) {
				return false
			}
		}
		return true
	}
	inTime(t, "the cluster is whole", settled)
	id, err := direct(t, ports[0]).ClusterMyID(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range ports[3:] {
		c := direct(t, port)
		inTime(t, "a server replicates the first", func() bool {
			c.ClusterReplicate(ctx, id)
			text, err := c.Info(ctx, "replication").Result()
			return err == nil && strings.Contains(text, "role:slave") && strings.Contains(text, "master_link_status:up")
		})
	}
	return ports, processes
}

// takeEach asks for one request of each of n tenants, and tells which were decided
// without Redis.
func takeEach(t *testing.T, s *Store, n int, limits budget.Limits) (admitted int, degraded map[string]bool) {
	t.Helper()
	degraded = map[string]bool{}
	for i := range n {
		tenant := fmt.Sprint("t", i)
		r, err := s.Reserve(context.Background(), budget.Ask{ID: "x", Tenant: tenant, Model: "m", Input: 1, Output: 1, Scopes: []budget.Scope{{Kind: budget.KindTenant, Name: tenant, Limits: limits}}})
		if err != nil {
			continue
		}
		admitted++
		degraded[tenant] = r.Degraded()
		r.Settle(1, 1)
	}
	return admitted, degraded
}

func count(m map[string]bool) (n int) {
	for _, yes := range m {
		if yes {
			n++
		}
	}
	return n
}

// Two gateways and a cluster of three masters: limits hold for tenants on every one.
// Then a master dies. Only its tenants are decided without Redis, none waits longer
// than the decision limit for each, and its replica takes over.
func TestCluster(t *testing.T) {
	startServer(t).kill() // skips where there is no redis-server
	t.Parallel()
	ports, processes := launchCluster(t, 1)
	for _, port := range ports { // the rights that docs/budgets.md names
		if err := direct(t, port).Do(context.Background(), "ACL", "SETUSER", "forebay", "on", ">pass", "~forebay:*", "resetchannels",
			"+evalsha", "+eval", "+script|load", "+get", "+set", "+time", "+zadd", "+zrem", "+zremrangebyscore", "+zcard", "+pexpire", "+cluster|slots").Err(); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config(t, "redis+cluster://forebay:pass@127.0.0.1:"+ports[1]+",127.0.0.1:"+ports[0])
	cfg.Burst, cfg.BreakerWait, cfg.SyncInterval, cfg.DecisionLimit = time.Minute, 100*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond
	a, b := openTest(t, cfg, nil), openTest(t, cfg, nil)
	inTime(t, "both gateways are known", func() bool { return a.living() == 2 && b.living() == 2 })
	const tenants = 30
	limits := budget.Limits{RequestsPerMinute: 10}
	total := 0
	for i := range 10 {
		for _, s := range []*Store{a, b} {
			n, degraded := takeEach(t, s, tenants, limits)
			total += n
			if count(degraded) > 0 {
				t.Errorf("round %d: %v were decided without Redis", i, degraded)
			}
		}
	}
	if most := tenants * (10 + 3); total < tenants*10 || total > most { // and what refilled meanwhile
		t.Errorf("%d admitted, want %d to %d", total, tenants*10, most)
	}
	all := func() int {
		n := 0
		for _, port := range ports[:3] {
			keys, err := direct(t, port).Keys(context.Background(), "forebay:budget:*").Result()
			if err != nil || len(keys) == 0 {
				t.Errorf("no budgets at %s: %v", port, err)
			}
			n += len(keys)
		}
		return n
	}()
	if all != tenants {
		t.Errorf("%d budgets in the cluster", all)
	}

	processes[0].Process.Kill()
	began := time.Now()
	wide := budget.Limits{RequestsPerMinute: 6000}
	_, degraded := takeEach(t, a, tenants, wide)
	if took, n := time.Since(began), count(degraded); n == 0 || n > tenants/2 || took > time.Duration(n+1)*(cfg.DecisionLimit+20*time.Millisecond) {
		t.Errorf("%d of %d tenants were decided without Redis, in %v", n, tenants, took)
	}
	inTime(t, "the replica has taken over", func() bool {
		n, degraded := takeEach(t, a, tenants, wide)
		return n == tenants && count(degraded) == 0
	})
}

// Three Sentinels: the gateway follows the master that they name.
func TestSentinelFailover(t *testing.T) {
	startServer(t).kill()
	t.Parallel()
	ctx := context.Background()
	master, replica := freePort(t), freePort(t)
	process := launch(t, master, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
	launch(t, replica, "--save", "", "--appendonly", "no", "--replicaof", "127.0.0.1 "+master)
	inTime(t, "the replica follows", func() bool {
		text, err := direct(t, replica).Info(ctx, "replication").Result()
		return err == nil && strings.Contains(text, "master_link_status:up")
	})
	var hosts []string
	for range 3 {
		port := freePort(t)
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 %s 2\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n", port, master)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sentinel := exec.Command("redis-server", file, "--sentinel")
		if err := sentinel.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sentinel.Process.Kill(); sentinel.Wait() })
		hosts = append(hosts, "127.0.0.1:"+port)
	}
	inTime(t, "the Sentinels know each other and the replica", func() bool {
		for _, host := range hosts {
			c := redis.NewSentinelClient(&redis.Options{Addr: host})
			known, err := c.Master(ctx, "main").Result()
			c.Close()
			if err != nil || known["num-other-sentinels"] != "2" || known["num-slaves"] != "1" {
				return false
			}
		}
		return true
	})
	cfg := config(t, "redis+sentinel://"+strings.Join(hosts, ",")+"/main")
	cfg.BreakerWait, cfg.SyncInterval, cfg.DecisionLimit = 100*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond
	s := openTest(t, cfg, nil)
	inTime(t, "the gateway is known", func() bool { return s.living() == 1 })
	if n, degraded := takeEach(t, s, 5, budget.Limits{RequestsPerMinute: 6000}); n != 5 || count(degraded) > 0 {
		t.Fatalf("%d of 5 admitted, without Redis: %v", n, degraded)
	}
	process.Process.Kill()
	inTime(t, "the gateway has noticed", s.Degraded)
	inTime(t, "the gateway follows the new master", func() bool {
		n, degraded := takeEach(t, s, 5, budget.Limits{RequestsPerMinute: 6000})
		return n == 5 && count(degraded) == 0 && !s.Degraded()
	})
	if n, err := direct(t, replica).Exists(ctx, "forebay:gateways").Result(); err != nil || n != 1 {
		t.Errorf("the new master does not know the gateway: %d, %v", n, err)
	}
}
