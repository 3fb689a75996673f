package model

import "math"

// rope turns pairs of a head's dimensions by angles that grow with position.
// Angles are float64 until cos and sin are taken: float32 angles lose digits
// beyond a few thousand tokens.
type rope struct {
	speeds   []float64 // radians a position, for each pair
	pairing  Pairing
	halfDims int
}

func newRope(c *Config) rope {
	r := rope{speeds: make([]float64, c.RopeDims/2), pairing: c.RopePairing, halfDims: c.RopeDims / 2}
	for i := range r.speeds {
		r.speeds[i] = math.Pow(c.RopeTheta, -float64(2*i)/float64(c.RopeDims))
		if c.RopeFactors != nil {
			r.speeds[i] /= float64(c.RopeFactors[i])
		}
	}
	return r
}

// angles fills dst with cos and sin by turns for one position.
func (r *rope) angles(dst []float32, position int) {
	for i, speed := range r.speeds {
		sin, cos := math.Sincos(float64(position) * speed)
		dst[2*i], dst[2*i+1] = float32(cos), float32(sin)
	}
}

// rotate turns each head of x by angles; heads are headDim long.
func (r *rope) rotate(x, angles []float32, headDim int) {
	stride, apart := 2, 1
	if r.pairing == PairHalves {
		stride, apart = 1, r.halfDims
	}
	for ; len(x) >= headDim; x = x[headDim:] {
		for i := range r.halfDims {
			a, b := x[i*stride], x[i*stride+apart]
			cos, sin := angles[2*i], angles[2*i+1]
			x[i*stride] = a*cos - b*sin
			x[i*stride+apart] = a*sin + b*cos
		}
	}
}
