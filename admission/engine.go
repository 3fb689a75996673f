package admission

import (
	"slices"
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
	stepDuration  time.Duration
	shortReported int // tokens of short prefill that the engine had not computed
	longReported  int // the same of long prefill
	longGiven     int // tokens of long prefill given since that report
	// longPace is the engine time of long prefill that is done in a unit of time
	// while nothing short waits and rows decode, a moving mean; 0 is unknown.
	longPace float64

	sequences, kv     int // of all running requests; kv in tokens
	rows, rowsContext int // sequences past their first token, and the sum of their contexts
	flights           [levelCount]flight
	life              float64 // time from start to end of a request, in nanoseconds, a moving mean
	margin            margin
}

// flight is what runs at one level, and which of it has no first token yet.
type flight struct {
	sequences, kv int      // of all running requests
	longs         []*Entry // long prefills under way
	short         int      // number of short prefills under way
	seen, fresh   int      // their tokens, given before and after the last report
	freshEntries  []*Entry // those given after it
}

// chunkUnknown stands for the tokens of a full step until the engine reports them.
const chunkUnknown = 512

// kvShare is how much of the memory is promised. The rest is for answers that
// become longer than expected.
const kvShare = 0.95

// kvMax is the memory that may be promised, in tokens.
func (v *ledger) kvMax() int { return int(kvShare * float64(v.kvTokens)) }

// tokenCost is the engine time of one token of one of e's sequences, where the
// rows that decode now, and at least 8, share each step.
func (v *ledger) tokenCost(e *Entry) time.Duration {
	return v.cost.Decode(e.demand.PromptTokens/max(1, e.demand.Sequences), max(8, v.rows))
}

// outstanding is the short prefill, in tokens, that the engine has not computed, of
// the levels up to level: what the last report tells of requests given before it,
// and what was given since.
func (v *ledger) outstanding(level int) (reported, fresh, requests int) {
	seen := 0
	for i := range level + 1 {
		f := &v.flights[i]
		seen += f.seen
		fresh += f.fresh
		requests += f.short
	}
	return min(seen, v.shortReported), fresh, requests
}

// mayBegin tells whether a short prefill may start: with the prefill that the engine
// has not computed it must fit into the next step. The step that runs now was
// composed from what the last report tells, and computes as much of it as a step has
// room for; less urgent levels cannot rely on that, since they get what is left.
func (v *ledger) mayBegin(e *Entry) bool {
	reported, fresh, requests := v.outstanding(e.class.level)
	room := v.stepRoom()
	if e.class.level == levelInteractive {
		reported = max(0, reported-room)
	}
	return requests == 0 || reported+fresh+min(e.uncached(), v.chunk) <= room
}

// stepRoom is the prefill, in tokens, that the next step has room for beside the
// rows that decode.
func (v *ledger) stepRoom() int {
	return v.room.Tokens(&v.cost, cost.Load{DecodeRows: v.rows, DecodeContext: v.rowsContext})
}

// longsMost is how many long prefills a level may have begun: one is computed,
// the others have given way to it.
const longsMost = 4

// mayDisplace tells whether a long prefill may start. It passes those under way,
// so it must come before them.
func (v *ledger) mayDisplace(e *Entry) bool {
	n := 0
	for i := range e.level + 1 {
		for _, u := range v.flights[i].longs {
			if n++; n == longsMost || before(u, e) {
				return false
			}
		}
	}
	return true
}

// ran notes that the engine has computed some tokens of the long lane, in the
// time since the report before. It computes the most urgent level first, and in
// it the smallest key.
func (v *ledger) ran(tokens int, since time.Duration) {
	done := time.Duration(0)
	for i := range v.flights {
		longs := v.flights[i].longs
		slices.SortFunc(longs, compareEntries)
		for _, e := range longs {
			n := min(tokens, e.left-1)
			done += v.cost.Prefill(n, e.demand.PromptTokens-e.left, v.chunk)
			e.left -= n
			tokens -= n
		}
	}
	if done > 0 && since > 0 && v.shortReported == 0 && v.rows > 0 {
		pace := min(1, float64(done)/float64(since))
		if v.longPace == 0 {
			v.longPace = pace
		}
		v.longPace += (pace - v.longPace) * min(1, float64(since)/float64(paceMemory))
	}
}

// paceMemory is the time constant of longPace.
const paceMemory = 5 * time.Second

// given books e, which starts now.
func (v *ledger) given(e *Entry) {
	v.sequences += e.demand.Sequences
	f := &v.flights[e.level]
	f.sequences += e.demand.Sequences
	v.reserve(e, e.kv)
	if e.long {
		f.longs = append(f.longs, e)
		e.left = e.uncached()
		v.longGiven += e.left
		return
	}
	f.short++
	f.fresh += e.uncached()
	f.freshEntries = append(f.freshEntries, e)
}

// reserve books more memory for e, or less.
func (v *ledger) reserve(e *Entry, tokens int) {
	v.kv += tokens
	v.flights[e.level].kv += tokens
}

// landed takes e off the prefills under way: it has its first token, or ended.
func (v *ledger) landed(e *Entry) {
	f := &v.flights[e.level]
	if e.long {
		f.longs = without(f.longs, e)
		return
	}
	f.short--
	if n := len(f.freshEntries); n > 0 {
		if f.freshEntries = without(f.freshEntries, e); len(f.freshEntries) < n {
			f.fresh -= e.uncached()
			return
		}
	}
	f.seen -= e.uncached()
}

// without is list less e; it may change the order.
func without(list []*Entry, e *Entry) []*Entry {
	i := slices.Index(list, e)
	if i < 0 {
		return list
	}
	last := len(list) - 1
	list[i], list[last] = list[last], nil
	return list[:last]
}

// answered books e's first token.
func (v *ledger) answered(e *Entry, now time.Duration) {
	v.landed(e)
	v.rows += e.demand.Sequences
	v.rowsContext += e.demand.PromptTokens
	if e.due > 0 && e.predicted > 0 {
		v.margin.observe(now-e.arrived, e.predicted)
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
	stay := float64(now - e.started)
	if v.life == 0 {
		v.life = stay
	}
	v.life += (stay - v.life) / 16
}

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
		v.cost = r.Cost
	}
	v.room, v.chunk, v.kvTokens, v.stepDuration = r.Room, max(1, r.Room.TokensMax), r.KVTokens, r.StepDuration
	v.ran(max(0, v.longReported+v.longGiven-r.LongPrefill), r.At-before)
	v.shortReported, v.longReported, v.longGiven = r.ShortPrefill, r.LongPrefill, 0
	for i := range v.flights {
		v.flights[i].see(r.At)
	}
	s.followCache(r.Blocks)
	if far(v.priced, v.cost.PrefillToken) {
		v.priced = v.cost.PrefillToken
		s.repriceAll()
	}
}

// see moves what was given before the report of that instant from fresh to seen.
func (f *flight) see(at time.Duration) {
	kept := f.freshEntries[:0]
	for _, e := range f.freshEntries {
		if e.started >= at {
			kept = append(kept, e)
			continue
		}
		f.fresh -= e.uncached()
		f.seen += e.uncached()
	}
	clear(f.freshEntries[len(kept):])
	f.freshEntries = kept
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

// recache prices a waiting e for the number of tokens that are cached now. A goal
// that was given up stays given up.
func (s *Scheduler) recache(e *Entry, cached int) {
	t, due := e.line.tenant, e.due
	s.leave(e)
	e.cached = cached
	s.price(e)
	if due == 0 {
		e.due = 0
	}
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
