package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// generation is one request at the server. Its goroutine reads the answer; its
// reader controls it from others.
type generation struct {
	engine *Engine
	asked  *wire.Generation
	stream *wire.Stream
	prompt int // tokens, as counted before
	ahead  int // prompt tokens at the server when it was sent, its own included
	n      int // choices

	ctx    context.Context
	cancel context.CancelCauseFunc
	silent *time.Timer   // cancels when the server says nothing
	turn   chan struct{} // receives when the goroutine should look again
	paused atomic.Bool
	// dropped says that the reader is gone and the answer is read all the same.
	dropped atomic.Bool
	made    atomic.Int64 // tokens that were handed on

	// Guarded by engine.mu:
	at      *replica // where it is
	model   *model   // as it was found there
	first   bool     // its first token has come, or it has ended
	again   bool     // it was sent more than once
	last    int64    // when the last event came
	stopped bool     // counted as not read
	ended   bool

	times wire.Timings
	// For the goroutine alone:
	taken bool // the server has accepted the request, as far as is known
	open  bool // its answer has begun, and the end was not seen
	body  *answerBody
	exact *exact // nil where the envelope is ours
}

var (
	errCancelled  = errors.New("the reader closed the stream")
	errFirstLate  = errors.New("no event within upstream.first_token_limit")
	errFellSilent = errors.New("no event within upstream.silence_limit")

	errStreamClosed = wire.Errorf(wire.Canceled, "the stream was closed")
)

// Generate implements wire.Engine.
func (e *Engine) Generate(g *wire.Generation) *wire.Stream {
	_, _, why := e.current()
	if why == nil {
		why = e.checkGeneration(g)
	}
	if why != nil {
		return wire.FailedStream(g.Notify, why)
	}
	w := &generation{engine: e, asked: g, prompt: g.Prompt.Length(), n: g.Options.N, turn: make(chan struct{}, 1)}
	w.stream = wire.NewStream(e.cfg.StreamEventsMax, g.Notify, w)
	w.ctx, w.cancel = context.WithCancelCause(e.ctx)
	w.silent = time.AfterFunc(e.cfg.FirstTokenLimit, w.fellSilent)
	w.times.Arrived = wire.Monotonic()
	w.times.Received, w.times.Scheduled = w.times.Arrived, w.times.Arrived

	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		w.silent.Stop()
		return wire.FailedStream(g.Notify, errClosed)
	case e.generations >= e.cfg.GenerationsMax:
		w.silent.Stop()
		return wire.FailedStream(g.Notify, wire.Errorf(wire.Overloaded, "there are %d generations at the upstream; try again (upstream.generations_max)", e.generations))
	}
	at := e.choose(g.Prompt.Relayed.(*relayed), w.n, w.prompt, nil)
	if at == nil {
		w.silent.Stop()
		return wire.FailedStream(g.Notify, errNoServer)
	}
	e.generations++
	w.enter(at)
	e.publish()
	e.live.Go(w.run)
	return w.stream
}

// enter books the generation at r. The caller holds engine.mu.
func (w *generation) enter(r *replica) {
	w.at, w.model = r, r.model
	l := &r.ledger
	l.live++
	l.started++
	l.wakes()
	l.lane(w.asked.Long, w.prompt)
	if w.stopped {
		l.stopped += w.n
	} else {
		l.running += w.n
	}
	w.first = false
	w.ahead = l.window.Sent(w.n, w.prompt)
}

// leave takes it off the books again. The caller holds engine.mu.
func (w *generation) leave(now int64) {
	l := &w.at.ledger
	w.landed(0)
	l.window.Ended(w.n, time.Duration(now))
	if w.stopped {
		l.stopped -= w.n
	} else {
		l.running -= w.n
	}
	l.live--
}

// checkGeneration refuses what the contract refuses.
func (e *Engine) checkGeneration(g *wire.Generation) *wire.Error {
	model := &e.State().Model
	if err := g.Check(model); err != nil {
		return err
	}
	if _, ok := g.Prompt.Relayed.(*relayed); !ok {
		return wire.InvalidParam("prompt", "the prompt was not prepared here")
	}
	if g.Options.MaxTokens > g.Prompt.Room {
		return wire.InvalidParam("max_tokens", "max_tokens is %d, and there is room for %d after the prompt", g.Options.MaxTokens, g.Prompt.Room)
	}
	return nil
}

// Pause, Resume, Cancel and Taken implement wire.Control. The server cannot pause:
// its answer is not read meanwhile, and what it has computed waits in the connection.
func (w *generation) Pause()  { w.paused.Store(true); w.stop(true) }
func (w *generation) Resume() { w.paused.Store(false); w.stop(false); w.look() }
func (w *generation) Taken()  { w.look() }

