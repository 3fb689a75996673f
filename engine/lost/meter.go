package lost

import (
	"time"

	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
)

// Step is a step that has ended.
type Step struct {
	Began, Ended int64
	// Load is its work; the zero Load says nothing about how long it should take.
	Load cost.Load
	// CPU is the processor time of the process in it.
	CPU time.Duration
	// Gap is the time with work before it, since the step before or since the
	// engine had nothing to do, and GapCPU the processor time in it.
	Gap, GapCPU time.Duration
}

// Meter finds lost time. The zero value is ready to use; it is not safe for
// concurrent use.
type Meter struct {
	calm cost.Fit // what steps cost when nothing is lost

	before  Reading
	begin   int64         // of the first stretch that pending counts, 0 for none
	end     int64         // of the last
	pending time.Duration // by how much steps took too long since before
	stopped time.Duration // the part of pending in long stretches without processor time
	unsure  Step          // the last step that took too long
}

const (
	slack       = 1.15                   // times what was predicted: less is noise
	pieceLeast  = 50 * time.Millisecond  // a stretch that is looked at by itself
	pieceShare  = 2                      // 1/pieceShare of it without processor time: it stood still
	settleLeast = 20 * time.Millisecond  // the sum of short ones that is looked at
	settleEvery = 100 * time.Millisecond // and the least time between two such looks
	lessons     = 7                      // that a step teaches which took long for no visible reason
	settleShare = 10                     // lost time below 1/settleShare of the excess is noise
)

// Restore begins with what steps are known to cost.
func (m *Meter) Restore(c cost.Cost) { m.calm.Restore(c) }

// Step takes a step. It returns what the step takes where nothing is lost, 0 for
// unknown, and the stretch in which time was lost, if there is one to tell now. It
// calls read only if it needs it.
func (m *Meter) Step(s Step, read func() Reading) (predicted time.Duration, l wire.LostTime, some bool) {
	if s.Load != (cost.Load{}) && m.calm.Cost().Known() {
		predicted = m.calm.Cost().Step(s.Load)
	}
	took := time.Duration(s.Ended - s.Began)
	over := time.Duration(0)
	if predicted > 0 {
		over = max(0, took-time.Duration(slack*float64(predicted)))
	}
	piece := m.exceed(s.Began, s.Ended, max(over, took-s.CPU), took-s.CPU)
	piece = max(piece, m.exceed(s.Began-int64(s.Gap), s.Began, s.Gap-s.GapCPU, s.Gap-s.GapCPU))
	switch {
	case s.Load == (cost.Load{}):
	case over == 0 && took-s.CPU < took/pieceShare:
		m.calm.Observe(s.Load, took)
	default:
		m.unsure = s
	}
	window := time.Duration(s.Ended - m.before.At)
	if piece >= pieceLeast || m.pending >= settleLeast && window >= settleEvery && m.pending >= window/settleShare {
		l, some = m.Settle(read())
	}
	return predicted, l, some
}

// exceed counts a stretch that took longer than it should by excess, of which the
// process had no processor time for stopped. It returns excess.
func (m *Meter) exceed(begin, end int64, excess, stopped time.Duration) time.Duration {
	if excess <= 0 {
		return 0
	}
	if m.begin == 0 {
		m.begin = begin
	}
	m.begin, m.end = min(m.begin, begin), max(m.end, end)
	m.pending += excess
	if stopped >= pieceLeast && stopped >= time.Duration(end-begin)/pieceShare {
		m.stopped += stopped
	}
	return excess
}

// Late takes a stretch in which the process should have woken at begin, did so at
// end, and had this processor time meanwhile.
func (m *Meter) Late(begin, end int64, cpu time.Duration, read func() Reading) (l wire.LostTime, some bool) {
	late := time.Duration(end-begin) - cpu
	if late < pieceLeast || late < time.Duration(end-begin)/pieceShare {
		return l, false
	}
	m.exceed(begin, end, late, late)
	return m.Settle(read())
}

// Settle divides what steps took too long since the last Reading, and begins anew
// with this one.
func (m *Meter) Settle(now Reading) (l wire.LostTime, some bool) {
	l = wire.LostTime{Begin: m.begin, End: m.end}
	if m.before.At != 0 && m.pending > 0 {
		l.By = divide(min(m.pending, time.Duration(m.end-m.begin)), m.stopped, &m.before, &now)
	}
	lost := l.Sum()
	some = lost > 0 && lost >= m.pending/settleShare
	if !some && m.unsure.Ended != 0 { // nothing took its time: it costs more than was thought
		for range lessons { // one stands for all since the last Reading
			m.calm.Observe(m.unsure.Load, time.Duration(m.unsure.Ended-m.unsure.Began))
		}
	}
	m.before, m.begin, m.end, m.pending, m.stopped, m.unsure = now, 0, 0, 0, 0, Step{}
	return l, some
}

// othersShare is the part of a stretch that other processes must have run for, for
// a wait to be their doing: our own threads wait for each other too.
const othersShare = 10

// divide says what an excess went to, as far as the kernel's counts show it.
// stopped is the part in long stretches without any processor time.
func divide(excess, stopped time.Duration, before, now *Reading) (by [wire.LostCauseCount]time.Duration) {
	take := func(cause wire.LostCause, most time.Duration) {
		d := min(excess, max(0, most))
		by[cause] += d
		excess -= d
	}
	take(wire.LostThrottled, now.Throttled-before.Throttled)
	if steal := now.Steal - before.Steal; steal > tick {
		take(wire.LostStolen, steal/time.Duration(max(1, now.Processors)))
	}
	waited := now.Pressure - before.Pressure
	if now.Delayed && before.Delayed {
		waited = now.Waited - before.Waited
	}
	others := now.Busy - before.Busy - (now.CPU - before.CPU)
	if others > 2*tick && others >= time.Duration(now.At-before.At)/othersShare {
		take(wire.LostTaken, min(waited, others))
	}
	if now.Faults > before.Faults {
		take(wire.LostPaging, now.Paging-before.Paging)
	}
	take(wire.LostFrozen, stopped)
	return by
}
