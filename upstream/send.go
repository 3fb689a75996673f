package upstream

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
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

// send posts the request, and again where the server has not begun to answer it, to
// another server if there is one. The head of an answer of status 200 has come when it
// returns without an error.
func (w *generation) send() (*http.Response, *wire.Error) {
	w.earn()
	tried := []*replica{w.at}
	for attempt := 1; ; attempt++ {
		response, reused, err := w.post()
		w.connected(err)
		if err == nil && response.StatusCode == http.StatusOK {
			return response, nil
		}
		why, wait, may := w.refusedBy(response, err)
		wait = max(wait, 50*time.Millisecond<<attempt)
		free := err != nil && reused && attempt == 1 // it was closed just when we used it
		switch {
		case !may || w.ctx.Err() != nil:
			return nil, why
		case free, isDial(err) && w.move(&tried): // which cost the servers nothing
			continue
		case attempt >= attemptsMost || !w.mayRetry():
			return nil, why
		case w.move(&tried):
			continue
		}
		select {
		case <-time.After(wait):
		case <-w.ctx.Done():
			return nil, why
		}
	}
}

// isDial tells that err came before a connection was there.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// refusedBy says what an attempt without success means: what the client is told if it
// is the last, how long the server wants to be left alone, and whether to try again.
func (w *generation) refusedBy(response *http.Response, err error) (why *wire.Error, wait time.Duration, may bool) {
	if err != nil {
		w.engine.log.Warn("a request did not reach the upstream", "id", w.asked.ID, "upstream", w.at.name, "reason", err)
		return wire.Errorf(wire.Unavailable, "the upstream is not reachable"), 0, true
	}
	text, _ := readAnswer(response, w.engine.cfg.MessageBytesMax) // as much as came
	response.Body.Close()
	refused := &errStatus{response.StatusCode, text, response.Header}
	if refused.status == http.StatusTooManyRequests || refused.status == http.StatusServiceUnavailable {
		w.hadNoRoom()
	}
	why = refusal(refused)
	return why, why.RetryAfter, again(refused) && why.RetryAfter <= waitMost
}

// move takes the request to a server that was not tried, if there is one.
func (w *generation) move(tried *[]*replica) bool {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	other := e.choose(w.asked.Prompt.Relayed.(*relayed), w.n, w.prompt, *tried)
	if other == nil {
		return false
	}
	*tried = append(*tried, other)
	w.again = true
	w.leave(wire.Monotonic())
	w.enter(other)
	e.publish()
	return true
}

// connected books whether the server could be reached.
func (w *generation) connected(err error) {
	if w.ctx.Err() != nil { // it is our own doing
		return
	}
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	w.at.health.connected(err == nil)
	now := time.Duration(wire.Monotonic())
	w.at.eject(w.at.health.verdict(0, 0, now), now)
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

// earn books a new request.
func (w *generation) earn() {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	w.at.retries.earn(1, time.Duration(wire.Monotonic()))
}

// mayRetry takes one retry, if there is one.
func (w *generation) mayRetry() bool {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	if !w.at.retries.take(time.Duration(wire.Monotonic())) {
		return false
	}
	w.again = true
	w.at.counts.Resent++
	return true
}

// hadNoRoom tells the window that the server refused for want of room.
func (w *generation) hadNoRoom() {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	w.at.counts.Rejected++
	w.at.ledger.window.Refused(time.Duration(wire.Monotonic()))
	e.publish()
}

// post sends the request once. reused tells that its connection had served another.
func (w *generation) post() (response *http.Response, reused bool, err error) {
	v := w.asked.Prompt.Relayed.(*relayed)
	path := w.model.prefix + "/completions"
	if v.chat {
		path = w.model.prefix + "/chat/completions"
	}
	body := v.body(w.asked, w.model, &w.at.cfg)
	r, err := w.at.server.request(w.ctx, "POST", path, body)
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
	return w.at.server.client.do(r)
}

// abort tells the server that nobody reads the answer, where a closed connection does
// not tell it soon.
func (w *generation) abort() {
	ctx, cancel := context.WithTimeout(w.engine.ctx, w.engine.cfg.ConnectLimit)
	defer cancel()
	body := append(appendMember([]byte{'{'}, "rid", quote(hashed(w.asked.ID))), '}')
	if err := w.at.server.ask(ctx, "POST", w.model.dialect.abort, body, nil); err != nil {
		w.engine.log.Warn("the upstream did not take an abort", "id", w.asked.ID, "reason", err)
	}
}
