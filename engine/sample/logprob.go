package sample

import (
	"math"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// TopLogprobs is the log-probability of token id and of the top likeliest tokens,
// the likeliest first and equal ones by id, in the softmax of the logits as they
// are. A masked token has the log-probability −Inf and is not in the list. So it is
// for every token of a row that is not a distribution: it holds NaN or +Inf, or all
// its tokens are masked. The caller fills in Bytes.
func TopLogprobs(set *kernels.Set, logits []float32, id int32, top int) wire.TokenLogprob {
	t := wire.TokenLogprob{ID: id, Logprob: float32(math.Inf(-1))}
	room := takeRoom(len(logits))
	defer room.give()
	set.Peaks(room.peaks, logits)
	best, ok := argmax(logits, room.peaks)
	if !ok {
		return t
	}
	peak, sum := logits[best], 0.0
	for i := range room.peaks {
		part := room.part[:copy(room.part[:], logits[i*kernels.PeakLen:])]
		sum += float64(set.Weigh(part, peak, 1))
	}
	// The peak is taken off first: beside a huge one the sum would vanish.
	logSum := math.Log(sum)
	logprob := func(l float32) float32 { return float32(float64(l) - float64(peak) - logSum) }
	if id >= 0 && int(id) < len(logits) {
		t.Logprob = logprob(logits[id])
	}
	if top > 0 {
		t.Top = likeliest(logits, room.peaks, top)
		for i := range t.Top {
			t.Top[i].Logprob = logprob(t.Top[i].Logprob)
		}
	}
	return t
}

// Rank is 1 more than how many tokens are likelier than id.
func Rank(logits []float32, id int32) int {
	rank, mine := 1, logits[id]
	for _, l := range logits {
		if l > mine {
			rank++
		}
	}
	return rank
}

// likeliest lists the n greatest logits in order. n is small, so each one is
// inserted at its place.
func likeliest(logits, peaks []float32, n int) []wire.TopLogprob {
	list := make([]wire.TopLogprob, 0, min(n, len(logits))+1)
	goes := func(l float32) bool {
		return math.IsInf(float64(l), -1) || len(list) == n && !(l > list[n-1].Logprob)
	}
	for part, peak := range peaks {
		if goes(peak) {
			continue
		}
		at := part * kernels.PeakLen
		for i, l := range logits[at:min(at+kernels.PeakLen, len(logits))] {
			if goes(l) {
				continue
			}
			list = append(list, wire.TopLogprob{ID: int32(at + i), Logprob: l})
			for j := len(list) - 1; j > 0 && list[j].Logprob > list[j-1].Logprob; j-- {
				list[j], list[j-1] = list[j-1], list[j]
			}
			list = list[:min(len(list), n)]
		}
	}
	return list
}
