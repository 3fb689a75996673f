package gateway

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/httpd"
)

// TestFailedHandshakesAreToldOnceASecond: each counts, and the log has one line a second of
// each reason, which says how many had none.
func TestFailedHandshakesAreToldOnceASecond(t *testing.T) {
	var log bytes.Buffer
	h := handshakes{log: slog.New(slog.NewTextHandler(&log, nil))}
	peer, now := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 5}, time.Unix(1000, 0)
	for i := range 12 {
		h.note(peer, httpd.HandshakeVersion, errors.New("too old"), now.Add(time.Duration(i)*100*time.Millisecond))
	}
	h.note(peer, httpd.HandshakeOurCert, errors.New("bad certificate"), now)
	var lines []string
	for line := range strings.Lines(log.String()) {
		_, told, _ := strings.Cut(strings.TrimSpace(line), " msg=")
		lines = append(lines, told)
	}
	const begin = `"a TLS handshake failed" client=10.0.0.7:5 reason=`
	want := []string{begin + `version error="too old" not_logged_before=0`, begin + `version error="too old" not_logged_before=9`, begin + `server_certificate_refused error="bad certificate" not_logged_before=0`}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	for _, c := range h.read() {
		if want := map[string]uint64{"version": 12, "server_certificate_refused": 1}[c.Reason]; c.Count != want {
			t.Errorf("%s: %d, want %d", c.Reason, c.Count, want)
		}
	}
}
