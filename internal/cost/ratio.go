package cost

import (
	"math"
	"time"
)

// Ratio is how steps compare with what was predicted: a histogram of
// actual/predicted, whose past fades. The zero value is empty and ready.
type Ratio struct {
	bins   [ratioBins]float64
	total  float64
	weight float64 // of the next one: growing weights are fading pasts
}

const (
	ratioBins   = 128
	ratioOctave = 16 // bins of an octave: a bin is 4.4 % wide
	ratioFade   = 1.0 / 0.999
	ratioLarge  = 1e100 // where all weights are divided again
)

// Add counts a step.
func (r *Ratio) Add(actual, predicted time.Duration) {
	if actual <= 0 || predicted <= 0 {
		return
	}
	at := math.Log2(float64(actual)/float64(predicted))*ratioOctave + ratioBins/2
	if r.weight = max(1, r.weight*ratioFade); r.weight > ratioLarge {
		for i := range r.bins {
			r.bins[i] /= r.weight
		}
		r.total, r.weight = r.total/r.weight, 1
	}
	r.bins[int(min(max(at, 0), ratioBins-1))] += r.weight
	r.total += r.weight
}

// Quantile is the ratio that a share q of the steps stays below, within a bin;
// 1 where there are none. Ratios beyond 16 and 1/16 count as these.
func (r *Ratio) Quantile(q float64) float64 {
	below, want := 0.0, q*r.total
	for i, n := range r.bins {
		if n > 0 && below+n >= want {
			return math.Exp2((float64(i) + (want-below)/n - ratioBins/2) / ratioOctave)
		}
		below += n
	}
	return 1
}
