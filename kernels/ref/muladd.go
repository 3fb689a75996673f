package ref

// MulAdd computes dst[i] += x[i]·w[i].
func MulAdd(dst, x, w []float32) {
	for i, v := range x {
		dst[i] = float32(float64(dst[i]) + float64(v)*float64(w[i]))
	}
}
