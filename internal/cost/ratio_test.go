package cost

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestRatioQuantiles(t *testing.T) {
	var q Ratio
	if q.Quantile(0.5) != 1 || q.Quantile(0.9) != 1 {
		t.Error("an empty ratio is not 1")
	}
	r := rand.New(rand.NewPCG(6, 1))
	add := func(scale float64, n int) {
		for range n {
			q.Add(time.Duration(1e6*scale*math.Exp(0.2*r.NormFloat64())), 1e6)
		}
	}
	for _, scale := range []float64{1, 3, 0.5} {
		add(scale, 10_000) // the past fades
		// of a lognormal: 1 and exp(1.2816 · 0.2)
		for at, want := range map[float64]float64{0.5: scale, 0.9: 1.2922 * scale} {
			if got := q.Quantile(at); math.Abs(got/want-1) > 0.06 {
				t.Errorf("quantile %v of ratios around %v is %.3f; want %.3f", at, scale, got, want)
			}
		}
	}
	add(0.5, 2_000_000) // over the size where weights are divided
	if got := q.Quantile(0.5); math.Abs(got/0.5-1) > 0.06 {
		t.Errorf("after two million steps the median is %.3f; want 0.5", got)
	}
	q.Add(0, 1)
	q.Add(1, 0)
	for range 20_000 {
		q.Add(math.MaxInt64, 1)
	}
	if got := q.Quantile(0.5); got < 15 || got > 16 {
		t.Errorf("ratios beyond all bins give %.3f; want the last", got)
	}
}
