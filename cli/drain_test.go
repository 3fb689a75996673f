package cli

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDrain(t *testing.T) {
	t.Parallel()
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		p := serve(t, "--drain_limit", "10m")
		p.cmd.Process.Signal(syscall.SIGTERM)
		if status := p.exit(); status != 0 {
			t.Errorf("exit status %d", status)
		}
	})
	t.Run("idle keep-alive clients", func(t *testing.T) {
		t.Parallel()
		p := serve(t, "--drain_limit", "10m")
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		p.cmd.Process.Signal(syscall.SIGTERM)
		if status := p.exit(); status != 0 {
			t.Errorf("exit status %d", status)
		}
	})
	t.Run("stream ends within the limit", func(t *testing.T) {
		t.Parallel()
		p := serve(t, append(slow, "--drain_limit", "10m")...)
		engine := p.enginePid()
		s := p.stream(chatBody("Tell me a story.", map[string]any{"stream": true, "ignore_eos": true, "max_tokens": 300}))
		p.cmd.Process.Signal(syscall.SIGTERM)
		p.checkDraining()
		if a := <-s; !a.done || a.errors > 0 {
			t.Errorf("the running stream: done %v, %d errors", a.done, a.errors)
		}
		if status := p.exit(); status != 0 || alive(engine) {
			t.Errorf("exit status %d, engine alive: %v", status, alive(engine))
		}
	})
	t.Run("stream outlives the limit", func(t *testing.T) {
		t.Parallel()
		p := serve(t, append(slow, "--drain_limit", "200ms")...)
		s := p.stream(chatBody("Tell me a story.", long))
		p.cmd.Process.Signal(syscall.SIGTERM)
		if a := <-s; a.done || a.errors != 1 {
			t.Errorf("the cut stream: done %v, %d errors; want one error and no [DONE]", a.done, a.errors)
		}
		if status := p.exit(); status != 0 {
			t.Errorf("exit status %d", status)
		}
		for _, want := range []string{"reason=terminated requests=1", `msg="the drain limit is over: the remaining requests are cut" requests=1`} {
			if !strings.Contains(p.output(), want) {
				t.Errorf("the log has no %q", want)
			}
		}
	})
}

// checkDraining checks what newcomers see: refused with 503 and a closed
// connection, or not accepted any more.
func (p *process) checkDraining() {
	p.t.Helper()
	eventually(p.t, "it is not ready", func() bool { return p.status("/readyz") != http.StatusOK })
	response, err := p.post(p.t.Context(), chatBody("Hello!", nil))
	if err != nil {
		return
	}
	response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || !response.Close {
		p.t.Errorf("a new request while draining: status %d, close %v; want 503 and close", response.StatusCode, response.Close)
	}
}

// A second signal does not wait for anything.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := serve(t, append(slow, "--drain_limit", "10m")...)
	engine := p.enginePid()
	p.stream(chatBody("Tell me a story.", long))
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.checkDraining()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if status := p.exit(); status == 0 {
		t.Error("exit status 0, as if the stream had ended")
	}
	eventually(t, "the engine is gone", func() bool { return !alive(engine) })
	if left, _ := filepath.Glob(filepath.Join(p.runtimeDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The engine alone drains as well: its gateway's streams come to their end.
func TestEngineAloneDrains(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	engine := start(t, append([]string{"engine", "--socket", socket, "--drain_limit", "10m"}, slow...)...)
	p := start(t, "gateway", "--socket", socket)
	p.waitReady()
	s := p.stream(chatBody("Tell me a story.", map[string]any{"stream": true, "ignore_eos": true, "max_tokens": 300}))
	engine.cmd.Process.Signal(syscall.SIGTERM)
	if a := <-s; !a.done || a.errors > 0 {
		t.Errorf("the running stream: done %v, %d errors: %s", a.done, a.errors, a.raw)
	}
	if status := engine.exit(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is left behind")
	}
}
