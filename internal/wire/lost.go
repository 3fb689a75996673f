package wire

import "time"

// LostCause says why the engine did not run although it had work.
type LostCause uint8

const (
	LostFrozen    LostCause = iota // its process was stopped: by a signal, a debugger, a freezer, or with its machine
	LostTaken                      // other processes had the processors
	LostStolen                     // the hypervisor gave the processors to other machines
	LostThrottled                  // the CPU limit of its control group was used up
	LostPaging                     // it waited for pages of memory from a disk

	LostCauseCount
)

var lostNames = [...]string{"frozen", "taken", "stolen", "throttled", "paging"}

// String returns the cause's stable name.
func (c LostCause) String() string {
	if int(c) < len(lostNames) {
		return lostNames[c]
	}
	return "unknown"
}

// LostTime is a stretch of time in which the engine had work, and for a part of it
// did not run. Its instants are nanoseconds of CLOCK_MONOTONIC.
type LostTime struct {
	Begin, End int64
	// By divides the part that was lost. It sums to End - Begin at most.
	By [LostCauseCount]time.Duration
}

// Sum is the part that was lost.
func (l *LostTime) Sum() (sum time.Duration) {
	for _, d := range l.By {
		sum += d
	}
	return sum
}

// LostTimesMax is the most stretches of one StepRecord.
const LostTimesMax = 8
