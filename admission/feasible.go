package admission

import (
	"fmt"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// When a request arrives, every waiting one that has a goal must still be able
// to keep it. Where one cannot, the request whose leaving helps most is taken
// out, not simply the newcomer: the largest among those before it, as Moore
// and Hodgson do (1968) to have the fewest late jobs, and first of tenants
// that are over their share.

// pace says how fast the waiting prefill of a level is worked off.
type pace struct {
	from  time.Duration // when the engine turns to it
	rate  float64       // engine time a unit of time
	share float64       // of a step that the long lane gets beside short work
	mixed bool          // there is long work, which takes its share from short work
	short time.Duration // all short work, which goes before the long lane's
	// passing is the share of the time that short requests take which are still
	// to come and pass the long ones.
	passing float64
	// longRate is rate for the long lane, which decoding may hold back more.
	longRate float64

	sequencesFree, kvFree         int
	sequencesTime, kvTime, margin float64 // nanoseconds for each beyond the free ones
}

// paceOf looks at the engine as it is now, and at what level has under way.
func (s *Scheduler) paceOf(level int) pace {
	v := &s.engine
	chunk := s.chunkTokens()
	tokens, _ := v.outstanding(level)
	s.longs = v.longs(s.longs[:0], level)
	waits := s.levels[level].track.total()
	p := pace{
		rate: s.rate(level), share: s.cfg.LongShare, margin: v.margin.value(),
		mixed:         len(s.longs) > 0 || waits.long > 0,
		passing:       min(1-s.cfg.LongShare, s.levels[level].short.share(s.now)),
		short:         waits.short + v.cost.Prefill(tokens, 0, chunk),
		sequencesFree: s.cfg.RunningSequencesMax - v.sequences,
		kvFree:        v.kvMax() - v.flights[level].kv,
	}
	p.longRate = p.rate
	if v.rows > 0 && v.longPace > 0 {
		p.longRate = min(p.rate, max(v.longPace, 0.05))
	}
	p.from = s.now + v.stepDuration/2 + time.Duration(float64(v.cost.Prefill(tokens, 0, chunk))/p.rate)
	if n := v.sequences; n > 0 {
		p.sequencesTime = v.life / float64(n)
	}
	if n := v.flights[level].kv; n > 0 {
		p.kvTime = v.life / float64(n)
	}
	if v.kvTokens == 0 {
		p.kvFree = 1 << 40
	}
	return p
}

// rate is the part of the engine's time that a level's prefill gets: what
// decoding beside it leaves, less what other levels take.
func (s *Scheduler) rate(level int) float64 {
	v := &s.engine
	load := cost.Load{PrefillTokens: s.chunkTokens()}
	rate := 1.0
	if alone := v.cost.Step(load); alone > 0 {
		load.DecodeRows, load.DecodeContext = v.rows, v.rowsContext
		rate = float64(alone) / float64(v.cost.Step(load))
	}
	left, floor := 1.0, 0.0
	for _, k := range s.classes {
		switch {
		case k.level == level:
			floor += k.Floor
		case k.level > level && k.waiting > 0:
			left -= k.Floor
		}
	}
	for l := range level {
		left -= s.levels[l].served.share(s.now)
	}
	return rate * max(left, floor, 0.01)
}

// finish is when a request with prefill has its first token, after all that is
// summed up in ahead, itself among it.
func (p *pace) finish(ahead *sums, prefill time.Duration, long bool) time.Duration {
	work, rate := float64(ahead.short), p.rate
	switch {
	case long:
		l := float64(ahead.long)
		work, rate = min(l/p.share, float64(p.short)+l/(1-p.passing)), p.longRate
	case p.mixed:
		work /= 1 - p.share
	}
	at := work / rate * p.margin
	if n := ahead.sequences - p.sequencesFree; n > 0 {
		at = max(at, float64(n)*p.sequencesTime+float64(prefill)/p.rate)
	}
	if n := ahead.kv - p.kvFree; n > 0 {
		at = max(at, float64(n)*p.kvTime+float64(prefill)/p.rate)
	}
	return p.from + time.Duration(at)
}

// fits tells that nobody of b is late, whoever is the last: it may say no of a
// block in which nobody is.
func (p *pace) fits(ahead sums, b *block) bool {
	ahead.addAll(&b.sums)
	return (b.short == 0 || p.finish(&ahead, b.prefillMax, false) <= b.earliest) &&
		(b.long == 0 || p.finish(&ahead, b.prefillMax, true) <= b.earliest)
}

// relieve turns requests of e's level away until everybody can keep its goal,
// and foretells e's own wait.
func (s *Scheduler) relieve(e *Entry) {
	if !s.engine.cost.Known() {
		return
	}
	if e.due == 0 {
		e.predicted = s.backlogAhead(e)
		s.checkWithin(e)
		return
	}
	for weighed := false; e.state == waiting && e.due > 0; {
		p := s.paceOf(e.class.level)
		late := s.firstLate(&p, e)
		if late == nil {
			return
		}
		if !weighed {
			s.weigh()
			weighed = true
		}
		victim := s.victim(e.class.level, late, e)
		s.giveUp(victim, s.lateRefusal(victim, e.predicted))
	}
}

// firstLate is the first request, in the order of service, from e on, that
// would miss its goal; long prefills under way are among them. It notes e's own
// wait.
func (s *Scheduler) firstLate(p *pace, e *Entry) *Entry {
	t := &s.levels[e.level].track
	at, _ := t.find(e)
	w := walk{pace: p, ledger: &s.engine, newcomer: e, longs: s.longs}
	for _, b := range t.blocks[:at] {
		w.ahead.addAll(&b.sums)
	}
	for i, b := range t.blocks[at:] {
		if i > 0 && w.skips(b) {
			continue
		}
		for _, o := range b.entries {
			if late := w.pass(o); late != nil {
				return late
			}
		}
	}
	return w.underWayBefore(nil)
}

// walk goes over the requests in the order of service, from newcomer on, and
// the long prefills under way with them.
type walk struct {
	*pace
	ledger   *ledger
	newcomer *Entry
	longs    []*Entry // under way, not yet passed
	ahead    sums
}

// skips passes a block in which nobody can be late, and no long prefill under
// way comes before its end.
func (w *walk) skips(b *block) bool {
	if len(w.longs) > 0 && before(w.longs[0], b.entries[len(b.entries)-1]) || !w.fits(w.ahead, b) {
		return false
	}
	w.ahead.addAll(&b.sums)
	return true
}

// pass goes to the next request, and returns whoever is late up to it.
func (w *walk) pass(o *Entry) *Entry {
	if late := w.underWayBefore(o); late != nil {
		return late
	}
	w.ahead.add(o, 1)
	if before(o, w.newcomer) {
		return nil
	}
	finish := w.finish(&w.ahead, o.prefill, o.long)
	if o == w.newcomer {
		o.predicted = finish - o.arrived
	}
	if finish > o.due {
		return o
	}
	return nil
}

// underWayBefore passes the long prefills under way before o, all of them for
// nil. Those after the newcomer may not be made late by it.
func (w *walk) underWayBefore(o *Entry) *Entry {
	for len(w.longs) > 0 && (o == nil || before(w.longs[0], o)) {
		u := w.longs[0]
		w.longs = w.longs[1:]
		rest := w.ledger.rest(u)
		w.ahead.long += rest
		if u.due > 0 && w.newcomer.long && before(w.newcomer, u) && w.finish(&w.ahead, rest, true) > u.due {
			return u
		}
	}
	return nil
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

// backlogAhead is the wait of a request without a goal: all that is more urgent,
// and its own class's backlog.
func (s *Scheduler) backlogAhead(e *Entry) time.Duration {
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
	if e.work.Within == 0 || e.predicted <= e.work.Within {
		return
	}
	s.turn(e, &Refusal{
		Reason: PastDeadline, Predicted: e.predicted, RetryAfter: e.predicted - e.work.Within,
		Message: fmt.Sprintf("the deadline of %v, which the request came with, cannot be met: about %v of work waits before it", e.work.Within, e.predicted.Round(time.Millisecond)),
	})
}

// The bounds of a predicted wait that is told.
const (
	retryMin = time.Second
	retryMax = 10 * time.Minute
)

// retryAfter is when a request like e could be kept: the work before it, less
// the time that it may wait, at the pace of the engine.
func (s *Scheduler) retryAfter(e *Entry) time.Duration {
	work := e.prefill
	for _, k := range s.classes {
		if k.level <= e.class.level {
			work += k.backlog
		}
	}
	wait := time.Duration(float64(work) / s.rate(e.class.level))
	if n := s.waiting.sequences + e.work.Sequences - (s.cfg.RunningSequencesMax - s.engine.sequences); n > 0 && s.engine.sequences > 0 {
		wait = max(wait, time.Duration(float64(n)*s.engine.life/float64(s.engine.sequences)))
	}
	if e.due > 0 {
		wait -= e.due - e.arrived
	}
	return min(max(wait, retryMin), retryMax)
}
