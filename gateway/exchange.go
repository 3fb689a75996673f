package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// exchange is one generation request and its answer. All of it belongs to the
// handler's goroutine but id, arrived and stage, which the debug page reads.
type exchange struct {
	g    *Gateway
	http *fasthttp.RequestCtx
	conn *conn
	chat bool

	id      string
	arrived time.Time
	stage   atomic.Int32

	record telemetry.Record
	ctx    context.Context // ends when the client leaves
	cancel context.CancelFunc
	notify chan struct{}
	timer  *time.Timer // streamed requests only: the next comment is due

	call    *call
	answer  answer
	choices []choiceState
	reply   reply
	out     sse
	opened  bool // the stream's head was written
	events  []wire.Event
	usage   wire.Usage
	spent   admission.Spent
}

// choiceState is what is known of one choice of the answer.
type choiceState struct {
	started  bool
	finish   wire.Finish
	tokens   int
	text     []byte // plain answers only
	logprobs *logprobList
}

// Stages of an exchange, as the debug page shows them.
const (
	stageDecoding = iota
	stagePreparing
	stageQueued
	stageGenerating
)

var stageNames = [...]string{"decoding", "preparing", "queued", "generating"}

func (x *exchange) enter(stage int32) { x.stage.Store(stage) }

// newExchange starts the record and begins to watch the client.
func (g *Gateway) newExchange(c *fasthttp.RequestCtx, chat bool) *exchange {
	x := &exchange{g: g, http: c, chat: chat, id: newID(), arrived: time.Now(), notify: make(chan struct{}, 1)}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	x.conn, _ = c.Conn().(*conn)
	r := &x.record
	r.ID, r.Arrived = x.id, wire.Monotonic()
	r.ClientID = saneID(c.Request.Header.Peek("X-Request-Id"))
	r.Trace, r.ParentSpan = traceOf(&c.Request.Header)
	r.Route, r.Tenant, r.Class = "completions", "default", "interactive"
	if chat {
		r.Route = "chat_completions"
	}
	c.Response.Header.Set("X-Request-Id", x.requestID())
	g.register(x)
	x.conn.watch(x.cancel)
	return x
}

// traceOf joins the caller's trace. A header that is sent twice is bad.
func traceOf(h *fasthttp.RequestHeader) (wire.TraceContext, [8]byte) {
	parents := h.PeekAll("Traceparent")
	if len(parents) != 1 {
		return telemetry.Trace("", "")
	}
	return telemetry.Trace(string(parents[0]), string(h.Peek("Tracestate")))
}

// requestID is the client's id where it sent a sane one, and ours otherwise.
// It is echoed and logged, and never names anything inside.
func (x *exchange) requestID() string {
	if x.record.ClientID != "" {
		return x.record.ClientID
	}
	return x.id
}

// promptID is the engine's name for one prompt's generation.
func (x *exchange) promptID(i int) string {
	if i == 0 {
		return x.id
	}
	return x.id + "-" + strconv.Itoa(i)
}

func newID() string {
	var b [16]byte
	for i := range 2 {
		n := rand.Uint64()
		for j := range 8 {
			b[8*i+j] = byte(n >> (8 * j))
		}
	}
	return hex.EncodeToString(b[:])
}

const clientIDBytesMax = 128

// saneID returns a client's id if it is short and of harmless characters.
func saneID(b []byte) string {
	if len(b) == 0 || len(b) > clientIDBytesMax {
		return ""
	}
	for _, c := range b {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' || c == ':' || c == '#' || c == '/') {
			return ""
		}
	}
	return string(b)
}

