package sample

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// TestXTCKeepsTheLastTopChoice compares with the definition: sort, find the last token at
// or over the threshold, drop what stands before it.
func TestXTCKeepsTheLastTopChoice(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	dropped := 0
	for range 2000 {
		list, sum := make([]Candidate, 1+r.IntN(12)), 0.0
		for i := range list {
			list[i] = Candidate{float32(1+r.IntN(8)) / 8, int32(i)}
			sum += float64(list[i].Weight)
		}
		share := r.Float64() * 0.6
		want := slices.Clone(list)
		slices.SortFunc(want, func(a, b Candidate) int {
			if before(a, b) {
				return -1
			}
			return 1
		})
		last := 0
		for i, c := range want {
			if float64(c.Weight)/sum >= share {
				last = i
			}
		}
		want = want[last:]
		sortByID(want)
		dropped += last
		if got := xtc(list, share); !slices.Equal(got, want) {
			t.Fatalf("over %g: %v, want %v", share, got, want)
		}
	}
	if dropped < 1000 {
		t.Errorf("only %d tokens were dropped", dropped)
	}
}

// TestXTCIsADrawOfItsOwn: the top choices are left out as often as the probability says, and
// tokens that other filters drop stay dropped.
func TestXTCIsADrawOfItsOwn(t *testing.T) {
	row := []float32{3, 2.9, 1, 0.9, -4}
	o := &wire.Options{Temperature: 1, MinP: 0.01, XTCProbability: 0.25, XTCThreshold: 0.3, Seed: 5}
	s := New(kernels.Best(), o, 0, len(row))
	var counts [5]int
	const draws = 20000
	for range draws {
		id, ok := s.Sample(slices.Clone(row))
		if !ok {
			t.Fatal("no token")
		}
		counts[id]++
	}
	// Without xtc token 0 has 0.462 of the probability of tokens 0 to 3.
	if share := float64(counts[0]) / draws; share < 0.462*0.75-0.015 || share > 0.462*0.75+0.015 || counts[4] != 0 {
		t.Errorf("%v: token 0 was drawn in %.3f", counts, share)
	}
}
