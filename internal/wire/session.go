package wire

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// session is one connection of a Client.
//
// The reader puts events into streams and never waits for one. Callers append
// whole frames to out, or mark their sequence dirty where only its newest state
// matters; the writer sends both. So no caller waits for the socket, and a cancel
// is never lost because a buffer is full.
type session struct {
	// Fixed at construction.
	client *Client
	conn   net.Conn
	reader *frameReader
	wake   chan struct{} // capacity 1: the writer has something to write
	// Requests without an answer yet, by id; mu guards the maps' contents. A
	// channel has room for the reply, since the caller may have given up.
	prepares map[uint64]chan promptReply
	traces   map[uint64]chan traceReply
	holdings map[uint64]chan holdingsReply

	// Owned by the reader.
	model   Model
	step    stepFrame
	touched []*Stream // that have events of the current step

	mu        sync.Mutex // before any stream's lock
	sequences map[uint64]*sequence
	last      uint64 // newest id of sequences and requests
	out       []byte
	dirty     []*sequence
	err       *Error // set once the connection has ended
}

// sequence is the client's end of one generation; session.mu guards it.
type sequence struct {
	session *session
	id      uint64
	stream  *Stream
	choices []choiceProgress

	put, acked         int // events
	paused, toldPaused bool
	canceled, told     bool // told: the cancel was sent
	isDirty, ended     bool
}

type choiceProgress struct {
	tokens   int
	finished bool
}

func newSession(c *Client, conn net.Conn, reader *frameReader, m Model) *session {
	return &session{
		client: c, conn: conn, reader: reader, model: m, wake: make(chan struct{}, 1),
		sequences: map[uint64]*sequence{}, prepares: map[uint64]chan promptReply{}, traces: map[uint64]chan traceReply{}, holdings: map[uint64]chan holdingsReply{},
	}
}

// serve reads until the connection ends. When it returns, the client is down,
// every stream has ended, and the writer has returned.
func (s *session) serve(ctx context.Context) {
	undo := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer undo()
	stop, written := make(chan struct{}), make(chan error, 1)
	go func() { written <- s.write(stop) }()
	err := s.read()
	close(stop)
	s.conn.Close()
	if failed := <-written; failed != nil && errors.Is(err, net.ErrClosed) {
		err = failed
	}
	if ctx.Err() != nil {
		err = Errorf(Unavailable, "the engine client is closed")
	}
	why := unavailable("the engine went away", err)
	s.client.down(why)
	s.end(why)
}

// end ends every stream and every waiting Prepare with why.
func (s *session) end(why *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = why
	for _, q := range s.sequences {
		q.ended = true
		q.stream.Put(Event{End: &End{Err: why}})
		q.stream.Wake()
	}
	for _, reply := range s.prepares {
		reply <- promptReply{Err: why}
	}
	for _, reply := range s.traces {
		reply <- traceReply{Err: why}
	}
	for _, reply := range s.holdings {
		reply <- holdingsReply{Err: why}
	}
	clear(s.prepares)
	clear(s.traces)
	clear(s.holdings)
	s.sequences, s.dirty, s.out = nil, nil, nil
}

func (s *session) read() error {
	for {
		kind, payload, err := s.reader.next()
		if err != nil {
			return err
		}
		if err := s.handle(kind, payload); err != nil {
			return err
		}
	}
}

func (s *session) handle(kind byte, payload []byte) *Error {
	switch kind {
	case frameStep:
		return s.handleStep(payload)
	case framePromptReply:
		d := &decoder{rest: payload}
		r := d.promptReply()
		if err := d.finish(); err != nil {
			return err
		}
		return answer(s, s.prepares, r.Prepare, r)
	case frameTraceReply:
		d := &decoder{rest: payload}
		r := d.traceReply()
		if err := d.finish(); err != nil {
			return err
		}
		return answer(s, s.traces, r.Trace, r)
	case frameHoldingsReply:
		d := &decoder{rest: payload}
		r := d.holdingsReply()
		if err := d.finish(); err != nil {
			return err
		}
		return answer(s, s.holdings, r.Asked, r)
	case frameModel:
		var m Model
		if err := json.Unmarshal(payload, &m); err != nil {
			return Errorf(Protocol, "the model description is not readable: %v", err)
		}
		s.model = m
		return nil
	case frameRefuse:
		return refusal(payload)
	}
	return Errorf(Protocol, "unknown frame type %d from the engine", kind)
}

// handleStep puts the events of a step, wakes each reader once, and publishes the
// state.
func (s *session) handleStep(payload []byte) *Error {
	s.mu.Lock()
	live := len(s.sequences)
	s.mu.Unlock()
	if err := s.step.decode(payload, live*(s.client.cfg.WindowEvents+1)); err != nil {
		return err
	}
	// Before the events, so that a reader of an end finds the records of its steps.
	for i := range s.step.Records {
		s.client.steps.Add(&s.step.Records[i])
	}
	s.mu.Lock()
	var err *Error
	for i := 0; i < len(s.step.Events) && err == nil; i++ {
		e := &s.step.Events[i]
		q := s.sequences[e.Sequence]
		if q == nil {
			err = Errorf(Protocol, "an event for sequence %d, which is not live", e.Sequence)
			break
		}
		if n := len(s.touched); n == 0 || s.touched[n-1] != q.stream {
			s.touched = append(s.touched, q.stream)
		}
		err = q.accept(&e.Event)
	}
	s.mu.Unlock()
	for i, stream := range s.touched { // without mu, which the woken readers need
		stream.Wake()
		s.touched[i] = nil
	}
	s.touched = s.touched[:0]
	if state := s.step.State; state != nil && err == nil {
		state.Model = s.model
		state.Blocks = s.client.State().Blocks.Extend(state.Blocks)
		s.client.publish(state)
	}
	return err
}