// decode reads the body, once, into memory of our own.
func (x *exchange) decode() (*call, error) {
	if x.g.draining.Load() {
		return nil, errDraining
	}
	body, err := readBody(x.http, x.g.cfg.Limits.BodyBytesMax)
	x.record.BytesIn = int64(len(body))
	if err != nil {
		return nil, err
	}
	c, wireErr := decodeCall(body, x.chat, &x.g.cfg.Limits)
	if wireErr != nil {
		return nil, wireErr
	}
	x.call, x.record.Decoded = c, wire.Monotonic()
	state := x.g.engine.State()
	switch {
	case state.Err != nil:
		return nil, state.Err
	case c.model != state.Model.ID:
		return nil, &failure{fault: faultModelNotFound, param: "model", message: "the model " + strconv.QuoteToASCII(clip(c.model, 64)) + " is not served here; GET /v1/models lists what is"}
	}
	if c.stream {
		x.timer = time.NewTimer(x.g.cfg.Timeouts.CommitLimit)
	}
	return c, nil
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// prepare has the engine render, tokenize and check every prompt.
func (x *exchange) prepare(c *call) ([]*wire.Prompt, error) {
	x.enter(stagePreparing)
	ctx, cancel := context.WithTimeout(x.ctx, x.g.cfg.Timeouts.PrepareLimit)
	defer cancel()
	prompts := make([]*wire.Prompt, len(c.prompts))
	for i := range c.prompts {
		r := &c.prompts[i]
		r.ID, r.Options = x.promptID(i), c.options
		p, err := x.g.engine.Prepare(ctx, r)
		switch {
		case x.ctx.Err() != nil:
			return nil, errClientGone
		case err != nil && ctx.Err() != nil:
			return nil, failed(faultUnavailable, "the engine did not prepare the prompt in time")
		case err != nil:
			return nil, err
		}
		prompts[i] = p
		x.record.PromptTokens += len(p.Tokens)
	}
	x.record.Prepared = wire.Monotonic()
	return prompts, nil
}

// begin makes the reply's state, now that the prompts are known.
func (x *exchange) begin(c *call, prompts []*wire.Prompt) {
	state := x.g.engine.State()
	x.answer = answer{chat: c.chat, id: "cmpl-" + x.id, created: time.Now().Unix(), model: state.Model.ID, mark: state.Model.Fingerprint, tier: c.tier, usage: c.includeUsage}
	if c.chat {
		x.answer.id = "chatcmpl-" + x.id
	}
	x.choices = make([]choiceState, len(prompts)*c.options.N)
	if c.options.Logprobs {
		for i := range x.choices {
			x.choices[i].logprobs = &logprobList{chat: c.chat}
		}
	}
	echo := make([]echoState, len(prompts))
	if c.echo {
		for i, p := range prompts {
			echo[i].text = p.Text
		}
	}
	if c.stream {
		x.reply = &streamReply{x: x, echo: echo}
	} else {
		x.reply = &plainReply{x: x, echo: echo}
	}
}

// await waits for ready, in every stage but preparing, while it watches the client, the drain limit, and
// the silence of an open stream.
func (x *exchange) await(ready <-chan struct{}) error {
	var tick <-chan time.Time
	if x.timer != nil {
		tick = x.timer.C
	}
	for {
		select {
		case <-ready:
			return nil
		case <-x.ctx.Done():
			return errClientGone
		case <-x.g.cut:
			return errDraining
		case <-tick:
			if err := x.breakSilence(time.Now()); err != nil {
				return err
			}
		}
	}
}

// breakSilence opens a stream that has waited for the commit limit, and
// sends a comment where nothing was sent for the keep-alive interval.
func (x *exchange) breakSilence(now time.Time) error {
	interval := x.g.cfg.Timeouts.KeepAlive
	if !x.opened {
		x.open()
		x.timer.Reset(interval)
		return x.out.comment()
	}
	if quiet := now.Sub(x.out.lastWrite); quiet < interval {
		x.timer.Reset(interval - quiet)
		return nil
	}
	x.timer.Reset(interval)
	return x.out.comment()
}

// open commits to a 200 stream. What is appended now leaves with the next flush.
func (x *exchange) open() {
	x.opened = true
	x.record.Status = fasthttp.StatusOK
	x.out = sse{conn: x.conn, stallLimit: x.g.cfg.Timeouts.WriteStallLimit, chunked: x.http.Request.Header.IsHTTP11()}
	x.out.open(x.streamHead())
	if x.timer != nil {
		x.timer.Reset(x.g.cfg.Timeouts.KeepAlive)
	}
}

// streamHead is the head of a streamed response. Its headers keep proxies
// from buffering and compressing.
func (x *exchange) streamHead() []byte {
	b := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\nX-Request-Id: ")
	b = append(b, x.requestID()...)
	b = append(b, "\r\nOpenai-Processing-Ms: "...)
	b = strconv.AppendInt(b, time.Since(x.arrived).Milliseconds(), 10)
	b = append(b, "\r\nDate: "...)
	b = fasthttp.AppendHTTPDate(b, time.Now())
	b = append(b, "\r\n"...)
	b = x.g.cors.appendHeaders(b, x.http.Request.Header.Peek("Origin"))
	if !x.http.Request.Header.IsHTTP11() {
		x.http.SetConnectionClose()
		return append(b, "Connection: close\r\n\r\n"...)
	}
	if x.http.Request.Header.ConnectionClose() {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "Transfer-Encoding: chunked\r\n\r\n"...)
}

// note keeps the counts and instants of one event.
func (x *exchange) note(prompt int, e *wire.Event) {
	if e.End != nil {
		u := e.End.Usage
		if x.call.promptOnly {
			u.Completion = 0
		}
		x.usage.Prompt += u.Prompt
		x.usage.Cached += u.Cached
		x.usage.Completion += u.Completion
		x.record.CachedTokens += u.Cached
		if prompt == 0 {
			x.record.Engine = e.End.Timings
		}
		return
	}
	c := &x.choices[prompt*x.call.options.N+e.Choice]
	x.record.CompletionTokens += e.TokenCount - c.tokens
	c.tokens = e.TokenCount
	if e.Text != "" && x.record.FirstToken == 0 {
		x.record.FirstToken = wire.Monotonic()
	}
	x.spent = admission.Spent{PromptTokens: x.record.PromptTokens, CompletionTokens: x.record.CompletionTokens}
}

// end closes the exchange: what the client gets, and the one record.
func (x *exchange) end(err error) {
	x.conn.unwatch()
	r := &x.record
	r.Outcome = telemetry.OK
	if err != nil {
		f := asFailure(err)
		if f.fault == faultWriteStall && x.ctx.Err() != nil {
			f = errClientGone // the write ended because the client went
		}
		r.Outcome, r.ErrorKind = faults[f.fault].outcome, faults[f.fault].code
		x.fail(f)
	}
	x.cancel()
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.opened {
		x.conn.mute.Store(true)
		r.BytesOut = x.out.written
	} else {
		x.http.Response.Header.Set("Openai-Processing-Ms", strconv.FormatInt(time.Since(x.arrived).Milliseconds(), 10))
		r.BytesOut = int64(len(x.http.Response.Body()))
	}
	r.Finished = wire.Monotonic()
	x.g.recorder.Finish(r)
	x.g.unregister(x)
}

// fail tells the client, in the way that is still open.
func (x *exchange) fail(f *failure) {
	status := faults[f.fault].status
	if !x.opened || f.fault == faultClientGone || f.fault == faultWriteStall {
		x.record.Status = status
	}
	switch {
	case f.fault == faultClientGone || f.fault == faultWriteStall:
		x.conn.mute.Store(true)
		x.http.SetConnectionClose()
	case x.opened:
		x.out.buf = append(x.out.buf, "data: "...)
		x.out.buf = append(f.appendErrorObject(x.out.buf), "\n\n"...)
		// The client may have gone; the outcome is told already.
		if x.out.close() == nil && x.record.FirstToken != 0 && x.record.FirstWrite == 0 {
			x.record.FirstWrite = wire.Monotonic()
		}
		x.http.SetConnectionClose()
	default:
		writeFailure(x.http, f)
	}
}

var errDraining = failed(faultDraining, "the server is stopping; try again")

// errPanic is what a panic in the path becomes, after it was logged.
var errPanic = errors.New("panic")