// Cancel implements wire.Control. Where a closed connection would harm others, the
// answer goes on without a reader, and keeps its place.
func (w *generation) Cancel() {
	if !w.drains() {
		w.cancel(errCancelled)
		return
	}
	w.dropped.Store(true)
	w.look()
	usage := wire.Usage{Prompt: w.prompt, Computed: w.prompt, Completion: int(w.made.Load())}
	w.stream.Put(wire.Event{End: &wire.End{Err: errStreamClosed, Usage: usage, Timings: wire.Timings{Arrived: w.times.Arrived, Received: w.times.Received, Scheduled: w.times.Scheduled, Finished: wire.Monotonic()}}})
	w.stream.Wake()
}

// drains tells whether the answer is read to its end in any case.
func (w *generation) drains() bool {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	cancel := w.engine.cfg.Cancel
	return cancel == "drain" || cancel == "auto" && w.model.dialect.drains
}

func (w *generation) look() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// run sends the request and relays its answer.
func (w *generation) run() {
	defer w.cancel(nil)
	defer w.silent.Stop()
	a := newAnswer(w.asked, w.model.dialect)
	if w.engine.cfg.Relay == relayExact {
		w.exact = &exact{most: w.engine.cfg.EventBytesMax}
	}
	err := w.relay(a)
	if err != nil {
		w.taken = w.taken || context.Cause(w.ctx) == errCancelled // many servers answer only with the first token
		err = w.explain(err)
	}
	if w.body != nil && (err != nil || w.open) {
		w.body.Close()
	}
	w.end(a, err)
	if w.body != nil { // for the next request; nobody waits for it
		w.silent.Stop()
		w.body.finish()
	}
}

// fellSilent gives the request up.
func (w *generation) fellSilent() {
	w.engine.mu.Lock()
	first := w.first
	w.engine.mu.Unlock()
	if first {
		w.cancel(errFellSilent)
	} else {
		w.cancel(errFirstLate)
	}
}

// relay returns once the answer is whole, or says why it is not.
func (w *generation) relay(a *answer) *wire.Error {
	response, err := w.send()
	if err != nil {
		return err
	}
	w.open, w.taken = true, true
	w.body = response.Body.(*answerBody)
	if isWhole(response.Header) {
		return w.whole(a, response)
	}
	events := newEventReader(response.Body, w.engine.cfg.EventBytesMax)
	for {
		data, failure, err := events.next()
		if err != nil {
			w.open = err == errEventLong
			return a.over(err)
		}
		if string(data) == "[DONE]" {
			w.open = false
			return a.done()
		}
		if err := w.take(a, data, failure); err != nil {
			return err
		}
	}
}

// take relays what one event brings.
func (w *generation) take(a *answer, data []byte, failure bool) *wire.Error {
	c, err := parseChunk(data, failure)
	if err != nil {
		return err
	}
	if !w.paused.Load() {
		w.silent.Reset(w.engine.cfg.SilenceLimit)
	}
	events, err := a.take(c)
	if err != nil {
		return err
	}
	content := len(events) > 0
	if events, err = w.exact.take(events, c, data); err != nil {
		return err
	}
	w.heard(content, a)
	w.made.Store(int64(a.made())) // before the reader sees them: one who leaves then pays for them
	for i := range events {
		if !w.put(&events[i]) {
			return errStreamClosed
		}
	}
	return nil
}

// whole relays an answer that the server did not stream.
func (w *generation) whole(a *answer, response *http.Response) *wire.Error {
	data, err := io.ReadAll(io.LimitReader(response.Body, int64(w.engine.cfg.EventBytesMax)+1))
	if err != nil {
		return a.over(err)
	}
	if w.open = len(data) > w.engine.cfg.EventBytesMax; w.open {
		return a.over(errEventLong)
	}
	w.exact = nil // it has no events
	if err := w.take(a, data, false); err != nil {
		return err
	}
	return a.done()
}

// explain gives the true reason of an error that comes of a connection which we
// closed ourselves.
func (w *generation) explain(err *wire.Error) *wire.Error {
	switch cause := context.Cause(w.ctx); {
	case errors.Is(cause, errFirstLate), errors.Is(cause, errFellSilent):
		return wire.Errorf(wire.Unavailable, "the upstream fell silent: %v", cause)
	case errors.Is(cause, errCancelled):
		return errStreamClosed
	case w.engine.ctx.Err() != nil:
		return errClosed
	}
	return err
}

