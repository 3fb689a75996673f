package httpd

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// page is a Handler whose answer is always the same.
type page struct {
	serve func(Request)
	why   chan Why
}

func (p page) Serve(r Request)           { p.serve(r) }
func (p page) Expect(r Request) bool     { r.Answer(417, "text/plain", nil); return false }
func (p page) Unread(r Request, why Why) { p.why <- why; r.Answer(400, "text/plain", nil) }
func (p page) Full() ([]Field, []byte)   { return []Field{{"X-Full", "yes"}}, []byte("{}") }

// serving runs a server until the test ends, and returns its address.
func serving(t *testing.T, cfg Config, serve func(Request)) (*Server, page, string) {
	t.Helper()
	p := page{serve, make(chan Why, 1)}
	s, address := run(t, cfg, p)
	return s, p, address
}

// run runs a server with a handler until the test ends.
func run(t *testing.T, cfg Config, handler Handler) (*Server, string) {
	t.Helper()
	s, err := New(cfg, handler)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.StopAccepting()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		<-served
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, ln.Addr().String()
}

var limits = Config{ConnectionsMax: 2, HeaderBytesMax: 4096, BodyBytesMax: 100, HeaderLimit: time.Second, BodyLimit: time.Second, IdleLimit: time.Minute, WriteStallLimit: time.Second}

func dial(t *testing.T, address string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// head sends a request and reads the head of its answer.
func head(t *testing.T, c net.Conn, br *bufio.Reader, request string) string {
	t.Helper()
	io.WriteString(c, request)
	all := ""
	for {
		line, err := br.ReadString('\n')
		if all += line; err != nil || line == "\r\n" {
			return all
		}
	}
}

// waitClosed waits until the server has closed every connection: one that the
// client has left still counts for a while.
func waitClosed(t *testing.T, s *Server) {
	t.Helper()
	l := s.listeners[0]
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		n := len(l.conns)
		l.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are not closed", n)
		}
	}
}

const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// A handler may leave its watch to the server.
func TestNothingIsWatchedBetweenRequests(t *testing.T) {
	s, _, address := serving(t, limits, func(r Request) {
		r.Watch(func() { t.Error("called after its handler returned") })
		r.Answer(200, "text/plain", nil)
	})
	c, br := dial(t, address)
	for range 2 {
		head(t, c, br, get)
	}
	c.Close()
	waitClosed(t, s)
}

func TestWhyARequestIsNotRead(t *testing.T) {
	s, p, address := serving(t, limits, func(r Request) { r.Answer(200, "text/plain", nil) })
	for request, want := range map[string]Why{
		"junk\r\n\r\n": Malformed,
		"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 5000) + "\r\n\r\n":          HeaderTooLarge,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n":               BodyTooLarge,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nx":               TimedOut,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n":           UnknownCoding,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n" + get: UnknownCoding,
	} {
		c, br := dial(t, address)
		if got := head(t, c, br, request); !strings.HasPrefix(got, "HTTP/1.1 400") || !strings.Contains(got, "Connection: close") {
			t.Fatalf("%.60q: %q", request, got)
		}
		if why := <-p.why; why != want {
			t.Errorf("%.60q: %d, want %d", request, why, want)
		}
		c.Close()
		waitClosed(t, s)
	}
}

func TestConnectionsOverTheLimitAreTold(t *testing.T) {
	_, _, address := serving(t, limits, func(r Request) { r.Answer(200, "text/plain", nil) })
	for range limits.ConnectionsMax {
		c, br := dial(t, address)
		head(t, c, br, get)
	}
	c, br := dial(t, address)
	if got := head(t, c, br, ""); !strings.HasPrefix(got, "HTTP/1.1 503") || !strings.Contains(got, "X-Full: yes\r\n") {
		t.Errorf("%q", got)
	}
}

// An Output's answer is the only one, whatever fasthttp makes of the response.
func TestAnOutputAnswersAlone(t *testing.T) {
	_, _, address := serving(t, limits, func(r Request) {
		out := r.Output(time.Second)
		if string(r.Header("Plain")) != "" {
			out.OpenPlain(2, nil)
			out.Buf = append(out.Buf, "ok"...)
		} else {
			out.OpenStream([]Field{{"X-One", "1"}})
			out.Buf = append(out.Buf, "data: a\n\n"...)
			if err := out.Flush(); err != nil {
				t.Error(err)
			}
			out.Buf = append(out.Buf, "data: b\n\n"...)
		}
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
	c, br := dial(t, address)
	for _, want := range []string{"00000009\r\ndata: a\n\n\r\n00000009\r\ndata: b\n\n\r\n0\r\n\r\n", "ok"} {
		request := get
		if want == "ok" {
			request = strings.Replace(get, "\r\n\r\n", "\r\nPlain: 1\r\n\r\n", 1)
		}
		h := head(t, c, br, request)
		body := make([]byte, len(want))
		if _, err := io.ReadFull(br, body); err != nil || string(body) != want || br.Buffered() != 0 {
			t.Errorf("%q %q, %d bytes follow, %v", h, body, br.Buffered(), err)
		}
	}
}
