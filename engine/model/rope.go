package model

import "math"

// rope computes the angles by which kernels.Set.Rotate rotates heads. They are
// float64 until cos and sin are taken: float32 angles lose digits beyond a few
// thousand tokens.
type rope struct {
	speeds    []float64
	magnitude float64
	pairing   Pairing
}

func newRope(r *Rope, contextTokens int) rope {
	return rope{speeds: r.speedsFor(contextTokens), magnitude: float64(r.Magnitude), pairing: r.Pairing}
}

// angles fills dst with cos and sin for one position, in the order in which a
// head's pairs lie.
func (r *rope) angles(dst []float32, position int) {
	stride, apart := 2, 1
	if r.pairing == PairHalves {
		stride, apart = 1, len(r.speeds)
	}
	for i, speed := range r.speeds {
		sin, cos := math.Sincos(float64(position) * speed)
		dst[i*stride], dst[i*stride+apart] = float32(cos*r.magnitude), float32(sin*r.magnitude)
	}
}
