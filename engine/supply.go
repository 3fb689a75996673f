package engine

import (
	"cmp"
	"slices"
)

// This file decides who holds pages. Pages grow on demand. A waiting sequence
// starts when the pages of all its tokens are there besides those promised to
// the prefills that run; one that does not fit is passed by those that do,
// until it is the oldest: then it starts even where all places are taken, and
// younger ones are preempted for it. So nobody is blocked and nobody starves.
// Where more run than there are places, since some were resumed or the oldest
// was let in, the youngest keep their pages and sit the steps out.

// wait puts a sequence without pages into the waiting list.
func (l *loop) wait(s *sequence) {
	i, _ := slices.BinarySearchFunc(l.waiting, s, func(a, b *sequence) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank))
	})
	l.waiting = slices.Insert(l.waiting, i, s)
	l.startable = true
}

// admit puts a sequence with pages into the running list.
func (l *loop) admit(s *sequence) {
	i, _ := slices.BinarySearchFunc(l.running, s, func(a, b *sequence) int { return cmp.Compare(a.rank, b.rank) })
	l.running = slices.Insert(l.running, i, s)
}

// park holds generations whose readers are slow, and lets those go on that
// have room again.
func (l *loop) park() {
	for _, s := range l.running {
		was := s.parked.Load()
		s.look()
		l.startable = l.startable || was != s.parked.Load()
	}
	for _, s := range l.waiting {
		s.look()
	}
}

// places is how many running places a sequence takes: its siblings that are
// to be forked from it count.
func (s *sequence) places() int {
	if s.forked {
		return 1
	}
	return len(s.choices)
}

// start lets in the oldest, and then whoever fits.
func (l *loop) start() {
	if len(l.waiting) == 0 || !l.startable && l.busyRunning() {
		return
	}
	l.startable = false
	if s := l.oldest(); s != nil && s.kv == nil && l.open(s, true) {
		l.letIn(s)
	}
	places := l.cfg.SequencesMax
	for _, s := range l.running {
		if !s.held() {
			places -= s.places()
		}
	}
	for _, s := range slices.Clone(l.waiting) {
		if !s.held() && s.places() <= places && l.open(s, false) {
			l.letIn(s)
			places -= s.places()
		}
	}
}

// letIn moves an opened sequence from the waiting to the running ones.
func (l *loop) letIn(s *sequence) {
	l.waiting = slices.DeleteFunc(l.waiting, func(w *sequence) bool { return w == s })
	l.admit(s)
	if !s.started {
		s.started = true
		l.inbox.started()
	}
}

func (l *loop) busyRunning() bool {
	return slices.ContainsFunc(l.running, func(s *sequence) bool { return !s.held() })
}

// oldest is the sequence that always makes progress, or nil.
func (l *loop) oldest() *sequence {
	var oldest *sequence
	for _, q := range [...][]*sequence{l.running, l.waiting} {
		for _, s := range q {
			if !s.held() && (oldest == nil || s.rank < oldest.rank) {
				oldest = s
			}
		}
	}
	return oldest
}

// open attaches a waiting sequence to what is cached of it, if the rest fits.
func (l *loop) open(s *sequence, oldest bool) bool {
	if !oldest && l.unpromised() < 1 { // its last token needs a page, whatever is cached
		return false
	}
	s.kv = l.pool.Open(s.salt, s.reusable())
	for l.lacking(s) > l.unpromised() {
		if !oldest || !l.preemptFor(s) {
			l.pool.Close(s.kv)
			s.kv = nil
			return false
		}
	}
	return true
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
		if !s.held() {
			n -= l.lacking(s)
		}
	}
	return n
}

// supply reserves the rows' pages, preempting younger sequences where they
// run out, and returns the rows that have all of them. Sequences left out
// give up their claims, so that others need not wait for them.
func (l *loop) supply(rows []row) []row {
	l.copies = l.copies[:0]
	for i := range rows {
		r := &rows[i]
		if r.kv != nil && !l.reserve(r.sequence, r.count) {
			r.count = 0
		}
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.kv == nil || r.count == 0 })
	for i := range rows {
		rows[i].inStep = l.total.Step + 1
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
		if !l.preemptFor(s) {
			return false
		}
	}
}

// preemptFor takes the pages of the youngest sequence that is younger than s.
// For the oldest able to work it takes those of a held one when no other is
// left. It reports whether it found one.
func (l *loop) preemptFor(s *sequence) bool {
	for _, v := range slices.Backward(l.running) {
		if v.rank > s.rank {
			l.preempt(v)
			return true
		}
	}
	if s != l.oldest() {
		return false
	}
	for _, v := range slices.Backward(l.running) {
		if v != s && v.held() {
			l.preempt(v)
			return true
		}
	}
	return false
}

// preempt takes a sequence's pages away. Its whole blocks stay cached; what
// is evicted meanwhile is computed again, to the same bits.
func (l *loop) preempt(s *sequence) {
	l.release(s)
	s.timings.Preempted++
	l.total.Preempted++
	l.wait(s)
}

// release gives a running sequence's pages back and takes it off the list.
func (l *loop) release(s *sequence) {
	l.pool.Close(s.kv)
	s.kv = nil
	i, _ := slices.BinarySearchFunc(l.running, s, func(a, b *sequence) int { return cmp.Compare(a.rank, b.rank) })
	l.running = slices.Delete(l.running, i, i+1)
	l.startable = true
}

// forget takes a sequence out of whichever list holds it.
func (l *loop) forget(s *sequence) {
	if s.kv != nil {
		l.release(s)
		return
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(w *sequence) bool { return w == s })
}
