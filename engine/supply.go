package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/engine/step"
	"github.com/forebay-io/forebay/internal/wire"
)

// supply decides who holds pages and who waits for them. Pages grow on demand.
// A waiting sequence starts when the pages of all its tokens are there, besides
// the pages promised to the prefills that run. One that does not fit is passed
// by those that do, until it is the first, by level and then by age: then it
// starts even where all places are taken, and others are preempted for it. A
// more urgent one takes pages and places of less urgent ones. So nobody is
// blocked for ever. More sequences may run than there are places, when some
// were resumed or started as the first; then package step chooses among them,
// and the others keep their pages.
//
// A sequence only takes pages from those that come after it; the first of all
// takes them from held ones too. So two never take them from each other, and
// the first always progresses: there is no deadlock and no livelock.
//
// A supply belongs to the loop's goroutine. Files: supply.go has the lists and
// who starts, pages.go the pages of those that run and who is preempted.
type supply struct {
	// Fixed at construction.
	pool       *cache.Pool
	pageTokens int
	placesMax  int
	ledger     *ledger // hears of every change
	disk       *diskCache

	running   []*sequence // hold pages; by level, then oldest first
	waiting   []*sequence // hold none; by level, then by key, then oldest
	startable bool        // something changed for those who wait
	victim    *sequence   // the one preempted last
	turns     uint64

	pinsYielded uint64

	copies  []cache.Copy // to be done before the step
	hopeful []*sequence  // scratch of start
}

// each visits the running sequences, then the waiting ones.
func (p *supply) each(visit func(s *sequence) bool) {
	for _, s := range p.running {
		if !visit(s) {
			return
		}
	}
	for _, s := range p.waiting {
		if !visit(s) {
			return
		}
	}
}

// busy reports whether some sequence could work in the next turn.
func (p *supply) busy() bool {
	for s := range p.each {
		if !s.gen.held() && !s.reads {
			return true
		}
	}
	return false
}

// patience is how long the loop may sleep where nothing can compute: a sequence waits for
// its blocks on disk no longer than it said.
func (p *supply) patience(most time.Duration) time.Duration {
	for _, s := range p.running {
		if s.reads {
			most = min(most, max(time.Millisecond, time.Until(s.readBy)))
		}
	}
	return most
}

func (p *supply) busyRunning() bool {
	return slices.ContainsFunc(p.running, func(s *sequence) bool { return !s.gen.held() })
}

// wait puts a sequence without pages into the waiting list.
func (p *supply) wait(s *sequence) {
	i, _ := slices.BinarySearchFunc(p.waiting, s, func(a, b *sequence) int {
		return cmp.Or(cmp.Compare(a.gen.level, b.gen.level), cmp.Compare(a.gen.key, b.gen.key), cmp.Compare(a.rank, b.rank))
	})
	s.waits = wire.PartGap
	s.cachedThen = p.pool.Match(s.gen.salt, s.reusable())
	p.disk.want(s, blockTime(p.ledger.fit.Cost(), p.pageTokens))
	p.waiting = slices.Insert(p.waiting, i, s)
	p.startable = true
}

// admit puts a sequence with pages into the running list.
func (p *supply) admit(s *sequence) {
	i, _ := slices.BinarySearchFunc(p.running, s, inOrder)
	p.running = slices.Insert(p.running, i, s)
	s.since = p.turns
}

// release gives a running sequence's pages back and takes it off the list.
func (p *supply) release(s *sequence) {
	p.disk.note(s)
	p.disk.forget(s)
	p.pool.Close(s.kv)
	s.kv = nil
	i, _ := slices.BinarySearchFunc(p.running, s, inOrder)
	p.running = slices.Delete(p.running, i, i+1)
	p.startable = true
}

// forget takes a sequence out of the list that holds it.
func (p *supply) forget(s *sequence) {
	if p.victim == s {
		p.victim = nil
	}
	if s.kv != nil {
		p.release(s)
		return
	}
	p.disk.forget(s)
	p.waiting = slices.DeleteFunc(p.waiting, func(w *sequence) bool { return w == s })
}

// fork gives c the pages of s, with which it shares all tokens, and lets it run. Where
// no state is left for it, it waits as a preempted one does.
func (p *supply) fork(c, s *sequence) {
	if !p.pool.HasState() {
		p.wait(c)
		c.waits = wire.PartPreempted
		return
	}
	c.kv, c.inStep = p.pool.Fork(s.kv), s.inStep
	p.admit(c)
}

// park holds generations whose readers are slow, and lets those go on that
// have room again.
func (p *supply) park() {
	for _, s := range p.running {
		p.startable = p.lookAt(s.gen) || p.startable
	}
	for _, s := range p.waiting {
		p.lookAt(s.gen)
	}
}

