package model

import (
	"fmt"
	"math"

	"github.com/forebay-io/forebay/kernels"
)

// Rope rotates pairs of a head's first Dims dimensions by angles that grow with
// the position (Su et al., RoFormer, 2021).
type Rope struct {
	Dims    int // even, at most HeadDim
	Pairing Pairing
	Speeds  []float64 // radians a position, for each of the Dims/2 pairs
	// LongSpeeds replace Speeds in contexts of more than OriginalTokens; nil
	// never does. A context keeps to one of them, since stored keys are rotated by it.
	LongSpeeds     []float64
	OriginalTokens int
	Magnitude      float32 // multiplies the rotated numbers, in queries and in keys
}

// Pairing says which two dimensions are rotated together.
type Pairing int

const (
	PairNeighbours Pairing = iota // 2i and 2i+1
	PairHalves                    // i and i+Dims/2
)

// speedsFor is the speeds for a context of contextTokens.
func (r *Rope) speedsFor(contextTokens int) []float64 {
	if r.LongSpeeds != nil && contextTokens > r.OriginalTokens {
		return r.LongSpeeds
	}
	return r.Speeds
}

// speeds is θ^(−2i/dims).
func speeds(theta float64, dims int) []float64 {
	s := make([]float64, dims/2)
	for i := range s {
		s[i] = math.Pow(theta, -float64(2*i)/float64(dims))
	}
	return s
}

// ropeKind is what no key says of an architecture's rope.
type ropeKind struct {
	pairing   Pairing
	theta     float64 // where the key is absent; 0 means 10000
	exactRamp bool    // YaRN's ramp begins and ends between two dimensions
	long      bool    // there are two sets of factors, for short and long contexts
}

// readRope reads rope.* into c.Ropes[0].
func (k *keys) readRope(c *Config, kind ropeKind) {
	if kind.theta == 0 {
		kind.theta = 10000
	}
	r := Rope{Pairing: kind.pairing, Magnitude: 1}
	r.Dims = k.sizeOr("rope.dimension_count", c.HeadDim)
	theta := k.theta("rope.freq_base", kind.theta)
	if r.Dims > c.HeadDim || r.Dims%2 != 0 {
		k.fail("rope.dimension_count", "is %d; allowed are even numbers to the head's length of %d", r.Dims, c.HeadDim)
	}
	if k.err != nil {
		return
	}
	r.Speeds = speeds(theta, r.Dims)
	r.OriginalTokens = k.sizeOr("rope.scaling.original_context_length", c.ContextTokens)
	factor := k.numberOr("rope.scaling.factor", k.numberOr("rope.scale_linear", 1))
	if factor == 0 { // so some makers write that there is none
		factor = 1
	}
	if !(factor > 0 && factor <= 1e6) {
		k.fail("rope.scaling.factor", "is %g; allowed are numbers over 0 to 1e6", factor)
	}
	switch scaling := k.textOr("rope.scaling.type", "linear"); scaling {
	case "none":
	case "linear", "longrope":
		if scaling == "longrope" && !kind.long {
			k.fail("rope.scaling.type", "is \"longrope\", which is not supported in architecture %s", c.Architecture)
		}
		if scaling == "linear" {
			divide(r.Speeds, factor)
		}
	case "yarn":
		if _, two := k.file.Tensor(longFactors); two {
			k.fail("rope.scaling.type", "is \"yarn\" beside the tensor %s; only one scaling is supported", longFactors)
		}
		k.yarn(&r, theta, factor, kind.exactRamp)
	default:
		k.fail("rope.scaling.type", "is %s; supported: none, linear, yarn, longrope", k.file.Text(k.prefix+"rope.scaling.type"))
	}
	if kind.long {
		k.readLongRope(&r)
	} else {
		k.divideByTensor(r.Speeds, "rope_freqs.weight")
	}
	r.Magnitude *= k.scale("rope.scaling.attn_factor", 1)
	c.Ropes = []Rope{r}
}

