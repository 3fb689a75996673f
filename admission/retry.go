package admission

import "time"

// The bounds of a Retry-After.
const (
	retryMin = time.Second
	retryMax = 10 * time.Minute
)

// retryAfter is when a request like e could keep its goal: the wait for the
// backlog or for places, less the time that it may wait.
func (s *Scheduler) retryAfter(e *Entry) time.Duration {
	wait := s.backlogWait(e)
	if n := s.waiting.sequences + e.demand.Sequences - (s.places() - s.engine.sequences); n > 0 && s.engine.sequences > 0 {
		wait = max(wait, time.Duration(float64(n)*s.engine.life/float64(s.engine.sequences)))
	}
	if e.due > 0 {
		wait -= e.due - e.arrived
	}
	return min(max(wait, retryMin), retryMax)
}

// comeBack is after how long e, which would be late now, could be in time: once
// the work by which it is late is done, and that of the requests which were told
// to come back before it, so that they do not all return at once.
func (s *Scheduler) comeBack(e *Entry) time.Duration {
	s.returning = max(0, s.returning-(s.now-s.returningAt))
	s.returningAt = s.now
	wait := max(0, e.predicted-(e.due-e.arrived)) + s.returning
	s.returning = min(s.returning+e.prefill, retryMax)
	return min(max(wait, retryMin), retryMax)
}

// backlogWait is how long the engine needs for e's prefill and for all that waits
// in classes as urgent as e's or more, at the rate that e's level gets. An e that
// waits already is part of that backlog, and so counts twice.
func (s *Scheduler) backlogWait(e *Entry) time.Duration {
	work := e.prefill
	for _, k := range s.classes {
		if k.level <= e.class.level {
			work += k.backlog
		}
	}
	c := s.course(e.class.level, unseenRows)
	return time.Duration(c.when(float64(work)))
}
