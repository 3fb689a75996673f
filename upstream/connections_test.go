package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// opened is a server that counts its connections, and connections to it.
func opened(t *testing.T, most int, h http.HandlerFunc) (p *connections, url string, count *atomic.Int32) {
	count = new(atomic.Int32)
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			count.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return connectionsTo(t, most, s.Listener.Addr().String()), s.URL, count
}

func connectionsTo(t *testing.T, most int, address string) *connections {
	p := &connections{most: most, dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}}
	t.Cleanup(p.close)
	return p
}

// raw is a server whose answers to each connection are a function's.
func raw(t *testing.T, answer func(net.Conn)) (url, address string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); answer(c) }()
		}
	}()
	return "http://" + ln.Addr().String(), ln.Addr().String()
}

// readHead reads the head of a request.
func readHead(c net.Conn) (*http.Request, error) { return http.ReadRequest(bufio.NewReader(c)) }

// text asks and reads the whole answer.
func (p *connections) text(ctx context.Context, url, body string) (status int, text string, reused bool, err error) {
	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	if err != nil {
		return 0, "", false, err
	}
	answer, reused, err := p.do(r)
	if err != nil {
		return 0, "", reused, err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all), reused, err
}

// TestConnectionsAreKept: they serve many requests, at once and one after the other,
// and no answer gets into another. The end of a request's context, after its answer,
// does not matter to the next one.
func TestConnectionsAreKept(t *testing.T) {
	p, url, count := opened(t, 8, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 50 {
				ctx, cancel := context.WithCancel(context.Background())
				body := strings.Repeat(fmt.Sprintf("%d,%d ", i, j), 1+j*j)
				status, text, _, err := p.text(ctx, url, body)
				cancel()
				if err != nil || status != http.StatusOK || text != body {
					t.Errorf("status %d, %v: %d bytes came back of %d", status, err, len(text), len(body))
				}
			}
		})
	}
	all.Wait()
	if n := count.Load(); n > 8 {
		t.Errorf("8 requests at once took %d connections", n)
	}
	if _, _, reused, err := p.text(context.Background(), url, "x"); err != nil || !reused {
		t.Errorf("the last request: reused %v, %v", reused, err)
	}
}

// TestConnectionsThatWaitAreFew: no more than the limit wait.
func TestConnectionsThatWaitAreFew(t *testing.T) {
	together := make(chan struct{})
	var inside atomic.Int32
	p, url, _ := opened(t, 2, func(w http.ResponseWriter, r *http.Request) {
		if inside.Add(1) == 5 {
			close(together)
		}
		<-together
	})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { p.text(context.Background(), url, "x") })
	}
	all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) != 2 {
		t.Errorf("%d connections wait; the limit is 2", len(p.idle))
	}
}

// TestRefusedBeforeItWasRead: a server may refuse what is too long after its head, and
// the refusal is what is told.
func TestRefusedBeforeItWasRead(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	url, address := raw(t, func(c net.Conn) {
		readHead(c)
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nlong")
		<-over // and the rest is not read
	})
	p := connectionsTo(t, 4, address)
	for range 2 {
		status, text, reused, err := p.text(context.Background(), url, strings.Repeat("x", 32<<20))
		if status != http.StatusRequestEntityTooLarge || text != "long" || reused || err != nil {
			t.Fatalf("status %d, %q, reused %v, %v", status, text, reused, err)
		}
	}
}

