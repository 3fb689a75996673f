// Package storetest runs a real redis-server for tests, and a proxy before it that
// is slow, silent or cut on demand.
package storetest

import (
	"context"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/ports"
	"github.com/redis/go-redis/v9"
)

// Server is a redis-server process of a test's own.
type Server struct {
	t       testing.TB
	Address string
	flags   []string
	process *exec.Cmd
}

// Start skips the test where redis-server is not installed, unless required, the list
// in FOREBAY_TEST_REQUIRE, names redis.
func Start(t testing.TB, required string, flags ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if slices.Contains(strings.Split(required, ","), "redis") {
			t.Fatal("redis-server is required and not installed")
		}
		t.Skip("redis-server is not installed: what only a real one shows is NOT tested")
	}
	s := &Server{t: t, Address: ports.MustAddress(), flags: flags}
	s.Run()
	t.Cleanup(s.Kill)
	return s
}

// Run starts the process again after Kill.
func (s *Server) Run() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Address)
	s.process = exec.Command("redis-server", append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.t.TempDir()}, s.flags...)...)
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	Eventually(s.t, "redis-server answers", func() bool { return s.Client().Ping(context.Background()).Err() == nil })
}

// Kill ends the process at once.
func (s *Server) Kill() {
	s.process.Process.Kill()
	s.process.Wait()
}

// Client is a client of the server, closed when the test ends.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Address, MaxRetries: -1})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// Eventually waits until is holds, and fails the test if it does not within 10 s.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

// Proxy passes connections on to a server.
type Proxy struct {
	Address string
	// Delay holds up each answer for so many nanoseconds; Silent swallows answers.
	Delay  atomic.Int64
	Silent atomic.Bool

	server string
	ln     net.Listener
	mu     sync.Mutex
	conns  map[net.Conn]bool // guarded by mu
}

// NewProxy listens until the test ends.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: ln.Addr().String(), server: server, ln: ln, conns: map[net.Conn]bool{}}
	go p.accept()
	t.Cleanup(func() { ln.Close(); p.Cut() })
	return p
}

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", p.server)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[up] = true, true
		p.mu.Unlock()
		go func() {
			io.Copy(up, c)
			up.Close()
		}()
		go p.answer(c, up)
	}
}

func (p *Proxy) answer(c, up net.Conn) {
	defer c.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		time.Sleep(time.Duration(p.Delay.Load()))
		if err != nil {
			return
		}
		if p.Silent.Load() {
			continue
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}
