package disk

import (
	"math"
	"time"
)

const (
	// startPerByte is half a gigabyte a second, until reads say otherwise.
	startPerByte = 2.0
	// forgetAfter halves what slow reads have taught. Nobody reads from where reading is
	// taken to be slow, so nothing else would ever say that it is fast again.
	forgetAfter = time.Minute
)

// Rate is how long reading takes, in nanoseconds a byte: a moving mean.
type Rate struct {
	Start   float64 // what is expected before the first read
	perByte float64
	seen    time.Time // the last read
}

// At is what a byte is expected to take.
func (r *Rate) At(now time.Time) float64 {
	switch {
	case r.seen.IsZero():
		return r.Start
	case r.perByte <= r.Start:
		return r.perByte
	}
	return r.Start + (r.perByte-r.Start)*math.Exp2(-float64(now.Sub(r.seen))/float64(forgetAfter))
}

// Learn counts a read in which a byte took so long.
func (r *Rate) Learn(now time.Time, perByte float64) {
	was := r.At(now)
	r.perByte, r.seen = was+(perByte-was)/8, now
}
