package supervise

import "time"

// backoff decides how long to wait before the next start. It is pure: the
// caller brings the instants and the random number.
type backoff struct {
	waitMin, waitMax, stableAfter time.Duration
	crashLoopExits                int

	exits int // exits in a row, each before stableAfter
}

// next takes note of a child that ran from started to ended, and returns the
// wait before its successor: none after a stable run, then doubling from
// waitMin, and waitMax once it is a crash loop. random in [0, 1) takes away up
// to a quarter, so that many sidecars do not start in step.
func (b *backoff) next(started, ended time.Time, random float64) time.Duration {
	if ended.Sub(started) >= b.stableAfter {
		b.exits = 0
	}
	b.exits++
	if b.exits == 1 {
		return 0
	}
	wait := b.waitMax
	if shift := b.exits - 2; !b.crashLoop() && shift < 30 {
		wait = min(b.waitMax, b.waitMin<<shift)
	}
	return wait - time.Duration(random*float64(wait)/4)
}

// crashLoop tells whether starting again soon has stopped making sense.
func (b *backoff) crashLoop() bool { return b.exits >= b.crashLoopExits }