// accept checks an event against the earlier ones of the sequence, and puts it.
func (q *sequence) accept(e *Event) *Error {
	if e.End != nil {
		q.ended = true
		delete(q.session.sequences, q.id)
		q.stream.Put(*e)
		return nil
	}
	if e.Choice < 0 || e.Choice >= len(q.choices) {
		return Errorf(Protocol, "an event for choice %d of sequence %d, which has %d", e.Choice, q.id, len(q.choices))
	}
	c := &q.choices[e.Choice]
	switch {
	case c.finished:
		return Errorf(Protocol, "an event after the finish of choice %d of sequence %d", e.Choice, q.id)
	case e.TokenCount < c.tokens:
		return Errorf(Protocol, "the token count of choice %d of sequence %d went from %d to %d", e.Choice, q.id, c.tokens, e.TokenCount)
	case q.put-q.acked >= q.session.client.cfg.WindowEvents:
		return Errorf(Protocol, "more events for sequence %d than its window of %d", q.id, q.session.client.cfg.WindowEvents)
	}
	c.tokens, c.finished = e.TokenCount, e.Finish != FinishNone
	q.put++
	q.stream.Put(*e) // false only when the reader has just closed the stream
	return nil
}

// enqueue appends a frame with a new id and body, or returns why it cannot. The
// caller holds mu; it has made body before, since a long one takes a while.
func (s *session) enqueue(kind byte, body []byte) (id uint64, _ *Error) {
	cfg := &s.client.cfg
	switch {
	case s.err != nil:
		return 0, s.err
	case len(body)+binary.MaxVarintLen64 > cfg.FrameBytesMax:
		return 0, Errorf(TooLarge, "the request takes %d bytes to hand to the engine, over the limit of %d: send a shorter one or raise frame_bytes_max", len(body), cfg.FrameBytesMax)
	case len(s.out)+len(body) > cfg.OutgoingBytesMax:
		e := Errorf(Overloaded, "the engine does not read fast enough: over %d bytes wait for it", cfg.OutgoingBytesMax)
		e.RetryAfter = time.Second
		return 0, e
	}
	s.last++
	start := len(s.out)
	s.out = append(binary.AppendUvarint(beginFrame(s.out, kind), s.last), body...)
	endFrame(s.out, start)
	s.kick()
	return s.last, nil
}

func (s *session) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) generate(g *Generation) *Stream {
	// A frame that the engine must refuse to read would end the connection for all.
	if err := g.Check(&Model{}); err != nil {
		return FailedStream(g.Notify, err)
	}
	window := s.client.cfg.WindowEvents
	body := appendDispatch(nil, window, g)
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := s.enqueue(frameDispatch, body)
	if err != nil {
		return FailedStream(g.Notify, err)
	}
	q := &sequence{session: s, id: id, choices: make([]choiceProgress, max(1, g.Options.N))}
	q.stream = NewStream(window, g.Notify, q)
	s.sequences[q.id] = q
	return q.stream
}

// Pause implements Control.
func (q *sequence) Pause() { q.change(func() { q.paused = true }) }

// Resume implements Control.
func (q *sequence) Resume() { q.change(func() { q.paused = false }) }

// Cancel implements Control.
func (q *sequence) Cancel() { q.change(func() { q.canceled = true }) }

// Taken implements Control. The engine is told after every quarter of a window.
func (q *sequence) Taken() { q.change(func() {}) }

// change applies a change of the reader's, and marks the sequence as dirty where
// the engine must be told.
func (q *sequence) change(apply func()) {
	s := q.session
	s.mu.Lock()
	defer s.mu.Unlock()
	apply()
	if q.ended || q.isDirty || !q.news() {
		return
	}
	q.isDirty = true
	s.dirty = append(s.dirty, q)
	s.kick()
}

func (q *sequence) taken() int { return q.put - q.stream.Waiting() }

func (q *sequence) news() bool {
	batch := max(1, q.session.client.cfg.WindowEvents/4)
	return q.paused != q.toldPaused || q.canceled && !q.told || q.taken()-q.acked >= batch
}

// appendNews appends the frames that tell the engine what has changed.
func (q *sequence) appendNews(b []byte) []byte {
	q.isDirty = false
	switch {
	case q.ended || q.told:
		return b
	case q.canceled:
		q.told = true
		return appendIDFrame(b, frameCancel, q.id)
	}
	if taken := q.taken(); taken > q.acked {
		b = appendAckFrame(b, q.id, taken-q.acked)
		q.acked = taken
	}
	if q.paused != q.toldPaused {
		kind := byte(frameResume)
		if q.paused {
			kind = framePause
		}
		b = appendIDFrame(b, kind, q.id)
		q.toldPaused = q.paused
	}
	return b
}

// write sends what the callers have left, until stop or a failed write. A failed
// write closes the connection, so that the reader ends too.
func (s *session) write(stop <-chan struct{}) error {
	var b []byte
	for {
		select {
		case <-stop:
			return nil
		case <-s.wake:
		}
		s.mu.Lock()
		b, s.out = s.out, b[:0]
		for i, q := range s.dirty {
			b = q.appendNews(b)
			s.dirty[i] = nil
		}
		s.dirty = s.dirty[:0]
		s.mu.Unlock()
		if len(b) == 0 {
			continue
		}
		err := s.conn.SetWriteDeadline(time.Now().Add(s.client.cfg.WriteTimeout))
		if err == nil {
			_, err = s.conn.Write(b)
		}
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				select { // the engine is gone, but its last frames may still be unread
				case <-stop:
				case <-time.After(s.client.cfg.WriteTimeout):
				}
			}
			s.conn.Close()
			return err
		}
		if cap(b) > frameKeep {
			b = nil
		}
	}
}