// TestHeads: what may come before an answer, and how much.
func TestHeads(t *testing.T) {
	for _, c := range []struct{ sent, want string }{
		{"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK", "200 OK"},
		{strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100), errInformal.Error()},
		{"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", headBytesMax) + "\r\n\r\n", errHeadLong.Error()},
		{"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nOK", io.ErrUnexpectedEOF.Error()},
		{"HTTP/1.0 200 OK\r\n\r\nOK", "200 OK"},
		{"HTTP/1.1 204 No Content\r\n\r\n", "204 "},
		{"HTTP/1.1 101 Switching Protocols\r\n\r\n", "101 "},
		{"220 smtp.example\r\n", "malformed HTTP"},
		{"", "EOF"},
	} {
		url, address := raw(t, func(conn net.Conn) {
			readHead(conn)
			io.WriteString(conn, c.sent)
		})
		status, text, _, err := connectionsTo(t, 4, address).text(context.Background(), url, "x")
		if got := fmt.Sprintf("%d %s", status, text); err != nil && !strings.Contains(err.Error(), c.want) || err == nil && got != c.want {
			t.Errorf("%.60q gives %q, %v; want %q", c.sent, got, err, c.want)
		}
	}
}

// TestDeadConnectionIsNotUsed: one that the server closed, or on which it says
// something unasked, serves no further request.
func TestDeadConnectionIsNotUsed(t *testing.T) {
	for _, after := range []string{"", "HTTP/1.1 408 Request Timeout\r\n\r\n"} {
		over := make(chan struct{})
		url, address := raw(t, func(c net.Conn) {
			readHead(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
			<-over
			io.WriteString(c, after)
		})
		p := connectionsTo(t, 4, address)
		if _, text, _, err := p.text(context.Background(), url, "x"); text != "OK" || err != nil {
			t.Fatalf("%q, %v", text, err)
		}
		p.mu.Lock()
		c := p.idle[0]
		p.mu.Unlock()
		if !c.quiet() {
			t.Error("a connection that waits is taken for dead")
		}
		close(over)
		eventually(t, "it is seen that the connection is dead", func() bool { return !c.quiet() })
		if _, text, reused, err := p.text(context.Background(), url, "x"); text != "OK" || reused || err != nil {
			t.Errorf("%q, reused %v, %v", text, reused, err)
		}
	}
}

// TestGivenUp: the end of the context closes the connection, before the head of the
// answer and in its middle, and is the error.
func TestGivenUp(t *testing.T) {
	for _, sent := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nOK"} {
		came, gone := make(chan struct{}), make(chan struct{})
		url, address := raw(t, func(c net.Conn) {
			readHead(c)
			io.WriteString(c, sent)
			close(came)
			io.Copy(io.Discard, c)
			close(gone)
		})
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-came; cancel() }()
		if _, _, _, err := connectionsTo(t, 4, address).text(ctx, url, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		<-gone
	}
}

// TestEndAfterDone: a server that ends its answer a while after [DONE] gets the next
// request on the same connection, and nobody waits for that end.
func TestEndAfterDone(t *testing.T) {
	may := make(chan struct{}, 1)
	var addresses sync.Map
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		addresses.Store(r.RemoteAddr, true)
		stream(w)
		send(w, deltaChunk(`{"content":"Hi"}`, "stop"))
		send(w, "[DONE]")
		<-may
	})
	e := open(t, Config{URL: p.URL, MetricsOff: true, CheckInterval: 4 * time.Second})
	for range 8 {
		if o := chat(t, e, "", wire.Options{}); o.end.Err != nil {
			t.Fatal(o.end.Err)
		}
		may <- struct{}{}
		client := e.replicas[0].server.client
		eventually(t, "the connection waits", func() bool {
			client.mu.Lock()
			defer client.mu.Unlock()
			return len(client.idle) > 0
		})
	}
	n := 0
	addresses.Range(func(any, any) bool { n++; return true })
	if n > 4 { // one or two, unless the server is asked whether it is well meanwhile
		t.Errorf("8 answers took %d connections", n)
	}
}

// BenchmarkAsk is one request on a connection that waits.
func BenchmarkAsk(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("OK")) }))
	defer s.Close()
	cfg := Config{URL: s.URL, IdleConnections: 4}
	to, err := newServer(&cfg, "")
	if err != nil {
		b.Fatal(err)
	}
	defer to.client.close()
	b.ReportAllocs()
	for b.Loop() {
		r, _ := http.NewRequest("POST", s.URL, bytes.NewReader([]byte("{}")))
		answer, _, err := to.client.do(r)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
	}
}
