package capture

import (
	"cmp"
	"math"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// phase is a stretch of a request's time. All phases follow each other without
// a hole, from its arrival to its end.
type phase uint8

const (
	phaseRead     phase = iota // reading and decoding the body
	phaseIdentify              // whose it is, and of which class
	phasePrepare               // to the engine and back, for the prompt
	phaseRender                // chat template, in the engine
	phaseTokenize
	phaseReserve // the tenant's budgets
	phaseQueue
	phaseDispatch
	phaseEngineQueue // until its first token entered a step
	phasePrefill
	phaseDecode
	phaseEmit // from the engine's last token to the end of the answer
	phaseCount
)

var phaseNames = [phaseCount]string{"read", "identify", "prepare", "render", "tokenize", "reserve", "queue", "dispatch", "engine_queue", "prefill", "decode", "emit"}

// String returns the phase's stable name.
func (p phase) String() string { return phaseNames[p] }

// life is a request's time, divided twice: by phases, and in the engine by what
// it went to. Instants are nanoseconds of CLOCK_MONOTONIC.
type life struct {
	begin int64
	ends  [phaseCount]int64 // of each phase; the last one's is that of the life
	last  phase             // the one that it is in, or ended in

	// before and after divide the engine's part, up to the first token and from
	// there on, with handover, from the dispatch until the engine took it, and
	// what is unexplained. So they sum to engine queue, prefill and decode.
	before, after               wire.Parts
	handover                    time.Duration
	beforeUnknown, afterUnknown time.Duration
}

// engineTimes are the engine's own instants and parts of a generation, 0 for
// what is not known.
type engineTimes struct {
	received, scheduled, first, finished int64
	before, after                        wire.Parts
}

// timesOf are what the engine told at the end of r, if it did.
func timesOf(r *telemetry.Record) engineTimes {
	t := &r.Engine
	return engineTimes{t.Received, cmp.Or(t.Scheduled, t.Finished), cmp.Or(t.FirstToken, t.Finished), t.Finished, t.BeforeFirst, t.AfterFirst}
}

// divide gives the life of r up to the instant end.
func divide(r *telemetry.Record, t *engineTimes, end int64) (l life) {
	l.begin, end = r.Arrived, max(r.Arrived, end)
	at := [phaseCount]int64{
		phaseRead: r.Decoded, phaseIdentify: r.Identified, phaseTokenize: r.Prepared, phaseReserve: r.Reserved, phaseQueue: r.Admitted,
		phaseDispatch: r.Dispatched, phaseEngineQueue: t.scheduled, phasePrefill: cmp.Or(t.first, r.FirstToken), phaseDecode: t.finished,
	}
	if r.Prepared != 0 {
		at[phasePrepare] = r.Prepared - int64(r.Render+r.Tokenize)
		at[phaseRender] = r.Prepared - int64(r.Tokenize)
	}
	if r.Dispatched == 0 {
		at[phasePrefill] = 0
	}
	l.last = phaseEmit
	for l.last > 0 && at[l.last-1] == 0 {
		l.last--
	}
	cursor := l.begin
	for p := range phaseCount {
		if p >= l.last {
			at[p] = end
		}
		cursor = min(max(cursor, at[p]), end) // what is 0 was passed over
		l.ends[p] = cursor
	}
	l.divideEngine(t)
	return l
}

// divideEngine fits the parts into the phases.
func (l *life) divideEngine(t *engineTimes) {
	l.before, l.after = t.before, t.after
	left := time.Duration(l.ends[phasePrefill] - l.ends[phaseDispatch])
	if t.received != 0 {
		l.handover = min(left, max(0, time.Duration(t.received-l.ends[phaseDispatch])))
	}
	l.beforeUnknown = fit(&l.before, left-l.handover)
	l.afterUnknown = fit(&l.after, time.Duration(l.ends[phaseDecode]-l.ends[phasePrefill]))
}

// fit cuts the parts, the largest first, to sum to no more than whole, and
// returns what they leave.
func fit(p *wire.Parts, whole time.Duration) (left time.Duration) {
	for left = whole - p.Sum(); left < 0; left = whole - p.Sum() {
		largest := &p[0]
		for i := range p {
			if p[i] > *largest {
				largest = &p[i]
			}
		}
		*largest += max(left, -*largest)
	}
	return left
}

// phase is how long p was.
func (l *life) phase(p phase) time.Duration {
	if p == 0 {
		return time.Duration(l.ends[0] - l.begin)
	}
	return time.Duration(l.ends[p] - l.ends[p-1])
}

// wall is the whole.
func (l *life) wall() time.Duration { return time.Duration(l.ends[phaseCount-1] - l.begin) }

// at is an instant as milliseconds from the arrival, cut to the microsecond:
// differences of such numbers sum to what they should.
func (l *life) at(instant int64) float64 { return ms(instant - l.begin) }

// parts are the phases that were reached.
func (l *life) parts() []PartView {
	list := make([]PartView, 0, phaseCount)
	began := 0.0
	for p := range l.last + 1 {
		end := l.at(l.ends[p])
		if passed := p == phaseRender || p == phaseTokenize; !passed || end > began {
			list = append(list, PartView{p.String(), began, round(end - began)})
		}
		began = end
	}
	return list
}

// unexplained is the row of the stall table for what nothing is known of, and
// handover that for the way to the engine.
const (
	handoverName    = "handover"
	unexplainedName = "unexplained"
)

// stall is the table of the engine's time, without what is nowhere.
func (l *life) stall() []StallView {
	list := []StallView{}
	before, after := l.ends[phaseDispatch], l.ends[phasePrefill]
	row := func(name string, first, then time.Duration) {
		if first == 0 && then == 0 {
			return
		}
		list = append(list, StallView{name, round(l.at(before+int64(first)) - l.at(before)), round(l.at(after+int64(then)) - l.at(after))})
		before, after = before+int64(first), after+int64(then)
	}
	row(handoverName, l.handover, 0)
	for p := range wire.PartCount {
		row(p.String(), l.before[p], l.after[p])
	}
	row(unexplainedName, l.beforeUnknown, l.afterUnknown)
	return list
}

// round takes away what subtracting floating-point numbers left below a
// microsecond.
func round(ms float64) float64 { return math.Round(ms*1000) / 1000 }
