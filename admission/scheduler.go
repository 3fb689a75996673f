package admission

import (
	"fmt"
	"slices"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// Scheduler is the pure core: it decides which requests are admitted, which one
// starts next and which are refused. Every method takes the instant at which it is
// called, on one clock that never goes back. One goroutine calls at a time.
//
// Invariants. The tests check all but the fourth after every call of random plays:
//  1. An entry is in one state. A waiting one is in its lane and in the heap of
//     expiries, a running one in running, others nowhere.
//  2. The sums of classes, levels and the engine's ledger are those of the entries.
//  3. A tenant's deficit is at most two quanta.
//  4. No request that arrives after e.arrived + AgeCap starts before e, within a
//     tenant and lane.
//  5. An engine that is up and empty is given a request, if one waits outside its
//     window, in a class that is neither paused nor stopped by the ladder.
type Scheduler struct {
	cfg     Config
	classes []*class // by level, then as configured
	byName  map[string]*class
	tenants map[string]*tenant
	levels  [levelCount]level
	lengths *lengths
	cache   prefixes
	engine  ledger
	load    overload

	orders   uint64 // of arrival, so far
	draws    uint64 // so far, see Demand.Draw
	expiry   heap
	running  []*Entry
	refused  []*Entry // refused while they waited, since TakeRefused
	scratch  scratch
	waiting  sums
	bytes    int // of memory that waiting requests hold
	tokens   int // uncached prompt tokens of waiting requests
	count    int // waiting requests
	now      time.Duration
	lookedAt time.Duration // when promises were last looked at, see revoke.go
	wakeAt   time.Duration // when the next window ends; 0 is never

	returning   time.Duration // engine time of the requests that were told to come back, as of returningAt
	returningAt time.Duration
}

// scratch is memory that calls use again. No call reads what an earlier one left.
type scratch struct {
	touched  []*Entry   // of Report
	kept     []kept     // of Next
	underWay []underWay // of forecast
}

// class is a Class, and what it holds.
type class struct {
	Class
	level int
	mode  Mode
	// paused is the time for which it was paused, without the stretch that began at
	// pausedSince if it is paused now.
	paused, pausedSince time.Duration

	lines []*line           // those with something waiting
	held  map[*tenant]*line // all of them

	waiting, running int
	inLane           [laneCount]int // waiting, by lane
	bytes            int
	sequences, kv    int           // of the running ones
	backlog          time.Duration // cost of what waits
	credit           time.Duration // engine time that its floor owes it
	served           meter
	sojourn          sojourn
	margin           margin
	refused, demoted uint64
	revoked          uint64 // of those refused
}

// level is what the classes of a level share.
type level struct {
	classes []*class
	track   track
	served  meter
	short   meter // engine time of short prefill

	asking    []*line // tenants that asked for something recently
	allAsked  meter   // of what all of them asked for
	lastAsked meter   // the same, of the last seconds
	sweptAt   time.Duration
	standing  standing
	lateSince time.Duration // since when a promise looks broken; 0 is not
}

// NewScheduler makes a Scheduler; the error says what is wrong with cfg.
func NewScheduler(cfg Config) (*Scheduler, error) {
	if err := conf.Complete("admission", &cfg); err != nil {
		return nil, err
	}
	table, err := cfg.ClassTable()
	if err != nil {
		return nil, err
	}
	s := &Scheduler{
		cfg: cfg, byName: map[string]*class{}, tenants: map[string]*tenant{},
		lengths: newLengths(cfg.LengthsMax), cache: newPrefixes(),
		expiry: heap{
			less:  func(a, b *Entry) bool { return a.expires < b.expires },
			place: func(e *Entry) *int { return &e.inExpiry },
		},
	}
	for _, c := range table {
		k := newClass(c)
		s.classes, s.byName[c.Name] = append(s.classes, k), k
		l := &s.levels[k.level]
		l.classes = append(l.classes, k)
	}
	if s.byName[cfg.DefaultClass] == nil {
		return nil, fmt.Errorf("admission.default_class: there is no class %q", cfg.DefaultClass)
	}
	for _, t := range cfg.Tenants {
		s.tenants[t.Name] = &tenant{name: t.Name, weight: max(t.Weight, 0.01), configured: true}
	}
	return s, nil
}

// Arrive takes a request in, or refuses it.
func (s *Scheduler) Arrive(d Demand, now time.Duration) (*Entry, *Refusal) {
	s.advance(now)
	k := s.classOf(&d)
	s.orders++
	s.draw(&d)
	e := &Entry{demand: d, class: k, asked: k, order: s.orders, arrived: now - d.Age, inLane: out, inExpiry: out, inRunning: out}
	t := s.tenant(d.Tenant)
	e.expires = s.expiresAt(e)
	e.cached = min(d.PromptTokens, max(0, d.PromptTokens-d.UncachedTokens))
	s.price(e)
	if refusal := s.screen(e, t); refusal != nil {
		e.class.refused++
		return nil, refusal
	}
	s.enter(e, t)
	s.noteBody(e)
	if s.promise(e); e.state == refused {
		s.refused = slices.DeleteFunc(s.refused, func(o *Entry) bool { return o == e })
		e.state = settled
		return nil, e.refusal
	}
	return e, nil
}

// classOf is the class that d asks for.
func (s *Scheduler) classOf(d *Demand) *class {
	if k := s.byName[d.Class]; k != nil {
		return k
	}
	return s.byName[s.cfg.DefaultClass]
}

// expiresAt is when e's wait ends with a refusal: the first of all its limits.
func (s *Scheduler) expiresAt(e *Entry) time.Duration {
	limit := e.class.WaitLimit
	if s.cfg.WaitLimit > 0 {
		limit = min(limit, s.cfg.WaitLimit)
	}
	if e.demand.Within > 0 {
		limit = min(limit, e.demand.Within)
	}
	return e.arrived + limit
}

// enter puts e among the waiting requests of its class.
func (s *Scheduler) enter(e *Entry, t *tenant) {
	e.pausedBefore = e.class.pausedFor(s.now)
	e.state, e.level = waiting, e.class.level
	e.line = s.lineOf(e.class, t)
	e.line.add(e)
	s.expiry.push(e)
	s.cache.watch(e)
	s.countWaiting(e, 1)
	if e.due > 0 {
		s.levels[e.class.level].track.insert(e)
	}
}

// leave takes a waiting e out of every list that holds it.
func (s *Scheduler) leave(e *Entry) {
	s.levels[e.class.level].track.remove(e)
	s.countWaiting(e, -1)
	s.cache.unwatch(e)
	s.expiry.remove(e)
	e.line.remove(e)
}

func (s *Scheduler) countWaiting(e *Entry, sign int) {
	k := e.class
	k.waiting += sign
	k.inLane[e.lane()] += sign
	k.bytes += sign * e.demand.Bytes
	k.backlog += time.Duration(sign) * e.cost
	e.line.tenant.backlog += time.Duration(sign) * e.cost
	s.waiting.add(e, sign)
	s.count += sign
	s.bytes += sign * e.demand.Bytes
	s.tokens += sign * e.uncached()
}

// refuse ends the wait of e with a refusal.
func (s *Scheduler) refuse(e *Entry, r *Refusal) {
	s.leave(e)
	if e.state, e.refusal = refused, r; s.wasPaused(e) {
		r.Why = WhyPaused
	}
	e.class.refused++
	s.refused = append(s.refused, e)
}

// TakeRefused hands out the requests that waited and were refused since the last
// call. The slice is valid until something is refused again.
func (s *Scheduler) TakeRefused() []*Entry {
	list := s.refused
	s.refused = s.refused[:0]
	return list
}

// Progress says how many tokens e has so far.
func (s *Scheduler) Progress(e *Entry, tokens int, now time.Duration) {
	s.advance(now)
	if e.state != running || tokens <= e.tokens {
		return
	}
	before := e.tokens
	e.tokens = tokens
	if e.firstToken == 0 {
		e.firstToken = max(now, 1)
		s.engine.answered(e, now)
	}
	s.engine.rowsContext += tokens - before
	s.engine.rowsTokens += tokens - before
	if tokens/reviseEvery != before/reviseEvery {
		s.revise(e)
	}
}

// reviseEvery is after how many tokens an answer's expected length is revised.
const reviseEvery = 32

// Done settles e in any state and frees what it holds. Further calls do nothing.
func (s *Scheduler) Done(e *Entry, spent Spent, now time.Duration) {
	s.advance(now)
	switch e.state {
	case waiting:
		s.leave(e)
	case running:
		s.finish(e, spent)
	}
	e.state = settled
}

// finish ends a running e: its tenant is charged what it used, and the length model
// learns from its answer.
func (s *Scheduler) finish(e *Entry, spent Spent) {
	k, last := e.class, len(s.running)-1
	s.running[e.inRunning] = s.running[last]
	s.running[e.inRunning].inRunning = e.inRunning
	s.running[last] = nil
	s.running, e.inRunning = s.running[:last], out
	k.running--
	k.sequences -= e.demand.Sequences
	k.kv -= e.kv
	e.line.tenant.running--
	e.line.running--
	s.engine.left(e, s.now)
	tokens := max(spent.CompletionTokens, e.tokens)
	s.settle(e, spent, tokens)
	if tokens > 0 {
		per := max(1, tokens/max(1, e.demand.Sequences))
		p := s.lengths.distribution(&e.demand)
		most := max(1, e.demand.DecodeTokens/max(1, e.demand.Sequences))
		if spent.Whole {
			s.lengths.score.observe(p.mean(most), p.quantile(0.9, most), per)
		}
		s.lengths.observe(&e.demand, per, spent.Whole)
	}
}

// SetMode opens, pauses or drains a class.
func (s *Scheduler) SetMode(name string, m Mode, now time.Duration) error {
	s.advance(now)
	k := s.byName[name]
	if k == nil {
		names := make([]string, len(s.classes))
		for i, c := range s.classes {
			names[i] = c.Name
		}
		return fmt.Errorf("there is no class %q; the classes are %q", name, names)
	}
	if k.mode == Paused {
		k.paused += s.now - k.pausedSince
	}
	k.mode, k.pausedSince = m, s.now
	return nil
}

// advance moves the clock, refuses the requests whose wait is over, and moves the
// overload ladder.
func (s *Scheduler) advance(now time.Duration) {
	s.now = max(s.now, now)
	for e := s.expiry.head(); e != nil && e.expires <= s.now; e = s.expiry.head() {
		s.refuse(e, s.expired(e))
	}
	s.load.step(s)
}

// expired is the refusal of a request that has waited too long.
func (s *Scheduler) expired(e *Entry) *Refusal {
	r := &Refusal{Reason: TimedOut, RetryAfter: s.retryAfter(e), Predicted: e.predicted}
	if waited := s.now - e.arrived; e.demand.Within > 0 && waited >= e.demand.Within {
		r.Reason = PastDeadline
		r.Message = fmt.Sprintf("the request's deadline of %v passed before it could start", e.demand.Within)
	} else if s.wasPaused(e) {
		r.Message = fmt.Sprintf("class %s was paused by its operator for %v of the %v that the request waited", e.class.Name, (e.class.pausedFor(s.now) - e.pausedBefore).Round(time.Millisecond), waited.Round(time.Millisecond))
	} else {
		r.Message = fmt.Sprintf("no place became free within %v, the longest wait of class %s", waited.Round(time.Millisecond), e.class.Name)
	}
	return r
}

// WakeAt is when to call Next again even if nothing else happens; false is never.
func (s *Scheduler) WakeAt() (time.Duration, bool) {
	at, some := s.wakeAt, s.wakeAt > 0
	if e := s.expiry.head(); e != nil && (!some || e.expires < at) {
		at, some = e.expires, true
	}
	return at, some
}

// Load is the state of this instant.
func (s *Scheduler) Load() Load {
	return Load{Running: len(s.running), RunningSequences: s.engine.sequences, Waiting: s.count, WaitingSequences: s.waiting.sequences}
}
