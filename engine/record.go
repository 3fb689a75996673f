package engine

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// recorder makes the records of steps. It belongs to the loop's goroutine,
// and reuses its memory from step to step.
type recorder struct {
	log       *wire.StepLog // nil where no records are kept
	record    wire.StepRecord
	lastEnded int64
}

// preempted notes whose pages were taken.
func (r *recorder) preempted(g *generation) {
	if r.log == nil {
		return
	}
	if len(r.record.Preempted) < wire.StepListMax {
		r.record.Preempted = append(r.record.Preempted, g.serial)
	} else {
		r.record.PreemptedMore++
	}
}

// recordStep adds the record of the step that has ended, and makes room for the
// next one's.
func (l *loop) recordStep(rows []row, ended int64) {
	rec := &l.recorder.record
	if l.recorder.log != nil {
		rec.Step, rec.Began, rec.Ended = l.total.Step, l.began, ended
		rec.GivenUp, rec.Idle = time.Duration(l.givenUp), time.Duration(l.idle)
		rec.Gap = max(0, time.Duration(l.began-l.recorder.lastEnded)-rec.GivenUp-rec.Idle)
		rec.DecodeRows, rec.PrefillTokens, rec.PagesUsed = l.total.StepDecodeTokens, l.total.StepPrefillTokens, l.pool.Counts().Used
		rec.Kernels = wireKernels(&l.timer.Kernels)
		l.recordMembers(rec, rows)
		l.recordLeftOut(rec)
		l.recorder.log.Add(rec)
		rec.Preempted, rec.PreemptedMore = rec.Preempted[:0], 0
	}
	l.recorder.lastEnded, l.givenUp, l.idle = ended, 0, 0
}

// recordMembers divides the step's time among its rows, so that their parts
// sum to it.
func (l *loop) recordMembers(rec *wire.StepRecord, rows []row) {
	rec.Members = rec.Members[:0]
	took, before, sum := float64(rec.Ended-rec.Began), time.Duration(0), 0.0
	for i := range rows[:min(len(rows), wire.StepListMax)] {
		r := &rows[i]
		sum += r.cost
		upTo := time.Duration(took * min(1, sum/l.whole))
		if i == len(rows)-1 {
			upTo = time.Duration(took)
		}
		rec.Members = append(rec.Members, wire.StepMember{
			Serial: r.seq.gen.serial, Tokens: r.count, Own: upTo - before, Level: uint8(r.seq.gen.level), Decode: r.decode,
		})
		before = upTo
	}
	rec.MembersMore = len(rows) - len(rec.Members)
}

func (l *loop) recordLeftOut(rec *wire.StepRecord) {
	rec.LeftOut, rec.LeftOutMore = rec.LeftOut[:0], 0
	for _, q := range [...][]*sequence{l.running, l.waiting} {
		for _, s := range q {
			switch {
			case s.inStep == l.total.Step:
			case len(rec.LeftOut) < wire.StepListMax:
				rec.LeftOut = append(rec.LeftOut, wire.StepLeftOut{Serial: s.gen.serial, Why: s.left()})
			default:
				rec.LeftOutMore++
			}
		}
	}
}
