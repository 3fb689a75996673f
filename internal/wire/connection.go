package wire

import (
	"cmp"
	"context"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// connection is the engine's end of one gateway's connection. A reader does what
// the gateway asks; a writer sends what the engine has produced, one frame a step.
type connection struct {
	// Fixed at construction.
	conn   net.Conn
	engine Engine
	cfg    *ServerConfig
	ctx    context.Context // ends with the connection
	notify chan struct{}   // capacity 1: some stream has events, or out has bytes
	turns  chan struct{}   // holds one value for each prepare at work

	// Owned by the writer.
	events []Event
	sent   *State
	model  Model
	news   State         // sent, with the block changes since the one before
	blocks hitmap.Reader // of the engine's journal
	steps  uint64        // records of the engine's log that were sent or left out

	mu        sync.Mutex
	sequences []*served                     // ids ascend
	last      uint64                        // newest sequence id
	prepares  map[uint64]context.CancelFunc // of requests that have one reply
	running   sync.WaitGroup                // those at work
	out       []byte                        // whole frames other than steps
}

// served is one generation of a connection; connection.mu guards it.
type served struct {
	id       uint64
	stream   *Stream
	window   int
	credit   int    // events that the gateway has room for
	canceled bool   // its end needs no credit
	err      *Error // of its end, where the connection cancelled it; or nil
}

// serveConnection serves conn until it ends, and returns when all its work has
// ended.
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
	// The reader ends first, so that the writer can still send what waits.
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

// greet exchanges hellos; the gateway says it first.
func (c *connection) greet(reader *frameReader) error {
	if err := c.conn.SetDeadline(time.Now().Add(c.cfg.HelloTimeout)); err != nil {
		return err
	}
	if _, err := readHello(reader); err != nil {
		return err
	}
	state := c.engine.State()
	c.model, c.steps = state.Model, state.Steps.Added()
	h := hello{Protocol: protocolVersion, Version: c.cfg.Version, ClockNs: Monotonic(), State: state}
	if _, err := c.conn.Write(appendJSONFrame(nil, frameHello, &h)); err != nil {
		return err
	}
	return c.conn.SetDeadline(time.Time{})
}

// release cancels all work of the connection, and waits until it has ended.
func (c *connection) release() {
	c.mu.Lock()
	sequences := c.sequences
	c.sequences = nil
	c.mu.Unlock()
	for _, q := range sequences {
		q.stream.Close()
	}
	c.running.Wait() // they end with the context
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
	case frameTrace:
		id, steps, limit := d.uint(), d.size(), d.duration()
		if err := d.finish(); err != nil {
			return err
		}
		return c.traceLaunches(id, steps, limit)
	case frameHoldings:
		id, most := d.uint(), d.size()
		if err := d.finish(); err != nil {
			return err
		}
		return c.tellHoldings(id, most)
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
	case live >= 2*c.cfg.SequencesMax: // the gateway ignores refusals
		return Errorf(Protocol, "%d sequences on one connection, over twice the limit of %d: dispatch fewer or raise sequences_max", live, c.cfg.SequencesMax)
	}
	q := &served{id: m.Sequence, window: m.Window, credit: m.Window}
	g := &m.Generation
	g.Notify = c.notify
	if live >= c.cfg.SequencesMax {
		err := Errorf(Overloaded, "the engine already has the %d generations that one gateway may give it", c.cfg.SequencesMax)
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

// control does what a frame about one id asks. Where the id is not live, its end
// is on the way to the gateway, and there is nothing to do.
func (c *connection) control(kind byte, id, taken uint64) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind == frameAbandon {
		if cancel, ok := c.prepares[id]; ok {
			cancel()
		}
		return nil
	}
	i, ok := slices.BinarySearchFunc(c.sequences, id, func(q *served, id uint64) int { return cmp.Compare(q.id, id) })
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
		q.stream.Cancel()
		c.kick()
	case framePause:
		q.stream.Pause()
	case frameResume:
		q.stream.Resume()
	}
	return nil
}

// prepare starts to prepare r.
func (c *connection) prepare(id uint64, r *Request) *Error {
	refused := func(err *Error) []byte { return appendPromptReply(nil, &promptReply{Prepare: id, Err: err}) }
	return c.start(id, refused, func(ctx context.Context) []byte { return c.answer(ctx, id, r) })
}

// start makes the reply to a request in a goroutine of its own, or refuses the
// request; the writer sends either.
func (c *connection) start(id uint64, refused func(*Error) []byte, answer func(context.Context) []byte) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.prepares[id]; ok {
		return Errorf(Protocol, "request %d was sent twice", id)
	}
	if len(c.out) > c.cfg.OutgoingBytesMax {
		return Errorf(Protocol, "more than %d bytes of replies that the gateway does not read", c.cfg.OutgoingBytesMax)
	}
	if len(c.prepares) >= c.cfg.PreparesMax {
		err := Errorf(Overloaded, "the engine already has %d prompts to prepare", c.cfg.PreparesMax)
		err.RetryAfter = time.Second
		c.out = append(c.out, refused(err)...)
		c.kick()
		return nil
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.prepares[id] = cancel
	c.running.Go(func() {
		defer cancel()
		reply := answer(ctx) // may take long, so without mu
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.prepares, id)
		c.out = append(c.out, reply...)
		c.kick()
	})
	return nil
}

// answer waits for its turn, prepares r, and returns the frame with the prompt or
// the error.
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
