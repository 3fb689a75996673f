package sample

import (
	"cmp"
	"math"
	"slices"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file is sampling where the logits lie on a device. The device applies penalties,
// biases and masks, and finds the token, or, where filters cut, the few candidates among
// which the Sampler then draws as it does from a row of its own.

// Draw is a choice's next token, as a device is to look for it.
type Draw struct {
	Greedy   bool
	Filtered bool    // the device leaves candidates
	Scale    float32 // of logits
	TopK     int     // 0 for all
	TopP     float32 // 1 for all
	MinP     float32 // 0 for all
	Share    uint64  // of all weights, in 2^-53, at which the draw stops

	Repetition, Presence, Frequency float32 // penalties of Seen; Repetition 1 is none
	Seen                            []Seen
	Bias                            []wire.LogitBias
}

// Rest is what a device leaves of a row. Its lists belong to the device.
type Rest struct {
	ID         int32       // the token, unless the draw is Filtered
	Top        float32     // the largest logit, after penalties, biases and mask
	Sum        float64     // of all weights, without TopK
	Candidates []Candidate // of a Filtered draw, in any order: logits with TopK, else weights
	// Of the row as it is, where log-probabilities are asked for: whether its numbers are a
	// distribution, the largest, that of ID and those of Candidates, the sum of weights, and the
	// likeliest tokens with their logits, in any order.
	RowFinite        bool
	RowTop, RowLogit float32
	Logits           []float32
	RowSum           float64
	Tops             []Candidate
}

// logit is that of a token, in the row as it is. It reports false where the device has not
// listed it.
func (rest *Rest) logit(id int32) (logit float32, ok bool) {
	if len(rest.Candidates) == 0 {
		return rest.RowLogit, id == rest.ID
	}
	i := slices.IndexFunc(rest.Candidates, func(c Candidate) bool { return c.ID == id })
	if i < 0 {
		return 0, false
	}
	return rest.Logits[i], true
}

// Plannable reports whether a device can look for the tokens of s. It cannot for typical-p,
// mirostat and top-n-sigma, which need all weights twice, for penalties of the last tokens and
// of repeated sequences, nor for several biases of one token.
func (s *Sampler) Plannable() bool { return !s.hostOnly }

// Plan says what a device has to look for, and moves the random stream on as Sample does.
// Finish gives the token; or Sample, which then draws with the same number.
func (s *Sampler) Plan(d *Draw) {
	o := s.options
	*d = Draw{
		Greedy: !(o.Temperature >= greedyBelow), TopP: 1, Repetition: 1, Presence: o.PresencePenalty, Frequency: o.FrequencyPenalty,
		Seen: s.seen.tokens, Bias: o.LogitBias,
	}
	if s.repeats() {
		d.Repetition = o.RepetitionPenalty
	}
	if d.Greedy {
		return
	}
	s.share, s.planned = s.random.Uint64()>>11, true
	d.Share, d.Scale, d.Filtered = s.share, float32(s.scale()), s.filters(s.vocab)
	if o.TopK > 0 && o.TopK < s.vocab {
		d.TopK = o.TopK
	}
	if s.byTopP() {
		d.TopP = o.TopP
	}
	if o.MinP > 0 {
		d.MinP = o.MinP
	}
}

// Finish gives the token of a planned draw from what the device has left of its row.
func (s *Sampler) Finish(d *Draw, rest *Rest) int32 {
	s.planned = false
	if !d.Filtered {
		return rest.ID
	}
	room := takeRoom(0)
	defer room.give()
	room.list = append(room.list[:0], rest.Candidates...)
	list, sum := room.list, rest.Sum
	if d.TopK > 0 {
		list = firstByID(list, d.TopK)
		sum = s.weighAll(list, rest.Top)
	} else {
		sortByID(list)
	}
	return s.choose(list, sum, unit(d.Share), room)
}

// Logprob is TopLogprobs of what the device has left. It reports false where that has not
// the token's logit.
func (rest *Rest) Logprob(id int32, top int) (t wire.TokenLogprob, ok bool) {
	t = wire.TokenLogprob{ID: id, Logprob: float32(math.Inf(-1))}
	logit, ok := rest.logit(id)
	if !ok || !rest.RowFinite {
		return t, ok
	}
	logSum := math.Log(rest.RowSum)
	logprob := func(l float32) float32 { return float32(float64(l) - float64(rest.RowTop) - logSum) }
	t.Logprob = logprob(logit)
	if top == 0 {
		return t, true
	}
	slices.SortFunc(rest.Tops, func(a, b Candidate) int { return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.ID, b.ID)) })
	for _, c := range rest.Tops[:min(top, len(rest.Tops))] {
		t.Top = append(t.Top, wire.TopLogprob{ID: c.ID, Logprob: logprob(c.Weight)})
	}
	return t, true
}

// twice reports whether one token has several biases.
func twice(all []wire.LogitBias) bool {
	known := make(map[int32]bool, len(all))
	for _, b := range all {
		if known[b.Token] {
			return true
		}
		known[b.Token] = true
	}
	return false
}
