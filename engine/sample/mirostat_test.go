package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// TestMirostatHoldsTheSurprise: over many tokens the mean surprise is the target, whatever
// the distribution is.
func TestMirostatHoldsTheSurprise(t *testing.T) {
	for _, tau := range []float32{1.5, 3, 5} {
		for _, spread := range []float64{0.5, 2} {
			r := rand.New(rand.NewPCG(7, 8))
			o := wire.Options{Temperature: 1, MirostatTau: tau, MirostatEta: 0.1, Seed: 1}
			s := New(kernels.Best(), &o, 0, 1000)
			const tokens = 4000
			before := s.mirostat.bound
			for range tokens {
				row := make([]float32, 1000)
				for i := range row {
					row[i] = float32(r.NormFloat64() * spread)
				}
				if _, ok := s.Sample(row); !ok {
					t.Fatal("no token")
				}
			}
			// The bound moves by the rate times what each surprise differs from the target.
			mean := float64(tau) + (before-s.mirostat.bound)/0.1/tokens
			if math.Abs(mean-float64(tau)) > 0.05 {
				t.Errorf("target %g bits, logits spread by %g: the mean is %g", tau, spread, mean)
			}
		}
	}
}

// TestMirostatCuts as defined: what surprises more than the bound goes, but for the likeliest.
func TestMirostatCuts(t *testing.T) {
	list := []Candidate{{0.5, 0}, {1, 1}, {0.25, 2}, {0.25, 3}} // 2, 1, 3 and 3 bits
	for bound, want := range map[float64][]int32{4: {0, 1, 2, 3}, 2.5: {0, 1}, 1.5: {1}, 0.5: {1}, -3: {1}} {
		m := mirostat{target: 2, rate: 0.5, bound: bound}
		kept := m.cut(slices.Clone(list))
		var ids []int32
		for _, c := range kept {
			ids = append(ids, c.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("bound %g bits: kept %v, want %v", bound, ids, want)
		}
	}
	m := mirostat{target: 2, rate: 0.5, bound: 4}
	if m.drawn(list, 2); m.bound != 3.5 { // 3 bits, one above the target
		t.Errorf("the bound is %g, want 3.5", m.bound)
	}
}

// TestNearTop keeps what is within some standard deviations of the largest logit; masked
// tokens do not count.
func TestNearTop(t *testing.T) {
	row := []float32{-inf, 4, 2, 0, -2, -inf} // a deviation of √5
	for n, want := range map[float32][]int32{0.5: {1}, 1: {1, 2}, 1.8: {1, 2, 3}, 3: {1, 2, 3, 4}} {
		seen := map[int32]bool{}
		for seed := range uint64(200) {
			o := wire.Options{Temperature: 2, TopNSigma: n, Seed: seed}
			id, ok := one(o, slices.Clone(row)...)
			if !ok {
				t.Fatal("no token")
			}
			seen[id] = true
		}
		if len(seen) != len(want) || !slices.ContainsFunc(want, func(id int32) bool { return seen[id] }) {
			t.Errorf("%g deviations: drew %v, want %v", n, seen, want)
		}
	}
}
