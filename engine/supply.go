package engine

import (
	"cmp"
	"math"
	"slices"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file decides who holds pages. Pages grow on demand. A waiting sequence
// starts when the pages of all its tokens are there besides those promised to
// the prefills that run; one that does not fit is passed by those that do,
// until it is the first, by level and then by age: then it starts even where
// all places are taken, and others are preempted for it. A more urgent one
// takes pages and places of less urgent ones. So nobody is blocked for ever.
// Where more run than there are places, since some were resumed or let in so,
// package step chooses, and the others keep their pages.
//
// A sequence only ever takes pages from those that come after it, and the
// first of all from held ones too. So two never take them from each other,
// and the first always gets on: there is no deadlock and no livelock.

// wait puts a sequence without pages into the waiting list.
func (l *loop) wait(s *sequence) {
	i, _ := slices.BinarySearchFunc(l.waiting, s, func(a, b *sequence) int {
		return cmp.Or(cmp.Compare(a.gen.level, b.gen.level), cmp.Compare(a.gen.key, b.gen.key), cmp.Compare(a.rank, b.rank))
	})
	s.waits = wire.PartGap
	s.cachedThen = l.pool.Match(s.gen.salt, s.reusable())
	l.waiting = slices.Insert(l.waiting, i, s)
	l.startable = true
}

// admit puts a sequence with pages into the running list.
func (l *loop) admit(s *sequence) {
	i, _ := slices.BinarySearchFunc(l.running, s, inOrder)
	l.running = slices.Insert(l.running, i, s)
	s.since = l.turns
}

// park holds generations whose readers are slow, and lets those go on that
// have room again.
func (l *loop) park() {
	for _, s := range l.running {
		l.startable = l.lookAt(s.gen) || l.startable
	}
	for _, s := range l.waiting {
		l.lookAt(s.gen)
	}
}

// lookAt parks g, or lets it go on, and reports whether that changed.
func (l *loop) lookAt(g *generation) (changed bool) {
	was := g.parked.Load()
	g.look()
	if changed = was != g.parked.Load(); changed {
		g.spend(g.between(was), wire.Monotonic())
	}
	return changed
}

// places is how many running places a sequence takes: its siblings that are
// to be forked from it count.
func (s *sequence) places() int {
	if s.gen.forked {
		return 1
	}
	return len(s.gen.choices)
}

// start lets in the first, and then whoever fits.
func (l *loop) start() {
	if len(l.waiting) == 0 || !l.startable && l.busyRunning() {
		return
	}
	l.startable = false
	if s := l.first(); s != nil && s.kv == nil && l.open(s, true) {
		l.letIn(s)
	}
	l.hopeful = append(l.hopeful[:0], l.waiting...)
	for _, s := range l.hopeful {
		if s.kv == nil && !s.gen.held() && l.fits(s) {
			l.letIn(s)
		}
	}
	clear(l.hopeful)
}

// fits opens a waiting sequence where there is a place and pages for it, and
// otherwise notes what it waits for; one that was preempted waits for that.
func (l *loop) fits(s *sequence) bool {
	lacks := wire.PartPlaces
	if s.places() <= l.placesFor(s.gen.level) {
		if l.open(s, false) {
			return true
		}
		lacks = wire.PartPages
	}
	if s.waits != wire.PartPreempted {
		s.waits = lacks
	}
	return false
}

// placesFor is how many places a level finds: those of less urgent ones too.
func (l *loop) placesFor(level int) int {
	places := l.cfg.SequencesMax
	for _, s := range l.running {
		if s.gen.level <= level && !s.gen.held() {
			places -= s.places()
		}
	}
	return places
}

// letIn moves an opened sequence from the waiting to the running ones.
func (l *loop) letIn(s *sequence) {
	waited := wire.PartGap
	if !slices.ContainsFunc(s.gen.choices, func(c *sequence) bool { return c != s && c.kv != nil }) {
		waited = s.waits
	}
	s.gen.spend(waited, wire.Monotonic())
	l.waiting = slices.DeleteFunc(l.waiting, func(w *sequence) bool { return w == s })
	l.admit(s)
	if !s.gen.started {
		s.gen.started = true
		l.inbox.started()
	}
}

func (l *loop) busyRunning() bool {
	return slices.ContainsFunc(l.running, func(s *sequence) bool { return !s.gen.held() })
}

// first is the sequence that always makes progress, or nil.
func (l *loop) first() *sequence {
	var first *sequence
	for _, q := range [...][]*sequence{l.running, l.waiting} {
		for _, s := range q {
			if !s.gen.held() && (first == nil || inOrder(s, first) < 0) {
				first = s
			}
		}
	}
	return first
}

// open attaches a waiting sequence to what is cached of it, if the rest fits.
// The first preempts for it whom it may, another those of less urgent levels,
// if all of these would be enough.
func (l *loop) open(s *sequence, first bool) bool {
	if !first && l.unpromised() < 1 && l.takeable(s.gen.level) < 1 { // its last token needs a page, whatever is cached
		return false
	}
	s.kv = l.pool.Open(s.gen.salt, s.reusable())
	for l.lacking(s) > l.unpromised() {
		enough := first || l.lacking(s) <= l.unpromised()+l.takeable(s.gen.level)
		if !enough || !l.preemptFor(s, first) {
			l.pool.Close(s.kv)
			s.kv = nil
			return false
		}
	}
	return true
}

// takeable is how many pages less urgent levels hold or were promised.
func (l *loop) takeable(level int) (pages int) {
	for _, s := range l.running {
		if s.gen.level > level {
			pages += l.pool.Own(s.kv)
			if !s.gen.held() {
				pages += l.lacking(s)
			}
		}
	}
	return pages
}

// lacking is how many pages a sequence needs for the tokens it has.
func (l *loop) lacking(s *sequence) int {
	pages := (len(s.tokens) + l.cfg.PageTokens - 1) / l.cfg.PageTokens
	return max(0, pages-len(s.kv.Pages()))
}

// unpromised is how many pages nobody uses and no running prefill will need.
func (l *loop) unpromised() int {
	counts := l.pool.Counts()
	n := counts.Free + counts.Cached
	for _, s := range l.running {
		if !s.gen.held() {
			n -= l.lacking(s)
		}
	}
	return n
}

// supply reserves the rows' pages, preempting others where they run out, and returns the rows that have all of them. Sequences left out
// give up their claims, so that others need not wait for them.
func (l *loop) supply(rows []row) []row {
	l.copies = l.copies[:0]
	for i := range rows {
		r := &rows[i]
		if r.seq.kv != nil && !l.reserve(r.seq, r.count) {
			r.count, r.seq.leftOut = 0, wire.PartPages
		}
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.seq.kv == nil || r.count == 0 })
	for i := range rows {
		rows[i].seq.inStep = l.total.Step + 1
	}
	for _, s := range l.running {
		if s.inStep != l.total.Step+1 {
			l.pool.Unclaim(s.kv)
		}
	}
	return rows
}

