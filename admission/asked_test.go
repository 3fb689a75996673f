package admission

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// partNaively finds the fair level by halving.
func partNaively(asks, weights []float64, capacity float64, at int) float64 {
	low, high := 0., 1e6
	for range 200 {
		level, sum := (low+high)/2, 0.
		for i, a := range asks {
			sum += min(a, level*weights[i])
		}
		if sum > capacity {
			high = level
		} else {
			low = level
		}
	}
	return min(1, low*weights[at]/asks[at])
}

// TestPartsAreMaxMinFair compares them with a search for the fair level.
func TestPartsAreMaxMinFair(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	for range 2000 {
		var lv level
		var asks, weights []float64
		n := 1 + rnd.IntN(12)
		for range n {
			l := &line{tenant: &tenant{weight: math.Exp(rnd.NormFloat64())}}
			for range 1 + rnd.IntN(5) {
				lv.bookAsked(l, time.Duration(1+rnd.IntN(1e9)), 0)
			}
			lv.asking = append(lv.asking, l)
			asks, weights = append(asks, l.asked.rate(0)), append(weights, l.tenant.weight)
		}
		sum := 0.
		for _, a := range asks {
			sum += a
		}
		share := rnd.Float64() * 1.3
		for i, l := range lv.asking {
			got, want := lv.partOf(l, share, 0), 1.0
			if share < 1 {
				want = partNaively(asks, weights, share*sum, i)
			}
			if math.Abs(got-want) > 1e-6 {
				t.Fatalf("asks %v, weights %v, share %v: part %d is %v, not %v", asks, weights, share, i, got, want)
			}
		}
	}
}

// TestRankIsTheShareOfSmallerWork, evenly spread where sizes are alike.
func TestRankIsTheShareOfSmallerWork(t *testing.T) {
	var z sizes
	rnd := rand.New(rand.NewPCG(5, 3))
	size := func() time.Duration { return time.Duration(math.Exp(rnd.NormFloat64()) * float64(50*time.Millisecond)) }
	for range 3000 {
		z.observe(size())
	}
	let, all := 0., 0.
	for i := range 20_000 {
		s := size()
		all += float64(s)
		if z.rank(s, tieOf(uint64(i))) <= 0.4 {
			let += float64(s)
		}
	}
	if share := let / all; math.Abs(share-0.4) > 0.05 {
		t.Errorf("rank 0.4 lets %.3f of the work in", share)
	}
	var alike sizes
	for range 100 {
		alike.observe(time.Second)
	}
	n := 0
	for i := range 1000 {
		if alike.rank(time.Second, tieOf(uint64(i))) <= 0.2 {
			n++
		}
	}
	if n < 198 || n > 202 {
		t.Errorf("of requests that are alike, rank 0.2 lets %d of 1000 in", n)
	}
}

// TestStandingTellsABurstFromALastingOverload.
func TestStandingTellsABurstFromALastingOverload(t *testing.T) {
	const goal, should = 2 * time.Second, 600 * time.Millisecond
	var w standing
	now := time.Duration(0)
	turn := func(wait, length time.Duration, over bool) {
		for end := now + length; now < end; now += 50 * time.Millisecond {
			w.observe(wait, should, goal, over, now)
		}
	}
	turn(1800*time.Millisecond, 900*time.Millisecond, true)
	turn(100*time.Millisecond, time.Second, true)
	turn(1800*time.Millisecond, 900*time.Millisecond, true)
	if w.on {
		t.Fatal("two bursts count as a lasting overload")
	}
	turn(1800*time.Millisecond, 300*time.Millisecond, false)
	if !w.on {
		t.Fatal("a queue that stays long does not")
	}
	turn(500*time.Millisecond, time.Second, false)
	turn(100*time.Millisecond, time.Second, true)
	if !w.on {
		t.Error("it ends while the queue is as it should be, or more is asked for than can be served")
	}
	turn(200*time.Millisecond, 50*time.Millisecond, false)
	if w.on {
		t.Error("it does not end")
	}
}
