package admission

import (
	"sync"
	"time"
)

// Queue is the Controller over a Scheduler. It adds the lock, the clock, and the
// timer that ends waits and windows.
type Queue struct {
	clock func() time.Duration

	mu        sync.Mutex
	scheduler *Scheduler
	timer     *time.Timer
	closed    bool
}

// NewQueue makes a Queue that reads the time from clock, which never goes back and
// is also the clock of Reports. Close stops its timer.
func NewQueue(cfg Config, clock func() time.Duration) (*Queue, error) {
	s, err := NewScheduler(cfg)
	if err != nil {
		return nil, err
	}
	q := &Queue{clock: clock, scheduler: s}
	q.timer = time.AfterFunc(time.Hour, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.pump()
	})
	return q, nil
}

// Close stops the timer. Tickets that still wait are not woken any more.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.timer.Stop()
}

// SetTenants changes the tenants' weights. What has begun goes on.
func (q *Queue) SetTenants(list []Tenant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.scheduler.SetTenants(list)
}

// Admit implements Controller.
func (q *Queue) Admit(d Demand) (Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, refusal := q.scheduler.Arrive(d, q.clock())
	if refusal != nil {
		q.pump() // the clock went on: others may have expired
		return nil, refusal
	}
	t := &ticket{queue: q, entry: e, ready: make(chan struct{}), promise: Promise{Predicted: e.predicted}}
	if e.due > 0 {
		t.promise.Goal = e.due - e.arrived
	}
	e.ticket = t
	q.pump()
	return t, nil
}

// Refuse implements Controller.
func (q *Queue) Refuse(d *Demand) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	refusal := q.scheduler.Refuse(d, q.clock())
	if refusal == nil {
		return nil // Admit follows
	}
	q.pump() // the clock went on: others may have expired
	return refusal
}

// Report implements Controller.
func (q *Queue) Report(r Report) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.scheduler.Report(r, q.clock())
	q.pump()
}

// Load implements Controller.
func (q *Queue) Load() Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.scheduler.Load()
}

// View implements Controller.
func (q *Queue) View() View {
	q.mu.Lock()
	defer q.mu.Unlock()
	v := q.scheduler.View(q.clock())
	q.pump()
	return v
}

// SetMode implements Controller.
func (q *Queue) SetMode(class string, m Mode) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.scheduler.SetMode(class, m, q.clock())
	q.pump()
	return err
}

// Expected implements Controller.
func (q *Queue) Expected(d *Demand) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.scheduler.Expected(d)
}

// pump starts what may start, and closes the tickets of what started or was
// refused. The caller holds mu.
func (q *Queue) pump() {
	now := q.clock()
	for e := q.scheduler.Next(now); e != nil; e = q.scheduler.Next(now) {
		e.ticket.grant = e.Grant()
		close(e.ticket.ready)
	}
	for _, e := range q.scheduler.TakeRefused() {
		if e.ticket != nil {
			close(e.ticket.ready)
		}
	}
	if at, ok := q.scheduler.WakeAt(); ok && !q.closed {
		q.timer.Reset(max(0, at-now))
	}
}

// ticket implements Ticket.
type ticket struct {
	queue   *Queue
	entry   *Entry // guarded by queue.mu, except its refusal once ready is closed
	ready   chan struct{}
	promise Promise
	grant   Grant // written before ready is closed
}

func (t *ticket) Promise() Promise { return t.promise }

func (t *ticket) Ready() <-chan struct{} { return t.ready }

func (t *ticket) Err() error {
	if r := t.entry.refusal; r != nil {
		return r
	}
	return nil
}

func (t *ticket) Grant() Grant { return t.grant }

func (t *ticket) Progress(tokens int) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	first := t.entry.firstToken == 0
	q.scheduler.Progress(t.entry, tokens, q.clock())
	if first {
		q.pump()
	}
}

func (t *ticket) Done(s Spent) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.scheduler.Done(t.entry, s, q.clock())
	q.pump()
}
