package admission

import (
	"fmt"
	"sync"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// FIFO is a Controller that admits in order of arrival.
type FIFO struct {
	mu      sync.Mutex
	queue   queue
	tickets map[*entry]*ticket // the waiting ones
	timer   *time.Timer        // ends waits
	closed  bool
}

// NewFIFO makes a FIFO. Close it to stop its timer.
func NewFIFO(cfg Config) (*FIFO, error) {
	if err := conf.Complete("admission", &cfg); err != nil {
		return nil, err
	}
	f := &FIFO{queue: queue{cfg: cfg}, tickets: map[*entry]*ticket{}}
	f.timer = time.AfterFunc(cfg.WaitLimit, f.expire)
	return f, nil
}

// Close stops the timer; tickets that wait then wait until they are settled.
func (f *FIFO) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.timer.Stop()
}

// Admit implements Controller.
func (f *FIFO) Admit(w Work) (Ticket, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, refusal := f.queue.enter(w, time.Now())
	if refusal != nil {
		return nil, refusal
	}
	t := &ticket{fifo: f, entry: e, ready: make(chan struct{})}
	if e.state == running {
		close(t.ready)
		return t, nil
	}
	f.tickets[e] = t
	if len(f.tickets) == 1 {
		f.arm()
	}
	return t, nil
}

// Load implements Controller.
func (f *FIFO) Load() Load {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queue.load()
}

func (f *FIFO) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	late, started := f.queue.expire(time.Now())
	for _, e := range late {
		f.release(e, &Refusal{Reason: TimedOut, Message: fmt.Sprintf("no place became free within %v", f.queue.cfg.WaitLimit), RetryAfter: f.queue.predict()})
	}
	f.releaseAll(started)
	f.arm()
}

// arm sets the timer to the head's deadline. The caller holds mu.
func (f *FIFO) arm() {
	if at, ok := f.queue.deadline(); ok && !f.closed {
		f.timer.Reset(time.Until(at))
	}
}

func (f *FIFO) releaseAll(started []*entry) {
	for _, e := range started {
		f.release(e, nil)
	}
}

// release ends the waiting of e. The caller holds mu.
func (f *FIFO) release(e *entry, refusal *Refusal) {
	if t := f.tickets[e]; t != nil {
		delete(f.tickets, e)
		t.refusal = refusal
		close(t.ready)
	}
}

// ticket implements Ticket.
type ticket struct {
	fifo    *FIFO
	entry   *entry // guarded by fifo.mu
	ready   chan struct{}
	refusal *Refusal // written before ready is closed
}

func (t *ticket) Ready() <-chan struct{} { return t.ready }

func (t *ticket) Err() error {
	if t.refusal != nil {
		return t.refusal
	}
	return nil
}

func (t *ticket) Done(Spent) {
	f := t.fifo
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tickets, t.entry)
	f.releaseAll(f.queue.leave(t.entry, time.Now()))
}

// Report implements Controller.
func (f *FIFO) Report(Report) {}

// View implements Controller.
func (f *FIFO) View() View { return View{} }

// SetMode implements Controller.
func (f *FIFO) SetMode(string, Mode) error { return nil }

// Grant implements Ticket.
func (t *ticket) Grant() Grant { return Grant{Class: t.entry.work.Class} }

// Progress implements Ticket.
func (t *ticket) Progress(int) {}
