package ref

import "math"

// SiLUMul computes dst[i] = gate[i]/(1+exp(−gate[i]))·up[i]. dst may be gate or up.
func SiLUMul(dst, gate, up []float32) {
	for i, v := range gate {
		g := float64(v)
		dst[i] = float32(g / (1 + math.Exp(-g)) * float64(up[i]))
	}
}
