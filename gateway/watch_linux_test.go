package gateway

import (
	"io"
	"testing"
	"time"
)

// TestClosedConnectionsAreForgotten: the watcher keeps nothing of a connection
// that has ended.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	r := simpleRig(t, hello)
	w := r.gw.watcher.(*epollWatcher)
	watched := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.conns)
	}
	for range 3 {
		c := r.dial()
		io.WriteString(c, rawPost("/v1/completions", textBody("")))
		if !eventually(3*time.Second, func() bool { return watched() == 1 }) {
			t.Errorf("%d connections watched while one is open", watched())
		}
		c.Close()
		if !eventually(3*time.Second, func() bool { return watched() == 0 }) {
			t.Fatalf("%d connections watched though all are closed", watched())
		}
	}
}
