package admission

import (
	"fmt"
	"time"
)

// Next starts the request whose turn it is, or returns nil where none may start
// now. The engine pulls: it is given no more than a step's worth of prefill it
// has not begun, so what waits can still be put in another order.
//
// More urgent levels go first, save for what floors are owed. A request that
// waits for a place or for memory keeps less urgent ones from taking them.
func (s *Scheduler) Next(now time.Duration) *Entry {
	s.advance(now)
	s.wakeAt = 0
	if s.count == 0 || s.engine.heard && !s.engine.up {
		return nil
	}
	for _, owed := range [...]bool{true, false} {
		for level := range levelCount {
			e, blocked := s.nextOf(level, owed)
			if e != nil {
				s.start(e)
				return e
			}
			if blocked && !owed {
				return nil
			}
		}
	}
	return nil
}

// nextOf is the next of a level's classes, either those that are owed their
// floor or all of them. blocked says that one of them waits for what less
// urgent ones must not take.
func (s *Scheduler) nextOf(level int, owed bool) (best *Entry, blocked bool) {
	for _, k := range s.classes {
		if k.level != level || k.waiting == 0 || k.mode == Paused || owed && !k.owed(s) || !owed && !s.load.serves(level) {
			continue
		}
		e, why := s.candidate(k)
		switch {
		case e != nil && (best == nil || before(e, best)):
			best = e
		case why == WhySequences || why == WhyMemory:
			blocked = true
		}
	}
	return best, blocked && best == nil
}

// candidate is the request of k that may start now; where none may, why is
// what keeps the first of them.
func (s *Scheduler) candidate(k *class) (e *Entry, why Why) {
	var heads [laneCount]*Entry
	for lane := range heads {
		heads[lane] = s.timely(k, lane)
	}
	short, long := heads[laneShort], heads[laneLong]
	if long != nil {
		gate := s.gate(long)
		if gate == WhyNot && (short == nil || before(long, short)) {
			return long, WhyNot
		}
		long.why = gate
		// An older long request that waits for room is not passed by all the
		// short ones that would take it.
		if (gate == WhySequences || gate == WhyMemory) && (short == nil || before(long, short)) {
			return nil, gate
		}
		why = gate
	}
	if short != nil {
		if gate := s.gate(short); gate != WhyNot {
			short.why, why = gate, gate
		} else {
			return short, WhyNot
		}
	}
	if long != nil && long.why == WhyNot {
		return long, WhyNot
	}
	return nil, why
}

// timely is the head of a lane that can still keep its goal, or has none.
// Those that cannot are turned away, or give their goal up.
func (s *Scheduler) timely(k *class, lane int) *Entry {
	for {
		e := s.head(k, lane)
		if e == nil || e.due == 0 || s.now+e.prefill <= e.due {
			return e
		}
		s.giveUp(e, &Refusal{
			Reason: Late, Predicted: s.now + e.prefill - e.arrived, RetryAfter: s.retryAfter(e),
			Message: fmt.Sprintf("its first token would come %v after it arrived, and class %s promises it within %v; try again later, or use a class that may wait",
				(s.now + e.prefill - e.arrived).Round(time.Millisecond), k.Name, (e.due - e.arrived).Round(time.Millisecond)),
		})
	}
}

// gate says what keeps e from starting now, WhyNot for nothing.
func (s *Scheduler) gate(e *Entry) Why {
	k, v := e.class, &s.engine
	share := func(of int) int { return max(1, int(k.Cap*float64(of))) }
	switch {
	case v.sequences+e.work.Sequences > s.cfg.RunningSequencesMax:
		return WhySequences
	case k.sequences > 0 && k.sequences+e.work.Sequences > share(s.cfg.RunningSequencesMax):
		return WhyClassCap
	case v.kvTokens > 0 && s.kvAhead(k)+e.kv > v.kvMax():
		return WhyMemory
	case v.kvTokens > 0 && k.sequences > 0 && k.kv+e.kv > share(v.kvMax()):
		return WhyClassCap
	}
	if v.heard {
		if e.long {
			if !s.mayDisplace(e) {
				return WhyPrefill
			}
		} else if tokens, requests := v.outstanding(k.level); requests > 0 && tokens+min(e.uncached(), v.chunk) > v.chunk {
			return WhyPrefill
		}
	}
	if s.held(e) {
		return WhyWindow
	}
	return WhyNot
}

// longsMost is how many long prefills a level may have begun: one is computed,
// and others have given way to it.
const longsMost = 4

// mayDisplace tells whether a long prefill may start: where others are under way
// it passes them, so it must come before them.
func (s *Scheduler) mayDisplace(e *Entry) bool {
	s.longs = s.engine.longs(s.longs[:0], e.level)
	return len(s.longs) == 0 || len(s.longs) < longsMost && before(e, s.longs[0])
}

// kvAhead is the memory that k's requests may not take: of more urgent and
// equal levels all of it, and of less urgent ones none for level 0, since the
// engine takes their pages where it must.
func (s *Scheduler) kvAhead(k *class) (tokens int) {
	if k.level > levelInteractive {
		return s.engine.kv
	}
	return s.engine.flights[levelInteractive].kv
}

// held tells whether e waits for company: the engine is idle, e's class has a
// window, and not enough waits to fill a step.
func (s *Scheduler) held(e *Entry) bool {
	until := e.arrived + e.class.Window
	if e.class.Window == 0 || s.now >= until || s.engine.sequences > 0 || s.tokens >= s.chunkTokens() {
		return false
	}
	if s.wakeAt == 0 || until < s.wakeAt {
		s.wakeAt = until
	}
	return true
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
		e.level = e.asked.level // nobody whom it could harm
	}
	e.inRunning = len(s.running)
	s.running = append(s.running, e)
	if e.why == WhyNot && e.started >= e.arrived+time.Millisecond {
		e.why = WhyOrder
	}
	k := e.class
	k.running++
	k.sequences += e.work.Sequences
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
