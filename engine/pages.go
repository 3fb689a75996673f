package engine

import (
	"cmp"
	"math"
	"slices"

	"github.com/forebay-io/forebay/internal/wire"
)

// open gives a waiting sequence its cached pages, and a state in models that have
// them, if the rest of its tokens fits too. The first sequence preempts every sequence that it may for that; another
// one preempts only less urgent levels, and only if these hold enough.
func (p *supply) open(s *sequence, first bool) bool {
	least := p.pool.BlockPages() // its last token needs them even if all is cached
	if !first && p.unpromised() < least && p.takeable(s.gen.level) < least {
		return false
	}
	for !p.pool.HasState() {
		if !p.preemptFor(s, first) {
			return false
		}
	}
	s.kv = p.pool.Open(s.gen.salt, s.reusable())
	for p.lacking(s) > p.unpromised() {
		enough := first || p.lacking(s) <= p.unpromised()+p.takeable(s.gen.level)
		if !enough || !p.preemptFor(s, first) {
			p.pool.Close(s.kv)
			s.kv = nil
			return false
		}
	}
	return true
}

// takeable is how many pages less urgent levels hold or were promised.
func (p *supply) takeable(level int) (pages int) {
	for _, s := range p.running {
		if s.gen.level > level {
			own, _ := p.pool.Own(s.kv)
			if pages += own; !s.gen.held() {
				pages += p.lacking(s)
			}
		}
	}
	return pages
}

// lacking is how many pages a sequence needs for the tokens it has.
func (p *supply) lacking(s *sequence) int { return p.pool.Lacking(s.kv, len(s.tokens)) }

// unpromised is how many pages nobody uses and no running prefill will need.
func (p *supply) unpromised() int {
	counts := p.pool.Counts()
	n := counts.Free + counts.Cached
	for _, s := range p.running {
		if !s.gen.held() {
			n -= p.lacking(s)
		}
	}
	return n
}

// provide reserves the pages of the rows of step number step, preempting others
// where they run out, and returns the rows that have all their pages. Sequences
// that are left out give up their claims, so that others need not wait for them.
func (p *supply) provide(rows []row, step uint64) []row {
	p.copies = p.copies[:0]
	for i := range rows {
		r := &rows[i]
		if r.seq.kv != nil && !p.reserve(r.seq, r.count) {
			r.count, r.seq.leftOut = 0, wire.PartPages
		}
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.seq.kv == nil || r.count == 0 })
	for i := range rows {
		rows[i].seq.inStep = step
	}
	for _, s := range p.running {
		if s.inStep != step {
			p.pool.Unclaim(s.kv)
		}
	}
	return rows
}

// reserve makes room for a sequence's next tokens.
func (p *supply) reserve(s *sequence, count int) bool {
	for {
		var ok bool
		if p.copies, ok = p.pool.Reserve(s.kv, count, p.copies); ok {
			return true
		}
		if !p.preemptFor(s, true) {
			return false
		}
	}
}

// preemptFor takes the pages of a sequence that comes after s; where sameLevel
// is false, of a less urgent one. For the first that can work it takes those of
// a held one when no other is left, and then those of a pin. It reports whether it found one.
func (p *supply) preemptFor(s *sequence, sameLevel bool) bool {
	after := func(v *sequence) bool { return inOrder(v, s) > 0 && (sameLevel || v.gen.level > s.gen.level) }
	v := p.chooseVictim(after)
	if v == nil && s == p.first() {
		v = p.chooseVictim(func(v *sequence) bool { return v != s && v.gen.held() })
	}
	if v == nil {
		return p.yieldPin(s)
	}
	p.preempt(v)
	return true
}

// chooseVictim chooses a running sequence to preempt among those that may be:
// of the least urgent level; not the one preempted last, if there is another;
// the one that loses the least work, which is what it alone has computed; and
// then the youngest. A sequence without pages of its own would free nothing,
// and comes last.
func (p *supply) chooseVictim(may func(*sequence) bool) (victim *sequence) {
	var lost int
	for _, v := range p.running {
		if !may(v) {
			continue
		}
		own, blocks := p.pool.Own(v.kv)
		work := min(blocks*p.pageTokens, v.computed())
		if own == 0 {
			work = math.MaxInt
		}
		better := victim == nil || cmp.Or(
			cmp.Compare(v.gen.level, victim.gen.level),
			compareBool(victim == p.victim, v == p.victim),
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

// preempt takes a sequence's pages away and lets it wait. Its full blocks stay
// cached; those that are evicted before it starts again are copied back from where
// they are kept, or computed again, to the same bits.
func (p *supply) preempt(s *sequence) {
	p.victim = s
	p.ledger.preempted(s.gen)
	p.release(s)
	p.disk.swapOut(p.pool, p.ledger.fit.Cost())
	p.wait(s)
	s.waits = wire.PartPreempted
}
