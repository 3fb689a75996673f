//go:build unix

package lost

import (
	"time"

	"golang.org/x/sys/unix"
)

// Used is the processor time of this process up to now, and how often it waited
// for a page that was not in memory.
func Used() (cpu time.Duration, faults int64) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), int64(u.Majflt)
}
