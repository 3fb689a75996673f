package ref

// Dot gives Σ a[i]·b[i] over len(a). Each product of two float32 is exact in float64.
func Dot(a, b []float32) float64 {
	sum := 0.0
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}
