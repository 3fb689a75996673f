package ref

// Rotate turns the pairs of each head of x by angles: numbers i and i+len(angles)/2 of a head,
// or 2i and 2i+1 where neighbours is true, by the cos and sin at the same places in angles.
// The conversions keep a compiler from fusing a product with a sum.
func Rotate(x, angles []float32, headDim int, neighbours bool) {
	pairs := len(angles) / 2
	stride, apart := 1, pairs
	if neighbours {
		stride, apart = 2, 1
	}
	for ; len(x) > 0; x = x[headDim:] {
		for i := 0; i < pairs*stride; i += stride {
			a, b := x[i], x[i+apart]
			cos, sin := angles[i], angles[i+apart]
			x[i] = float32(a*cos) - float32(b*sin)
			x[i+apart] = float32(a*sin) + float32(b*cos)
		}
	}
}
