package wire

import (
	"math"
	"slices"
	"sync"
)

// Control is the producer's side of a stream, called by its reader. The
// calls do not block and may come from any goroutine.
type Control interface {
	Pause()
	Resume()
	// Cancel frees everything that the generation holds, and then puts its End,
	// with an error of kind Canceled and what was computed. It is called at most
	// once, where the End event was not put before. The producer may put that at
	// the same moment.
	Cancel()
	// Taken says that the reader has taken events, so that there is room again.
	Taken()
}

// Stream carries the events of one generation from its producer to its one
// reader, through a bounded buffer.
//
// The producer asks for Room before it does work that gives an event, and parks
// the generation while there is none; Put never blocks. An event with Finish or
// End set is always accepted, so a buffer of N choices holds at most
// window + N + 1 events.
type Stream struct {
	notify  chan<- struct{}
	control Control
	window  int

	mu       sync.Mutex
	events   []Event // put and not yet taken
	ended    bool    // the End event was put
	canceled bool    // nothing but the End event is wanted
	closed   bool
}

// NewStream makes a stream of at most window waiting events.
func NewStream(window int, notify chan<- struct{}, c Control) *Stream {
	return &Stream{notify: notify, control: c, window: window}
}

// FailedStream is a stream that has already ended with err.
func FailedStream(notify chan<- struct{}, err *Error) *Stream {
	s := &Stream{notify: notify, events: []Event{{End: &End{Err: err}}}, ended: true}
	s.Wake()
	return s
}

// Take appends the waiting events to dst and returns it; it does not wait.
// The reader waits on the Notify channel of its Generation.
func (s *Stream) Take(dst []Event) []Event {
	return s.takeN(dst, math.MaxInt)
}

// takeN is Take for at most limit events.
func (s *Stream) takeN(dst []Event, limit int) []Event {
	s.mu.Lock()
	n := min(limit, len(s.events))
	dst = append(dst, s.events[:n]...)
	rest := copy(s.events, s.events[n:])
	clear(s.events[rest:])
	s.events = s.events[:rest]
	live := s.running()
	s.mu.Unlock()
	if n > 0 && live {
		s.control.Taken()
	}
	return dst
}

// Pause asks the producer to stop working for this generation at the end of the
// next step; its pages are kept. Resume undoes it. Both are idempotent.
func (s *Stream) Pause() {
	if s.live() {
		s.control.Pause()
	}
}

// Resume continues a paused generation.
func (s *Stream) Resume() {
	if s.live() {
		s.control.Resume()
	}
}

// Cancel ends the generation early. The reader gets no event any more but the
// End, which says what was computed, and then closes the stream. It is idempotent.
func (s *Stream) Cancel() {
	s.mu.Lock()
	cancel := s.running()
	s.canceled = true
	end := len(s.events)
	if s.ended && end > 0 {
		end--
	}
	s.events = slices.Delete(s.events, 0, end)
	s.mu.Unlock()
	if cancel {
		s.control.Cancel()
	}
}

// Close is the reader's last call: it cancels a generation that has not ended,
// and drops the events that wait. It is idempotent.
func (s *Stream) Close() {
	s.mu.Lock()
	cancel := s.running()
	s.closed = true
	s.events = nil
	s.mu.Unlock()
	if cancel {
		s.control.Cancel()
	}
}

// running tells that the producer works for the stream and was not told to stop.
// The caller holds mu.
func (s *Stream) running() bool { return !s.ended && !s.canceled && !s.closed }

func (s *Stream) live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running()
}

// Room is how many events the producer may put now.
func (s *Stream) Room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.window-len(s.events))
}

// Waiting is how many events wait to be taken.
func (s *Stream) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events)
}

// Put hands an event to the reader without waking it, so that a producer can
// put all events of a step first. It returns false when the reader has closed or
// cancelled the stream, the stream has ended, or there is no room.
func (s *Stream) Put(e Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ended || s.canceled && e.End == nil {
		return false
	}
	if len(s.events) >= s.window && e.Finish == FinishNone && e.End == nil {
		return false
	}
	s.events = append(s.events, e)
	s.ended = e.End != nil
	return true
}

// Wake tells the reader that events may wait.
func (s *Stream) Wake() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}
