package cost

import (
	"math"
	"time"
)

// Ratio is a histogram of actual/predicted durations with exponential forgetting.
// The zero value is empty and ready to use.
type Ratio struct {
	bins   [ratioBins]float64
	total  float64
	weight float64 // of the next entry; growing weights make earlier entries fade
}

const (
	ratioBins   = 128
	ratioOctave = 16 // bins in an octave: a bin is 4.4 % wide
	ratioFade   = 1.0 / 0.999
	ratioLarge  = 1e100 // the weight at which all weights are scaled down
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

// Quantile returns the q-quantile of the ratios, to the width of a bin; 1 without
// entries. Ratios beyond 16 and 1/16 count as 16 and 1/16.
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
