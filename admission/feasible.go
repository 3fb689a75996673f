package admission

import (
	"fmt"
	"time"
)

// When a request arrives, every waiting one that has a goal must still be able
// to keep it. Where one cannot, a request gives way, and not simply the newcomer:
// the largest at or before the late one, as Moore and Hodgson do (1968) for the
// fewest late jobs, and first one of a tenant that is over its share.

// relieve gives up requests of e's level until everybody can keep its goal, and
// predicts e's own wait.
func (s *Scheduler) relieve(e *Entry) {
	if !s.engine.cost.Known() {
		return
	}
	if e.due == 0 {
		e.predicted = s.backlogWait(e)
		s.checkWithin(e)
		return
	}
	for weighed := false; e.state == waiting && e.due > 0; {
		f := s.forecast(e.level)
		late, wait := f.test(&s.levels[e.level].track, e)
		if wait > 0 {
			e.predicted = wait
		}
		if late == nil {
			return
		}
		if !weighed {
			s.weigh()
			weighed = true
		}
		victim := s.victim(e.level, late, e)
		s.giveUp(victim, s.lateRefusal(victim, e.predicted))
	}
}

// overMost is how far a tenant may be over its fair share before its requests are
// the first to give way.
const overMost = 1.25

// victim is the request that gives way for late: one of its lane, at or before
// it, of the tenant furthest over its share, and the largest for that tenant's
// weight. Among equals it is the newcomer.
func (s *Scheduler) victim(level int, late, newcomer *Entry) *Entry {
	best, bestOver, bestSize := newcomer, -1.0, -1.0
	for _, b := range s.levels[level].track.blocks {
		for _, o := range b.entries {
			if before(late, o) {
				return best
			}
			if o.long == late.long {
				over, size := o.line.tenant.over, float64(o.prefill)/o.line.tenant.weight
				if over < overMost {
					over = 0
				}
				if o == newcomer {
					size *= 1.0001
				}
				if over > bestOver || over == bestOver && size > bestSize {
					best, bestOver, bestSize = o, over, size
				}
			}
		}
	}
	return best
}

// giveUp does with a waiting e what its class says of requests that would be
// late: refuse it, or let it wait on without a goal in the last class.
func (s *Scheduler) giveUp(e *Entry, r *Refusal) {
	if e.class.Late != "demote" || !s.demote(e) {
		s.refuse(e, r)
	}
}

// demote moves a waiting e to the last of the classes, and tells whether it could:
// that class must be another one, take requests, and have room.
func (s *Scheduler) demote(e *Entry) bool {
	to := s.classes[len(s.classes)-1]
	if to == e.class || to.mode == Drained || to.full(e) {
		return false
	}
	t := e.line.tenant
	s.leave(e)
	e.class = to
	e.expires = max(e.expires, s.expiresAt(e))
	s.price(e)
	e.due = 0
	s.enter(e, t)
	to.demoted++
	return true
}

// lateRefusal is the refusal of a request that gives way. predicted is the wait to
// tell if e has no prediction of its own.
func (s *Scheduler) lateRefusal(e *Entry, predicted time.Duration) *Refusal {
	if e.predicted == 0 {
		e.predicted = predicted
	}
	return &Refusal{
		Reason: Late, Predicted: e.predicted, RetryAfter: s.comeBack(e),
		Message: fmt.Sprintf("class %s promises a first token within %v, which cannot be kept for every request that waits now; try again later, or use a class that may wait",
			e.class.Name, (e.due - e.arrived).Round(time.Millisecond)),
	}
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
	return time.Duration(float64(work) / s.rate(e.class.level))
}

// checkWithin refuses e where its client's deadline cannot be met.
func (s *Scheduler) checkWithin(e *Entry) {
	if e.demand.Within == 0 || e.predicted <= e.demand.Within {
		return
	}
	s.refuse(e, &Refusal{
		Reason: PastDeadline, Predicted: e.predicted, RetryAfter: e.predicted - e.demand.Within,
		Message: fmt.Sprintf("the request's deadline of %v cannot be met: its first token is predicted after %v", e.demand.Within, e.predicted.Round(time.Millisecond)),
	})
}

// The bounds of a Retry-After.
const (
	retryMin = time.Second
	retryMax = 10 * time.Minute
)

// retryAfter is when a request like e could keep its goal: the wait for the
// backlog or for places, less the time that it may wait.
func (s *Scheduler) retryAfter(e *Entry) time.Duration {
	wait := s.backlogWait(e)
	if n := s.waiting.sequences + e.demand.Sequences - (s.cfg.RunningSequencesMax - s.engine.sequences); n > 0 && s.engine.sequences > 0 {
		wait = max(wait, time.Duration(float64(n)*s.engine.life/float64(s.engine.sequences)))
	}
	if e.due > 0 {
		wait -= e.due - e.arrived
	}
	return min(max(wait, retryMin), retryMax)
}
