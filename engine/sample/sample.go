// Package sample turns a row of logits into the next token of one choice.
//
// The order is fixed: repetition penalty, presence and frequency penalty, the penalty of
// repeated sequences, logit bias, top-n-sigma, temperature, top-k, typical-p, top-p, min-p,
// mirostat, xtc, one draw. Each filter but xtc keeps the likeliest tokens, and each sees only what the one before has kept:
// top-p's probabilities are those of the top-k tokens alone. Equal tokens are
// ordered by id, the lowest first. The draw goes through the kept tokens by id, so that
// it depends on them alone, and not on how they were found.
//
// Goal: a choice's tokens depend on its own options, tokens and logits alone, so
// that neighbours in a batch never change them. Not a goal: making grammar masks;
// the logit of a masked token is −Inf, and stays −Inf.
//
// Ownership: a Sampler belongs to one choice and is used by one goroutine.
package sample

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// greedyBelow is the temperature under which sampling is argmax: there any
// difference that a float32 logit can hold decides for the likeliest token.
const greedyBelow = 1e-4

// Sampler chooses the tokens of one choice.
type Sampler struct {
	set      *kernels.Set
	options  *wire.Options
	vocab    int
	random   *rand.PCG
	seen     history
	dry      *dry      // nil for none
	mirostat *mirostat // nil for none

	hostOnly bool   // a device cannot look for its tokens
	planned  bool   // share was taken by Plan
	share    uint64 // of all weights, in 2^-53, at which the draw stops
}

// New makes the sampler of one choice over token ids [0, vocab): ids beyond, such
// as padding rows, are never chosen. It keeps o, which must not change. The random
// stream depends on o.Seed and choice alone.
func New(set *kernels.Set, o *wire.Options, choice, vocab int) *Sampler {
	s := &Sampler{set: set, options: o, vocab: vocab, random: rand.NewPCG(mix(o.Seed), mix(uint64(choice)))}
	if o.PresencePenalty != 0 || o.FrequencyPenalty != 0 || s.repeats() {
		s.seen.slot, s.seen.last = make(map[int32]int), o.RepeatLast
	}
	if o.DRY.Multiplier > 0 {
		s.dry = newDRY(&o.DRY)
	}
	if o.MirostatTau > 0 {
		s.mirostat = &mirostat{target: float64(o.MirostatTau), rate: float64(o.MirostatEta), bound: 2 * float64(o.MirostatTau)}
	}
	s.hostOnly = s.typical() || twice(o.LogitBias) || s.dry != nil || s.mirostat != nil || o.TopNSigma > 0 || s.seen.last > 0
	return s
}

func (s *Sampler) repeats() bool {
	r := s.options.RepetitionPenalty
	return r != 0 && r != 1
}

// Spell says what bytes a token has. Without it the breakers of o.DRY break nothing.
func (s *Sampler) Spell(bytes func(id int32) []byte) {
	if s.dry != nil {
		s.dry.spell = bytes
	}
}

// Prompt tells the sampler the whole prompt, with the part that was cached.
func (s *Sampler) Prompt(tokens []int32) {
	if s.repeats() || s.seen.last > 0 {
		for _, id := range tokens {
			s.seen.add(id, 0)
		}
	}
	if s.dry != nil {
		for _, id := range tokens {
			s.dry.add(id)
		}
	}
}

// Accept tells the sampler a generated token.
func (s *Sampler) Accept(id int32) {
	s.seen.add(id, 1)
	if s.dry != nil {
		s.dry.add(id)
	}
}

// Sample chooses the next token, and advances the choice's random stream by
// one step, with xtc by two, unless the choice is greedy. It overwrites logits. It reports
// false when a logit is NaN or +Inf, or when every token is masked.
func (s *Sampler) Sample(logits []float32) (id int32, ok bool) {
	logits = logits[:min(s.vocab, len(logits))]
	s.adjust(logits)
	room := takeRoom(len(logits))
	defer room.give()
	s.set.Peaks(room.peaks, logits)
	best, ok := argmax(logits, room.peaks)
	if ok && s.options.TopNSigma > 0 {
		nearTop(logits, logits[best], s.options.TopNSigma)
	}
	if !ok || !(s.options.Temperature >= greedyBelow) { // NaN too
		return best, ok
	}
	top, u := logits[best], unit(s.takeShare())
	if s.filters(len(logits)) {
		return s.drawFiltered(logits, top, u, room), true
	}
	sum := s.exponentiate(logits, top, room.sums)
	return draw(logits, room.sums, sum*u), true
}

