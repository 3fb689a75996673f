package ref

import "math"

// Softmax replaces x by exp(x−max x)/Σ. A row whose entries are all −∞ or that
// holds NaN or +∞ gives NaN.
func Softmax(x []float32) {
	top := math.Inf(-1)
	for _, v := range x {
		top = math.Max(top, float64(v))
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	for i, v := range x {
		x[i] = float32(math.Exp(float64(v)-top) / sum)
	}
}
