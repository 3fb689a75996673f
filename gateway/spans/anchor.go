package spans

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// anchorGap is the longest time between the two monotonic readings around a
// wall reading for that to count as one instant; anchorTries is how often it is
// tried before the reading is taken as it is.
const (
	anchorGap   = int64(20 * time.Microsecond)
	anchorTries = 4
)

// anchor is what must be added to an instant of CLOCK_MONOTONIC to make it
// wall time, in nanoseconds. It is read anew for each request that is sent, so
// that a corrected wall clock is followed, and once for all spans of it, so
// that a step of the clock never comes between two of them.
func anchor() (offset int64) {
	for range anchorTries {
		before := wire.Monotonic()
		wall := time.Now().UnixNano()
		after := wire.Monotonic()
		offset = wall - before - (after-before)/2
		if after-before <= anchorGap {
			break
		}
	}
	return offset
}
