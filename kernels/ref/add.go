package ref

// Add computes dst[i] += x[i].
func Add(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}
