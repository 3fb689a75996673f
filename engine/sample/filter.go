package sample

import (
	"cmp"
	"math"
	"slices"

	"github.com/forebay-io/forebay/kernels"
)

// Candidate is a token that may still be drawn.
type Candidate struct {
	Weight float32
	ID     int32
}

// before puts the likeliest first, equals by id.
func before(a, b Candidate) bool {
	return a.Weight > b.Weight || a.Weight == b.Weight && a.ID < b.ID
}

// room is the scratch memory for sampling from one row of logits.
type room struct {
	peaks         []float32 // of the logits
	sums          []float64 // of the weights, by the same parts
	list          []Candidate
	near, typical []Candidate              // for typical-p
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

// drawFiltered applies top-k, typical-p, top-p, min-p, mirostat and xtc and draws from the rest. It
// overwrites logits, unless top-k leaves few of them.
func (s *Sampler) drawFiltered(logits []float32, top float32, u float64, r *room) int32 {
	o := s.options
	list, sum := r.list[:0], 0.0 // the sum of all weights that top-p sees
	if o.TopK > 0 && o.TopK < len(logits) {
		list = topK(list, logits, r.peaks, o.TopK)
		sum = s.weighAll(list, top)
	} else {
		least := min(o.MinP, 1)
		sum = s.exponentiate(logits, top, r.sums)
		switch {
		case s.typical():
			least = 0 // it may drop the likeliest and keep the others
		case s.byTopP():
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
					list = append(list, Candidate{w, int32(at + i)})
				}
			}
		}
	}
	r.list = list // its room may have grown
	return s.choose(list, sum, u, r)
}

// choose applies typical-p, top-p, min-p, mirostat and xtc to candidates in the order of their ids, and
// draws. sum is the weight of all tokens, with those that these filters are sure to drop,
// which the list may lack.
func (s *Sampler) choose(list []Candidate, sum, u float64, r *room) int32 {
	o := s.options
	least := min(o.MinP, 1)
	if s.typical() {
		var best float32
		list, sum, best = r.typicalP(list, sum, float64(o.TypicalP))
		least *= best // which is below 1 where the likeliest was dropped
	}
	if s.byTopP() {
		r.near = append(r.near[:0], list...)
		kept := topP(r.near, float64(o.TopP)*sum)
		last := kept[len(kept)-1]
		list = slices.DeleteFunc(list, func(c Candidate) bool { return before(last, c) })
	}
	list = minP(list, least)
	if s.mirostat != nil {
		list = s.mirostat.cut(list)
	}
	if o.XTCProbability > 0 {
		if chance := float64(s.random.Uint64()>>11) / (1 << 53); chance < float64(o.XTCProbability) {
			list = xtc(list, float64(o.XTCThreshold))
		}
	}
	id := drawCandidate(list, u)
	if s.mirostat != nil {
		s.mirostat.drawn(list, id)
	}
	return id
}

// nearTop masks the tokens whose logits are further below the largest than that many standard
// deviations. Masked ones do not count.
func nearTop(logits []float32, top, deviations float32) {
	count, sum, squares := 0.0, 0.0, 0.0
	for _, l := range logits {
		if d := float64(l) - float64(top); !math.IsInf(d, -1) {
			count, sum, squares = count+1, sum+d, squares+d*d
		}
	}
	mean := sum / count
	least := -float64(deviations) * math.Sqrt(max(0, squares/count-mean*mean))
	for i, l := range logits {
		if float64(l)-float64(top) < least {
			logits[i] = float32(math.Inf(-1))
		}
	}
}

// weighAll replaces logits by weights, and gives their sum.
func (s *Sampler) weighAll(list []Candidate, top float32) (sum float64) {
	for i := range list {
		list[i].Weight = weigh(list[i].Weight, top, s.scale())
		sum += float64(list[i].Weight)
	}
	return sum
}

func (s *Sampler) byTopP() bool { return s.options.TopP > 0 && s.options.TopP < 1 }

// sortByID puts candidates into the order in which they are drawn.
func sortByID(list []Candidate) {
	slices.SortFunc(list, func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) })
}

