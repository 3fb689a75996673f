package engine

import (
	"math"
	"slices"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file says where each generation's time went. Time is attributed in
// stretches without a gap: the mark says how far an account has come, and
// everything that moves the mark names a part. So the parts sum to the whole by
// construction. The time of a step is divided by the predicted cost of its
// rows; between steps only a change moves the mark: a pause, a start, a
// preemption.

// account is what one generation took.
type account struct {
	timings   wire.Timings
	mark      int64 // the instant up to which timings says where the time went
	slowWaits [wire.SlowStepsKept]time.Duration

	computed int // distinct prompt tokens computed before the first token
	reached  int // the end of the last of them
	cached   int // prompt tokens found in the cache, from the first token or the end on

	share stepShare // of the last step that computed rows of it
}

// stepShare is a generation's share of a step.
type stepShare struct {
	step              uint64
	cost, prefillCost float64 // predicted, of all its rows and of those that are prefill
	prefillTokens     int
	decodeRows        int
	masks             time.Duration // of its own grammar, not attributed yet
	masksOfAll        time.Duration // of all grammars in the step, when time was attributed last
}

// parts are the parts that the time is attributed to now.
func (a *account) parts() *wire.Parts {
	if a.timings.FirstToken == 0 {
		return &a.timings.BeforeFirst
	}
	return &a.timings.AfterFirst
}

// spend attributes the time up to now to one part.
func (a *account) spend(part wire.Part, now int64) {
	a.parts()[part] += time.Duration(now - a.mark)
	a.mark = now
}

// add counts a row of the step, before its tokens are committed.
func (a *account) add(r *row, s *stepCost) {
	t := &a.timings
	if a.share.step != s.number {
		a.share = stepShare{step: s.number}
		t.Steps++
	}
	if t.Scheduled == 0 {
		t.Scheduled = s.began
	}
	a.share.cost += r.cost
	if r.decode {
		if a.share.decodeRows == 0 {
			t.DecodeSteps++
		}
		a.share.decodeRows++
	} else {
		if a.share.prefillTokens == 0 {
			t.PrefillSteps++
		}
		a.share.prefillCost += r.cost
		a.share.prefillTokens += r.count
		t.PrefillChunks++
		t.PrefillTokens += r.count
	}
	if begin := r.seq.computed(); t.FirstToken == 0 {
		a.computed += max(0, begin+r.count-max(begin, a.reached))
		a.reached = max(a.reached, begin+r.count)
	}
}

// spendStep attributes the time up to now of a member of the step s, in which masks
// took the time that is given, up to now.
func (a *account) spendStep(s *stepCost, now int64, masks time.Duration) {
	if a.mark < s.began {
		a.spend(wire.PartGap, s.began)
	}
	p, left := a.parts(), time.Duration(now-a.mark)
	mask := min(left, a.share.masks)
	others := min(left-mask, masks-a.share.masksOfAll-a.share.masks)
	a.share.masks, a.share.masksOfAll = 0, masks
	p[wire.PartMask] += mask
	p[wire.PartOthersDecode] += others
	d := float64(left - mask - others)
	own := time.Duration(math.Round(d * a.share.cost / s.cost))
	prefill := min(time.Duration(d)-own, time.Duration(math.Round(d*max(0, s.prefillCost-a.share.prefillCost)/s.cost)))
	p[wire.PartOwn] += own
	p[wire.PartOthersPrefill] += prefill
	p[wire.PartOthersDecode] += time.Duration(d) - own - prefill
	a.mark = now
}

// keepSlow keeps the step s, which ends now, if it is among those that the
// generation waited longest for.
func (a *account) keepSlow(s *stepCost, now int64) {
	took := time.Duration(now - s.began)
	waited := took - time.Duration(float64(took)*a.share.prefillCost/s.cost)
	at := wire.SlowStepsKept
	for at > 0 && waited > a.slowWaits[at-1] {
		at--
	}
	if at == wire.SlowStepsKept {
		return
	}
	kept := wire.SlowStep{Step: s.number, Duration: took, OthersPrefill: s.load.PrefillTokens - a.share.prefillTokens, Largest: s.largestBeside(a)}
	copy(a.slowWaits[at+1:], a.slowWaits[at:])
	copy(a.timings.Slow[at+1:], a.timings.Slow[at:])
	a.slowWaits[at], a.timings.Slow[at] = waited, kept
}

// between is the part for g's time between two steps; parked says whether g
// was parked in it.
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
	case s.waits == wire.PartGap: // it arrived and was passed over
		return wire.PartPlaces
	}
	return s.waits
}
