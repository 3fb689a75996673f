package wire

import (
	"context"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"
)

// connection is the engine's end of one gateway's connection. A reader does
// what the gateway asks; a writer sends what the engine made, one frame a step.
type connection struct {
	// Fixed at construction.
	conn   net.Conn
	engine Engine
	cfg    *ServerConfig
	ctx    context.Context // ends with the connection
	notify chan struct{}   // capacity 1: some stream has events, or out has bytes
	turns  chan struct{}   // one in it for each prepare at work

	// Owned by the writer.
	events []Event
	sent   *State
	model  Model

	mu        sync.Mutex
	sequences []*served // ids ascend
	last      uint64    // newest sequence id
	prepares  map[uint64]context.CancelFunc
	running   sync.WaitGroup // prepares
	out       []byte         // whole frames other than steps
}

// served is one generation of a connection; connection.mu guards it.
type served struct {
	id       uint64
	stream   *Stream
	window   int
	credit   int // events that the gateway has room for
	canceled bool
}

// serveConnection serves conn until it ends, and returns when all its work
// is cancelled.
func serveConnection(ctx context.Context, conn net.Conn, engine Engine, cfg *ServerConfig) {
	served, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &connection{
		conn: conn, engine: engine, cfg: cfg, ctx: served, notify: make(chan struct{}, 1),
		turns: make(chan struct{}, max(4, runtime.GOMAXPROCS(0))), prepares: map[uint64]context.CancelFunc{},
	}
	reader := newFrameReader(conn, cfg.FrameBytesMax)
	undo := context.AfterFunc(ctx, func() { conn.Close() })
	err := c.greet(reader)
	undo()
	if err != nil {
		refuse(conn, lost(err))
		return
	}
	// The reader ends first, so that the writer can still send what is there.
	undo = context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer undo()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if !c.write() {
			conn.Close() // so that the reader ends too
		}
	}()
	why := c.read(reader)
	cancel()
	<-written
	c.release()
	if ctx.Err() != nil {
		why = Errorf(Draining, "the engine is stopping")
	}
	refuse(conn, why)
}

// greet exchanges hellos, the gateway's first.
func (c *connection) greet(reader *frameReader) error {
	if err := c.conn.SetDeadline(time.Now().Add(c.cfg.HelloTimeout)); err != nil {
		return err
	}
	if _, err := readHello(reader); err != nil {
		return err
	}
	state := *c.engine.State()
	state.Blocks = nil
	c.model = state.Model
	h := hello{Protocol: protocolVersion, Version: c.cfg.Version, ClockNs: Monotonic(), State: &state}
	if _, err := c.conn.Write(appendJSONFrame(nil, frameHello, &h)); err != nil {
		return err
	}
	return c.conn.SetDeadline(time.Time{})
}

// release cancels all that the connection asked for, and waits.
func (c *connection) release() {
	c.mu.Lock()
	sequences := c.sequences
	c.sequences = nil
	c.mu.Unlock()
	for _, q := range sequences {
		q.stream.Close()
	}
	c.running.Wait() // their context has ended
}

func (c *connection) read(reader *frameReader) *Error {
	for {
		kind, payload, err := reader.next()
		if err != nil {
			return lost(err)
		}
		if err := c.handle(kind, payload); err != nil {
			return err
		}
	}
}

func (c *connection) handle(kind byte, payload []byte) *Error {
	d := &decoder{rest: payload}
	switch kind {
	case frameDispatch:
		m := d.dispatch()
		if err := d.finish(); err != nil {
			return err
		}
		return c.dispatch(&m)
	case framePrepare:
		id, r := d.uint(), d.request()
		if err := d.finish(); err != nil {
			return err
		}
		return c.prepare(id, r)
	case frameAck, frameCancel, framePause, frameResume, frameAbandon:
		id, taken := d.uint(), uint64(0)
		if kind == frameAck {
			taken = d.uint()
		}
		if err := d.finish(); err != nil {
			return err
		}
		return c.control(kind, id, taken)
	}
	return Errorf(Protocol, "unknown frame type %d from the gateway", kind)
}