// takeShare moves the random stream on, unless Plan has.
func (s *Sampler) takeShare() uint64 {
	if !s.planned {
		return s.random.Uint64() >> 11
	}
	s.planned = false
	return s.share
}

// unit is a share as a number from 0 up to 1.
func unit(share uint64) float64 { return float64(share) / (1 << 53) }

// adjust applies penalties and bias.
func (s *Sampler) adjust(logits []float32) {
	o := s.options
	for _, t := range s.seen.tokens {
		if t.ID < 0 || int(t.ID) >= len(logits) {
			continue
		}
		l := &logits[t.ID]
		if s.repeats() {
			if *l > 0 {
				*l /= o.RepetitionPenalty
			} else {
				*l *= o.RepetitionPenalty
			}
		}
		if t.Generated > 0 {
			*l -= o.PresencePenalty + float32(t.Generated)*o.FrequencyPenalty
		}
	}
	if s.dry != nil {
		s.dry.penalize(logits)
	}
	for _, b := range o.LogitBias {
		if b.Token >= 0 && int(b.Token) < len(logits) {
			logits[b.Token] += b.Bias
		}
	}
}

// filters reports whether any of the options may drop a token.
func (s *Sampler) filters(n int) bool {
	o := s.options
	return o.TopK > 0 && o.TopK < n || o.TopP > 0 && o.TopP < 1 || o.MinP > 0 || s.typical() || s.mirostat != nil || o.XTCProbability > 0
}

// argmax is the lowest id with the greatest logit, found by the logits' peaks. It
// reports false when that logit is not finite.
func argmax(logits, peaks []float32) (best int32, ok bool) {
	part, top := 0, float32(math.Inf(-1))
	for i, p := range peaks {
		if p > top {
			part, top = i, p
		}
	}
	if math.IsInf(float64(top), 0) {
		return 0, false
	}
	at := part * kernels.PeakLen
	return int32(at + slices.Index(logits[at:], top)), true
}

// weigh is a logit's weight: 1 for the top one, in proportion for the others, and
// 0 below float32's range.
func weigh(logit, top float32, scale float64) float32 {
	return float32(exp((float64(logit) - float64(top)) * scale))
}

// scale multiplies logits. It is over 0, so that −Inf stays −Inf.
func (s *Sampler) scale() float64 { return max(1/float64(s.options.Temperature), 0x1p-126) }

// exponentiate replaces logits by weights. It returns their sum, and in sums the
// sum of each part, which is PeakLen weights.
func (s *Sampler) exponentiate(logits []float32, top float32, sums []float64) (sum float64) {
	for i := range sums {
		part := logits[i*kernels.PeakLen:]
		sums[i] = float64(s.set.Weigh(part[:min(kernels.PeakLen, len(part))], top, float32(s.scale())))
		sum += sums[i]
	}
	return sum
}

// draw finds the token at which the running sum of weights passes want: first the
// part, then the token in it. Parts and tokens of weight 0 are passed over.
func draw(weights []float32, sums []float64, want float64) int32 {
	part, rest := 0, want
	for i, sum := range sums {
		if sum == 0 {
			continue
		}
		part, want = i, rest
		if rest -= sum; rest < 0 {
			break
		}
	}
	at := part * kernels.PeakLen
	last := at
	for i, w := range weights[at:min(at+kernels.PeakLen, len(weights))] {
		if w == 0 {
			continue
		}
		last = at + i
		if want -= float64(w); want < 0 {
			break
		}
	}
	return int32(last)
}

// mix is the output function of splitmix64: it sends near seeds to far streams.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// exp is e^x for x up to 0, to about eight digits, and 0 below float32's range. A
// large vocabulary needs it 150,000 times for each token, and math.Exp takes
// several times as long, for digits that a float32 weight does not keep.
func exp(x float64) float64 {
	if !(x >= -103) {
		return 0
	}
	n := math.Floor(x*math.Log2E + 0.5)
	f := x - n*math.Ln2 // in [−0.35, 0.35], where seven terms of the series are enough
	p := 1 + f*(1+f*(1./2+f*(1./6+f*(1./24+f*(1./120+f*(1./720+f*(1./5040)))))))
	return p * math.Float64frombits(uint64(int64(n)+1023)<<52)
}
