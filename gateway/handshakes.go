package gateway

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/gateway/telemetry"
)

// handshakes counts and logs the connections with which TLS could not begin. They have no
// request yet, and so no record.
type handshakes struct {
	log *slog.Logger

	mu     sync.Mutex // guards all below
	counts [httpd.HandshakeCount]uint64
	logged [httpd.HandshakeCount]time.Time
	silent [httpd.HandshakeCount]uint64 // those since then
}

// handshakeLogEvery is the shortest time between two log lines of one reason, so that a
// client that tries again and again does not fill the log.
const handshakeLogEvery = time.Second

// failed is httpd.Config.HandshakeFailed.
func (h *handshakes) failed(peer net.Addr, why httpd.Handshake, err error) {
	h.note(peer, why, err, time.Now())
}

func (h *handshakes) note(peer net.Addr, why httpd.Handshake, err error, now time.Time) {
	h.mu.Lock()
	h.counts[why]++
	silent, tell := h.silent[why], now.Sub(h.logged[why]) >= handshakeLogEvery
	if tell {
		h.silent[why], h.logged[why] = 0, now
	} else {
		h.silent[why]++
	}
	h.mu.Unlock()
	if tell {
		h.log.Warn("a TLS handshake failed", "client", peer.String(), "reason", why.String(), "error", err, "not_logged_before", silent)
	}
}

// read is for telemetry.Recorder.CountHandshakes.
func (h *handshakes) read() []telemetry.ReasonCount {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]telemetry.ReasonCount, 0, len(h.counts))
	for why, n := range h.counts {
		all = append(all, telemetry.ReasonCount{Reason: httpd.Handshake(why).String(), Count: n})
	}
	return all
}
