package kerneltest

import (
	"math"
	"testing"

	"github.com/forebay-io/forebay/kernels/ref"
)

// bu is half a unit in the last place of 1 in bfloat16.
const bu = 0x1p-9

// roundedError bounds the error that rounding to bfloat16 makes in an output, for values of at
// most 1 and scores whose terms sum to top. Rounding q and k changes a score by
// top·(2·bu+bu²), and so a weight by a factor of 1±wrong, its own rounding included. With
// such weights, and values that are off by bu, Σp·v/Σp is off by no more than this, since
// |v−out| ≤ 2.
func roundedError(top float64) float64 {
	wrong := math.Exp(top*(2*bu+bu*bu))*(1+bu) - 1
	if wrong >= 0.5 {
		return 2 // nothing is known
	}
	return bu + 2*wrong/(1-wrong)
}

// bfloat is x rounded to bfloat16.
func bfloat(x float32) float64 {
	b := math.Float32bits(x)
	return float64(math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff))
}

// cachedNumber is x as a page of halves holds it, rounded to bfloat16.
func cachedNumber(x float32) float64 { return bfloat(ref.Half(ref.ToHalf(x))) }

// roundedContextMax is how many positions a chunk of the softmax has. Weights are rounded
// relative to its largest score.
const roundedContextMax = 256

// compareRounded compares outputs with plain arithmetic on rounded numbers, with the tolerance
// that ref has without rounding. Where a weight is so close to the middle of two bfloat16
// numbers that float32 sums may fall to either side, both are allowed.
func (c *cache) compareRounded(t *testing.T, got []float32, from, context int) {
	t.Helper()
	dim := c.a.HeadDim
	for g := range c.a.Group {
		top := c.largestScore(g, from, context)
		slack := (64 + 8*top) * u
		weights, either, sum := c.roundedWeights(g, from, context, slack)
		for d := range dim {
			want, mass := 0.0, 0.0
			for i, p := range weights {
				v := cachedNumber(c.v[(from+i)*dim+d])
				want, mass = want+p*v/sum, math.Max(mass, math.Abs(v))
			}
			if i := g*dim + d; !near(got[i], float32(want), (slack+either/sum*2)*mass) {
				t.Fatalf("dim %d, group %d, [%d,%d): head %d [%d] is %v, rounded in plain arithmetic %v", dim, c.a.Group, from, context, g, d, got[i], want)
			}
		}
	}
}

// roundedWeights are p of head g and their sum with the sink's; either is the difference of p
// at the positions whose p may round either way. The context lies in one chunk.
func (c *cache) roundedWeights(g, from, context int, slack float64) (p []float64, either, sum float64) {
	dim := c.a.HeadDim
	most := math.Inf(-1)
	for pos := from; pos < context; pos++ {
		s := 0.0
		for j := range dim {
			s += bfloat(c.a.Q[g*dim+j]) * cachedNumber(c.k[pos*dim+j])
		}
		s *= float64(c.a.Scale)
		if c.a.SoftCap > 0 {
			s = float64(c.a.SoftCap) * math.Tanh(s/float64(c.a.SoftCap))
		}
		p, most = append(p, s), math.Max(most, s)
	}
	if c.a.Sinks != nil {
		sum = math.Exp(float64(c.a.Sinks[g]) - most)
	}
	for i, s := range p {
		e := math.Exp(s - most)
		p[i] = bfloat(float32(e))
		either += math.Abs(bfloat(float32(e*(1+slack))) - bfloat(float32(e*(1-slack))))
		sum += p[i]
	}
	return p, either, sum
}
