package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

func peaksOf(row []float32) []float32 {
	peaks := make([]float32, kernels.Peaks(len(row)))
	kernels.Best().Peaks(peaks, row)
	return peaks
}

// TestSelection compares partial selection with a full sort.
func TestSelection(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	inOrder := func(list []Candidate) []Candidate {
		return slices.SortedFunc(slices.Values(list), func(a, b Candidate) int {
			return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.ID, b.ID))
		})
	}
	for range 300 {
		list, row := make([]Candidate, 1+r.IntN(1500)), []float32{}
		for i := range list {
			list[i] = Candidate{1 + float32(r.IntN(1+r.IntN(300))), int32(i)}
			row = append(row, list[i].Weight)
		}
		sorted, sum := inOrder(list), 0.0
		for _, w := range row {
			sum += float64(w)
		}
		want := (1 - r.Float64()) * sum
		cut := topP(slices.Clone(list), want)
		if !slices.Equal(inOrder(cut), sorted[:len(cut)]) {
			t.Fatal("top-p keeps other than the likeliest")
		}
		if cut[len(cut)-1] != sorted[len(cut)-1] {
			t.Fatal("the last that top-p keeps is not the least likely")
		}
		last, reached := float64(sorted[len(cut)-1].Weight), 0.0
		for _, c := range cut {
			reached += float64(c.Weight)
		}
		if reached < want-1e-9 || reached-last > want+1e-9 {
			t.Fatalf("top-p to %g of %g keeps %g, the last of them %g", want, sum, reached, last)
		}
		typical(t, list, sum, 0.05+0.9*r.Float64())
		n := 1 + r.IntN(len(list))
		if !slices.Equal(inOrder(topK(nil, row, peaksOf(row), n)), sorted[:n]) {
			t.Fatalf("top-k keeps other than the %d likeliest of %d", n, len(list))
		}
	}
	if got := minP([]Candidate{{1, 3}, {0, 5}}, 0); len(got) != 1 {
		t.Errorf("%v: a token that weighs nothing could be drawn by a rounding", got)
	}
}

// typical compares typicalP with a full sort by distance.
func typical(t *testing.T, list []Candidate, sum, p float64) {
	t.Helper()
	mean := 0.0
	for _, c := range list {
		mean -= float64(c.Weight) / sum * math.Log(float64(c.Weight)/sum)
	}
	distance := func(c Candidate) float32 { return float32(math.Abs(math.Log(float64(c.Weight)/sum) + mean)) }
	sorted := slices.SortedFunc(slices.Values(list), func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(distance(a), distance(b)), cmp.Compare(a.ID, b.ID))
	})
	n, reached := 0, 0.0
	for reached < p*sum-1e-9 {
		reached += float64(sorted[n].Weight)
		n++
	}
	kept, keptSum, top := (&room{}).typicalP(slices.Clone(list), sum, p)
	want := slices.Clone(sorted[:n])
	byID := func(a, b Candidate) int { return int(a.ID - b.ID) }
	slices.SortFunc(want, byID)
	got := slices.SortedFunc(slices.Values(kept), byID)
	if !slices.Equal(got, want) || math.Abs(keptSum-reached) > 1e-6 || top != slices.MaxFunc(want, func(a, b Candidate) int { return cmp.Compare(a.Weight, b.Weight) }).Weight {
		t.Fatalf("typical-p to %g of %d keeps %d tokens of %g, want %d of %g", p, len(list), len(got), keptSum, n, reached)
	}
}
