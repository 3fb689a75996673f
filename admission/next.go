package admission

import "time"

// Next starts the request whose turn it is, or returns nil if none may start now.
// The engine pulls: it is given at most one step's worth of prefill that it has
// not begun, so the order of what waits can still change.
//
// A decision has four parts. Expire refuses requests whose wait is over or which
// can no longer keep their goal; refill gives tenants new engine time; choose
// reads the state and says what comes next; start applies it. How far a decision
// looks depends on what it finds: a class that it does not reach is neither
// expired nor refilled. So choose asks for what must happen first, and is asked
// again.
func (s *Scheduler) Next(now time.Duration) *Entry {
	s.advance(now)
	for {
		d := s.choose(s.scratch.kept[:0])
		s.scratch.kept, s.wakeAt = d.kept, d.wakeAt
		for _, k := range d.kept {
			k.entry.why = k.why
		}
		switch {
		case d.late != nil:
			s.takeBack(d.late)
		case d.refill.rounds > 0:
			s.refill(d.refill)
		case d.start != nil:
			s.start(d.start)
			return d.start
		default:
			return nil
		}
	}
}

// decision is what comes next: at most one of late, refill and start. If it has none
// of them, no request may start.
type decision struct {
	late   *Entry // head of its lane that can no longer keep its goal
	refill refill // for a lane in which no tenant has a deficit left
	start  *Entry

	kept   []kept        // heads that were looked at and do not start
	wakeAt time.Duration // when the first window of those ends; 0 is never
}

// kept is a head and what keeps it from starting.
type kept struct {
	entry *Entry
	why   Why
}

// interrupted tells that something must happen before the choice can go on.
func (d *decision) interrupted() bool { return d.late != nil || d.refill.rounds > 0 }

// keep notes what keeps a head.
func (d *decision) keep(e *Entry, why Why) {
	d.kept = append(d.kept, kept{e, why})
	if why != WhyWindow {
		return
	}
	if until := e.windowEnd(); d.wakeAt == 0 || until < d.wakeAt {
		d.wakeAt = until
	}
}

// choose says what comes next; it only reads. Its notes are appended to notes.
//
// Classes whose floor is owed go first, then all; both from the most urgent
// level on. A request that waits for a place or for memory keeps less urgent
// levels from taking them.
func (s *Scheduler) choose(notes []kept) decision {
	d := decision{kept: notes}
	if s.count == 0 || s.engine.heard && !s.engine.up {
		return d
	}
	for _, owed := range [...]bool{true, false} {
		for level := range levelCount {
			blocked := s.chooseAt(level, owed, &d)
			if d.interrupted() || d.start != nil || blocked && !owed {
				return d
			}
		}
	}
	return d
}

// chooseAt chooses among a level's classes: those whose floor is owed, or all
// that may start work. blocked says that one of them waits for a place or for
// memory, and none starts.
func (s *Scheduler) chooseAt(level int, owed bool, d *decision) (blocked bool) {
	var best *Entry
	for _, k := range s.levels[level].classes {
		if k.waiting == 0 || k.mode == Paused || owed && !k.owed(s) || !owed && !s.load.serves(level) {
			continue
		}
		e, why := s.candidate(k, d)
		if d.interrupted() {
			return false
		}
		if e != nil && (best == nil || before(e, best)) {
			best = e
		}
		blocked = blocked || why.room()
	}
	d.start = best
	return blocked && best == nil
}

// candidate is the request of k that may start now; where none may, why is what
// keeps them. It is the head with the smaller key, or else the other lane's head,
// by what the gate of the first one says:
//
//	first    open         room for it is short    anything else
//	short    it starts    the long one may        the long one may
//	long     it starts    neither may             the short one may
//
// An older long request that waits for room is not passed by short ones, which
// would take the room again and again.
func (s *Scheduler) candidate(k *class, d *decision) (e *Entry, why Why) {
	short, long := s.laneHead(k, laneShort, d), s.laneHead(k, laneLong, d)
	if d.interrupted() {
		return nil, WhyNot
	}
	longFirst, longGate := false, WhyNot
	if long != nil {
		longFirst, longGate = short == nil || before(long, short), s.gate(long)
		if longFirst && longGate == WhyNot {
			return long, WhyNot
		}
		d.keep(long, longGate)
	}
	if longFirst && (short == nil || longGate.room()) {
		return nil, longGate
	}
	shortGate := s.gate(short)
	if shortGate == WhyNot {
		return short, WhyNot
	}
	d.keep(short, shortGate)
	if long != nil && longGate == WhyNot {
		return long, WhyNot
	}
	return nil, shortGate
}

