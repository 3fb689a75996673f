package engine

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// recorder makes the records of steps. It reuses its memory from step to step.
type recorder struct {
	log           *wire.StepLog   // nil where no records are kept
	next          wire.StepRecord // of the step that comes or runs
	lastEnded     int64
	givenUp, idle int64         // nanoseconds since then
	lastUsed      time.Duration // processor time of this process at lastEnded
}

// gap is the time from the step before to a step that began at the instant, without
// what was given up and idle.
func (r *recorder) gap(began int64) time.Duration {
	return max(0, time.Duration(began-r.lastEnded-r.givenUp-r.idle))
}

// preempted notes whose pages were taken.
func (r *recorder) preempted(serial uint64) {
	switch {
	case r.log == nil:
	case len(r.next.Preempted) < wire.StepListMax:
		r.next.Preempted = append(r.next.Preempted, serial)
	default:
		r.next.PreemptedMore++
	}
}

// record adds the record of the step that has ended to the log, and begins the
// next one.
func (d *ledger) record(rows []row, all *supply, ended int64) {
	r, s := &d.recorder, &d.step
	if r.log != nil {
		n := &r.next
		n.Step, n.Began, n.Ended = s.number, s.began, ended
		n.GivenUp, n.Idle = time.Duration(r.givenUp), time.Duration(r.idle)
		n.Gap, n.Predicted, n.CPU = r.gap(s.began), s.predicted, max(0, s.used)
		n.Lost = d.lost.Take(n.Lost[:0])
		n.DecodeRows, n.PrefillTokens, n.PagesUsed = s.load.DecodeRows, s.load.PrefillTokens, all.pool.Counts().Used
		n.Kernels = wireKernels(&d.timer.Kernels)
		recordMembers(n, rows, s)
		recordLeftOut(n, all)
		r.log.Add(n)
		n.Preempted, n.PreemptedMore = n.Preempted[:0], 0
	}
	r.lastEnded, r.givenUp, r.idle = ended, 0, 0
}

// recordMembers divides the step's time among its rows, so that their parts sum to
// it: to each its own masks, and of the rest its share of the cost.
func recordMembers(n *wire.StepRecord, rows []row, s *stepCost) {
	n.Members = n.Members[:0]
	whole := time.Duration(n.Ended - n.Began)
	took, before, sum, masks := float64(whole-s.masks), time.Duration(0), 0.0, time.Duration(0)
	for i := range rows[:min(len(rows), wire.StepListMax)] {
		r := &rows[i]
		sum += r.cost
		masks += r.masks
		upTo := time.Duration(took*min(1, sum/s.cost)) + masks
		if i == len(rows)-1 {
			upTo = whole
		}
		n.Members = append(n.Members, wire.StepMember{
			Serial: r.seq.gen.serial, Tokens: r.count, Own: upTo - before, Level: uint8(r.seq.gen.level), Decode: r.decode,
		})
		before = upTo
	}
	n.MembersMore = len(rows) - len(n.Members)
}

func recordLeftOut(n *wire.StepRecord, all *supply) {
	n.LeftOut, n.LeftOutMore = n.LeftOut[:0], 0
	for s := range all.each {
		switch {
		case s.inStep == n.Step:
		case len(n.LeftOut) < wire.StepListMax:
			n.LeftOut = append(n.LeftOut, wire.StepLeftOut{Serial: s.gen.serial, Why: s.left()})
		default:
			n.LeftOutMore++
		}
	}
}
