package ref

import "math"

// RMSNorm computes dst[i] = x[i]·weight[i]/√(mean(x²)+eps). dst may be x.
func RMSNorm(dst, x, weight []float32, eps float32) {
	scale := 1 / math.Sqrt(Dot(x, x)/float64(len(x))+float64(eps))
	for i, v := range x {
		dst[i] = float32(float64(v) * scale * float64(weight[i]))
	}
}
