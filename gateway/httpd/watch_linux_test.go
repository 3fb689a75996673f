package httpd

import (
	"testing"
	"time"
)

// TestClosedConnectionsAreForgotten: the watcher keeps nothing of a connection
// that has ended.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	s, _, address := serving(t, limits, func(r Request) { r.Answer(200, "text/plain", nil) })
	w := s.watcher.(*epollWatcher)
	watches := func(n int) bool {
		for range 300 {
			w.mu.Lock()
			watched := len(w.conns)
			w.mu.Unlock()
			if watched == n {
				return true
			}
			time.Sleep(10 * time.Millisecond)
		}
		return false
	}
	for range 3 {
		c, br := dial(t, address)
		head(t, c, br, get)
		if !watches(1) {
			t.Error("an open connection is not watched")
		}
		c.Close()
		if !watches(0) {
			t.Fatal("a closed connection is watched")
		}
	}
}
