package wire

import (
	"time"

	"golang.org/x/sys/unix"
)

// started is one instant, by Go's clock and by CLOCK_MONOTONIC. Go reads that clock
// without a system call.
var started, startedAt = bothClocks()

// bothClocks reads them as close together as a busy machine lets it.
func bothClocks() (began time.Time, at int64) {
	least := time.Hour
	for range 16 {
		t, m := time.Now(), monotonic()
		if apart := time.Since(t); apart < least {
			least, began, at = apart, t, m
		}
	}
	return began, at
}

// Monotonic is CLOCK_MONOTONIC in nanoseconds: the clock of Timings and
// State.At, which all processes of a machine share.
func Monotonic() int64 { return startedAt + int64(time.Since(started)) }

func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("wire: no CLOCK_MONOTONIC: " + err.Error())
	}
	return t.Nano()
}
