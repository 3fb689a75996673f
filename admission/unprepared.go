package admission

import (
	"math/bits"
	"time"
)

// This file refuses requests before their prompts are rendered and tokenized. Under a
// large overload that is most of the work that a refused request makes.
//
// Which requests of a tenant are let in is told by their sizes (promise.go, rule 2).
// Where the tokens that a tenant's prompts need lie in a narrow range for each byte of
// their bodies, a request's size is what its bytes say, also once it is prepared. So
// what is refused here would be refused on arrival too. A part is prepared all the same,
// so that the range follows what is sent.

// bodies is how many tokens had to be computed for each byte of the bodies of a tenant's
// last requests in a class. Bodies of one octave of bytes are alike.
type bodies struct {
	octaves [bodyOctaves]struct{ last, since bodySpan }
	refused int // before they were prepared
}

// bodySpan is a stretch of bodiesSpan requests, or less while it is not over: the sums
// of the tokens of a byte, and of their squares.
type bodySpan struct{ n, sum, squares float64 }

const (
	bodyOctaves = 20
	bodiesSpan  = 64
	// bodiesApart is the largest relative deviation of the tokens of a byte.
	bodiesApart = 0.25
	// preparedEvery is of how many requests that could be refused here one is prepared.
	preparedEvery = 8
)

func bodyOctave(bytes int) int { return min(bits.Len(uint(bytes)), bodyOctaves-1) }

// observe takes in a request that is prepared.
func (b *bodies) observe(bytes, uncached int) {
	o := &b.octaves[bodyOctave(bytes)]
	if o.since.n == bodiesSpan {
		o.last, o.since = o.since, bodySpan{}
	}
	x := float64(uncached) / float64(bytes)
	o.since.n++
	o.since.sum += x
	o.since.squares += x * x
}

// tokens is how many tokens a body of that size needs; 0 if too few like it were seen,
// or they differ too much.
func (b *bodies) tokens(bytes int) int {
	o := &b.octaves[bodyOctave(bytes)]
	n := o.last.n + o.since.n
	mean, square := (o.last.sum+o.since.sum)/n, (o.last.squares+o.since.squares)/n
	if o.last.n == 0 || square > (1+bodiesApart*bodiesApart)*mean*mean {
		return 0
	}
	return max(1, int(mean*float64(bytes)))
}

// sizeOf is the size of a request of l by its bytes, in tokens; 0 where they do not tell it.
func (l *line) sizeOf(bytes int) int {
	if bytes <= 0 || l.bodies == nil {
		return 0
	}
	return l.bodies.tokens(bytes)
}

// noteBody sets the size of e, which is prepared, and takes it in.
func (s *Scheduler) noteBody(e *Entry) {
	l, bytes := e.line, e.demand.BodyBytes
	if e.size = e.prefill; bytes <= 0 {
		return
	}
	if tokens := l.sizeOf(bytes); tokens > 0 {
		e.sized, e.size = true, s.engine.cost.Prefill(tokens, 0, s.engine.chunk)
	}
	if l.bodies == nil {
		l.bodies = &bodies{}
	}
	l.bodies.observe(bytes, e.uncached())
}

// Refuse refuses a request whose prompt is not prepared yet, if it would be refused
// once it is; nil decides nothing. It draws for d.
func (s *Scheduler) Refuse(d *Demand, now time.Duration) *Refusal {
	s.advance(now)
	s.draw(d)
	l, tokens := s.hopelessLine(d)
	if l == nil {
		return nil
	}
	if l.bodies.refused++; l.bodies.refused%preparedEvery == 0 {
		return nil
	}
	s.orders++
	e := &Entry{demand: *d, class: l.class, asked: l.class, line: l, order: s.orders, arrived: s.now - d.Age}
	e.demand.PromptTokens, e.demand.UncachedTokens = tokens, tokens
	s.price(e)
	e.size = e.prefill
	l.tenant.arrived(d.Retry, s.now)
	s.noteAsked(e, l)
	l.class.refused++
	return s.lateRefusal(e)
}

// hopelessLine is the line of a request that is beyond its tenant's part, and its size in
// tokens; nil if it may be let in, or is refused for another reason.
func (s *Scheduler) hopelessLine(d *Demand) (*line, int) {
	k, t, v := s.classOf(d), s.tenants[d.Tenant], &s.engine
	switch {
	case k.level != levelInteractive || k.FirstTokenGoal == 0 || k.Late == "demote" || k.Oversized != "" || k.mode != Open:
		return nil, 0
	case t == nil || d.BodyBytes <= 0 || d.Within > 0 || d.Sequences > s.cfg.RunningSequencesMax || v.kvTokens > 0 && 2*d.BodyBytes > v.kvTokens:
		return nil, 0
	case k.waiting >= k.WaitingRequestsMax || s.count >= s.cfg.WaitingRequestsMax || s.load.rung == rungShed || d.Retry && s.overRetries(t):
		return nil, 0
	case !v.cost.Known() || v.typical == (typical{}) || s.levels[k.level].track.empty():
		return nil, 0
	}
	l := k.held[t]
	if l == nil || !l.isAsking {
		return nil, 0
	}
	tokens := l.sizeOf(d.BodyBytes)
	if tokens == 0 || !s.beyondPart(l, v.cost.Prefill(tokens, 0, v.chunk), tieOf(d.Draw)) {
		return nil, 0
	}
	return l, tokens
}

// draw gives d a number, if it has none.
func (s *Scheduler) draw(d *Demand) {
	if d.Draw == 0 {
		s.draws++
		d.Draw = s.draws
	}
}

// beyondPart tells whether the next request of l, of that size, is beyond its tenant's
// part; it books nothing. Once the request has been booked the part is a little smaller,
// and never larger.
func (s *Scheduler) beyondPart(l *line, size time.Duration, tie float64) bool {
	lv := &s.levels[l.class.level]
	standing := lv.standing
	f, queue := s.forecast(l.class), lv.track.total()
	sizes := l.asked.sizes
	sizes.observe(size)
	in := s.inPart(&f, l, &sizes, &queue, size, tie)
	lv.standing = standing
	return !in
}
