package admission

import (
	"fmt"
	"slices"
	"time"
)

// This file takes promises back. That happens only where facts have changed: the
// engine has become slower, or a request at the head of its lane can no longer be
// in time. Of the requests that could be given up for a late one the largest is, as
// Moore and Hodgson do (1968) for the fewest late jobs, and first one of a tenant
// that is over its share.
//
// A forecast swings while an overload is young and what steps cost is learned anew.
// What is doubtful counts against a promise when it is made, and for it afterwards: it
// is taken back once every look for lateFor expects it late, with no margin.

const (
	lookEvery = 100 * time.Millisecond
	lateFor   = 300 * time.Millisecond
)

// revoke looks whether those that wait are expected in time, and gives up some of them
// if they have not been for lateFor, until those that stay are.
func (s *Scheduler) revoke() {
	for level := range s.levels {
		l := &s.levels[level]
		late := s.expectedLate(level)
		switch {
		case late == nil:
			l.lateSince = 0
		case l.lateSince == 0:
			l.lateSince = s.now
		case s.now >= l.lateSince+lateFor:
			s.weigh()
			for ; late != nil; late = s.expectedLate(level) {
				s.takeBack(s.victim(level, late))
			}
			l.lateSince = 0
		}
	}
}

// expectedLate is the first waiting request of a level that is expected late, nil for
// none. No forecast knows when an operator opens a paused class again.
func (s *Scheduler) expectedLate(level int) *Entry {
	track := &s.levels[level].track
	paused := func(k *class) bool { return k.mode == Paused }
	if track.empty() || slices.ContainsFunc(s.levels[level].classes, paused) {
		return nil
	}
	first := track.blocks[0].entries[0]
	f := s.forecast(first.class)
	f.margin, f.course = 1, s.course(level, 1)
	late, _ := f.test(track, first)
	if late == nil || late.state != waiting { // the engine has begun it
		return nil
	}
	return late
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
