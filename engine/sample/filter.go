package sample

import (
	"cmp"
	"math"
	"slices"

	"github.com/forebay-io/forebay/kernels"
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

// room is the scratch memory for sampling from one row of logits.
type room struct {
	peaks         []float32 // of the logits
	sums          []float64 // of the weights, by the same parts
	list          []candidate
	near, typical []candidate              // for typical-p
	part          [kernels.PeakLen]float32 // a copy
}

// rooms keeps rooms between calls: one for each goroutine that samples at the same
// time, four at most. A list may grow as large as the vocabulary, so samplers share
// them; a sync.Pool would lose them at each garbage collection.
var rooms = make(chan *room, 4)

// takeRoom returns room for n logits.
func takeRoom(n int) (r *room) {
	select {
	case r = <-rooms:
	default:
		r = &room{}
	}
	parts := kernels.Peaks(n)
	r.peaks, r.sums = slices.Grow(r.peaks[:0], parts)[:parts], slices.Grow(r.sums[:0], parts)[:parts]
	return r
}

func (r *room) give() {
	select {
	case rooms <- r:
	default:
	}
}

// drawFiltered applies top-k, top-p and min-p and draws from the rest. It
// overwrites logits, unless top-k leaves few of them.
func (s *Sampler) drawFiltered(logits []float32, top float32, u float64, r *room) int32 {
	o := s.options
	byTopP := o.TopP > 0 && o.TopP < 1
	list, sum := r.list[:0], 0.0 // the sum of all weights that top-p sees
	if o.TopK > 0 && o.TopK < len(logits) {
		list = topK(list, logits, r.peaks, o.TopK)
		for i := range list {
			list[i].weight = weigh(list[i].weight, top, s.scale())
			sum += float64(list[i].weight)
		}
	} else {
		least := min(o.MinP, 1)
		sum = s.exponentiate(logits, top, r.sums)
		switch {
		case s.typical():
			least = 0 // it may drop the likeliest and keep the others
		case byTopP:
			// All tokens below this weight together have less than the share that
			// top-p drops, so it drops them all: of a peaked distribution, nearly all.
			// The margin keeps rounding from dropping tokens that are all equal.
			least = float32(0.999 * (1 - float64(o.TopP)) * sum / float64(len(logits)))
		}
		for part, peak := range r.peaks {
			if weigh(peak, top, s.scale()) < 0.999*least { // its weight is rounded in another way
				continue
			}
			at := part * kernels.PeakLen
			for i, w := range logits[at:min(at+kernels.PeakLen, len(logits))] {
				if w > 0 && !(w < least) {
					list = append(list, candidate{w, int32(at + i)})
				}
			}
		}
	}
	r.list = list // its room may have grown
	least := min(o.MinP, 1)
	if s.typical() {
		var best float32
		list, sum, best = r.typicalP(list, sum, float64(o.TypicalP))
		least *= best // which is below 1 where the likeliest was dropped
	}
	if byTopP {
		list = topP(list, float64(o.TopP)*sum)
	}
	return drawCandidate(minP(list, least), u)
}

// topK appends the n likeliest tokens to list, with their logits for weights, in
// no order. Few tokens of a large vocabulary, and few peaks of its parts, exceed
// the least of the n best so far.
func topK(list []candidate, logits, peaks []float32, n int) []candidate {
	worst := float32(math.Inf(-1))
	for part, peak := range peaks {
		if !(peak > worst) { // an equal one that comes later goes after it
			continue
		}
		at := part * kernels.PeakLen
		for i, l := range logits[at:min(at+kernels.PeakLen, len(logits))] {
			if !(l > worst) {
				continue
			}
			if list = append(list, candidate{l, int32(at + i)}); len(list) == 2*n+64 {
				selectFirst(list, n)
				list = list[:n]
				worst = least(list)
			}
		}
	}
	selectFirst(list, n)
	return list[:min(n, len(list))]
}

// least is the smallest weight of list.
func least(list []candidate) float32 {
	return slices.MinFunc(list, func(a, b candidate) int { return cmp.Compare(a.weight, b.weight) }).weight
}

func (s *Sampler) typical() bool { return s.options.TypicalP > 0 && s.options.TypicalP < 1 }

// typicalP keeps the fewest tokens whose information is nearest to the mean, so that
// their share of sum reaches p, in no order (Meister and others, 2022). It returns
// their own sum and the weight of the likeliest.
func (r *room) typicalP(list []candidate, sum, p float64) (kept []candidate, keptSum float64, top float32) {
	mean := 0.0
	for _, c := range list {
		if c.weight > 0 {
			share := float64(c.weight) / sum
			mean -= share * math.Log(share)
		}
	}
	// By distance, the nearest first: partition puts the greatest weight first.
	r.near = r.near[:0]
	for i, c := range list {
		r.near = append(r.near, candidate{-float32(math.Abs(math.Log(float64(c.weight)/sum) + mean)), int32(i)})
	}
	want, rest, count := p*sum, r.near, 0
	for len(rest) > 1 {
		split := partition(rest)
		reached := 0.0
		for _, c := range rest[:split+1] {
			reached += float64(list[c.id].weight)
		}
		switch last := float64(list[rest[split].id].weight); {
		case reached-last >= want && split > 0:
			rest = rest[:split]
		case reached >= want:
			count, rest = count+split+1, nil
		default:
			want -= reached
			count, rest = count+split+1, rest[split+1:]
		}
	}
	count += len(rest)
	r.typical = r.typical[:0]
	for _, c := range r.near[:count] {
		one := list[c.id]
		r.typical = append(r.typical, one)
		keptSum += float64(one.weight)
		top = max(top, one.weight)
	}
	return r.typical, keptSum, top
}

// topP keeps the fewest of the likeliest whose weights reach want, in no order:
// quickselect by weights instead of places. want is over 0.
func topP(list []candidate, want float64) []candidate {
	kept, rest := 0, list
	for len(rest) > 1 {
		split := partition(rest)
		reached, pivot := 0.0, float64(rest[split].weight)
		for _, c := range rest[:split] {
			reached += float64(c.weight)
		}
		switch {
		case reached >= want:
			rest = rest[:split]
		case reached+pivot >= want:
			return list[:kept+split+1]
		default:
			want -= reached + pivot
			kept, rest = kept+split+1, rest[split+1:]
		}
	}
	return list[:kept+len(rest)]
}

// minP drops tokens that weigh nothing, or less than least; the likeliest weighs 1
// and stays.
func minP(list []candidate, least float32) []candidate {
	least = min(least, 1)
	return slices.DeleteFunc(list, func(c candidate) bool { return c.weight == 0 || c.weight < least })
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
