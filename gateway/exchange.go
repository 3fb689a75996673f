package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/siblings"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// exchange is the connection, the record and the timers of one generation
// request. Its stages take and return everything else (serve.go). It belongs to
// the handler's goroutine; others read what newExchange sets, the atomic fields
// and view.
type exchange struct {
	g      *Gateway
	engine wire.Engine // of its group, once the body is decoded
	caller *identity.Caller
	http   httpd.Request
	out    httpd.Output
	record telemetry.Record
	// decodeBody is the route's.
	decodeBody decoder
	// budgets are what the answer's head says of the tenant's limits; nil where
	// it says nothing.
	budgets   func() budget.States
	refusedBy budget.Rule // the budget that refused the request, if one did
	run       run
	messages  bool   // the Messages API is spoken
	ending    ending // of a stream, nil where it is that of a chat

	stage   atomic.Int32
	entered atomic.Int64 // when the stage began, in nanoseconds of CLOCK_MONOTONIC

	ctx      context.Context // ends when the client leaves
	cancel   context.CancelFunc
	notify   chan struct{}    // receives when the engine has events
	timer    *time.Timer      // for the next comment; streamed requests only
	deadline *time.Timer      // the client's, nil for none
	hop      *siblings.Parcel // what a sibling sent, nil for a client's request
	recalled atomic.Bool      // the sibling does not want it any more
	draw     uint64           // of admission's Refuse, 0 for none
	due      int64            // when the deadline is over, 0 for none

	stalled time.Duration // of the connection, before this request

	shown int64 // when view was last brought up to date
	mu    sync.Mutex
	view  telemetry.Record // guarded by mu: what others may read of record
}

// Stages of an exchange, as the debug page shows them.
const (
	stageDecoding = iota
	stagePreparing
	stageQueued
	stageGenerating
	stageEnding // the client has its answer or its error; the engine has yet to say what it computed
)

var stageNames = [...]string{"decoding", "preparing", "queued", "generating", "ending"}

func (x *exchange) enter(stage int32) {
	now := wire.Monotonic()
	x.stage.Store(stage)
	x.entered.Store(now)
	x.show(now)
}

// newExchange starts the record and begins to watch the client.
func (g *Gateway) newExchange(c httpd.Request, caller *identity.Caller, r *route) *exchange {
	x := &exchange{g: g, engine: g.engine, caller: caller, http: c, out: c.Output(g.cfg.Timeouts.WriteStallLimit), decodeBody: r.decode, notify: make(chan struct{}, 1)}
	x.run.x = x
	x.ctx, x.cancel = context.WithCancel(context.Background())
	x.record = newRecord(c, caller, r.name)
	x.record.Forced = string(c.Header(captureHeader)) == "1"
	_, x.stalled = c.Backlog()
	x.enter(stageDecoding)
	c.SetHeader(requestIDHeader, publicID(&x.record))
	if x.messages = strings.HasPrefix(r.path, messagesPath); x.messages {
		c.SetHeader(messagesIDHeader, publicID(&x.record))
	}
	g.register(x)
	c.Watch(x.cancel)
	return x
}

// newRecord is the record of a request that has just arrived; caller may be nil.
func newRecord(c httpd.Request, caller *identity.Caller, route string) telemetry.Record {
	r := telemetry.Record{ID: newID(), Arrived: wire.Monotonic(), Route: route, Class: classNone}
	if caller != nil {
		r.Tenant, r.Key = caller.Tenant.Name, caller.Key
	}
	r.ClientID = saneID(c.Header(requestIDHeader))
	r.Trace, r.ParentSpan = traceOf(c)
	return r
}

// traceOf continues the caller's trace. A traceparent that is sent twice is
// invalid; several tracestates are one list (W3C Trace Context section 3.3.1.1).
func traceOf(c httpd.Request) (wire.TraceContext, [8]byte) {
	parents := c.Headers("Traceparent")
	if len(parents) != 1 {
		return telemetry.Trace("", "")
	}
	parent := string(parents[0]) // the next Headers reuses parents
	return telemetry.Trace(parent, string(bytes.Join(c.Headers("Tracestate"), []byte(","))))
}

// The headers with the request's id; the second is that of the Messages API.
const (
	requestIDHeader  = "X-Request-Id"
	messagesIDHeader = "Request-Id"
)

// publicID is the client's id if it sent an acceptable one, and ours otherwise.
// It is echoed and logged, and identifies nothing inside.
func publicID(r *telemetry.Record) string {
	if r.ClientID != "" {
		return r.ClientID
	}
	return r.ID
}

// promptID is the engine's name for one prompt's generation.
func (x *exchange) promptID(i int) string {
	if i == 0 {
		return x.record.ID
	}
	return x.record.ID + "-" + strconv.Itoa(i)
}

func newID() string {
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:], rand.Uint64())
	binary.NativeEndian.PutUint64(b[8:], rand.Uint64())
	return hex.EncodeToString(b[:])
}

const clientIDBytesMax = 128

// saneID returns a client's id if it is short and has harmless characters only, else "".
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

// clip shortens s for a message.
func clip(s string, bytesMax int) string {
	if len(s) > bytesMax {
		return s[:bytesMax] + "…"
	}
	return s
}

