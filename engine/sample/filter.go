package sample

import (
	"slices"
)

// candidate is a token that may still be drawn.
type candidate struct {
	weight float32
	id     int32
}

// before puts the likeliest first, equals by id.
func before(a, b candidate) bool {
	return a.weight > b.weight || a.weight == b.weight && a.id < b.id
}

func byWeight(a, b candidate) int {
	switch {
	case a.id == b.id:
		return 0
	case before(a, b):
		return -1
	}
	return 1
}

// scratch keeps lists of candidates between calls: one for each goroutine that
// samples at the same time, four at most. A list is as large as the vocabulary,
// so samplers share it; a sync.Pool would lose it at each garbage collection.
var scratch = make(chan []candidate, 4)

func takeScratch(n int) []candidate {
	select {
	case list := <-scratch:
		return slices.Grow(list[:0], n)
	default:
		return make([]candidate, 0, n)
	}
}

func giveScratch(list []candidate) {
	select {
	case scratch <- list:
	default:
	}
}

// drawFiltered applies top-k, top-p and min-p and draws from what is left.
func (s *Sampler) drawFiltered(weights []float32, u float64) int32 {
	o := s.options
	list := takeScratch(len(weights))
	defer giveScratch(list) // its room; what is in it does not matter
	// min-p compares with the likeliest, whose weight is 1. Where top-p does
	// not have to see the tokens that min-p drops, they can go at once.
	early := float32(0)
	if !(o.TopP > 0 && o.TopP < 1) {
		early = min(o.MinP, 1)
	}
	for i, w := range weights {
		if w > 0 && !(w < early) {
			list = append(list, candidate{w, int32(i)})
		}
	}
	if o.TopK > 0 && o.TopK < len(list) {
		selectFirst(list, o.TopK)
		list = list[:o.TopK]
	}
	if o.TopP > 0 && o.TopP < 1 {
		list = topP(list, float64(o.TopP))
		list = minP(list, o.MinP)
	}
	return drawCandidate(list, u)
}

// topP keeps the fewest of the likeliest whose weights reach share of the sum,
// sorted. It reorders list, and overwrites some of what it drops.
func topP(list []candidate, share float64) []candidate {
	sum := 0.0
	for _, c := range list {
		sum += float64(c.weight)
	}
	want := share * sum
	// All candidates below this weight together have less than the share that
	// may go, so they do go: of a peaked distribution, nearly all. The margin
	// keeps rounding from dropping candidates that are all equal.
	floor := 0.999 * (1 - share) * sum / float64(len(list))
	kept := list[:0]
	for _, c := range list {
		if float64(c.weight) >= floor {
			kept = append(kept, c)
		}
	}
	list = kept
	for sorted, block := 0, 64; sorted < len(list); block *= 4 {
		rest := list[sorted:]
		n := min(block, len(rest))
		selectFirst(rest, n)
		slices.SortFunc(rest[:n], byWeight)
		for i, c := range rest[:n] {
			if want -= float64(c.weight); want <= 0 {
				return list[:sorted+i+1]
			}
		}
		sorted += n
	}
	return list
}

// minP cuts a sorted list below the weight.
func minP(list []candidate, weight float32) []candidate {
	for len(list) > 1 && list[len(list)-1].weight < weight {
		list = list[:len(list)-1]
	}
	return list
}

func drawCandidate(list []candidate, u float64) int32 {
	sum := 0.0
	for _, c := range list {
		sum += float64(c.weight)
	}
	sum *= u
	for _, c := range list {
		if sum -= float64(c.weight); sum < 0 {
			return c.id
		}
	}
	return list[len(list)-1].id
}

// selectFirst moves the first n by weight to the front, in no order, by
// quickselect around the median of three.
func selectFirst(list []candidate, n int) {
	for len(list) > 1 && n > 0 && n < len(list) {
		split := partition(list)
		switch {
		case n <= split:
			list = list[:split]
		case n == split+1:
			return
		default:
			list, n = list[split+1:], n-split-1
		}
	}
}

// partition puts one candidate at its place in the order, those before it in
// front, and returns the place.
func partition(list []candidate) int {
	last, mid := len(list)-1, len(list)/2
	if before(list[mid], list[0]) {
		list[mid], list[0] = list[0], list[mid]
	}
	if before(list[last], list[0]) {
		list[last], list[0] = list[0], list[last]
	}
	if before(list[mid], list[last]) {
		list[mid], list[last] = list[last], list[mid]
	}
	pivot, split := list[last], 0
	for i, c := range list[:last] {
		if before(c, pivot) {
			list[i], list[split] = list[split], c
			split++
		}
	}
	list[split], list[last] = pivot, list[split]
	return split
}
