package admission

import "time"

// overload is the backstop for when the feasibility test is wrong: predictions
// fail, and requests wait long although they were admitted. It climbs a ladder
// while that lasts, one rung a second, and comes down more slowly:
//
//	1  offline work stops
//	2  batch work keeps to its floor
//	3  answers of classes with busy_output_tokens are cut to it
//	4  some newcomers are shed, by a hash of tenant and user
//
// The sign of trouble is the smallest wait in a window, as in CoDel (RFC 8289): a
// queue that was empty once in the window is no trouble. Which newcomers are shed
// follows DAGOR (SoCC 2018): those whose hash is over a cursor, which is lowered
// by 5 % and raised by 1 % a second. The hash changes every hour.
type overload struct {
	rung   int
	cursor float64 // share of newcomers that are let in on the last rung
	at     time.Duration
	calm   int // steps without trouble since the last rung
}

const (
	rungOffline = 1 + iota
	rungBatch
	rungAnswers
	rungShed
)

const (
	overloadStep = time.Second
	calmSteps    = 5
	shedDown     = 0.95
	shedUp       = 1.01
	// mistaken is the median of actual/predicted waits from which on there is trouble.
	mistaken = 1.5
)

// sojourn finds the smallest wait of each window.
type sojourn struct {
	least, last time.Duration // of this window, and of the last whole one
	until       time.Duration
}

const sojournWindow = 100 * time.Millisecond

func (w *sojourn) observe(waited, now time.Duration) {
	if now >= w.until {
		w.last, w.least, w.until = w.least, waited, now+sojournWindow
		return
	}
	w.least = min(w.least, waited)
}

// standing is the wait that every recent start had at least; 0 after a second
// without starts.
func (w *sojourn) standing(now time.Duration) time.Duration {
	if now > w.until+time.Second {
		return 0
	}
	return min(w.last, w.least)
}

// step moves the ladder, at most once a second.
func (o *overload) step(s *Scheduler) {
	if s.now < o.at+overloadStep {
		return
	}
	o.at = s.now
	if o.cursor == 0 {
		o.cursor = 1
	}
	if !s.troubled() {
		o.cursor = min(1, o.cursor*shedUp)
		if o.calm++; o.calm >= calmSteps && o.rung > 0 && (o.rung < rungShed || o.cursor == 1) {
			o.rung, o.calm = o.rung-1, 0
		}
		return
	}
	o.calm = 0
	if o.rung == rungShed {
		o.cursor = max(0.05, o.cursor*shedDown)
		return
	}
	o.rung++
}

// troubled tells that waits are longer than predicted, and longer than half the
// goal of an interactive class.
func (s *Scheduler) troubled() bool {
	for _, k := range s.classes {
		if k.level == levelInteractive && k.FirstTokenGoal > 0 && k.margin.median >= mistaken && k.sojourn.standing(s.now) > k.FirstTokenGoal/2 {
			return true
		}
	}
	return false
}

// serves tells whether a level may start work beyond its floors.
func (o *overload) serves(level int) bool {
	return level == levelInteractive || level == levelBatch && o.rung < rungBatch || level == levelOffline && o.rung < rungOffline
}

// floors tells whether a level gets its floors.
func (o *overload) floors(level int) bool { return level < levelOffline || o.rung < rungOffline }

// sheds tells whether a newcomer is shed.
func (o *overload) sheds(e *Entry, now time.Duration) bool {
	if o.rung < rungShed {
		return false
	}
	hour := uint64(now / time.Hour)
	hash := mix(mixText(hour, e.demand.Tenant), mixText(hour, e.demand.User))
	return float64(hash>>11)/(1<<53) >= o.cursor
}
