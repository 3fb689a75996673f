package admission

import "time"

// standing tells a lasting overload from a burst. A burst may fill the queue as far
// as the goal allows, since the queue becomes empty again. In a lasting overload a
// queue that is kept that long serves nobody: the same requests are served with a
// short one, only sooner (the insight of CoDel, Nichols and Jacobson 2012). It needs
// to hold just what keeps the engine busy.
//
// The overload lasts from when the queue has held more than that for standingAfter
// times the goal, until it holds less than half of it and no more is asked for than can
// be served.
type standing struct {
	on     bool
	longer time.Duration // since when the queue is too long; 0 is not
	at     time.Duration // of the last look
	// pressure corrects what is asked for, until the queue has its length: a mean of
	// what was asked for is too small while an overload is young.
	pressure float64
}

const (
	standingAfter = 0.5
	// pressureSpeed is how fast pressure grows in a second in which the queue is too
	// long by the goal. Beside the part of the length itself, which is 1 for the goal,
	// it makes the queue come to rest without swinging (a damping of 0.6).
	pressureSpeed = 0.4
	pressureLeast = 0.5
	pressureMost  = 4
)

// observe takes in how long the queue is, as a wait, and how long it should be in a
// lasting overload, and whether more is asked for than can be served.
func (w *standing) observe(wait, should, goal time.Duration, over bool, now time.Duration) {
	since := now - w.at
	w.at = now
	switch {
	case w.on && wait < should/2 && !over:
		*w = standing{at: now}
	case w.on:
		grow := pressureSpeed * float64(wait-should) / float64(goal) * min(since, goal).Seconds()
		w.pressure = min(max(w.pressure+grow, pressureLeast), pressureMost)
	case wait <= should:
		w.longer = 0
	case w.longer == 0:
		w.longer = max(1, now)
	default:
		w.on = now-w.longer > time.Duration(standingAfter*float64(goal))
		w.pressure = 1
	}
}
