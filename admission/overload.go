package admission

import (
	"math"
	"time"
)

// The backstop works where the feasibility test is wrong: predictions fail and
// requests wait all the same. It climbs a ladder while that lasts, one rung a
// second, and comes down more slowly:
//
//	1  offline work stops
//	2  batch work keeps to its floor
//	3  answers of classes that consent are cut to busy_output_tokens
//	4  newcomers are shed, a part of the tenants and users at a time
//
// The sign of trouble is the least wait of a window, as in CoDel (RFC 8289):
// a queue that was empty once in it is no trouble. Whom to shed follows DAGOR
// (SoCC 2018): a cursor over a hash that changes every hour, lowered by 5 % and
// raised by 1 % a second.
type overload struct {
	rung   int
	cursor float64 // share of newcomers that is let in on the last rung
	at     time.Duration
	calm   int // seconds without trouble
}

const (
	rungOffline = 1 + iota
	rungBatch
	rungAnswers
	rungShed
)

const (
	overloadTurn = time.Second
	calmTurns    = 5
	shedDown     = 0.95
	shedUp       = 1.01
	// mistaken is the median of actual/predicted waits that calls for the ladder.
	mistaken = 1.5
)

// sojourn finds the least wait of each window.
type sojourn struct {
	least, last time.Duration // of this window and of the last whole one
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

// standing is the queue that did not go away, forgotten after a second without starts.
func (w *sojourn) standing(now time.Duration) time.Duration {
	if now > w.until+time.Second {
		return 0
	}
	return min(w.last, w.least)
}

// turn moves the ladder, at most once a second.
func (o *overload) turn(s *Scheduler) {
	if s.now < o.at+overloadTurn {
		return
	}
	o.at = s.now
	if o.cursor == 0 {
		o.cursor = 1
	}
	if !s.troubled() {
		o.cursor = min(1, o.cursor*shedUp)
		if o.calm++; o.calm >= calmTurns && o.rung > 0 && (o.rung < rungShed || o.cursor == 1) {
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

// troubled tells that waits are longer than foretold, and longer than half of
// what a class promises.
func (s *Scheduler) troubled() bool {
	if s.engine.margin.median < mistaken {
		return false
	}
	for _, k := range s.classes {
		if k.level == levelInteractive && k.FirstTokenGoal > 0 && k.sojourn.standing(s.now) > k.FirstTokenGoal/2 {
			return true
		}
	}
	return false
}

// serves tells whether a level may start work beyond its floor; floors whether
// it gets that.
func (o *overload) serves(level int) bool {
	return level == levelInteractive || level == levelBatch && o.rung < rungBatch || level == levelOffline && o.rung < rungOffline
}

func (o *overload) floors(level int) bool { return level < levelOffline || o.rung < rungOffline }

// sheds tells whether a newcomer falls to the last rung.
func (o *overload) sheds(e *Entry, now time.Duration) bool {
	if o.rung < rungShed {
		return false
	}
	hour := uint64(now / time.Hour)
	hash := mix(mixText(hour, e.demand.Tenant), mixText(hour, e.demand.User))
	return float64(hash>>11)/(1<<53) >= o.cursor
}

// margin follows actual/predicted waits: its median, and the 90 % quantile by
// which predictions are stretched. Both move by a step of their own size for
// every observation, so they rise fast and fall slowly.
type margin struct{ median, high float64 }

const (
	marginStart = 1.15
	marginMost  = 3
	marginStep  = 0.1
	// marginGrain is added to both sides, since of a wait of 2 ms foretold as 1
	// nobody need know.
	marginGrain = float64(50 * time.Millisecond)
)

func (m *margin) init() { m.median, m.high = 1, marginStart }

func (m *margin) observe(actual, predicted time.Duration) {
	ratio := (float64(actual) + marginGrain) / (float64(predicted) + marginGrain)
	follow := func(q *float64, share float64) {
		if ratio > *q {
			*q = min(marginMost, *q*math.Exp(marginStep*share))
		} else {
			*q = max(0.25, *q*math.Exp(-marginStep*(1-share)))
		}
	}
	follow(&m.median, 0.5)
	follow(&m.high, 0.9)
}

func (m *margin) value() float64 { return max(1, m.high) }
