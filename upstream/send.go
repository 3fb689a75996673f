package upstream

import (
	"encoding/hex"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// retries bounds what is sent again: a tenth of the requests, and a few more. A
// server in trouble is not helped by twice the load.
type retries struct {
	left float64
	at   time.Duration
}

const (
	retriesMost      = 10.
	retriesEach      = 0.1 // for each request
	retriesPerSecond = 0.3
)

// take tells whether a request may be sent again at the time now.
func (r *retries) take(now time.Duration) bool {
	r.earn(0, now)
	if r.left < 1 {
		return false
	}
	r.left--
	return true
}

// earn adds what requests, and the time since, allow.
func (r *retries) earn(requests int, now time.Duration) {
	if r.at == 0 {
		r.left = 3
	} else {
		r.left += retriesPerSecond * (now - r.at).Seconds()
	}
	r.left = min(retriesMost, r.left+retriesEach*float64(requests))
	r.at = now
}

// attemptsMost bounds how often a request is sent, and waitMost how long it waits
// between two times: a server that asks for more is told to the client.
const (
	attemptsMost = 4
	waitMost     = time.Second
)

// send posts the request, and again where the server has not begun to answer it. The
// head of an answer of status 200 has come when it returns without an error.
func (w *generation) send() (*http.Response, *wire.Error) {
	w.mayRetry(1)
	for attempt := 1; ; attempt++ {
		response, reused, err := w.post()
		if err == nil && response.StatusCode == http.StatusOK {
			return response, nil
		}
		var why *wire.Error
		wait := 50 * time.Millisecond << attempt
		switch {
		case err != nil:
			w.engine.log.Warn("a request did not reach the upstream", "id", w.asked.ID, "attempt", attempt, "reason", reason(err))
			why = wire.Errorf(wire.Unavailable, "the upstream is not reachable")
		default:
			text, _ := w.engine.server.read(response) // as much as came
			response.Body.Close()
			refused := &errStatus{response.StatusCode, text, response.Header}
			if refused.status == http.StatusTooManyRequests || refused.status == http.StatusServiceUnavailable {
				w.refused()
			}
			if why = refusal(refused); !again(refused) || why.RetryAfter > waitMost {
				return nil, why
			}
			wait = max(wait, why.RetryAfter)
		}
		switch {
		case w.ctx.Err() != nil || attempt == attemptsMost:
			return nil, why
		case err != nil && reused && attempt == 1: // it was closed just when we used it
			continue
		case !w.mayRetry(0):
			return nil, why
		}
		select {
		case <-time.After(wait):
		case <-w.ctx.Done():
			return nil, why
		}
	}
}

// again tells whether a refusal says nothing about the request itself.
func again(e *errStatus) bool {
	switch e.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
		return true
	case http.StatusInternalServerError:
		// SGLang, of clients that are still there.
		return strings.Contains(string(e.body), "disconnected from the client side")
	}
	return false
}

// mayRetry earns for requests that are new, or takes one retry.
func (w *generation) mayRetry(requests int) bool {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Duration(wire.Monotonic())
	if requests > 0 {
		e.retries.earn(requests, now)
		return true
	}
	w.again = true
	return e.retries.take(now)
}

// refused tells the window that the server had no room.
func (w *generation) refused() {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ledger.window.Refused(time.Duration(wire.Monotonic()))
	e.publish()
}

// post sends the request once. reused tells that its connection had served another.
func (w *generation) post() (response *http.Response, reused bool, err error) {
	v := w.asked.Prompt.Relayed.(*relayed)
	path := w.model.prefix + "/completions"
	if v.chat {
		path = w.model.prefix + "/chat/completions"
	}
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
	body := v.body(w.asked, w.model, &w.engine.cfg)
	r, err := w.engine.server.request(httptrace.WithClientTrace(w.ctx, trace), "POST", path, body)
	if err != nil {
		return nil, false, err
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("X-Request-Id", w.asked.ID)
	if t := &w.asked.Trace; t.TraceID != [16]byte{} {
		r.Header.Set("Traceparent", "00-"+hex.EncodeToString(t.TraceID[:])+"-"+hex.EncodeToString(t.SpanID[:])+"-"+hex.EncodeToString([]byte{t.Flags}))
		if t.State != "" {
			r.Header.Set("Tracestate", t.State)
		}
	}
	response, err = w.engine.server.client.Do(r)
	return response, reused, err
}
