package ref

// Fold computes, for each row i of state, state[i,:] = decay·state[i,:] + a[i]·b, and
// out = Σ_i c[i]·state[i,:] of the new rows, which are len(out) numbers long.
func Fold(state []float32, decay float32, a, b, c, out []float32) {
	cols := len(out)
	for j := range out {
		sum := 0.0
		for i := range a {
			s := float32(float64(decay)*float64(state[i*cols+j]) + float64(a[i])*float64(b[j]))
			state[i*cols+j] = s
			sum += float64(c[i]) * float64(s)
		}
		out[j] = float32(sum)
	}
}
