package model

import "math"

// rope turns pairs of a head's dimensions. Angles are float64 until cos and sin
// are taken: float32 angles lose digits beyond a few thousand tokens.
type rope struct {
	speeds    []float64
	magnitude float64
	pairing   Pairing
	halfDims  int
}

func newRope(r *Rope, contextTokens int) rope {
	return rope{speeds: r.speedsFor(contextTokens), magnitude: float64(r.Magnitude), pairing: r.Pairing, halfDims: r.Dims / 2}
}

// angles fills dst with cos and sin by turns for one position.
func (r *rope) angles(dst []float32, position int) {
	for i, speed := range r.speeds {
		sin, cos := math.Sincos(float64(position) * speed)
		dst[2*i], dst[2*i+1] = float32(cos*r.magnitude), float32(sin*r.magnitude)
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
