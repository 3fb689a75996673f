package supervise

import "time"

// backoff decides how long to wait before the next start. It is pure: instants and
// the random number are arguments.
type backoff struct {
	waitMin, waitMax, stableAfter time.Duration
	crashLoopExits                int

	exits int // exits in a row, each before stableAfter
}

// next notes that a child ran from started to ended, and returns the wait before
// the next start: none after a stable run; then waitMin, doubled each time; waitMax
// in a crash loop. random in [0, 1) takes away up to a quarter, so that many
// sidecars do not all start at the same moment.
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

// crashLoop reports whether it makes no sense any more to start again soon.
func (b *backoff) crashLoop() bool { return b.exits >= b.crashLoopExits }
