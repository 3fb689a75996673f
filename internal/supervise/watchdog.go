package supervise

import "time"

// watchdog finds a child that makes no progress. It counts its own ticks, not
// the clock: a machine that was suspended, or a supervisor that was stopped,
// does not kill a child that had no chance.
type watchdog struct {
	loadLimit, hangLimit time.Duration

	alive  time.Time     // newest sign of life; zero until the child is ready
	silent time.Duration // since then, or since the start
}

// interval is the time between two ticks.
func (d *watchdog) interval() time.Duration { return max(1, min(d.loadLimit, d.hangLimit)/20) }

// tick takes the newest sign of life. It returns for how long there was none,
// and for how long there may be none.
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
