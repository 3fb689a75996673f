package wire

import "golang.org/x/sys/unix"

// Monotonic is CLOCK_MONOTONIC in nanoseconds: the clock of Timings and
// State.At, which all processes of a machine share.
func Monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("wire: no CLOCK_MONOTONIC: " + err.Error())
	}
	return t.Nano()
}