// reserve makes room for a sequence's next tokens.
func (l *loop) reserve(s *sequence, count int) bool {
	for {
		var ok bool
		if l.copies, ok = l.pool.Reserve(s.kv, count, l.copies); ok {
			return true
		}
		if !l.preemptFor(s, true) {
			return false
		}
	}
}

// preemptFor takes the pages of a sequence that comes after s; where sameLevel
// is false, of a less urgent one. For the first able to work it takes those of
// a held one when no other is left. It reports whether it found one.
func (l *loop) preemptFor(s *sequence, sameLevel bool) bool {
	after := func(v *sequence) bool { return inOrder(v, s) > 0 && (sameLevel || v.gen.level > s.gen.level) }
	v := l.chooseVictim(after)
	if v == nil && s == l.first() {
		v = l.chooseVictim(func(v *sequence) bool { return v != s && v.gen.held() })
	}
	if v == nil {
		return false
	}
	l.preempt(v)
	return true
}

// chooseVictim is whose pages are taken of those that may: of the least urgent
// level; not the one taken last, if there is another; the one that loses the
// least work, which is what it alone has computed; and then the youngest.
// Those who hold no page alone would free nothing, and come last.
func (l *loop) chooseVictim(may func(*sequence) bool) (victim *sequence) {
	var lost int
	for _, v := range l.running {
		if !may(v) {
			continue
		}
		own := l.pool.Own(v.kv)
		work := min(own*l.cfg.PageTokens, v.computed())
		if own == 0 {
			work = math.MaxInt
		}
		better := victim == nil || cmp.Or(
			cmp.Compare(v.gen.level, victim.gen.level),
			compareBool(victim == l.victim, v == l.victim),
			cmp.Compare(lost, work),
			cmp.Compare(v.rank, victim.rank)) > 0
		if better {
			victim, lost = v, work
		}
	}
	return victim
}

// compareBool puts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// preempt takes a sequence's pages away. Its whole blocks stay cached; what
// is evicted meanwhile is computed again, to the same bits.
func (l *loop) preempt(s *sequence) {
	l.victim = s
	l.change(s.gen)
	l.release(s)
	s.gen.account.timings.Preempted++
	l.total.Preempted++
	l.recorder.preempted(s.gen)
	l.wait(s)
	s.waits = wire.PartPreempted
}

// release gives a running sequence's pages back and takes it off the list.
func (l *loop) release(s *sequence) {
	l.pool.Close(s.kv)
	s.kv = nil
	i, _ := slices.BinarySearchFunc(l.running, s, inOrder)
	l.running = slices.Delete(l.running, i, i+1)
	l.startable = true
}

// forget takes a sequence out of whichever list holds it.
func (l *loop) forget(s *sequence) {
	if l.victim == s {
		l.victim = nil
	}
	if s.kv != nil {
		l.release(s)
		return
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(w *sequence) bool { return w == s })
}
