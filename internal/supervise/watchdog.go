package supervise

import "time"

// watchdog notices a child that makes no progress. It counts its own ticks and reads
// no clock, so that after the machine was suspended, or the supervisor stopped, it
// does not kill a child that could not run.
type watchdog struct {
	loadLimit, hangLimit time.Duration

	alive  time.Time     // newest sign of life; zero until the child is ready
	silent time.Duration // since alive, or since the start
}

// interval is the time between two ticks.
func (d *watchdog) interval() time.Duration { return max(1, min(d.loadLimit, d.hangLimit)/20) }

// tick takes the newest sign of life. It returns how long ago that was, and the
// limit for it.
func (d *watchdog) tick(alive time.Time) (silent, limit time.Duration) {
	if alive.Equal(d.alive) {
		d.silent += d.interval()
	} else {
		d.alive, d.silent = alive, 0
	}
	if alive.IsZero() {
		return d.silent, d.loadLimit
	}
	return d.silent, d.hangLimit
}
