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
//	brokenGoal + (log(most/marginLeast) + step) / (step × T)
//
// as long as no promise breaks at the rule's most or above.
type margin struct {
	factor float64
	rule   marginRule
	// median follows the median of actual/predicted waits.
	median float64
}

const (
	brokenGoal  = 0.007
	marginLeast = 1.2

	medianStep = 0.1
	// medianGrain is added to both waits, since an error of a few ms is no error.
	medianGrain = float64(50 * time.Millisecond)
)

// marginRule says where a class's margin starts, how far a broken promise moves its
// logarithm, and where it ends.
type marginRule struct{ start, step, most float64 }

// marginRules are those of the most urgent level and of the others, whose promises
// are few and rest on urgent requests that are still to arrive.
var marginRules = [2]marginRule{{start: 1.3, step: 0.1, most: 3}, {start: 3, step: 0.2, most: 20}}

func newMargin(level int) margin {
	rule := marginRules[min(level, 1)]
	return margin{factor: rule.start, median: 1, rule: rule}
}

// settled takes in what became of a promise.
func (m *margin) settled(broken bool) {
	switch {
	case !broken:
		m.factor = max(marginLeast, m.factor*math.Exp(-m.rule.step*brokenGoal))
	case m.factor < m.rule.most:
		m.factor *= math.Exp(m.rule.step * (1 - brokenGoal))
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

// stretch is the factor for a promise of class k now. What makes promises of less
// urgent levels wrong is urgent work: beside little of it, little of the margin above
// marginLeast counts.
func (s *Scheduler) stretch(k *class) float64 {
	if k.level == levelInteractive {
		return k.margin.factor
	}
	urgent := 0.0 // share of the engine's time, recently
	for level := range k.level {
		urgent += s.levels[level].served.share(s.now)
	}
	return marginLeast + (k.margin.factor-marginLeast)*min(1, urgent)
}

// settlePromise lets e's class learn what became of its promise. A goal that the
// client's own deadline shortened teaches nothing: one client that asks for the
// impossible would make the class wary of all.
func (e *Entry) settlePromise(broken bool) {
	if !e.dueByClient() {
		e.class.margin.settled(broken)
	}
}
