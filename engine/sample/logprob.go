package sample

import (
	"math"

	"github.com/forebay-io/forebay/internal/wire"
)

// TopLogprobs is the log-probability of token id and the top likeliest
// tokens, the likeliest first and equals by id, in the softmax of logits as
// they are. Masked tokens are left out of the list, and have the log-probability
// −Inf; so has every token of a row that is no distribution: one that holds NaN
// or +Inf, or has every token masked. The caller fills in Bytes.
func TopLogprobs(logits []float32, id int32, top int) wire.TokenLogprob {
	t := wire.TokenLogprob{ID: id, Logprob: float32(math.Inf(-1))}
	best, ok := argmax(logits)
	if !ok {
		return t
	}
	peak, sum := float64(logits[best]), 0.0
	for _, l := range logits {
		sum += exp(float64(l) - peak)
	}
	// The peak is taken off first: beside a huge one the sum would vanish.
	logSum := math.Log(sum)
	logprob := func(l float32) float32 { return float32(float64(l) - peak - logSum) }
	if id >= 0 && int(id) < len(logits) {
		t.Logprob = logprob(logits[id])
	}
	if top > 0 {
		t.Top = likeliest(logits, top)
		for i := range t.Top {
			t.Top[i].Logprob = logprob(t.Top[i].Logprob)
		}
	}
	return t
}

// likeliest lists the n greatest logits in order. n is small, so each that
// belongs is inserted at its place.
func likeliest(logits []float32, n int) []wire.TopLogprob {
	list := make([]wire.TopLogprob, 0, min(n, len(logits))+1)
	for i, l := range logits {
		if math.IsInf(float64(l), -1) || (len(list) == n && !(l > list[n-1].Logprob)) {
			continue
		}
		list = append(list, wire.TopLogprob{ID: int32(i), Logprob: l})
		for j := len(list) - 1; j > 0 && list[j].Logprob > list[j-1].Logprob; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
		list = list[:min(len(list), n)]
	}
	return list
}
