package engine

import (
	"math"
	"slices"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
)

// This file says what each generation's time went to. Time is attributed in
// stretches without a hole: a generation's mark is how far it is, and whatever
// moves the mark names a part. So the parts sum to the whole by construction.
// A step's time is divided among its members by what their rows were predicted
// to cost; between steps only a change moves the mark: a pause, a start, a
// preemption.

// account is what one generation took.
type account struct {
	timings   wire.Timings
	mark      int64 // the instant up to which timings says where the time went
	slowWaits [wire.SlowStepsKept]time.Duration

	computed int    // distinct prompt tokens computed before the first token
	reached  int    // the end of those
	stepSeen uint64 // the last step that counted it

	// Of its rows in step weighed: the predicted cost of all and of those that
	// are prefill, the tokens of these, and the number of others.
	weighed                uint64
	cost, prefillCost      float64
	prefillNow, decodesNow int
}

// weigh says what each row costs of the step that has just been computed, and
// what each generation's rows do. It runs before the tokens are committed.
func (l *loop) weigh(rows []row) {
	l.whole, l.wholePrefill = 0, 0
	base := l.fit.Cost().Step(cost.Load{})
	for i := range rows {
		r := &rows[i]
		g := r.seq.gen
		if g.account.weighed != l.total.Step {
			g.account.weighed, g.account.cost, g.account.prefillCost, g.account.prefillNow, g.account.decodesNow = l.total.Step, 0, 0, 0, 0
		}
		var load cost.Load
		if r.decode {
			load.AddRow(r.seq.computed())
		} else {
			load.AddChunk(r.count, r.seq.computed())
		}
		// A nanosecond a token, so that what is thought to be free, as all is
		// before the first step, still has a share.
		r.cost = float64(l.fit.Cost().Step(load)-base) + float64(r.count)
		l.whole += r.cost
		g.account.cost += r.cost
		if r.decode {
			if g.account.decodesNow == 0 {
				g.account.timings.DecodeSteps++
			}
			g.account.decodesNow++
			continue
		}
		if g.account.prefillNow == 0 {
			g.account.timings.PrefillSteps++
		}
		l.wholePrefill += r.cost
		g.account.prefillCost += r.cost
		g.account.prefillNow += r.count
		g.account.timings.PrefillChunks++
		g.account.timings.PrefillTokens += r.count
	}
	l.rankMembers(rows)
}

// rankMembers finds the two generations that cost most of the step.
func (l *loop) rankMembers(rows []row) {
	l.largest = [2]*generation{}
	for i := range rows {
		switch g := rows[i].seq.gen; {
		case g == l.largest[0] || g == l.largest[1]:
		case l.largest[0] == nil || g.account.cost > l.largest[0].account.cost:
			l.largest = [2]*generation{g, l.largest[0]}
		case l.largest[1] == nil || g.account.cost > l.largest[1].account.cost:
			l.largest[1] = g
		}
	}
}

// inOpenStep reports whether g is a member of a step that is computed and not
// reported yet.
func (l *loop) inOpenStep(g *generation) bool { return l.stepOpen && g.account.weighed == l.total.Step }

// parts are where g's time goes now.
func (g *generation) parts() *wire.Parts {
	if g.account.timings.FirstToken == 0 {
		return &g.account.timings.BeforeFirst
	}
	return &g.account.timings.AfterFirst
}

// spend attributes g's time up to now to one part.
func (g *generation) spend(part wire.Part, now int64) {
	g.parts()[part] += time.Duration(now - g.account.mark)
	g.account.mark = now
}

// spendStep attributes the time of a member of the open step.
func (l *loop) spendStep(g *generation, now int64) {
	if g.account.mark < l.began {
		g.spend(wire.PartGap, l.began)
	}
	d, p := float64(now-g.account.mark), g.parts()
	own := time.Duration(math.Round(d * g.account.cost / l.whole))
	prefill := min(time.Duration(d)-own, time.Duration(math.Round(d*max(0, l.wholePrefill-g.account.prefillCost)/l.whole)))
	p[wire.PartOwn] += own
	p[wire.PartOthersPrefill] += prefill
	p[wire.PartOthersDecode] += time.Duration(d) - own - prefill
	g.account.mark = now
}

// change attributes g's time between two steps, before something of g changes.
func (l *loop) change(g *generation) {
	if !g.ended {
		g.spend(g.between(g.parked.Load()), wire.Monotonic())
	}
}

// between is what g's time between two steps goes to, where it is parked or not.
func (g *generation) between(parked bool) wire.Part {
	switch {
	case g.paused:
		return wire.PartPaused
	case parked:
		return wire.PartParked
	case slices.ContainsFunc(g.choices, func(c *sequence) bool { return c.kv != nil }):
		return wire.PartGap
	}
	return g.choices[0].waits
}

// left is why a sequence was not in the step that has just ended.
func (s *sequence) left() wire.Part {
	switch {
	case s.gen.paused:
		return wire.PartPaused
	case s.gen.parked.Load():
		return wire.PartParked
	case s.kv != nil:
		return s.leftOut
	case s.waits == wire.PartGap: // it came and was passed over
		return wire.PartPlaces
	}
	return s.waits
}

// settle attributes the time of all that are there up to the step's end.
func (l *loop) settle(rows []row, now int64) {
	for i := range rows {
		if g := rows[i].seq.gen; !g.ended && g.account.mark < now {
			l.spendStep(g, now)
			l.keepSlow(g, now)
		}
	}
	l.stepOpen, l.largest = false, [2]*generation{} // which may have ended
	for _, q := range [...][]*sequence{l.running, l.waiting} {
		for _, s := range q {
			if s.gen.account.mark < now {
				s.gen.spend(s.left(), now)
			}
		}
	}
}

// settleEnd attributes the last stretch of a generation that ends.
func (l *loop) settleEnd(g *generation, now int64) {
	if l.inOpenStep(g) {
		l.spendStep(g, now)
		l.keepSlow(g, now)
		return
	}
	g.spend(g.between(g.parked.Load()), now)
}

// giveUp attributes the time of the members of a step that was given up.
func (l *loop) giveUp(rows []row) {
	now := wire.Monotonic()
	l.timer.Stop(now)
	for i := range rows {
		g := rows[i].seq.gen
		if g.account.mark < l.began {
			g.spend(wire.PartGap, l.began)
		}
		g.spend(wire.PartGivenUp, now)
	}
	l.givenUp += now - l.began
}

// keepSlow keeps the step among those that g waited longest for.
func (l *loop) keepSlow(g *generation, now int64) {
	took := time.Duration(now - l.began)
	waited := took - time.Duration(float64(took)*g.account.prefillCost/l.whole)
	at := wire.SlowStepsKept
	for at > 0 && waited > g.account.slowWaits[at-1] {
		at--
	}
	if at == wire.SlowStepsKept {
		return
	}
	kept := wire.SlowStep{Step: l.total.Step, Duration: took, OthersPrefill: l.total.StepPrefillTokens - g.account.prefillNow}
	for _, o := range l.largest {
		if o != nil && o != g {
			kept.Largest = o.serial
			break
		}
	}
	copy(g.account.slowWaits[at+1:], g.account.slowWaits[at:])
	copy(g.account.timings.Slow[at+1:], g.account.timings.Slow[at:])
	g.account.slowWaits[at], g.account.timings.Slow[at] = waited, kept
}
