package gateway

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// largeText is more than the socket buffers of both sides hold.
var largeText = strings.Repeat("0123456789abcdef", 1<<20)

func TestPlainAnswersThatStallAreRecorded(t *testing.T) {
	cfg := rigConfig{fake: scripted(wiretest.Script{Pieces: []string{largeText}}), gateway: Config{Timeouts: TimeoutConfig{WriteStallLimit: 150 * time.Millisecond}}}
	r := newRig(t, cfg)
	c := r.dial()
	defer c.Close()
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody("")))
	if !eventually(10*time.Second, func() bool { return len(r.recorder.Last(1)) == 1 }) {
		t.Fatal("no record")
	}
	rec := r.recorder.Last(1)[0]
	if rec.Outcome != telemetry.WriteStall || rec.Status != 499 || rec.FirstWrite != 0 || rec.BytesOut >= int64(len(largeText)) {
		t.Errorf("%v, status %d, first write %d, %d bytes", rec.Outcome, rec.Status, rec.FirstWrite, rec.BytesOut)
	}
}

// TestSteadyReadersAreNotStalled reads one large write for longer than the
// stall limit.
func TestSteadyReadersAreNotStalled(t *testing.T) {
	cfg := rigConfig{fake: scripted(wiretest.Script{Pieces: []string{largeText}}), gateway: Config{Timeouts: TimeoutConfig{WriteStallLimit: time.Second}}}
	for name, fields := range map[string]string{"plain": "", "stream": `"stream":true`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, cfg)
			c := r.dial()
			defer c.Close()
			c.(*net.TCPConn).SetReadBuffer(64 << 10)
			io.WriteString(c, rawPost("/v1/chat/completions", chatBody(fields), "Connection: close"))
			total, buf := 0, make([]byte, 1<<20)
			for err := error(nil); err == nil; time.Sleep(100 * time.Millisecond) {
				var n int
				n, err = io.ReadFull(c, buf)
				total += n
			}
			r.settled()
			if o := r.lastOutcome(); o != "ok" || total < len(largeText) {
				t.Errorf("%s after %d bytes", o, total)
			}
		})
	}
}

func TestPlainAnswersAreBounded(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(wiretest.Script{Endless: true}), gateway: Config{Limits: LimitsConfig{AnswerBytesMax: 1024}}})
	resp := r.chat(`"n":2`)
	if code, _ := errorOf(t, resp.body); resp.status != 400 || code != "request_cannot_fit" || !strings.Contains(resp.body, "stream it") {
		t.Errorf("%d %s", resp.status, resp.body)
	}
	if resp := r.chat(`"max_tokens":2,"logprobs":true,"top_logprobs":20`); resp.status != 400 {
		t.Errorf("log-probabilities: %d %s", resp.status, resp.body)
	}
	if resp := r.chat(`"max_tokens":2`); resp.status != 200 {
		t.Errorf("small: %d %s", resp.status, resp.body)
	}
	r.settled()
	for _, rec := range r.fake.Records()[:2] {
		if !rec.Canceled && !rec.Ended {
			t.Errorf("the engine goes on: %+v", rec)
		}
	}
}

func TestHTTP10KeepsPlainConnections(t *testing.T) {
	r := simpleRig(t, hello)
	one := strings.Replace(rawPost("/v1/completions", textBody(""), "Connection: keep-alive"), "HTTP/1.1", "HTTP/1.0", 1)
	got := r.raw(one + strings.Replace(rawPost("/v1/completions", textBody("")), "HTTP/1.1", "HTTP/1.0", 1))
	if answers(got) != 2 || strings.Count(got, "Connection: keep-alive") != 1 || strings.Count(got, "Connection: close") != 1 || strings.Contains(got, "hunked") {
		t.Errorf("%s", got)
	}
}

// quietConn counts the writes that begin, and has no peer.
type quietConn struct {
	net.Conn
	writes int
}

func (c *quietConn) SetWriteDeadline(time.Time) error { return nil }

func (c *quietConn) Write(p []byte) (int, error) { c.writes++; return len(p), nil }

// TestLeavingEndsAStalledWrite has a client that reads nothing shut its side
// while a write waits for it: that ends at once, long before the stall limit.
func TestLeavingEndsAStalledWrite(t *testing.T) {
	cfg := wiretest.FakeConfig{Model: wire.Model{ID: "fake", Chat: true, ContextTokens: 1 << 20}, Script: func(*wire.Generation) wiretest.Script {
		return wiretest.Script{Endless: true, Pieces: []string{strings.Repeat("x", 64<<10)}}
	}}
	r := newRig(t, rigConfig{fake: cfg, gateway: Config{Timeouts: TimeoutConfig{WriteStallLimit: time.Hour}}})
	c := r.dial()
	defer c.Close()
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true`)))
	// It stalls when the engine has made nothing for a while.
	stalled := eventually(10*time.Second, func() bool {
		before := r.fake.State().DecodeTokens
		time.Sleep(200 * time.Millisecond)
		return r.fake.State().Paused == 1 && before == r.fake.State().DecodeTokens
	})
	if !stalled {
		t.Fatal("the reader never stalled")
	}
	c.(*net.TCPConn).CloseWrite()
	r.settled()
	if o := r.lastOutcome(); o != "client_gone" {
		t.Errorf("outcome %s", o)
	}
}
