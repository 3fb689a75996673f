package spans

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// The wall clock is read between two readings of the monotonic clock. If these are at
// most anchorGap apart, the three count as one instant; after anchorTries the last
// reading is taken as it is.
const (
	anchorGap   = int64(20 * time.Microsecond)
	anchorTries = 4
)

// anchor returns the difference from CLOCK_MONOTONIC to wall time, in nanoseconds. It
// is read for each request, to follow a corrected wall clock, and once for all spans
// of the request, so that no step of the clock comes between two of them.
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
