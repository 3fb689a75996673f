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
//	first token  begins + margin × work / rate
//
// Where places or memory are short, it comes no sooner than those become free:
// begins + missing places × placeNS + its own prefill / rate, and the same with
// missing tokens of memory and tokenNS.
type forecast struct {
	// begins is when the engine turns to the waiting work: after half a step, and
	// after the short prefill that it has been given.
	begins time.Duration
	// rate is the engine time that the level's prefill gets in a unit of time,
	// longRate that of its long lane, which decoding may hold back more.
	rate, longRate float64
	// margin stretches the predicted work: the 90 % quantile of actual/predicted.
	margin float64

	// longShare is the part of a step's prefill that the long lane gets beside
	// short work; longPresent says that there is long work which takes it.
	longShare   float64
	longPresent bool
	// shortBacklog is all short prefill, waiting or given to the engine: the long
	// lane has the engine to itself only after it.
	shortBacklog time.Duration
	// overtaking is the share of time that short requests which are still to
	// arrive will take from the long lane: as much as of late.
	overtaking float64
	// underWay are the long prefills that the engine has begun, in order.
	underWay []underWay

	// placesFree and memoryFree are the free running places, and the free tokens of
	// key and value memory. placeNS and tokenNS are how long it takes
	// until one more is free: the mean stay of a sequence in the engine, divided
	// by the places, and by the memory, that running requests hold.
	placesFree, memoryFree int
	placeNS, tokenNS       float64
}

// underWay is a long prefill that the engine has begun, and the engine time that
// it still needs.
type underWay struct {
	*Entry
	rest time.Duration
}

// memoryUnknown stands for the free memory of an engine that has not told.
const memoryUnknown = 1 << 40

// forecast reads the state of the engine and what waits at a level. The long
// prefills under way are valid until the next call.
func (s *Scheduler) forecast(level int) forecast {
	v := &s.engine
	reported, fresh, _ := v.outstanding(level)
	given := v.cost.Prefill(reported+fresh, 0, s.chunkTokens())
	waits := s.levels[level].track.total()
	s.scratch.underWay = v.underWay(s.scratch.underWay[:0], level)
	f := forecast{
		rate: s.rate(level), margin: v.margin.value(),
		longShare: s.cfg.LongShare, longPresent: len(s.scratch.underWay) > 0 || waits.long > 0,
		shortBacklog: waits.short + given,
		overtaking:   min(1-s.cfg.LongShare, s.levels[level].short.share(s.now)),
		underWay:     s.scratch.underWay,
		placesFree:   s.cfg.RunningSequencesMax - v.sequences,
		memoryFree:   v.kvMax() - v.flights[level].kv,
	}
	f.longRate = f.rate
	if v.rows > 0 && v.longPace > 0 {
		f.longRate = min(f.rate, max(v.longPace, 0.05))
	}
	f.begins = s.now + v.stepDuration/2 + time.Duration(float64(given)/f.rate)
	if n := v.sequences; n > 0 {
		f.placeNS = v.life / float64(n)
	}
	if n := v.flights[level].kv; n > 0 {
		f.tokenNS = v.life / float64(n)
	}
	if v.kvTokens == 0 {
		f.memoryFree = memoryUnknown
	}
	return f
}

// rate is the part of the engine's time that a level's prefill gets: what
// decoding beside it leaves, less the floors of less urgent classes and what
// more urgent levels have used of late, but never less than its own floors.
func (s *Scheduler) rate(level int) float64 {
	v := &s.engine
	rate := 1.0
	if room := v.stepRoom(); v.rows > 0 {
		load := cost.Load{PrefillTokens: room, DecodeRows: v.rows, DecodeContext: v.rowsContext}
		if step := v.cost.Step(load); step > 0 {
			rate = min(1, float64(v.cost.Prefill(room, 0, s.chunkTokens()))/float64(step))
		}
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

// firstToken is when a request with prefill in its lane has its first token, if
// ahead is all that goes before it, and itself.
func (f *forecast) firstToken(ahead *sums, prefill time.Duration, long bool) time.Duration {
	work, rate := float64(ahead.short), f.rate
	switch {
	case long:
		longs := float64(ahead.long)
		work, rate = min(longs/f.longShare, float64(f.shortBacklog)+longs/(1-f.overtaking)), f.longRate
	case f.longPresent:
		work /= 1 - f.longShare
	}
	wait := work / rate * f.margin
	if missing := ahead.sequences - f.placesFree; missing > 0 {
		wait = max(wait, float64(missing)*f.placeNS+float64(prefill)/f.rate)
	}
	if missing := ahead.kv - f.memoryFree; missing > 0 {
		wait = max(wait, float64(missing)*f.tokenNS+float64(prefill)/f.rate)
	}
	return f.begins + time.Duration(wait)
}

// inTime tells that no request of b is late behind ahead, even if each were the last
// of b. So it may be false for a block in which none is late.
func (f *forecast) inTime(ahead sums, b *block) bool {
	ahead.addAll(&b.sums)
	return (b.short == 0 || f.firstToken(&ahead, b.prefillMax, false) <= b.earliest) &&
		(b.long == 0 || f.firstToken(&ahead, b.prefillMax, true) <= b.earliest)
}

// test goes over t in the order of service, from e on, and returns the first
// request that would miss its goal, nil for none. Long prefills under way are
// among them. wait is e's own wait for its first token, 0 where a long prefill
// before e is late.
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
	at := w.firstToken(&w.ahead, o.prefill, o.long)
	if o == w.newcomer {
		w.wait = at - o.arrived
	}
	if at > o.due {
		return o
	}
	return nil
}

// passUnderWay passes the long prefills under way that come before o, all of
// them for nil. A long newcomer may not make those late that come after it.
func (w *walk) passUnderWay(o *Entry) (late *Entry) {
	for len(w.underWay) > 0 && (o == nil || before(w.underWay[0].Entry, o)) {
		u := w.underWay[0]
		w.underWay = w.underWay[1:]
		w.ahead.long += u.rest
		if u.due > 0 && w.newcomer.long && before(w.newcomer, u.Entry) && w.firstToken(&w.ahead, u.rest, true) > u.due {
			return u.Entry
		}
	}
	return nil
}

// underWay appends the long prefills under way of the levels up to level, in
// the order of service.
func (v *ledger) underWay(dst []underWay, level int) []underWay {
	for i := range level + 1 {
		for _, e := range v.flights[i].longs {
			dst = append(dst, underWay{e, v.cost.Prefill(e.left, e.demand.PromptTokens-e.left, v.chunk)})
		}
	}
	slices.SortFunc(dst, func(a, b underWay) int { return compareEntries(a.Entry, b.Entry) })
	return dst
}
