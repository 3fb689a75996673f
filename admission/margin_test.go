package admission

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestBrokenPromisesAreFew: whatever the errors of predictions do, the share of
// broken promises is within the bound of the package's documentation. The control
// is a margin that does not move.
func TestBrokenPromisesAreFew(t *testing.T) {
	for name, ratio := range map[string]func(rnd *rand.Rand, i int) float64{
		"as predicted":         func(rnd *rand.Rand, _ int) float64 { return math.Exp(0.1 * rnd.NormFloat64()) },
		"half the speed":       func(rnd *rand.Rand, i int) float64 { return math.Exp(0.1*rnd.NormFloat64()) * float64(1+i/5000%2) },
		"heavy tails":          func(rnd *rand.Rand, _ int) float64 { return min(2.9, 0.8+0.1/math.Sqrt(1-rnd.Float64())) },
		"worst just as it can": nil,
	} {
		for level := range marginRules {
			checkBound(t, fmt.Sprintf("%s, level %d", name, level), level, ratio)
		}
	}
}

func checkBound(t *testing.T, name string, level int, ratio func(rnd *rand.Rand, i int) float64) {
	rnd, m := rand.New(rand.NewPCG(1, 9)), newMargin(level)
	const n = 20_000
	broken, fixed := 0, 0
	for i := range n {
		actual := m.factor * 0.999
		if ratio != nil {
			actual = ratio(rnd, i)
		} else if m.factor < 1.2 {
			actual = 1.3
		}
		if actual > marginLeast {
			fixed++
		}
		late := actual > m.factor
		if late {
			broken++
		}
		m.settled(late)
	}
	bound := brokenGoal + (math.Log(m.rule.most/marginLeast)+m.rule.step)/(m.rule.step*n)
	if share := float64(broken) / n; share > bound {
		t.Errorf("%s: %.4f are broken, the bound is %.4f", name, share, bound)
	}
	if share := float64(fixed) / n; share < 2*bound && ratio != nil {
		t.Errorf("%s: a margin that does not move breaks only %.4f", name, share)
	}
}

// TestMedianFollowsErrors up and down, within its bounds.
func TestMedianFollowsErrors(t *testing.T) {
	m := newMargin(levelInteractive)
	for range 60 {
		m.observe(4*time.Second, 2*time.Second)
	}
	if m.median < 1.9 || m.median > 2.1 {
		t.Errorf("the median of waits of twice what was predicted is %v", m.median)
	}
	for range 1000 {
		m.observe(time.Hour, 1)
	}
	if m.median > 4 {
		t.Errorf("the median is %v", m.median)
	}
}
