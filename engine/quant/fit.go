package quant

// fit finds the scale d and integers q in [lo,hi] with the least squared error of
// x ≈ d·q. It tries scales around the one that maps the extreme number to lo. For
// the q of each try, the best scale is (x·q)/(q·q).
func fit(x []float32, lo, hi int) (d float32) {
	most := extreme(x)
	if most == 0 {
		return 0
	}
	gain := 0.0
	for step := -9; step <= 9; step++ {
		by := (float32(lo) - 0.1*float32(step)) / most
		if by-by != 0 {
			return 0 // the numbers are too small for a scale
		}
		var xq float32
		qq := 0
		for _, v := range x {
			n := nearest(v*by, lo, hi)
			xq += v * float32(n)
			qq += n * n
		}
		// The error is Σx² − (x·q)²/(q·q).
		if better := float64(xq) * float64(xq); qq > 0 && better > gain*float64(qq) {
			gain, d = better/float64(qq), xq/float32(qq)
		}
	}
	return d
}

// fitMin finds the scale d ≥ 0, the minimum m ≥ 0 and integers q in [0,most] with
// the least squared error of x ≈ d·q − m.
func fitMin(x []float32, most int) (d, m float32) {
	low, high := min(x[0], 0), x[0]
	var sx, sxx float64
	for _, v := range x {
		low, high = min(low, v), max(high, v)
		sx, sxx = sx+float64(v), sxx+float64(v)*float64(v)
	}
	if high <= low {
		return 0, -low
	}
	lowest := -1.0
	for step := -10; step <= 20; step++ {
		by := (float32(most) + 0.1*float32(step)) / (high - low)
		if by-by != 0 {
			return 0, -low
		}
		var product float32
		sum, squares := 0, 0
		for _, v := range x {
			n := nearest((v-low)*by, 0, most)
			product += v * float32(n)
			sum, squares = sum+n, squares+n*n
		}
		n, sq, sqq, sxq := float64(len(x)), float64(sum), float64(squares), float64(product)
		a, b := line(n, sx, sq, sxq, sqq)
		// Σ(a·q + b − x)²
		wrong := a*a*sqq + n*b*b + sxx + 2*(a*b*sq-a*sxq-b*sx)
		if lowest < 0 || wrong < lowest {
			lowest, d, m = max(wrong, 0), float32(a), float32(-b)
		}
	}
	return d, m
}

// line returns the least-squares line x ≈ a·q + b, with b at most 0, for n points
// with these sums.
func line(n, sx, sq, sxq, sqq float64) (a, b float64) {
	if det := n*sqq - sq*sq; det > 0 {
		a, b = (n*sxq-sx*sq)/det, (sqq*sx-sq*sxq)/det
	}
	if a <= 0 { // a flat line: the minimum alone fits numbers below 0 best
		a, b = 0, min(sx/n, 0)
	}
	if b >= 0 {
		a, b = 0, 0
		if sqq > 0 {
			a = max(sxq/sqq, 0)
		}
	}
	return a, b
}