// topK appends the n likeliest tokens to list, with their logits for weights, in
// the order of their ids. Few tokens of a large vocabulary, and few peaks of its parts, exceed
// the least of the n best so far.
func topK(list []Candidate, logits, peaks []float32, n int) []Candidate {
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
			if list = append(list, Candidate{l, int32(at + i)}); len(list) == 2*n+64 {
				selectFirst(list, n)
				list = list[:n]
				worst = least(list)
			}
		}
	}
	return firstByID(list, n)
}

// firstByID cuts list to the n likeliest, in the order of their ids.
func firstByID(list []Candidate, n int) []Candidate {
	selectFirst(list, n)
	list = list[:min(n, len(list))]
	sortByID(list)
	return list
}

// least is the smallest weight of list.
func least(list []Candidate) float32 {
	return slices.MinFunc(list, func(a, b Candidate) int { return cmp.Compare(a.Weight, b.Weight) }).Weight
}

func (s *Sampler) typical() bool { return s.options.TypicalP > 0 && s.options.TypicalP < 1 }

// typicalP keeps the fewest tokens whose information is nearest to the mean, so that
// their share of sum reaches p, in the order of their ids (Meister and others, 2022). It returns
// their own sum and the weight of the likeliest.
func (r *room) typicalP(list []Candidate, sum, p float64) (kept []Candidate, keptSum float64, top float32) {
	mean := 0.0
	for _, c := range list {
		if c.Weight > 0 {
			share := float64(c.Weight) / sum
			mean -= share * math.Log(share)
		}
	}
	// By distance, the nearest first: partition puts the greatest weight first.
	r.near = r.near[:0]
	for i, c := range list {
		r.near = append(r.near, Candidate{-float32(math.Abs(math.Log(float64(c.Weight)/sum) + mean)), int32(i)})
	}
	want, rest, count := p*sum, r.near, 0
	for len(rest) > 1 {
		split := partition(rest)
		reached := 0.0
		for _, c := range rest[:split+1] {
			reached += float64(list[c.ID].Weight)
		}
		switch last := float64(list[rest[split].ID].Weight); {
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
	sortByID(r.near[:count])
	for _, c := range r.near[:count] {
		one := list[c.ID]
		r.typical = append(r.typical, one)
		keptSum += float64(one.Weight)
		top = max(top, one.Weight)
	}
	return r.typical, keptSum, top
}

// topP keeps the fewest of the likeliest whose weights reach want, the least likely of
// them last and the others in no order: quickselect by weights instead of places. want
// is over 0.
func topP(list []Candidate, want float64) []Candidate {
	kept, rest := 0, list
	for len(rest) > 1 {
		split := partition(rest)
		reached, pivot := 0.0, float64(rest[split].Weight)
		for _, c := range rest[:split] {
			reached += float64(c.Weight)
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
func minP(list []Candidate, least float32) []Candidate {
	least = min(least, 1)
	return slices.DeleteFunc(list, func(c Candidate) bool { return c.Weight == 0 || c.Weight < least })
}

// xtc leaves out the top choices, those with at least this share of the weight, but for
// the least likely of them.
func xtc(list []Candidate, share float64) []Candidate {
	sum := 0.0
	for _, c := range list {
		sum += float64(c.Weight)
	}
	top, last := 0, Candidate{}
	for _, c := range list {
		if float64(c.Weight) >= share*sum {
			if top == 0 || before(last, c) {
				last = c
			}
			top++
		}
	}
	if top < 2 {
		return list
	}
	return slices.DeleteFunc(list, func(c Candidate) bool { return before(c, last) })
}

// drawCandidate draws from candidates in the order of their ids, as draw does.
func drawCandidate(list []Candidate, u float64) int32 {
	sum := 0.0
	for _, c := range list {
		sum += float64(c.Weight)
	}
	sum *= u
	for _, c := range list {
		if sum -= float64(c.Weight); sum < 0 {
			return c.ID
		}
	}
	return list[len(list)-1].ID
}

// selectFirst moves the first n by weight to the front, in no order, by
// quickselect around the median of three.
func selectFirst(list []Candidate, n int) {
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
func partition(list []Candidate) int {
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
