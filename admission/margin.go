package admission

import (
	"math"
	"time"
)

// margin is the factor by which predictions of a class are stretched before they
// are compared with its goal. It corrects itself by what became of its promises: a
// broken one raises it at once, a kept one lowers it a little. So it comes to rest
// where the share of broken promises is at most brokenGoal.
//
// The rule is adaptive conformal inference (Gibbs and Candès, NeurIPS 2021) with
// the margin's logarithm in place of the quantile's level. Its guarantee needs no
// assumption on how errors are distributed or change: after T promises the share of
// broken ones is at most
//
//	brokenGoal + (log(marginMost/marginLeast) + marginStep) / (marginStep × T)
//
// as long as no promise breaks at marginMost or above.
type margin struct {
	factor float64
	// median follows the median of actual/predicted waits.
	median float64
}

const (
	brokenGoal  = 0.007
	marginLeast = 1.2
	marginStart = 1.3
	marginMost  = 3
	marginStep  = 0.1

	medianStep = 0.1
	// medianGrain is added to both waits, since an error of a few ms is no error.
	medianGrain = float64(50 * time.Millisecond)
)

func newMargin() margin { return margin{factor: marginStart, median: 1} }

// settled takes in what became of a promise.
func (m *margin) settled(broken bool) {
	switch {
	case !broken:
		m.factor = max(marginLeast, m.factor*math.Exp(-marginStep*brokenGoal))
	case m.factor < marginMost:
		m.factor *= math.Exp(marginStep * (1 - brokenGoal))
	}
}

// observe takes in how long a request waited for its first token.
func (m *margin) observe(actual, predicted time.Duration) {
	move := medianStep / 2
	if float64(actual)+medianGrain < m.median*(float64(predicted)+medianGrain) {
		move = -move
	}
	m.median = min(max(m.median*math.Exp(move), 0.25), 4)
}

// settlePromise lets e's class learn what became of its promise. A goal that the
// client's own deadline shortened teaches nothing: one client that asks for the
// impossible would make the class wary of all.
func (e *Entry) settlePromise(broken bool) {
	if !e.dueByClient() {
		e.class.margin.settled(broken)
	}
}