// laneHead is the head of a lane of k, nil for an empty one. Where the lane needs
// a refill, or the head can no longer keep its goal, it interrupts d.
func (s *Scheduler) laneHead(k *class, lane int, d *decision) *Entry {
	if d.interrupted() {
		return nil
	}
	e, rounds := s.head(k, lane)
	switch {
	case rounds > 0:
		d.refill = refill{k, lane, rounds}
	case e != nil && e.due > 0 && s.now+e.prefill > e.due:
		d.late = e
	}
	return e
}

// places is how many sequences may run at once: the configured number, or what the
// engine has room for, if that is less.
func (s *Scheduler) places() int {
	if s.engine.places == 0 {
		return s.cfg.RunningSequencesMax
	}
	return min(s.engine.places, s.cfg.RunningSequencesMax)
}

// room tells that e waits for what less urgent requests could take from it.
func (w Why) room() bool { return w == WhySequences || w == WhyMemory }

// gate says what keeps e from starting now, WhyNot for nothing.
func (s *Scheduler) gate(e *Entry) Why {
	k, v := e.class, &s.engine
	share := func(of int) int { return max(1, int(k.Cap*float64(of))) }
	switch {
	case v.sequences > 0 && v.sequences+e.demand.Sequences > s.places():
		return WhySequences
	case k.sequences > 0 && k.sequences+e.demand.Sequences > share(s.places()):
		return WhyClassCap
	case v.kvTokens > 0 && s.kvAhead(k)+min(e.kv, v.kvMax()) > v.kvMax(): // alone, it gets what is pinned
		return WhyMemory
	case v.kvTokens > 0 && k.sequences > 0 && k.kv+e.kv > share(v.kvMax()):
		return WhyClassCap
	case v.heard && e.long && !v.mayDisplace(e):
		return WhyPrefill
	case v.heard && !e.long && !v.mayBegin(e):
		return WhyPrefill
	case s.inWindow(e):
		return WhyWindow
	}
	return WhyNot
}

// kvAhead is the memory that k's requests may not take, in tokens: that of
// everybody, but for level 0 only that of level 0, since the engine takes pages
// from less urgent requests where it must.
func (s *Scheduler) kvAhead(k *class) (tokens int) {
	if k.level > levelInteractive {
		return s.engine.kv
	}
	return s.engine.flights[levelInteractive].kv
}

// inWindow tells whether e waits for others to share its first step: the engine
// is idle, e's class has a window, and not enough waits to fill a step.
func (s *Scheduler) inWindow(e *Entry) bool {
	return e.class.Window > 0 && s.now < e.windowEnd() && s.engine.sequences == 0 && s.tokens < s.chunkTokens()
}

func (s *Scheduler) chunkTokens() int {
	if s.engine.chunk == 0 {
		return chunkUnknown
	}
	return s.engine.chunk
}

// start makes a waiting e run.
func (s *Scheduler) start(e *Entry) {
	s.leave(e)
	e.state, e.started = running, s.now
	if e.asked.level < e.level && s.levels[e.asked.level].track.empty() {
		e.level = e.asked.level // demoted, and it delays nobody at its first level
	}
	e.inRunning = len(s.running)
	s.running = append(s.running, e)
	if e.why == WhyNot && e.started >= e.arrived+time.Millisecond {
		e.why = WhyOrder
	}
	if s.wasPaused(e) {
		e.why = WhyPaused
	}
	k := e.class
	k.running++
	k.sequences += e.demand.Sequences
	k.kv += e.kv
	e.line.tenant.running++
	e.line.running++
	s.engine.given(e)
	s.charge(e, e.prefill+e.decode)
	if !e.long {
		s.levels[e.level].short.add(float64(e.prefill), s.now)
	}
	k.sojourn.observe(s.now-e.arrived, s.now)
}
