package capture

import (
	"cmp"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// phase is a stretch of a request's time. The phases follow each other without
// gaps, from its arrival to its end.
type phase uint8

const (
	phaseRead     phase = iota // reading and decoding the body
	phaseIdentify              // finding its tenant and class
	phasePrepare               // to the engine and back, for the prompt
	phaseCompile               // the answer's grammar, in the engine
	phaseRender                // the chat template, in the engine
	phaseTokenize
	phaseReserve // the tenant's budgets
	phaseQueue
	phaseDispatch
	phaseEngineQueue // until its first step
	phasePrefill
	phaseDecode
	phaseEmit // from the engine's last token to the end of the answer
	phaseCount
)

var phaseNames = [phaseCount]string{"read", "identify", "prepare", "compile", "render", "tokenize", "reserve", "queue", "dispatch", "engine_queue", "prefill", "decode", "emit"}

// String returns the phase's stable name.
func (p phase) String() string { return phaseNames[p] }

// life is a request's time, divided twice: by phase, and the time in the engine
// by cause. Instants are nanoseconds of CLOCK_MONOTONIC.
type life struct {
	begin int64
	ends  [phaseCount]int64 // of each phase; the last is the end of the life
	last  phase             // the one that the request is in or ended in
	away  bool              // another replica's engine had it, of whose time nothing is known here

	// before and after divide the time in the engine up to the first token and
	// after it. With handover, the time from the dispatch until the engine had the
	// request, and the unknown rest they sum to engine queue, prefill and decode.
	before, after               wire.Parts
	handover                    time.Duration
	beforeUnknown, afterUnknown time.Duration

	// lost is the part of a phase before the engine's in which the engine did not
	// run, and lostBefore and lostAfter that of the times in the engine, which have
	// it no more.
	lost                  [phaseCount]losses
	lostBefore, lostAfter losses
}

// divide returns the life of r up to the instant end.
func divide(r *telemetry.Record, end int64) (l life) {
	t := &r.Engine
	l.begin, end, l.away = r.Arrived, max(r.Arrived, end), r.Away
	at := [phaseCount]int64{
		phaseRead: r.Decoded, phaseIdentify: r.Identified, phaseTokenize: r.Prepared, phaseReserve: r.Reserved, phaseQueue: r.Admitted,
		phaseDispatch: r.Dispatched, phaseEngineQueue: cmp.Or(t.Scheduled, t.Finished), phasePrefill: cmp.Or(t.FirstToken, t.Finished, r.FirstToken), phaseDecode: t.Finished,
	}
	if r.Prepared != 0 {
		at[phasePrepare] = r.Prepared - int64(r.Compile+r.Render+r.Tokenize)
		at[phaseCompile] = r.Prepared - int64(r.Render+r.Tokenize)
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
		cursor = min(max(cursor, at[p]), end) // a phase that was left out has 0
		l.ends[p] = cursor
	}
	l.divideEngine(t)
	return l
}

// divideEngine fits the engine's own division into the phases.
func (l *life) divideEngine(t *wire.Timings) {
	l.before, l.after = t.BeforeFirst, t.AfterFirst
	left := time.Duration(l.ends[phasePrefill] - l.ends[phaseDispatch])
	if t.Received != 0 {
		l.handover = min(left, max(0, time.Duration(t.Received-l.ends[phaseDispatch])))
	}
	l.beforeUnknown = fit(&l.before, left-l.handover)
	l.afterUnknown = fit(&l.after, time.Duration(l.ends[phaseDecode]-l.ends[phasePrefill]))
}

// fit cuts the parts, the largest first, until they sum to whole or less, and
// returns the rest of whole.
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

// over is the end of p, or 0 if the request did not come further than p.
func (l *life) over(p phase) int64 {
	if p < l.last {
		return l.ends[p]
	}
	return 0
}

// phase is the duration of p.
func (l *life) phase(p phase) time.Duration {
	if p == 0 {
		return time.Duration(l.ends[0] - l.begin)
	}
	return time.Duration(l.ends[p] - l.ends[p-1])
}

// wall is the whole duration.
func (l *life) wall() time.Duration { return time.Duration(l.ends[phaseCount-1] - l.begin) }

// at is an instant in milliseconds from the arrival, cut to the microsecond, so
// that differences of such numbers sum exactly.
func (l *life) at(instant int64) float64 { return ms(instant - l.begin) }

// parts are the phases that the request reached.
func (l *life) parts() []PartView {
	list := make([]PartView, 0, phaseCount)
	began := 0.0
	for p := range l.last + 1 {
		end := l.at(l.ends[p])
		if optional := p == phaseCompile || p == phaseRender || p == phaseTokenize; !optional || end > began {
			list = append(list, PartView{p.String(), began, round(end - began)})
		}
		began = end
	}
	return list
}

// Rows of the stall table beside the engine's own parts: the way to the engine,
// and time of which nothing is known.
const (
	handoverName    = "handover"
	unexplainedName = "unexplained"
	siblingName     = "sibling"
)

// unknown is the name of the time in the engine of which nothing is known.
func (l *life) unknown() string {
	if l.away {
		return siblingName
	}
	return unexplainedName
}

// stall is the table of the time in the engine, without empty rows.
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
	for c := range wire.LostCauseCount {
		row(c.String(), l.lostBefore[c], l.lostAfter[c])
	}
	row(l.unknown(), l.beforeUnknown, l.afterUnknown)
	return list
}
