package ref

import "math"

// PeakLen is how many numbers share a peak.
const PeakLen = 512

// Peaks writes the largest of each PeakLen numbers of x to dst: −∞ where all are, +∞
// where one is NaN.
func Peaks(dst, x []float32) {
	for i := range dst {
		top := math.Inf(-1)
		for _, v := range x[i*PeakLen : min((i+1)*PeakLen, len(x))] {
			if v != v {
				v = float32(math.Inf(1))
			}
			top = math.Max(top, float64(v))
		}
		dst[i] = float32(top)
	}
}

// Weigh replaces x by exp((x−top)·scale) and gives their sum.
func Weigh(x []float32, top, scale float32) float32 {
	sum := 0.0
	for i, v := range x {
		x[i] = float32(math.Exp((float64(v) - float64(top)) * float64(scale)))
		sum += float64(x[i])
	}
	return float32(sum)
}