func (c *connection) dispatch(m *dispatch) *Error {
	c.mu.Lock()
	last, live := c.last, len(c.sequences)
	c.last = m.Sequence
	c.mu.Unlock()
	switch {
	case m.Sequence <= last:
		return Errorf(Protocol, "sequence %d after sequence %d: ids must ascend", m.Sequence, last)
	case m.Window < 1:
		return Errorf(Protocol, "sequence %d with a window of %d events", m.Sequence, m.Window)
	case live >= 2*c.cfg.SequencesMax: // it does not listen to refusals
		return Errorf(Protocol, "over %d sequences on one connection", live)
	}
	q := &served{id: m.Sequence, window: m.Window, credit: m.Window}
	g := &m.Generation
	g.Notify = c.notify
	if live >= c.cfg.SequencesMax {
		err := Errorf(Overloaded, "the engine has the %d generations that one gateway may give it", c.cfg.SequencesMax)
		err.RetryAfter = time.Second
		q.stream = FailedStream(g.Notify, err)
	} else {
		q.stream = c.engine.Generate(g)
	}
	c.mu.Lock()
	c.sequences = append(c.sequences, q)
	c.mu.Unlock()
	c.kick() // a stream that failed at once may have woken the writer too early
	return nil
}

// control does what a frame of one id asks. An id that is not live is one
// whose end is on its way to the gateway.
func (c *connection) control(kind byte, id, taken uint64) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind == frameAbandon {
		if cancel, ok := c.prepares[id]; ok {
			cancel()
		}
		return nil
	}
	i, ok := slices.BinarySearchFunc(c.sequences, id, func(q *served, id uint64) int {
		switch {
		case q.id < id:
			return -1
		case q.id > id:
			return 1
		}
		return 0
	})
	switch {
	case id > c.last:
		return Errorf(Protocol, "a frame about sequence %d, which was never dispatched", id)
	case !ok:
		return nil
	}
	q := c.sequences[i]
	switch kind {
	case frameAck:
		if taken > uint64(q.window-q.credit) {
			return Errorf(Protocol, "%d events of sequence %d acknowledged and %d sent", taken, id, q.window-q.credit)
		}
		q.credit += int(taken)
		c.kick()
	case frameCancel:
		q.canceled = true
		q.stream.Close()
		c.kick()
	case framePause:
		q.stream.Pause()
	case frameResume:
		q.stream.Resume()
	}
	return nil
}

// prepare starts to prepare r; the reply goes out with the next write.
func (c *connection) prepare(id uint64, r *Request) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.prepares[id]; ok {
		return Errorf(Protocol, "prepare %d twice", id)
	}
	if len(c.out) > c.cfg.OutgoingBytesMax {
		return Errorf(Protocol, "over %d bytes of replies that the gateway does not read", c.cfg.OutgoingBytesMax)
	}
	if len(c.prepares) >= c.cfg.PreparesMax {
		err := Errorf(Overloaded, "the engine has %d prompts to prepare already", c.cfg.PreparesMax)
		err.RetryAfter = time.Second
		c.out = appendPromptReply(c.out, &promptReply{Prepare: id, Err: err})
		c.kick()
		return nil
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.prepares[id] = cancel
	c.running.Go(func() {
		defer cancel()
		reply := c.answer(ctx, id, r) // a long one takes a while, so without mu
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.prepares, id)
		c.out = append(c.out, reply...)
		c.kick()
	})
	return nil
}

// answer waits for a turn, prepares r, and returns the frame that says what
// became of it.
func (c *connection) answer(ctx context.Context, id uint64, r *Request) []byte {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return appendPromptReply(nil, &promptReply{Prepare: id, Err: abandoned()})
	}
	p, err := c.engine.Prepare(ctx, r)
	reply := promptReply{Prepare: id, Prompt: p}
	if err != nil {
		reply.Err = AsError(err)
	}
	frame := appendPromptReply(nil, &reply)
	if size := len(frame) - frameHead; size > c.cfg.FrameBytesMax {
		err := Errorf(TooLarge, "the prompt takes %d bytes to hand back, over the limit of %d: send a shorter one or raise frame_bytes_max", size, c.cfg.FrameBytesMax)
		return appendPromptReply(nil, &promptReply{Prepare: id, Err: err})
	}
	return frame
}

