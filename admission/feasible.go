package admission

import (
	"fmt"
	"time"
)

// When a request arrives, every waiting one that has a goal must still be able
// to keep it. Where one cannot, the request whose leaving helps most is taken
// out, not simply the newcomer: the largest among those before it, as Moore
// and Hodgson do (1968) to have the fewest late jobs, and first of tenants
// that are over their share.

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

// overMost is how far a tenant may be over its share before its requests go first.
const overMost = 1.25

// victim is whose leaving helps late most: of its lane, not after it, the
// largest for its tenant's weight, and first of the tenant furthest over its
// share. The newcomer goes before others that are as large.
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

// giveUp does with a waiting e what its class says of those that would be
// late: refuse it, or let it go on without a goal in the offline class.
func (s *Scheduler) giveUp(e *Entry, r *Refusal) {
	if e.class.Late != "demote" || !s.demote(e) {
		s.turn(e, r)
	}
}

// demote moves a waiting e to the last of the classes, and reports whether it
// has room.
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

func (s *Scheduler) lateRefusal(e *Entry, predicted time.Duration) *Refusal {
	if e.predicted == 0 {
		e.predicted = predicted
	}
	return &Refusal{
		Reason: Late, Predicted: e.predicted, RetryAfter: s.comeBack(e),
		Message: fmt.Sprintf("class %s promises a first token within %v, which cannot be kept for all that wait now; try again later, or use a class that may wait",
			e.class.Name, (e.due - e.arrived).Round(time.Millisecond)),
	}
}

// comeBack is when e, which would be late now, could be in time: once the work by
// which it is late is done, and that of those who were told the same before it,
// so that they do not all return at once.
func (s *Scheduler) comeBack(e *Entry) time.Duration {
	s.returning = max(0, s.returning-(s.now-s.returningAt))
	s.returningAt = s.now
	wait := max(0, e.predicted-(e.due-e.arrived)) + s.returning
	s.returning = min(s.returning+e.prefill, retryMax)
	return min(max(wait, retryMin), retryMax)
}

// backlogWait is how long the engine needs for e's prefill and for all that waits
// in classes that are as urgent or more, at the rate that e's level gets.
func (s *Scheduler) backlogWait(e *Entry) time.Duration {
	work := e.prefill
	for _, k := range s.classes {
		if k.level <= e.class.level {
			work += k.backlog
		}
	}
	return time.Duration(float64(work) / s.rate(e.class.level))
}

// checkWithin refuses e where its own deadline cannot be met.
func (s *Scheduler) checkWithin(e *Entry) {
	if e.demand.Within == 0 || e.predicted <= e.demand.Within {
		return
	}
	s.turn(e, &Refusal{
		Reason: PastDeadline, Predicted: e.predicted, RetryAfter: e.predicted - e.demand.Within,
		Message: fmt.Sprintf("the deadline of %v, which the request came with, cannot be met: about %v of work waits before it", e.demand.Within, e.predicted.Round(time.Millisecond)),
	})
}

// The bounds of a predicted wait that is told.
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
