package admission

import (
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/cost"
)

// ledger is what is known of the engine: its last report, and what it was given
// since.
type ledger struct {
	heard         bool // a report has come; until then only places are counted
	up            bool
	at            time.Duration // of the report, on the Scheduler's clock
	cost          cost.Cost
	priced        float64   // cost.PrefillToken when everything that waits was last priced
	room          cost.Room // rule for the prefill of a step
	chunk         int       // tokens of a full step
	kvTokens      int       // 0 is unknown
	kvPinned      int       // of kvTokens
	windowTimes   int       // as Report.KVWindowTimes
	windowTokens  int
	stepDuration  time.Duration
	shortReported int // tokens of short prefill that the engine had not computed
	// longPace is the engine time of long prefill that is done in a unit of time
	// while nothing short waits and rows decode, a moving mean; 0 is unknown.
	longPace float64

	places            int // sequences that it takes at once; 0 sets no limit
	sequences, kv     int // of all running requests; kv in tokens
	rows, rowsContext int // sequences past their first token, and the sum of their contexts
	rowsTokens        int // of their answers so far
	rowsMost          int // most rows so far
	flights           [levelCount]flight
	life              float64 // time from start to end of a request, in nanoseconds, a moving mean
	typical           typical
	pace              pace
}

// chunkUnknown stands for the tokens of a full step until the engine reports them.
const chunkUnknown = 512

// kvShare is how much of the memory is promised. The rest is for answers that
// become longer than expected.
const kvShare = 0.95

// kvMax is the memory that may be promised, in tokens.
func (v *ledger) kvMax() int { return int(kvShare * float64(v.kvTokens-v.kvPinned)) }

// memory is what so many tokens of that many sequences take, in tokens of kvTokens.
func (v *ledger) memory(tokens, sequences int) int {
	return tokens + v.windowTimes*min(tokens, sequences*v.windowTokens)
}

// memoryHolds is how many tokens of that many sequences kvTokens have room for.
func (v *ledger) memoryHolds(sequences int) int {
	return max(v.kvTokens/(1+v.windowTimes), v.kvTokens-v.windowTimes*sequences*v.windowTokens)
}

// tokenCost is the engine time of one token of one of e's sequences, where the
// rows that decode now, and at least 8, share each step.
func (v *ledger) tokenCost(e *Entry) time.Duration {
	return v.cost.Decode(e.demand.PromptTokens/max(1, e.demand.Sequences), max(8, v.rows))
}

// answered books e's first token.
func (v *ledger) answered(e *Entry, now time.Duration) {
	v.landed(e)
	v.rows += e.demand.Sequences
	v.rowsMost = max(v.rowsMost, v.rows)
	v.rowsContext += e.demand.PromptTokens
	if e.due > 0 && e.predicted > 0 {
		e.class.margin.observe(now-e.arrived, e.predicted)
		e.settlePromise(now > e.due)
	}
}

// left books the end of e.
func (v *ledger) left(e *Entry, now time.Duration) {
	v.sequences -= e.demand.Sequences
	v.flights[e.level].sequences -= e.demand.Sequences
	v.reserve(e, -e.kv)
	if e.firstToken == 0 {
		v.landed(e)
		return
	}
	v.rows -= e.demand.Sequences
	v.rowsContext -= e.demand.PromptTokens + e.tokens
	v.rowsTokens -= e.tokens
	stay := float64(now - e.started)
	if v.life == 0 {
		v.life = stay
	}
	v.life += (stay - v.life) / float64(max(lifeLeast, v.sequences))
}

// lifeLeast is over at least how many requests life is taken: those that run together
// often end together.
const lifeLeast = 16

// Report takes what the engine said at the end of a step. Waiting requests get a
// new price where their cached part, or the engine's speed, has changed.
func (s *Scheduler) Report(r Report, now time.Duration) {
	s.advance(now)
	v := &s.engine
	before := v.at
	v.heard, v.up, v.at = true, r.Up, min(r.At, s.now)
	if !r.Up {
		s.followCache(hitmap.News{Missed: true}) // the next engine begins with an empty cache
		return
	}
	if r.Cost.Known() {
		v.learned(&r.Cost)
	}
	v.room, v.chunk, v.kvTokens, v.stepDuration = r.Room, max(1, r.Room.TokensMax), r.KVTokens, r.StepDuration
	v.kvPinned = min(r.KVPinned, r.KVTokens)
	v.windowTimes, v.windowTokens = r.KVWindowTimes, r.KVWindowTokens
	if v.at > before { // else it is the last one again
		v.pace.observe(r.StepDuration, r.StepPredicted, s.now)
	}
	v.shortReported, v.places = r.ShortPrefill, r.Places
	v.computed(laneShort, r.ShortPrefill)
	v.observePace(v.computed(laneLong, r.LongPrefill), r.At-before)
	s.followCache(r.Blocks)
	if far(v.priced, v.cost.PrefillToken) {
		v.priced = v.cost.PrefillToken
		s.repriceAll()
	}
	if s.now >= s.lookedAt+lookEvery {
		s.lookedAt = s.now
		s.revoke()
	}
}

// learned takes in what the engine says that steps cost. What recent steps took is
// compared with what they cost by that, lest an engine that became slower count twice.
func (v *ledger) learned(c *cost.Cost) {
	load := cost.Load{PrefillTokens: v.stepRoom(), DecodeRows: v.rows, DecodeContext: v.rowsContext}
	if before := v.cost.StepNS(load); before > 0 {
		v.pace.predicted.sum *= c.StepNS(load) / before
	}
	v.cost = *c
}

// far tells that two coefficients differ so much that prices are stale.
func far(a, b float64) bool { return a > 1.2*b || b > 1.2*a }

// followCache takes the news of the cache, in their order, and prices again
// the waiting requests that they touch: all of them after a fresh start.
func (s *Scheduler) followCache(news hitmap.News) {
	s.scratch.touched = s.scratch.touched[:0]
	if news.Missed {
		s.cache.cached.Clear()
		s.scratch.touched = append(s.scratch.touched, s.expiry.entries...)
	}
	for _, c := range news.Changes {
		s.scratch.touched = s.cache.change(s.scratch.touched, c)
	}
	for _, e := range s.scratch.touched {
		if cached := s.cache.match(e); e.state == waiting && cached != e.cached {
			s.recache(e, cached)
		}
	}
	clear(s.scratch.touched)
}

// recache prices a waiting e for the number of tokens that are cached now. What it
// was promised stays as it was.
func (s *Scheduler) recache(e *Entry, cached int) {
	t, due := e.line.tenant, e.due
	s.leave(e)
	e.cached = cached

	s.price(e)
	e.due = due
	s.enter(e, t)
}

// repriceAll prices everything that waits, after the engine's speed has changed.
func (s *Scheduler) repriceAll() {
	s.scratch.touched = append(s.scratch.touched[:0], s.expiry.entries...)
	for _, e := range s.scratch.touched {
		s.recache(e, e.cached)
	}
	clear(s.scratch.touched)
}
