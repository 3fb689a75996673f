package admission

import (
	"slices"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// forecast is all that a prediction for the waiting requests of a level depends
// on, besides the requests themselves. It is a value: looking into it changes
// nothing.
//
// A request has its first token when the engine has worked off what goes before
// it, itself included: shorts and longs are the prefill of the two lanes.
//
//	short lane   work = shorts / (1 - longShare), and shorts while nothing is long
//	long lane    work = the less of longs / longShare
//	             and shortBacklog + longs / (1 - overtaking)
//	expected     begins + what the course says of given + work
//	promised     now + margin × (expected - now)
//
// Where places or memory are short, it comes no sooner than those become free:
// begins + missing places × placeNS + its own prefill / rate, and the same with
// missing tokens of memory and tokenNS.
type forecast struct {
	now time.Duration
	// begins is when the engine turns to the waiting work: after half a step. given
	// is the short prefill that it has been given before, but for underWay.
	begins, given time.Duration
	course        course
	// rate is the engine time that the level's prefill gets in a unit of time once
	// as many rows begin as end, longRate that of its long lane, which decoding may
	// hold back more.
	rate, longRate float64
	// margin stretches the expected wait to the promised one.
	margin float64
	// favoured says that the newcomer's tenant asks for no more than its share, so
	// that requests of tenants which ask for more do not keep it out.
	favoured bool

	// longShare is the part of a step's prefill that the long lane gets beside
	// short work; longPresent says that there is long work which takes it.
	longShare   float64
	longPresent bool
	// shortBacklog is all short prefill, waiting or given to the engine: the long
	// lane has the engine to itself only after it.
	shortBacklog time.Duration
	// overtaking is the share of time that short requests which are still to
	// arrive will take from the long lane: as much as recently.
	overtaking float64
	// underWay are the prefills that the engine has begun and that take more than a
	// step, in order.
	underWay []underWay

	// placesFree and memoryFree are the free running places, and the free tokens of
	// key and value memory. placeNS and tokenNS are how long it takes
	// until one more is free: the mean stay of a sequence in the engine, divided
	// by the places, and by the memory, that running requests hold.
	placesFree, memoryFree int
	placeNS, tokenNS       float64
}

// underWay is a prefill that the engine has begun, and the engine time that it still
// needs.
type underWay struct {
	*Entry
	rest time.Duration
}

// memoryUnknown stands for the free memory of an engine that has not told.
const memoryUnknown = 1 << 40

// forecast reads the state of the engine and what waits at k's level, for a promise
// of k. The prefills under way are valid until the next call.
func (s *Scheduler) forecast(k *class) forecast {
	v, level := &s.engine, k.level
	waits := s.levels[level].track.total()
	under, given := v.underWay(s.scratch.underWay[:0], level)
	s.scratch.underWay = under
	f := forecast{
		now: s.now, begins: s.now + v.stepDuration/2, given: given,
		course: s.course(level, unseenRows), margin: s.stretch(k),
		longShare:   s.cfg.LongShare,
		longPresent: waits.long > 0 || slices.ContainsFunc(under, func(u underWay) bool { return u.long }),
		overtaking:  min(1-s.cfg.LongShare, s.levels[level].short.share(s.now)),
		underWay:    s.scratch.underWay,
		placesFree:  s.places() - v.sequences,
		memoryFree:  v.kvMax() - v.flights[level].kv,
	}
	f.shortBacklog = waits.short + f.given
	f.rate = f.course.rate()
	f.longRate = f.rate
	if v.rows > 0 && v.longPace > 0 {
		f.longRate = min(f.rate, max(v.longPace, 0.05))
	}
	if n := v.sequences; n > 0 {
		f.placeNS = s.stay() / float64(n)
	}
	if n := v.flights[level].kv; n > 0 {
		f.tokenNS = s.stay() / float64(n)
	}
	if v.kvTokens == 0 {
		f.memoryFree = memoryUnknown
	}
	return f
}

// stay is how long a request is in the engine, in nanoseconds: what its typical answer
// takes beside the others that run now, of which each that ends makes room for another's
// prompt. Where those that ended took longer, it is as long as they took. They alone do
// not tell: in the first moments of an overload those end that began before.
func (s *Scheduler) stay() float64 {
	v := &s.engine
	rows, typical := max(1, v.sequences), v.typical
	joining := float64(rows-1) / max(1, typical.answer) * typical.uncached
	step := v.cost.StepNS(cost.Load{PrefillTokens: int(joining), DecodeRows: rows, DecodeContext: int(float64(rows) * typical.prompt)})
	return max(v.life, v.pace.value(s.now)*typical.answer*step+float64(v.cost.Prefill(int(typical.uncached), 0, s.chunkTokens())))
}

// share is the part of the engine's time that a level gets: all, less the floors of
// less urgent classes and what more urgent levels have used recently, but never
// less than its own floors.
func (s *Scheduler) share(level int) float64 {
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
	return max(left, floor, 0.01)
}

// expected is when a request with prefill in its lane has its first token, if
// ahead is all that goes before it, and itself.
func (f *forecast) expected(ahead *sums, prefill time.Duration, long bool) time.Duration {
	work := float64(ahead.short)
	switch {
	case long:
		longs := float64(ahead.long)
		work = min(longs/f.longShare, float64(f.shortBacklog)+longs/(1-f.overtaking))
	case f.longPresent:
		work /= 1 - f.longShare
	}
	wait := f.course.when(float64(f.given) + work)
	if long {
		wait = max(wait, work/f.longRate)
	}
	if missing := ahead.sequences - f.placesFree; missing > 0 {
		wait = max(wait, float64(missing)*f.placeNS+float64(prefill)/f.rate)
	}
	if missing := ahead.kv - f.memoryFree; missing > 0 {
		wait = max(wait, float64(missing)*f.tokenNS+float64(prefill)/f.rate)
	}
	return f.begins + time.Duration(wait)
}

// promised is the instant that can be promised for a first token that is expected
// then.
func (f *forecast) promised(expected time.Duration) time.Duration {
	return f.now + time.Duration(f.margin*float64(expected-f.now))
}

// inTime tells that no request of b is late behind ahead, even if each were the last
// of b. So it may be false for a block in which none is late.
func (f *forecast) inTime(ahead sums, b *block) bool {
	ahead.addAll(&b.sums)
	return (b.short == 0 || f.promised(f.expected(&ahead, b.prefillMax, false)) <= b.earliest) &&
		(b.long == 0 || f.promised(f.expected(&ahead, b.prefillMax, true)) <= b.earliest)
}

// test goes over t in the order of service, from e on, and returns the first
// request that would miss its goal, nil for none. Prefills under way are
// among them. wait is e's own expected wait for its first token, 0 where a long
// prefill before e is late.
func (f *forecast) test(t *track, e *Entry) (late *Entry, wait time.Duration) {
	at, _ := t.find(e)
	w := walk{forecast: f, newcomer: e, underWay: f.underWay}
	for _, b := range t.blocks[:at] {
		w.ahead.addAll(&b.sums)
	}
	for i, b := range t.blocks[at:] {
		if i > 0 && w.skips(b) {
			continue
		}
		for _, o := range b.entries {
			if late := w.pass(o); late != nil {
				return late, w.wait
			}
		}
	}
	return w.passUnderWay(nil), w.wait
}

// walk is a place in the order of service, on the way from its start to its end.
type walk struct {
	*forecast
	newcomer *Entry
	underWay []underWay // not yet passed
	ahead    sums       // passed
	wait     time.Duration
}

// skips passes a block as a whole, if no request in it can be late and no long
// prefill under way comes before its end.
func (w *walk) skips(b *block) bool {
	if len(w.underWay) > 0 && before(w.underWay[0].Entry, b.entries[len(b.entries)-1]) || !w.inTime(w.ahead, b) {
		return false
	}
	w.ahead.addAll(&b.sums)
	return true
}

// pass goes to the next request, and returns the one that is late up to it.
func (w *walk) pass(o *Entry) (late *Entry) {
	if late := w.passUnderWay(o); late != nil {
		return late
	}
	w.ahead.add(o, 1)
	if before(o, w.newcomer) {
		return nil
	}
	expected := w.expected(&w.ahead, o.prefill, o.long)
	if o == w.newcomer {
		w.wait = expected - o.arrived
	}
	if w.promised(expected) > o.due && (o == w.newcomer || !o.byShare && !(w.favoured && o.line.overShare)) {
		return o
	}
	return nil
}

// passUnderWay passes the prefills under way that come before o, all of them for
// nil. A long newcomer may not make those late that come after it.
func (w *walk) passUnderWay(o *Entry) (late *Entry) {
	for len(w.underWay) > 0 && (o == nil || before(w.underWay[0].Entry, o)) {
		u := w.underWay[0]
		w.underWay = w.underWay[1:]
		w.ahead.addUnderWay(u)
		if u.due > 0 && u.long && w.newcomer.long && before(w.newcomer, u.Entry) && w.promised(w.expected(&w.ahead, u.rest, u.long)) > u.due {
			return u.Entry
		}
	}
	return nil
}