// heard books that an event of a came; content says that it has a part of the answer.
func (w *generation) heard(content bool, a *answer) {
	now := wire.Monotonic()
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	w.at.ledger.heard = now
	switch {
	case content && !w.first:
		w.times.FirstToken = now
		if t := a.timings; t != nil { // else it counts as scheduled at once
			w.times.Scheduled = max(w.times.Received, now-int64(t.PromptMS*1e6))
			w.times.PrefillTokens = t.Prompt
		}
		w.landed(now)
		e.total.Step++
		e.publish()
	case content && !w.stopped && w.n == 1:
		w.at.ledger.window.Token(max(1, a.made()-int(w.made.Load())), time.Duration(now-w.last))
	}
	w.last = now
}

// landed takes the prompt off the prefills, with its first token at the time now, or 0
// where there was none. The caller holds engine.mu.
func (w *generation) landed(now int64) {
	if w.first {
		return
	}
	w.first = true
	l := &w.at.ledger
	l.started--
	l.lane(w.asked.Long, -w.prompt)
	if now != 0 {
		w.at.prefixes.add(w.asked.Prompt.Relayed.(*relayed).blocks)
	}
	if now == 0 || w.again { // how long the server took is not known
		l.window.Lost(w.prompt)
	} else {
		l.window.First(w.prompt, w.ahead, time.Duration(now-w.times.Arrived), time.Duration(now))
	}
}

// put hands an event to the reader, and waits until there is room for it. It returns
// false once the stream is closed.
func (w *generation) put(ev *wire.Event) bool {
	for {
		if w.ctx.Err() != nil {
			return false
		}
		if w.dropped.Load() {
			w.stop(false)
			return true
		}
		if !w.paused.Load() && w.stream.Put(*ev) {
			w.stop(false)
			w.stream.Wake()
			return true
		}
		w.stop(true)
		select {
		case <-w.turn:
		case <-w.ctx.Done():
		}
	}
}

// stop books whether the answer is read. A server that nobody reads is not silent.
func (w *generation) stop(stopped bool) {
	if stopped {
		w.silent.Stop()
	}
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.stopped == stopped || w.ended {
		return
	}
	w.stopped = stopped
	w.at.ledger.wakes()
	n := w.n
	if !stopped {
		n = -n
		if w.first {
			w.silent.Reset(e.cfg.SilenceLimit)
		} else {
			w.silent.Reset(e.cfg.FirstTokenLimit)
		}
	}
	w.at.ledger.stopped += n
	w.at.ledger.running -= n
	e.publish()
}

// end gives the place back and puts the last events.
func (w *generation) end(a *answer, err *wire.Error) {
	now := wire.Monotonic()
	e := w.engine
	w.times.Finished = now
	last := &wire.End{Err: err, Timings: w.times}
	if err == nil || w.taken {
		last.Usage = a.total(w.prompt)
	}
	if err == nil {
		last.Timings.Steps = max(1, a.events)
		e.counts.learn(w.asked.Prompt, a)
		if v := w.asked.Prompt.Relayed.(*relayed); v.counted > 0 && a.usage != nil && w.at.reserve() == 0 {
			e.compare(v.counted, a.usage.Prompt)
		}
	}
	if a.guessed {
		e.log.Warn("the upstream gave no reason for the end of an answer; the likely one is told", "id", w.asked.ID)
	}
	left := w.open || w.ctx.Err() != nil // the server may not know yet that nobody reads
	if left && w.model.dialect.abort != "" {
		e.live.Go(w.abort)
	}
	e.mu.Lock()
	w.leave(now)
	w.ended = true
	e.generations--
	if left {
		w.at.ledger.lingering = append(w.at.ledger.lingering, lingering{w.n, time.Duration(now) + w.model.dialect.lingers()})
	}
	w.at.judged(err, w.taken, time.Duration(now))
	if a.guessed {
		w.at.counts.Guessed++
	}
	if err == nil && a.usage == nil {
		w.at.counts.Uncounted++
	}
	e.total.Step++
	e.total.DecodeTokens += uint64(last.Usage.Completion)
	e.total.PrefillTokens += uint64(last.Usage.Computed)
	e.total.CachedTokens += uint64(last.Usage.Cached)
	e.publish()
	e.mu.Unlock()
	if err == nil {
		for i := range a.choices {
			c := &a.choices[i]
			w.stream.Put(wire.Event{Choice: i, TokenCount: c.tokens, Finish: c.finish, Relayed: w.exact.last(i, c, len(a.choices))})
		}
	}
	w.stream.Put(wire.Event{End: last})
	w.stream.Wake()
}
