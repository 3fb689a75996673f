package disk

import (
	"math"
	"time"
)

const (
	// startPerByte is half a gigabyte a second, until reads say otherwise.
	startPerByte = 2.0
	// forgetAfter halves what slow reads have taught. Nobody reads from a disk that is
	// taken to be slow, so nothing else would ever say that it is fast again.
	forgetAfter = time.Minute
)

// rate is how long reading takes, in nanoseconds a byte: a moving mean.
type rate struct {
	perByte float64
	seen    time.Time // the last read
}

func (r *rate) at(now time.Time) float64 {
	if r.perByte <= startPerByte {
		return r.perByte
	}
	return startPerByte + (r.perByte-startPerByte)*math.Exp2(-float64(now.Sub(r.seen))/float64(forgetAfter))
}

func (r *rate) learn(now time.Time, perByte float64) {
	was := r.at(now)
	r.perByte, r.seen = was+(perByte-was)/8, now
}
