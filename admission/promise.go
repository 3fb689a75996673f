package admission

import (
	"fmt"
	"time"
)

// This file decides about a newcomer with a goal, at once and for good: it is
// promised its first token in time, or it gives way. A promise is taken back only
// if facts change (revoke.go). So a newcomer never takes the place of a request that
// was promised one, and the choice of what is not served has to be made on arrival.
//
// Three rules:
//
//  1. A newcomer goes behind those that it would make late, and must be in time
//     there.
//  2. Whoever asks for more than can be served gets its part, and of what it asks
//     for the smallest requests: they are the most that can be served in time. The
//     part is larger while the queue is short, and so keeps it near its length. In a
//     lasting overload it is smaller for larger requests (sizeWeight).
//  3. That length is the goal in a burst, and LastingWait of it in a lasting
//     overload.

// promise decides about e, which waits since this moment, and predicts its wait.
func (s *Scheduler) promise(e *Entry) {
	if !s.engine.cost.Known() {
		return
	}
	if e.due == 0 {
		e.predicted = s.backlogWait(e)
		s.checkWithin(e)
		return
	}
	if s.engine.typical == (typical{}) {
		s.engine.typical.observe(e)
	}
	f := s.forecast(e.class)
	if s.hasPart(&f, e) && s.place(&f, e) {
		s.engine.typical.observe(e)
		return
	}
	s.giveUp(e, s.lateRefusal(e))
}

// placesMost is behind how many requests a newcomer is put before it gives way.
const placesMost = 8

// place puts e behind the requests that it would make late, predicts its wait, and
// tells whether it and all others are in time.
func (s *Scheduler) place(f *forecast, e *Entry) (inTime bool) {
	track := &s.levels[e.level].track
	for range placesMost {
		late, wait := f.test(track, e)
		e.predicted = wait
		if late == nil {
			return true
		}
		if late == e {
			return s.placeByShare(f, e)
		}
		if late.long != e.long {
			return false
		}
		t := e.line.tenant
		s.leave(e)
		e.key = late.key + 1
		e.behind = e.key
		s.enter(e, t)
	}
	return false
}

// placeByShare tells whether e is in time because its tenant has waited for less
// than others: it then goes before theirs, whatever the keys say.
func (s *Scheduler) placeByShare(f *forecast, e *Entry) bool {
	if e.long {
		return false
	}
	ahead := e.line.short
	turn := float64(ahead.short+s.quantum(e.line.tenant)) / e.line.tenant.weight
	for _, k := range s.levels[e.level].classes {
		for _, l := range k.lines {
			if l != e.line && l.short.short > 0 {
				ahead.addPart(&l.short, min(1, turn*l.tenant.weight/float64(l.short.short)))
			}
		}
	}
	expected := f.expected(&ahead, e.prefill, false)
	if f.promised(expected) > e.due {
		return false
	}
	e.predicted, e.byShare = expected-e.arrived, true
	return true
}

// hasPart tells whether e is in its tenant's part of what can be served, and books
// that it was asked for.
func (s *Scheduler) hasPart(f *forecast, e *Entry) bool {
	if e.class.level != levelInteractive || e.long && !e.sized {
		return true // others have no need of it: they wait, and may be demoted
	}
	s.noteAsked(e, e.line)
	queue := s.levels[e.class.level].track.total()
	queue.add(e, -1)
	return s.inPart(f, e.line, &e.line.asked.sizes, &queue, e.size, tieOf(e.demand.Draw))
}

// inPart tells whether a request of l, of that size, is in its tenant's part behind the
// queue. sizes are what its tenant asks for, the request included.
func (s *Scheduler) inPart(f *forecast, l *line, sizes *sizes, queue *sums, size time.Duration, tie float64) bool {
	part := s.part(f, l, queue, size-sizes.mean())
	return part >= 1 || sizes.rank(size, tie) <= part
}

// sizeWeight is how much of a request's size counts as if it waited already. A request
// makes the queue longer by its size. What that keeps out is worth the more the longer
// the queue is, so where the queue is short enough for a small request it may not be for
// a large one. What counts is the difference to the tenant's mean request, so that a
// tenant does not lose by the kind of its work.
const sizeWeight = 1.5

