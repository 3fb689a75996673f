package admission

import (
	"fmt"
	"time"
)

// This file takes promises back. That happens only where facts have changed: the
// engine has become slower, or a request at the head of its lane can no longer be
// in time. Of the requests that could be given up for a late one the largest is, as
// Moore and Hodgson do (1968) for the fewest late jobs, and first one of a tenant
// that is over its share.

// revoke gives up waiting requests until those that stay are expected in time.
func (s *Scheduler) revoke() {
	s.weigh()
	for level := range s.levels {
		track := &s.levels[level].track
		for !track.empty() {
			first := track.blocks[0].entries[0]
			f := s.forecast(first.class)
			f.margin = 1
			late, _ := f.test(track, first)
			if late == nil {
				break
			}
			if late.state != waiting {
				break // a long prefill that the engine has begun
			}
			victim := s.victim(level, late)
			s.takeBack(victim)
		}
	}
}

// takeBack gives up a request that was promised its first token in time.
func (s *Scheduler) takeBack(e *Entry) {
	k := e.class
	k.margin.settled(true, 1)
	k.revoked++
	s.giveUp(e, s.hopeless(e))
}

// overMost is how far a tenant may be over its fair share before its requests are
// the first to be given up.
const overMost = 1.25

// victim is the request that is given up for late: one of its lane, at or before
// it, of the tenant furthest over its share, and the largest for that tenant's
// weight.
func (s *Scheduler) victim(level int, late *Entry) *Entry {
	best, bestOver, bestSize := late, -1.0, -1.0
	for _, b := range s.levels[level].track.blocks {
		for _, o := range b.entries {
			if before(late, o) {
				return best
			}
			if o.long != late.long {
				continue
			}
			over, size := o.line.tenant.over, float64(o.prefill)/o.line.tenant.weight
			if over < overMost {
				over = 0
			}
			if over > bestOver || over == bestOver && size > bestSize {
				best, bestOver, bestSize = o, over, size
			}
		}
	}
	return best
}

// hopeless is the refusal of a request that can no longer be in time.
func (s *Scheduler) hopeless(e *Entry) *Refusal {
	return &Refusal{
		Reason: Revoked, Predicted: e.predicted, RetryAfter: s.retryAfter(e),
		Message: fmt.Sprintf("class %s promised its first token within %v, after %v waiting that cannot be kept any more, since the engine has become slower or answers longer than expected; try again later, or use a class that may wait",
			e.class.Name, (e.due - e.arrived).Round(time.Millisecond), (s.now - e.arrived).Round(time.Millisecond)),
	}
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
	c := s.course(e.class.level)
	return time.Duration(c.when(float64(work)))
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
