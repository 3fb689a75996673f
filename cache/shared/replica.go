package shared

import (
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// replica is another replica, as it is known here. The loop owns it; Fleet.mu guards
// what readers see of it.
type replica struct {
	name    string
	address string // without Redis

	epoch, number uint64 // of its last batch; before one is read, of the last that its report names
	told          uint64 // number of the last batch that its report names
	due           uint64 // told as of the round trip before: the log must have it by now
	synced        bool   // its blocks are known as of the last batch
	asked         time.Time

	report string    // the last one, with the mark that makes each differ
	seen   time.Time // when it last changed
	alive  bool      // it has changed since it was first seen, and lately
}

// take follows one batch of r in m.
func (r *replica) take(m *hitmap.Map, b *batch) {
	switch {
	case b.number == 1 && (b.epoch != r.epoch || !r.synced):
		if b.epoch != r.epoch {
			r.renew(m, b.epoch)
		}
		_, r.synced = m.Begin(r.name)
	case b.epoch != r.epoch:
		r.renew(m, b.epoch)
	case b.number <= r.number:
		return // it came twice
	case b.number != r.number+1:
		r.lose(m)
	}
	r.number = b.number
	if r.synced {
		r.apply(m, b)
	}
}

// restore takes all of r's blocks, if they are as new as the last batch.
func (r *replica) restore(m *hitmap.Map, b *batch) {
	if r.synced || b.epoch != r.epoch || b.number < r.number {
		return
	}
	if _, ok := m.Begin(r.name); !ok {
		return
	}
	r.number, r.synced = b.number, true
	r.apply(m, b)
}

func (r *replica) apply(m *hitmap.Map, b *batch) {
	slot, ok := m.Slot(r.name)
	if !ok {
		return
	}
	for _, c := range b.changes {
		m.Apply(slot, c)
	}
}

// lose forgets r's blocks, so that all are asked for.
func (r *replica) lose(m *hitmap.Map) {
	m.End(r.name)
	r.synced = false
}

// read says that all of the log was read. What r had sent before the last time is lost
// where it did not come, so that all blocks are asked for, as of a later batch.
func (r *replica) read(m *hitmap.Map) {
	if r.number < r.due {
		r.lose(m)
		r.number = r.due
	}
	r.due = r.told
}

// awaited tells whether r was asked for all its blocks a short time ago.
func (r *replica) awaited(now time.Time) bool {
	return !r.synced && !r.asked.IsZero() && now.Sub(r.asked) < askAgain
}

// renew begins an epoch of which nothing is known yet.
func (r *replica) renew(m *hitmap.Map, epoch uint64) {
	r.lose(m)
	r.epoch, r.number, r.told, r.due = epoch, 0, 0, 0
}

// heard takes r's report at now. An epoch that it names ends the one before. Where no
// batch was read yet, those sent before are missing: blocks written down earlier are too old.
func (r *replica) heard(m *hitmap.Map, report string, now time.Time) {
	if report == r.report {
		return
	}
	r.alive = r.report != ""
	r.report, r.seen = report, now
	mark, _ := readMark(report)
	if mark.epoch != r.epoch {
		r.renew(m, mark.epoch)
	}
	r.told = mark.batch
	if r.number == 0 {
		r.number = mark.batch
	}
}
