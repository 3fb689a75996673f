// Limits measures how many decisions of Envoy's rate limit service are made in a second, and
// how long each takes: by Forebay with budgets in its process, by Forebay with budgets in
// Redis, and by envoyproxy/ratelimit with the same redis-server, by turns in one run. The
// client is this process; the processor time of the servers says the same on a busy machine.
//
//	GOBIN=/tmp go install github.com/envoyproxy/ratelimit/src/service_cmd@latest
//	go build -o /tmp/forebay . && go run ./bench/limits /tmp/forebay /tmp/service_cmd
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/forebay-io/forebay/internal/ports"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const tenants = 16

// limit is that of each tenant in a minute: high, so that every answer is OK and costs as
// much as one that takes something.
const limit = 100_000_000

// service is one that is measured.
type service struct {
	name    string
	address string
	pid     int
	took    []time.Duration
	spent   time.Duration // processor time
	lasted  time.Duration
}

func main() {
	rounds := flag.Int("rounds", 3, "turns of each service")
	seconds := flag.Float64("seconds", 3, "length of a turn")
	asking := flag.Int("asking", 64, "questions at a time")
	conns := flag.Int("connections", 2, "connections, as of so many threads of Envoy")
	flag.Parse()
	if flag.NArg() < 1 || flag.NArg() > 2 {
		fmt.Fprintln(os.Stderr, "usage: limits [--rounds N] [--seconds S] [--asking N] [--connections N] FOREBAY_BINARY [RATELIMIT_BINARY]")
		os.Exit(2)
	}
	if err := run(*rounds, *asking, *conns, time.Duration(*seconds*float64(time.Second))); err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(1)
	}
}

func run(rounds, asking, conns int, length time.Duration) error {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	address := ports.MustAddress()
	_, port, _ := net.SplitHostPort(address)
	stop, _, err := start(nil, "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", dir)
	if err != nil {
		return err
	}
	defer stop()
	var all []*service
	for _, store := range []string{"", "redis://" + address} {
		s := &service{name: "Forebay, in the process", address: ports.MustAddress()}
		if store != "" {
			s.name = "Forebay, in Redis"
		}
		list := []string{}
		for i := range tenants {
			list = append(list, fmt.Sprintf("{name: t%d, keys: [k%d], limits: {requests_per_minute: %d}}", i, i, limit))
		}
		stop, pid, err := start(nil, flag.Arg(0), "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--envoy.listen", s.address,
			"--budget.store", store, "--log.level", "error", "--admission.tenants", "["+strings.Join(list, ", ")+"]")
		if err != nil {
			return err
		}
		defer stop()
		s.pid = pid
		all = append(all, s)
	}
	if flag.NArg() == 2 {
		s, stop, err := startRatelimit(dir, address)
		if err != nil {
			return err
		}
		defer stop()
		all = append(all, s)
	}
	for range rounds {
		for _, s := range all {
			if err := s.turn(asking, conns, length); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	fmt.Println("service                   decisions/s     p50       p99   processor time of a decision")
	for _, s := range all {
		slices.Sort(s.took)
		fmt.Printf("%-25s %11.0f %9v %9v %10v\n", s.name, float64(len(s.took))/s.lasted.Seconds(), s.took[len(s.took)/2].Round(time.Microsecond),
			s.took[len(s.took)*99/100].Round(time.Microsecond), (s.spent / time.Duration(len(s.took))).Round(100*time.Nanosecond))
	}
	return nil
}

// startRatelimit starts envoyproxy/ratelimit with the same limits.
func startRatelimit(dir, redis string) (*service, func(), error) {
	var text strings.Builder
	text.WriteString("domain: bench\ndescriptors:\n")
	for i := range tenants {
		fmt.Fprintf(&text, "- {key: tenant, value: t%d, rate_limit: {unit: minute, requests_per_unit: %d}}\n", i, limit)
	}
	config := filepath.Join(dir, "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(text.String()), 0o600); err != nil {
		return nil, nil, err
	}
	free, err := ports.Free(3)
	if err != nil {
		return nil, nil, err
	}
	stop, pid, err := start([]string{
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "RUNTIME_ROOT=" + dir, "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "DISABLE_STATS=true",
		"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + free[0], "PORT=" + free[1], "DEBUG_PORT=" + free[2], "LOG_LEVEL=error",
	}, flag.Arg(1))
	return &service{name: "envoyproxy/ratelimit", address: "127.0.0.1:" + free[0], pid: pid}, stop, err
}

func start(env []string, program string, args ...string) (stop func(), pid int, err error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	return func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }, cmd.Process.Pid, nil
}

// turn asks for a time. What is asked while the service starts does not count.
func (s *service) turn(asking, conns int, length time.Duration) (failed error) {
	clients := make([]rlsv3.RateLimitServiceClient, conns)
	for i := range clients {
		conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		clients[i] = rlsv3.NewRateLimitServiceClient(conn)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if _, err := clients[i].ShouldRateLimit(ctx, question(0), grpc.WaitForReady(true)); err != nil {
			return err
		}
	}
	spent, began := processorTime(s.pid), time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	var ended atomic.Bool
	for i := range asking {
		all.Go(func() {
			var took []time.Duration
			var wrong error
			for !ended.Load() && wrong == nil {
				at := time.Now()
				r, err := clients[i%conns].ShouldRateLimit(context.Background(), question(i%tenants))
				if wrong = err; err == nil && (r.GetOverallCode() != rlsv3.RateLimitResponse_OK || len(r.GetStatuses()) != 1 || r.GetStatuses()[0].GetCurrentLimit() == nil) {
					wrong = fmt.Errorf("the answer is %v", r)
				}
				took = append(took, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			s.took, failed = append(s.took, took...), cmp.Or(failed, wrong)
		})
	}
	time.Sleep(length)
	ended.Store(true)
	all.Wait()
	s.spent += processorTime(s.pid) - spent
	s.lasted += time.Since(began)
	return failed
}

func question(tenant int) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "bench", Descriptors: []*limitv3.RateLimitDescriptor{{
		Entries: []*limitv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: "t" + strconv.Itoa(tenant)}},
	}}}
}

// processorTime is what a process has used.
func processorTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	const hz = 100
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / hz
}