// lookAt parks g, or lets it go on, and reports whether that changed.
func (p *supply) lookAt(g *generation) (changed bool) {
	was := g.parked.Load()
	g.look()
	if changed = was != g.parked.Load(); changed {
		p.ledger.spend(g, g.between(was))
	}
	return changed
}

// start lets in the first sequence, and then all that fit. It returns the
// number of generations that no longer wait.
func (p *supply) start() (started int) {
	if len(p.waiting) == 0 || !p.startable && p.busyRunning() {
		return 0
	}
	p.startable = false
	if s := p.first(); s != nil && s.kv == nil && p.open(s, true) {
		started += p.letIn(s)
	}
	p.hopeful = append(p.hopeful[:0], p.waiting...)
	for _, s := range p.hopeful {
		if s.kv == nil && !s.gen.held() && p.fits(s) {
			started += p.letIn(s)
		}
	}
	clear(p.hopeful)
	return started
}

// first is the sequence that always makes progress, or nil.
func (p *supply) first() (first *sequence) {
	for s := range p.each {
		if !s.gen.held() && (first == nil || inOrder(s, first) < 0) {
			first = s
		}
	}
	return first
}

// fits opens a waiting sequence where there is a place and pages for it, and
// otherwise notes what it waits for; a preempted one keeps that as the reason.
func (p *supply) fits(s *sequence) bool {
	lacks := wire.PartPlaces
	if s.places() <= p.placesFor(s.gen.level) {
		if p.open(s, false) {
			return true
		}
		lacks = wire.PartPages
	}
	if s.waits != wire.PartPreempted {
		s.waits = lacks
	}
	return false
}

// placesFor is how many places a level finds, those of less urgent levels
// included.
func (p *supply) placesFor(level int) int {
	places := p.placesMax
	for _, s := range p.running {
		if s.gen.level <= level && !s.gen.held() {
			places -= s.places()
		}
	}
	return places
}

// letIn moves an opened sequence from the waiting to the running ones. It
// returns 1 if its generation starts with it.
func (p *supply) letIn(s *sequence) (started int) {
	waited := wire.PartGap
	if !slices.ContainsFunc(s.gen.choices, func(c *sequence) bool { return c != s && c.kv != nil }) {
		waited = s.waits
	}
	p.ledger.spend(s.gen, waited)
	p.waiting = slices.DeleteFunc(p.waiting, func(w *sequence) bool { return w == s })
	p.admit(s)
	p.disk.swapIn(s, p.ledger.fit.Cost())
	if s.gen.started {
		return 0
	}
	s.gen.started = true
	return 1
}

// able appends the running sequences that can compute in this turn. One whose
// next block another computes just now cannot.
func (p *supply) able(candidates []step.Candidate) []step.Candidate {
	p.turns++
	budget := diskStepBytes
	for i, s := range p.running {
		if s.reads = false; s.gen.held() {
			p.disk.forget(s) // its blocks would keep others from being read
			continue
		}
		s.leftOut = wire.PartPrefix
		if len(candidates) > 0 && s.gen.level > candidates[0].Level {
			p.pool.Unclaim(s.kv) // a more urgent one may have claimed its block just now
		}
		claimed := s.decoding() || s.wantsAll() || p.pool.Claim(s.kv, s.tokens)
		if claimed && s.onDisk != nil {
			if s.reads = p.disk.restore(p.pool, s, &budget); s.reads {
				p.pool.Unclaim(s.kv)
			}
			claimed = !s.reads && p.pool.Claim(s.kv, s.tokens)
		}
		if claimed {
			candidates = append(candidates, s.candidate(i))
			s.leftOut = wire.PartHeldBack
		}
	}
	return candidates
}

// count writes what is held and what waits into a State.
func (p *supply) count(to *wire.State) {
	pages := p.pool.Counts()
	to.PagesTotal, to.PagesUsed, to.PagesCached, to.PagesFree = pages.Total, pages.Used, pages.Cached, pages.Free
	to.PagesPinned, to.PinsYielded = p.pool.PinnedPages(), p.pinsYielded
	states := p.pool.StateCounts()
	to.States = wire.States{StatesUsed: states.Used, StatesCached: states.Cached, StatesFree: states.Free, StatesPinned: states.Pinned, CheckpointsMade: states.Made,
		CheckpointsRestored: states.Restored, CheckpointsDropped: states.Dropped, UnreachedTokens: states.Unreached}
	for s := range p.each {
		to.Sequences += s.places()
		switch {
		case s.gen.held():
			to.Paused++
		case s.gen.long:
			to.LongPrefill += s.prefill()
		default:
			to.ShortPrefill += s.prefill()
		}
		if s.kv == nil && !s.gen.held() {
			to.Waiting++
		}
	}
}