func divide(speeds []float64, by float64) {
	for i := range speeds {
		speeds[i] /= by
	}
}

// yarn mixes slowed and plain speeds (Peng et al., YaRN, 2023, section 3.2). Pairs
// that rotate more than betaFast times within the original context keep their
// speed; pairs below betaSlow are slowed by factor; a ramp lies between. Its
// borders are rounded outwards to whole pairs, unless exact.
func (k *keys) yarn(r *Rope, theta, factor float64, exact bool) {
	betaFast := k.numberOr("rope.scaling.yarn_beta_fast", 32)
	betaSlow := k.numberOr("rope.scaling.yarn_beta_slow", 1)
	k.only("rope.scaling.yarn_ext_factor", 1)
	if !(betaFast > 0 && betaSlow > 0 && betaFast+betaSlow < math.MaxFloat32) || theta <= 1 {
		k.fail("rope.scaling.yarn_beta_fast", "and slow are %g and %g with a base of %g; the first two must be over 0, the base over 1", betaFast, betaSlow, theta)
		return
	}
	pair := func(turns float64) float64 {
		return float64(r.Dims) * math.Log(float64(r.OriginalTokens)/(turns*2*math.Pi)) / (2 * math.Log(theta))
	}
	low, high := pair(betaFast), pair(betaSlow)
	if !exact {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(r.Dims-1))
	if low == high {
		high += 0.001
	}
	for i, s := range r.Speeds {
		slowed := min(max((float64(i)-low)/(high-low), 0), 1)
		r.Speeds[i] = s*(1-slowed) + s/factor*slowed
	}
	// Some models remove a part of the magnitude again (mscale_all_dim).
	part := k.numberOr("rope.scaling.yarn_log_multiplier", 0)
	if !(part >= 0 && part <= 1e3) {
		k.fail("rope.scaling.yarn_log_multiplier", "is %g; allowed are numbers from 0 to 1000", part)
	}
	magnitude := float32(1)
	if factor > 1 {
		magnitude = float32((0.1*math.Log(factor) + 1) / (0.1*part*math.Log(factor) + 1))
	}
	r.Magnitude = k.scale("rope.scaling.yarn_attn_factor", magnitude)
}

// readLongRope reads phi-3's two sets of factors.
func (k *keys) readLongRope(r *Rope) {
	_, hasLong := k.file.Tensor(longFactors)
	_, hasShort := k.file.Tensor(shortFactors)
	if hasLong != hasShort {
		k.keep(fmt.Errorf("%s: of the tensors %s and %s only one is there", k.file.Name(), longFactors, shortFactors))
	}
	if !hasLong {
		return
	}
	r.LongSpeeds = append([]float64(nil), r.Speeds...)
	k.divideByTensor(r.LongSpeeds, longFactors)
	k.divideByTensor(r.Speeds, shortFactors)
}

const (
	longFactors  = "rope_factors_long.weight"
	shortFactors = "rope_factors_short.weight"
)

// divideByTensor divides speeds by the factors in a tensor, if the file has it.
func (k *keys) divideByTensor(speeds []float64, name string) {
	t, ok := k.file.Tensor(name)
	if !ok || k.err != nil {
		return
	}
	k.tensors = append(k.tensors, name)
	if t.Type != kernels.F32 && t.Type != kernels.F16 || len(t.Dims) != 1 || t.Dims[0] != len(speeds) {
		k.keep(fmt.Errorf("%s: tensor %s is %s %v; needed is F32 or F16 [%d]", k.file.Name(), t.Name, t.Type, t.Dims, len(speeds)))
		return
	}
	factors := make([]float32, len(speeds))
	kernels.Dequantize(factors, t.Type, t.Bytes())
	for i, x := range factors {
		if !(x > 0) || math.IsInf(float64(x), 0) {
			k.keep(fmt.Errorf("%s: tensor %s: element %d is %g; factors are over 0", k.file.Name(), t.Name, i, x))
		}
		speeds[i] /= float64(x)
	}
}
