package ref

import "math"

// SiLUMul computes dst[i] = gate[i]/(1+exp(−gate[i]))·up[i]. dst may be gate or up.
func SiLUMul(dst, gate, up []float32) {
	for i, v := range gate {
		g := float64(v)
		dst[i] = float32(g / (1 + math.Exp(-g)) * float64(up[i]))
	}
}

// GELUMul computes dst[i] = gelu(gate[i])·up[i] with the tanh form of gelu, where
// ½·(1+tanh z) is written as 1/(1+exp(−2z)): it keeps its precision for z far below
// 0. dst may be gate or up.
func GELUMul(dst, gate, up []float32) {
	for i, v := range gate {
		g := float64(v)
		z := math.Sqrt(2/math.Pi) * (g + 0.044715*g*g*g)
		dst[i] = float32(g / (1 + math.Exp(-2*z)) * float64(up[i]))
	}
}

// ClampedSiLUMul computes dst[i] = g/(1+exp(−1.702·g))·(u+1) with g = gate[i], at
// most limit, and u = up[i], within ±limit. dst may be gate or up.
func ClampedSiLUMul(dst, gate, up []float32, limit float32) {
	for i, v := range gate {
		g := math.Min(float64(v), float64(limit))
		u := math.Max(-float64(limit), math.Min(float64(up[i]), float64(limit)))
		dst[i] = float32(g / (1 + math.Exp(-1.702*g)) * (u + 1))
	}
}

// SoftCap replaces x[i] by limit·tanh(x[i]/limit).
func SoftCap(x []float32, limit float32) {
	for i, v := range x {
		x[i] = float32(float64(limit) * math.Tanh(float64(v)/float64(limit)))
	}
}
