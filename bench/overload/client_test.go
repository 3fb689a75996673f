package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const (
	role  = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
	piece = "data: {\"choices\":[{\"delta\":{\"content\":\"river\"}}]}\n\n"
	done  = "data: [DONE]\n\n"
)

// TestClient: what the client makes of each kind of answer, over one connection as
// long as that is possible.
func TestClient(t *testing.T) {
	var handle http.HandlerFunc
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r) }))
	s.Config.ConnState = connectionCounter(&connections)
	s.Start()
	defer s.Close()
	c := newClient(s.Listener.Addr().String(), "m")
	defer c.close()
	always := window{time.Now(), time.Now().Add(time.Hour)}
	do := func(h http.HandlerFunc) answer {
		handle = h
		return c.do(&request{source: batch, words: 3, asked: 5, seed: 1}, "id-1", always, time.Now().Add(time.Minute))
	}

	var body string
	a := do(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body = fmt.Sprint(r.URL.Path, " ", r.Header.Get("X-Request-Id"), " ", r.Header.Get("X-Forebay-Class"), " ", string(text))
		io.WriteString(w, role+": wait\n\n"+piece+piece+done)
	})
	if a.status != 200 || a.pieces != 2 || a.inWindow != 2 || a.first <= 0 || a.end < a.first || a.err != nil || a.code != "" {
		t.Errorf("a whole answer: %+v", a)
	}
	if !strings.HasPrefix(body, `/v1/chat/completions id-1 batch {"model":"m","stream":true,`) || !strings.Contains(body, `"max_tokens":5,`) {
		t.Errorf("the request: %s", body)
	}
	a = do(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"error":{"message":"no","type":"server_error","code":"would_be_late"}}`)
	})
	if a.status != 503 || a.code != "would_be_late" || a.retryAfter != 3 || a.err != nil || a.first != 0 {
		t.Errorf("a refusal: %+v", a)
	}
	a = do(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, role+"data: {\"error\":{\"message\":\"no\",\"type\":\"server_error\",\"code\":\"queue_timeout\"}}\n\n")
	})
	if a.status != 200 || a.code != "queue_timeout" || a.err != nil || a.first != 0 {
		t.Errorf("a refusal in the stream: %+v", a)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for three requests in a row", n)
	}
	a = do(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, role+piece) })
	if a.err == nil || a.pieces != 1 {
		t.Errorf("an answer without its end: %+v", a)
	}
	a = do(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, `{"error":{"code":503,"type":"unavailable_error"}}`, http.StatusServiceUnavailable)
	})
	if a.code != "unavailable_error" {
		t.Errorf("a code that is a number: %+v", a)
	}
	s.CloseClientConnections() // the idle one
	a = do(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, role+piece+done) })
	if a.err != nil || a.pieces != 1 {
		t.Errorf("after the server closed an idle connection: %+v", a)
	}
}

// TestClientGivesUp at its limit.
func TestClientGivesUp(t *testing.T) {
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, role)
		w.(http.Flusher).Flush()
		<-over
	}))
	defer s.Close()
	defer close(over)
	c := newClient(s.Listener.Addr().String(), "m")
	a := c.do(&request{words: 1, asked: 1}, "id", window{}, time.Now().Add(50*time.Millisecond))
	if !a.cut || a.err != nil || a.first != 0 {
		t.Errorf("%+v", a)
	}
}
