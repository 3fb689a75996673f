package admission

import "time"

// standing tells a lasting overload from a burst. A burst may fill the queue as far
// as the goal allows, since the queue becomes empty again. In a lasting overload a
// queue that is kept that long serves nobody: the same requests are served with a
// short one, only sooner (the insight of CoDel, Nichols and Jacobson 2012). It needs
// to hold just what keeps the engine busy.
//
// The overload lasts from when the queue has held more than that for standingAfter
// times the goal, while more is asked for than can be served, until less is.
type standing struct {
	on     bool
	longer time.Duration // since when the queue is too long; 0 is not
}

const standingAfter = 0.5

// observe takes in how long the queue is, as a wait, how long it should be in a
// lasting overload, and whether more is asked for than can be served.
func (w *standing) observe(wait, should, goal time.Duration, over bool, now time.Duration) {
	switch {
	case !over:
		*w = standing{}
	case w.on:
	case wait <= should:
		w.longer = 0
	case w.longer == 0:
		w.longer = max(1, now)
	default:
		w.on = now-w.longer > time.Duration(standingAfter*float64(goal))
	}
}
