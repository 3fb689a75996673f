package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/forebay-io/forebay/internal/ports"
	"github.com/redis/go-redis/v9"
)

// scene is the processes of a storm.
type scene struct {
	folder   string
	redis    [2]*server // a master and its replica, in any order
	sentinel *server
	watch    *redis.SentinelClient
	gateways []*gateway
}

// server is a process that listens on a port.
type server struct {
	port string
	args []string
	cmd  *exec.Cmd
}

// gateway is a `forebay serve`.
type gateway struct {
	server
	api, admin, usage string
	told              int // tenants that have sent their last request
}

const (
	masterName = "storm"
	// downAfter is the silence after which the Sentinel counts a Redis as lost.
	downAfter = 1500 * time.Millisecond
	startWait = 60 * time.Second
)

// start begins everything, and returns when all is ready.
func (s *scene) start(ctx context.Context, o *options) error {
	free, err := ports.Free(3 + 2*o.gateways)
	if err != nil {
		return err
	}
	for i := range s.redis {
		s.redis[i] = &server{port: free[i], args: []string{"redis-server", "--port", free[i], "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.folder, "--repl-diskless-sync-delay", "0"}}
	}
	s.redis[1].args = append(s.redis[1].args, "--replicaof", "127.0.0.1 "+free[0])
	file := filepath.Join(s.folder, "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %s 1\nsentinel down-after-milliseconds %s %d\nsentinel failover-timeout %s 3000\n",
		free[2], s.folder, masterName, free[0], masterName, downAfter.Milliseconds(), masterName)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	s.sentinel = &server{port: free[2], args: []string{"redis-server", file, "--sentinel"}}
	for _, r := range []*server{s.redis[0], s.redis[1], s.sentinel} {
		if err := errors.Join(r.begin(nil), r.answers(ctx)); err != nil {
			return err
		}
	}
	s.watch = redis.NewSentinelClient(&redis.Options{Addr: "127.0.0.1:" + s.sentinel.port})
	if err := s.replicated(ctx); err != nil {
		return err
	}
	if err := s.writeConfig(); err != nil {
		return err
	}
	for i := range o.gateways {
		if err := s.startGateway(ctx, o.binary, free[3+2*i], free[4+2*i]); err != nil {
			return err
		}
	}
	return nil
}

// quota is the month's tokens of a tenant: no storm uses them up, and what is missing
// of them was charged.
const quota = 1_000_000_000_000

// tenants are the storm's, by their keys: one with room, one at its limits, and one
// without any.
var tenants = []string{"roomy", "tight", "free"}

func (s *scene) writeConfig() error {
	return os.WriteFile(filepath.Join(s.folder, "forebay.yaml"), fmt.Appendf(nil, `budget:
  store: redis+sentinel://127.0.0.1:%s/%s
admission:
  running_sequences_max: 8
  tenants:
    - {name: roomy, keys: [roomy], limits: {tokens_per_month: %d, concurrency: 1000}}
    - {name: tight, keys: [tight], limits: {tokens_per_month: %d, concurrency: 6, requests_per_minute: 240, output_tokens_per_minute: 20000}}
    - {name: free, keys: [free]}
`, s.sentinel.port, masterName, quota, quota), 0o600)
}

func (s *scene) startGateway(ctx context.Context, binary, api, admin string) error {
	g := &gateway{api: "http://127.0.0.1:" + api, admin: "http://127.0.0.1:" + admin, usage: filepath.Join(s.folder, "usage-"+api+".jsonl")}
	g.args = []string{binary, "serve", "--config", filepath.Join(s.folder, "forebay.yaml"), "--listen", "127.0.0.1:" + api, "--admin", "127.0.0.1:" + admin, "--usage.file", g.usage}
	log, err := os.Create(filepath.Join(s.folder, "log-"+api))
	if err != nil {
		return err
	}
	defer log.Close()
	s.gateways = append(s.gateways, g)
	if err := g.begin(log); err != nil {
		return err
	}
	return until(ctx, "forebay is ready", func() bool {
		response, err := http.Get(g.api + "/readyz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// begin starts the process; output is nil for none.
func (s *server) begin(output *os.File) error {
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	if output != nil {
		s.cmd.Stdout, s.cmd.Stderr = output, output
	}
	return s.cmd.Start()
}

// answers waits for a Redis or a Sentinel.
func (s *server) answers(ctx context.Context) error {
	c := s.client()
	defer c.Close()
	return until(ctx, s.args[0]+" answers", func() bool { return c.Ping(ctx).Err() == nil })
}

func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + s.port, MaxRetries: -1, ReadTimeout: 5 * time.Second})
}

// end stops the process by a signal, and waits for it.
func (s *server) end(signal syscall.Signal) {
	if s != nil && s.cmd != nil && s.cmd.Process != nil {
		s.cmd.Process.Signal(syscall.SIGCONT)
		s.cmd.Process.Signal(signal)
		s.cmd.Wait()
	}
}

func (s *scene) stop() {
	for _, g := range s.gateways {
		g.end(syscall.SIGTERM)
	}
	if s.watch != nil {
		s.watch.Close()
	}
	for _, r := range []*server{s.sentinel, s.redis[0], s.redis[1]} {
		r.end(syscall.SIGKILL)
	}
}

// master is the Redis that the Sentinel names.
func (s *scene) master(ctx context.Context) (*server, error) {
	address, err := s.watch.GetMasterAddrByName(ctx, masterName).Result()
	if err != nil {
		return nil, err
	}
	for _, r := range s.redis {
		if r.port == address[1] {
			return r, nil
		}
	}
	return nil, fmt.Errorf("the Sentinel names %v", address)
}

// replicated waits until the master that the Sentinel names has a replica that the
// Sentinel knows, so that a failover is possible.
func (s *scene) replicated(ctx context.Context) error {
	return until(ctx, "the replica is in step", func() bool {
		m, err := s.master(ctx)
		if err != nil {
			return false
		}
		c := m.client()
		defer c.Close()
		info, err := c.Info(ctx, "replication").Result()
		known, err2 := s.watch.Replicas(ctx, masterName).Result()
		return err == nil && err2 == nil && len(known) > 0 && strings.Contains(info, "role:master") && strings.Contains(info, "state=online")
	})
}

// engine is the process of the gateway's engine.
func (g *gateway) engine() (int, error) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", g.cmd.Process.Pid))
	for _, name := range files {
		text, _ := os.ReadFile(name)
		for _, field := range strings.Fields(string(text)) {
			return strconv.Atoi(field)
		}
	}
	return 0, fmt.Errorf("the gateway at %s has no engine", g.api)
}

// until waits for a condition.
func until(ctx context.Context, what string, holds func() bool) error {
	for deadline := time.Now().Add(startWait); !holds(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v in vain until %s", startWait, what)
		}
		if !pause(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// pause reports false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
