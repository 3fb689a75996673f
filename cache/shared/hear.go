package shared

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file is what a round trip brought: reports, entries of the log, and all blocks.

// hear takes what was fetched.
func (f *Fleet) hear(a *answers) {
	t, now := &f.trip, f.clock()
	if f.space != t.space {
		return // it is of another model
	}
	behind := false // there is more in the log than was read
	f.hearReports(a, now)
	for name, reply := range a.blocks {
		if text, err := reply.Result(); err == nil {
			f.restore(name, text)
		}
	}
	if a.log != nil && a.log.Err() == nil && len(a.log.Val()) > 0 {
		messages := a.log.Val()[0].Messages
		for i := range messages {
			t.last = messages[i].ID
			f.hearEntry(messages[i].Values)
		}
		if behind = len(messages) >= a.count; behind {
			f.Hurry()
		}
	}
	if a.newest != nil && a.newest.Err() == nil {
		newest := "0"
		if len(a.newest.Val()) > 0 {
			newest = a.newest.Val()[0].ID
		}
		if t.last == "" || isBefore(newest, t.last) {
			t.last = newest
		}
	}
	if !behind && a.log != nil && (a.log.Err() == nil || errors.Is(a.log.Err(), redis.Nil)) {
		for _, r := range f.others {
			r.read(f.blocks)
		}
	}
	f.ask(now)
}

// isBefore compares two places in a log, each MILLISECONDS-NUMBER or "0".
func isBefore(a, b string) bool {
	parse := func(place string) (ms, n uint64) {
		head, rest, _ := strings.Cut(place, "-")
		ms, _ = strconv.ParseUint(head, 10, 64)
		n, _ = strconv.ParseUint(rest, 10, 64)
		return ms, n
	}
	am, an := parse(a)
	bm, bn := parse(b)
	return am < bm || am == bm && an < bn
}

func (f *Fleet) hearEntry(values map[string]any) {
	name, _ := values["n"].(string)
	if want, ok := values["w"].(string); ok && name != f.o.Name {
		if slices.Contains(strings.Split(want, "\n"), f.o.Name) {
			f.trip.wanted = true
		}
		return
	}
	text, _ := values["d"].(string)
	r := f.others[name]
	if r == nil || text == "" { // its report has not come yet; then all its blocks are asked for
		return
	}
	f.hearBatch(r, text)
}

func (f *Fleet) hearBatch(r *replica, text string) {
	f.counts.BytesIn += uint64(len(text))
	b, err := readBatch(text)
	if err != nil {
		r.lose(f.blocks)
		return
	}
	f.counts.Received += uint64(len(b.changes))
	r.take(f.blocks, &b)
}

func (f *Fleet) restore(name, text string) {
	r := f.others[name]
	if r == nil {
		return
	}
	f.counts.BytesIn += uint64(len(text))
	if b, err := readBatch(text); err == nil {
		if r.restore(f.blocks, &b); r.synced {
			f.counts.Resyncs++
			r.asked = time.Time{}
		}
	}
}

// ask notes whose blocks are not known, so that the next trip asks for them: of some at
// a time, those first who were not asked for longest.
func (f *Fleet) ask(now time.Time) {
	var unknown []*replica
	places := max(1, f.trip.width/entriesOfAsk)
	for _, r := range f.others {
		if r.awaited(now) {
			places--
		} else if r.alive && !r.synced {
			unknown = append(unknown, r)
		}
	}
	slices.SortFunc(unknown, func(a, b *replica) int {
		return cmp.Or(a.asked.Compare(b.asked), strings.Compare(a.name, b.name))
	})
	for _, r := range unknown[:min(len(unknown), max(0, places))] {
		r.asked = now
		f.trip.asks = append(f.trip.asks, r.name)
	}
	if len(f.trip.asks) > 0 {
		f.Hurry()
	}
}

// hearReports takes reports, and forgets replicas whose reports do not change.
func (f *Fleet) hearReports(a *answers, now time.Time) {
	switch {
	case a.loads != nil && a.loads.Err() == nil:
		f.trip.names = f.trip.names[:0]
		for name, report := range a.loads.Val() {
			f.hearReport(name, report, now)
			if name != f.o.Name {
				f.trip.names = append(f.trip.names, name)
			}
		}
	case a.some != nil && a.some.Err() == nil:
		for i, v := range a.some.Val() {
			if report, ok := v.(string); ok && i < len(a.asked) {
				f.hearReport(a.asked[i], report, now)
			}
		}
	}
	if a.names != nil && a.names.Err() == nil {
		f.trip.names = slices.DeleteFunc(a.names.Val(), func(name string) bool { return name == f.o.Name })
	}
	f.forget(now)
}

// forget forgets replicas that were not heard for long.
func (f *Fleet) forget(now time.Time) {
	for name, r := range f.others {
		if now.Sub(r.seen) >= f.o.Lease {
			f.blocks.End(name)
			r.synced, r.alive, r.asked = false, false, time.Time{}
			if now.Sub(r.seen) >= keysFor {
				delete(f.others, name)
				f.trip.gone = append(f.trip.gone, name)
			}
		}
	}
}

func (f *Fleet) hearReport(name, report string, now time.Time) {
	f.counts.BytesIn += uint64(len(report))
	if name == f.o.Name {
		if m, _ := readMark(report); m.id != f.id {
			if f.twins++; f.twins%twinsLogged == twinsSure {
				f.o.Log.Error("siblings: another replica has the same name; give each its own siblings.name", "name", name)
			}
		}
		return
	}
	r := f.others[name]
	if r == nil {
		if len(f.others) >= replicasMax {
			return
		}
		r = &replica{name: name, seen: now}
		f.others[name] = r
	}
	r.heard(f.blocks, report, now)
}