func (c *connection) kick() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// write sends a frame whenever there is something to say, and at least one
// every HeartbeatInterval. It returns true when the connection's context has
// ended and all that was there to say by then is sent, false when it failed.
func (c *connection) write() bool {
	heartbeat := time.NewTicker(c.cfg.HeartbeatInterval)
	defer heartbeat.Stop()
	var b []byte
	for due := true; ; {
		last := c.ctx.Err() != nil
		for more := true; more; {
			b, more = c.compose(b[:0], due)
			due = false
			if len(b) > 0 && !c.send(b) {
				return false
			}
		}
		if last {
			return true
		}
		if cap(b) > frameKeep {
			b = nil
		}
		select {
		case <-c.ctx.Done():
		case <-c.notify:
		case <-heartbeat.C:
			due = true
		}
	}
}

func (c *connection) send(b []byte) bool {
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout)); err != nil {
		return false
	}
	_, err := c.conn.Write(b)
	return err == nil
}

// compose appends what waits: other frames, then the step with the newest
// state and the events that the gateway has room for. It stops at a share of
// the largest frame and says that there is more.
func (c *connection) compose(b []byte, due bool) (_ []byte, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b = append(b, c.out...)
	if c.out = c.out[:0]; cap(c.out) > frameKeep {
		c.out = nil
	}
	state := c.engine.State()
	if state.Model != c.model {
		c.model = state.Model
		b = appendJSONFrame(b, frameModel, &c.model)
	}
	start := len(b)
	b = beginFrame(b, frameStep)
	fresh := due || state != c.sent
	b = appendBool(b, fresh)
	if fresh {
		b = appendState(b, state)
		if len(b)-start > c.cfg.FrameBytesMax/8 && len(state.Blocks) > 0 {
			bare := *state
			bare.Blocks = nil
			b = appendState(b[:start+frameHead+1], &bare)
		}
		c.sent = state
	}
	bare := len(b)
	b, more = c.appendSteps(b, start)
	if len(b) == bare && !fresh {
		return b[:start], false
	}
	return endFrame(b, start), more
}

// appendSteps appends the events of all sequences to the step frame that
// begins at start, and forgets the sequences that end.
func (c *connection) appendSteps(b []byte, start int) (_ []byte, more bool) {
	soft := min(frameKeep, c.cfg.FrameBytesMax/4)
	previous, kept := uint64(0), c.sequences[:0]
	for _, q := range c.sequences {
		ended, full := false, false
		for !ended {
			if full = len(b)-start > soft; full {
				break
			}
			if c.events = q.take(c.events[:0]); len(c.events) == 0 {
				break
			}
			e, at := &c.events[0], len(b)
			b = appendEvent(b, q.id-previous, e)
			if size := len(b) - at; size > c.cfg.FrameBytesMax/2 {
				q.stream.Close()
				*e = Event{End: &End{Err: Errorf(TooLarge, "one event takes %d bytes: ask for fewer log-probabilities", size)}}
				b = appendEvent(b[:at], q.id-previous, e)
			}
			previous, ended = q.id, e.End != nil
			*e = Event{}
		}
		more = more || full
		if !ended {
			kept = append(kept, q)
		}
	}
	clear(c.sequences[len(kept):])
	c.sequences = kept
	return b, more
}

// take appends the one event that q may send now, if there is one. A
// cancelled sequence sends its end alone.
func (q *served) take(dst []Event) []Event {
	if q.canceled {
		return append(dst, Event{End: &End{Err: Errorf(Canceled, "the reader left")}})
	}
	dst = q.stream.TakeN(dst, min(1, q.credit))
	q.credit -= len(dst)
	return dst
}
