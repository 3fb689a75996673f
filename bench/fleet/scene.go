package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/forebay-io/forebay/internal/ports"
)

// scene is the processes: one Redis, and for each way of placement a fleet of gateways with a
// paced engine each.
type scene struct {
	folder    string
	processes []*exec.Cmd
}

// fleet is the gateways of one way of placement.
type fleet struct {
	name     string
	urls     []string
	siblings bool
}

const startWait = 30 * time.Second

// start starts a process, whose words go to a file.
func (s *scene) start(name string, args ...string) error {
	log, err := os.Create(filepath.Join(s.folder, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(args[0], args[1:]...)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		return err
	}
	s.processes = append(s.processes, c)
	return nil
}

// stop ends everything, the last started first.
func (s *scene) stop() {
	for i := len(s.processes) - 1; i >= 0; i-- {
		c := s.processes[i]
		c.Process.Signal(syscall.SIGTERM)
		ended := make(chan struct{})
		go func() {
			c.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(3 * time.Second):
			c.Process.Kill()
			<-ended
		}
	}
}

// config is that of all gateways: requests wait and none is refused, so that placement alone
// makes the difference. Times are those of a slower world, like the engine's.
func (o *options) config() string {
	return fmt.Sprintf(`admission:
  running_sequences_max: 64
  waiting_requests_max: 100000
  waiting_tokens_max: 1000000000
  long_prefill: 1h
  wait_limit: 1h
  classes:
    - {name: interactive, first_token_goal: 1h, wait_limit: 1h, age_cap: %v, waiting_requests_max: 100000, waiting_bytes_max: 4294967296}
siblings:
  interval: 10ms
  gain_min: %v
  hop_cost: 1ms
  grain_tokens: %d
`, (10 * time.Second / time.Duration(o.speed)).String(), max(time.Millisecond, 20*time.Millisecond/time.Duration(o.speed)).String(), pageTokens)
}

// fleetOf starts n gateways; redis is empty for those that know nothing of each other.
func (s *scene) fleetOf(ctx context.Context, o *options, name, redis string) (*fleet, error) {
	f := &fleet{name: name, siblings: redis != ""}
	for i := range o.replicas {
		socket := filepath.Join(s.folder, fmt.Sprintf("%s%d.sock", name, i))
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		if err := s.start(fmt.Sprint("engine-", name, i), self, "--engine", socket, "--speed", fmt.Sprint(o.speed), "--pages", fmt.Sprint(o.pages)); err != nil {
			return nil, err
		}
		listen := ports.MustAddress()
		args := []string{o.binary, "gateway", "--socket", socket, "--config", filepath.Join(s.folder, "forebay.yaml"), "--listen", listen, "--admin", "off", "--log.level", "warn"}
		if redis != "" {
			args = append(args, "--siblings.store", redis, "--siblings.name", fmt.Sprint(name, i), "--siblings.listen", "127.0.0.1:0")
		}
		if err := s.start(fmt.Sprint("gateway-", name, i), args...); err != nil {
			return nil, err
		}
		f.urls = append(f.urls, "http://"+listen)
	}
	for i, url := range f.urls {
		if err := until(ctx, fmt.Sprintf("%s%d is ready", name, i), func() bool { return answers(url + "/readyz") }); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// redis starts a Redis and returns its URL.
func (s *scene) redis(ctx context.Context) (string, error) {
	address := ports.MustAddress()
	_, port, _ := net.SplitHostPort(address)
	if err := s.start("redis", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.folder); err != nil {
		return "", err
	}
	err := until(ctx, "Redis listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return "redis://" + address, err
}

func answers(url string) bool {
	response, err := http.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK
}

// until waits for a condition.
func until(ctx context.Context, what string, holds func() bool) error {
	for deadline := time.Now().Add(startWait); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v in vain until %s", startWait, what)
		}
		if ctx.Err() != nil {
			return errors.New("stopped before its end")
		}
	}
	return nil
}
