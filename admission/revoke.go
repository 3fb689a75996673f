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
				break // the engine has begun it
			}
			s.takeBack(s.victim(level, late))
		}
	}
}

// takeBack gives up a request that was promised its first token in time.
func (s *Scheduler) takeBack(e *Entry) {
	e.settlePromise(true)
	e.class.revoked++
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