// steepAlone is how much faster a lone tenant's part falls with the queue in a lasting
// overload. It keeps the queue near its length, so that few promises are lost where the
// engine becomes slower. Beside others it would cost the tenants that are within their
// share: what falls is the share of all.
const steepAlone = 2.0

// part is the part of what l's tenant asks for that is let in behind the queue, for a
// request that is so much larger than its mean.
func (s *Scheduler) part(f *forecast, l *line, queue *sums, larger time.Duration) float64 {
	lv, goal := &s.levels[l.class.level], l.class.FirstTokenGoal
	wait := f.expected(queue, 0, false) - s.now
	should, asks, over := s.queueTarget(f, l, wait)
	if lv.standing.on {
		wait += time.Duration(sizeWeight * float64(larger) / f.rate)
	}
	if wait < goal/10 && !(over && lv.standing.on) || s.engine.sequences == 0 {
		return 1 // the engine would have nothing to do soon
	}
	steep := 1.0
	if lv.standing.on && len(lv.asking) == 1 {
		steep = steepAlone
	}
	share := max(0, f.rate*(1+steep*float64(should-wait)/float64(goal))) / asks
	part := lv.partOf(l, share, s.now)
	f.favoured = share < 1 && part == 1 && len(lv.asking) > 1
	return part
}

// overLeast is the least pressure on a tenant that is over its share beside others. What
// less pressure would let in is mostly its own, and later keeps out the large requests
// of others.
const overLeast = 0.8

// queueTarget is how long the queue should be, which is wait long now, and what all ask
// for: the whole goal in a burst, LastingWait of it in a lasting overload. over says that
// l's tenant asks for more than its share beside others; in a burst its queue is half of
// LastingWait.
func (s *Scheduler) queueTarget(f *forecast, l *line, wait time.Duration) (should time.Duration, asks float64, over bool) {
	lv, goal := &s.levels[l.class.level], l.class.FirstTokenGoal
	lasting := time.Duration(s.cfg.LastingWait * float64(goal))
	asks = lv.asks(s.now)
	lv.standing.observe(wait, lasting, goal, asks > f.rate, s.now)
	over = lv.partOf(l, f.rate/asks, s.now) < 1 && len(lv.asking) > 1
	switch {
	case !lv.standing.on && over:
		return lasting / 2, asks, over
	case !lv.standing.on:
		return goal, asks, over
	case over:
		return lasting, asks * max(lv.standing.pressure, overLeast), over
	}
	return lasting, asks * lv.standing.pressure, over
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
	e.class, e.behind = to, 0
	e.expires = max(e.expires, s.expiresAt(e))
	s.price(e)
	e.due = 0
	s.enter(e, t)
	to.demoted++
	return true
}

// lateRefusal is the refusal of a newcomer that gives way.
func (s *Scheduler) lateRefusal(e *Entry) *Refusal {
	if e.dueByClient() {
		return e.deadlineRefusal()
	}
	return &Refusal{
		Reason: Late, Predicted: e.predicted, RetryAfter: s.comeBack(e),
		Message: fmt.Sprintf("class %s promises a first token within %v, which cannot be kept for every request that comes now; try again later, or use a class that may wait",
			e.class.Name, (e.due - e.arrived).Round(time.Millisecond)),
	}
}

// checkWithin refuses e where its client's deadline cannot be met.
func (s *Scheduler) checkWithin(e *Entry) {
	if e.demand.Within > 0 && e.predicted > e.demand.Within {
		s.refuse(e, e.deadlineRefusal())
	}
}

// deadlineRefusal is the refusal of a request whose client's deadline cannot be met.
func (e *Entry) deadlineRefusal() *Refusal {
	wait := e.predicted - e.demand.Within
	if wait <= 0 {
		wait = retryMin // it is the margin that the deadline leaves no room for
	}
	return &Refusal{
		Reason: PastDeadline, Predicted: e.predicted, RetryAfter: wait,
		Message: fmt.Sprintf("the request's deadline of %v cannot be met: its first token is predicted after %v", e.demand.Within, e.predicted.Round(time.Millisecond)),
	}
}