// await waits for ready. Meanwhile it watches the client, both deadlines (the
// client's and the drain's) and the silence of a stream.
func (x *exchange) await(ready <-chan struct{}) error {
	var tick <-chan time.Time
	if x.timer != nil {
		tick = x.timer.C
	}
	var late <-chan time.Time
	if x.deadline != nil {
		late = x.deadline.C
	}
	for {
		select {
		case <-ready:
			if x.ctx.Err() != nil {
				return errClientGone
			}
			return nil
		case <-x.ctx.Done():
			return errClientGone
		case <-x.g.cut:
			return errDraining
		case <-late:
			return errDeadline
		case <-tick:
			if err := x.breakSilence(time.Now()); err != nil {
				return err
			}
		}
	}
}

// silence is how long nothing may be sent in a stream.
func (x *exchange) silence() time.Duration {
	if x.hop != nil {
		return hopBeat
	}
	return x.g.cfg.Timeouts.KeepAlive
}

// breakSilence opens a stream that has waited for the commit limit, and sends a
// comment if nothing was sent for the keep-alive interval.
func (x *exchange) breakSilence(now time.Time) error {
	interval := x.silence()
	if !x.out.Opened {
		x.openStream()
	} else if quiet := now.Sub(x.out.LastWrite); quiet < interval {
		x.timer.Reset(interval - quiet)
		return nil
	}
	x.timer.Reset(interval)
	return x.out.Comment()
}

// end tells the client of err and finishes the exchange. Where the engine has yet to
// answer a cancel, that is left to a goroutine of the gateway, for which Shutdown
// waits as for the request itself: no client waits for a cancel.
func (x *exchange) end(err error) {
	x.tell(err)
	if x.run.cancel() {
		x.enter(stageEnding)
		go x.finish()
		return
	}
	x.finish()
}

// tell gives the record its outcome and the client its error, and is the last to use
// the connection.
func (x *exchange) tell(err error) {
	r := &x.record
	r.Outcome = telemetry.OK
	if err != nil {
		f := x.g.failureOf(err)
		if f.fault == faultWriteStall && x.ctx.Err() != nil {
			f = errClientGone // the write ended because the client went
		}
		status := r.Status
		noteFailure(r, f)
		if r.Refused = f.reason; f.reason != "" {
			r.WaitReason = cmp.Or(f.waited, f.reason)
		}
		if r.WaitPredicted == 0 && r.Reserved != 0 { // admission's refusal; a budget predicts no first token
			r.WaitPredicted = int64(f.predicted)
		}
		r.Status = status
		x.fail(f)
	}
	x.cancel()
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.deadline != nil {
		x.deadline.Stop()
	}
	if x.out.Opened {
		r.BytesOut = x.out.Written
	} else {
		r.BytesOut = int64(x.http.AnswerBytes())
	}
	r.Blocked = x.out.Blocked
	if unread, stalled := x.http.Backlog(); r.FirstWrite != 0 {
		r.Unread, r.Stalled = unread, max(0, stalled-x.stalled)
	}
}

// finish gives back what the run holds, and finishes the one record.
func (x *exchange) finish() {
	x.run.finish(x.g.cfg.Timeouts.CancelLimit)
	x.record.Finished = wire.Monotonic()
	x.show(x.record.Finished) // before others are told that it has ended
	x.g.recorder.Finish(&x.record)
	x.g.unregister(x)
}

// fail tells the client of f: by an event of an open stream, by an answer, or,
// where the client cannot be told, not at all.
func (x *exchange) fail(f *failure) {
	gone := f.fault == faultClientGone || f.fault == faultWriteStall
	if gone || !x.out.Opened {
		x.record.Status = faults[f.fault].status
	}
	switch {
	case gone:
		x.http.Abandon()
	case x.out.Opened:
		if x.ending != nil {
			x.out.Buf = x.ending.fail(x.out.Buf, f)
		} else {
			x.out.Buf = append(x.out.Buf, "data: "...)
			x.out.Buf = append(f.appendErrorObject(x.out.Buf), "\n\n"...)
		}
		// The answer is whole, and its head promised to keep the connection. The client
		// may have gone; the record has its outcome already.
		if x.out.Close() == nil {
			x.noteWrite()
		} else {
			x.http.CloseAfter()
		}
	default:
		x.http.SetHeader(processingHeader, strconv.FormatInt(x.processingMS(), 10))
		for _, field := range x.explained(nil) {
			x.http.SetHeader(field.Name, field.Value)
		}
		writeFailure(x.http, f)
	}
}

// noteWrite keeps the instant of the first write with content.
func (x *exchange) noteWrite() {
	if x.record.FirstToken != 0 && x.record.FirstWrite == 0 {
		x.record.FirstWrite = wire.Monotonic()
	}
}

const processingHeader = "Openai-Processing-Ms"

func (x *exchange) processingMS() int64 { return (wire.Monotonic() - x.record.Arrived) / 1e6 }

var (
	errClientGone = failed(faultClientGone, "the client left before its answer was whole")
	errWriteStall = failed(faultWriteStall, httpd.ErrStalled.Error())
	errDraining   = failed(faultDraining, "the server is stopping; try again")
)

// errPanic is what a panic in the path becomes, after it was logged.
var errPanic = errors.New("panic")

// recovered turns a panic into an error. Defer the call itself.
func (x *exchange) recovered(err *error) {
	if p := recover(); p != nil {
		x.g.log.Error("panic while serving a request", "id", x.record.ID, "trace_id", hex.EncodeToString(x.record.Trace.TraceID[:]), "panic", p, "stack", string(debug.Stack()))
		*err = errPanic
	}
}
