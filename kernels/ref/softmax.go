package ref

import "math"

// Softmax replaces x by exp(x−max x)/Σ. A row whose entries are all −∞ or that
// holds NaN or +∞ gives NaN.
func Softmax(x []float32) { SoftmaxSink(x, float32(math.Inf(-1))) }

// SoftmaxSink is Softmax of x and of one more score, whose share is dropped.
func SoftmaxSink(x []float32, sink float32) {
	top := float64(sink)
	for _, v := range x {
		top = math.Max(top, float64(v))
	}
	sum := math.Exp(float64(sink) - top)
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	for i, v := range x {
		x[i] = float32(math.Exp(float64(v)-top) / sum)
	}
}
