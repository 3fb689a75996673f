package quant

// fit finds the scale d for which whole numbers q within [lo,hi] give x ≈ d·q with
// the least squared error. It tries scales around the one that gives the extreme
// number lo; each one's q then have a best scale of their own, (x·q)/(q·q). q and
// best are scratch of len(x).
func fit(x []float32, lo, hi int, q, best []int8) (d float32) {
	most := extreme(x)
	if most == 0 {
		return 0
	}
	gain := 0.0
	for step := -9; step <= 9; step++ {
		by := (float32(lo) - 0.1*float32(step)*sign(lo)) / most
		if by-by != 0 {
			return 0 // numbers too small for a scale
		}
		var xq, qq float64
		for i, v := range x {
			n := nearest(v*by, lo, hi)
			q[i] = int8(n)
			xq += float64(v) * float64(n)
			qq += float64(n) * float64(n)
		}
		// The error is Σx² − (x·q)²/(q·q).
		if qq > 0 && xq*xq > gain*qq {
			gain, d = xq*xq/qq, float32(xq/qq)
			copy(best, q)
		}
	}
	return d
}

func sign(n int) float32 {
	if n < 0 {
		return -1
	}
	return 1
}

// fitMin finds the scale d and the minimum m, both from 0 up, for which whole
// numbers q within [0,most] give x ≈ d·q − m with the least squared error.
func fitMin(x []float32, most int, q []uint8) (d, m float32) {
	low, high := min(x[0], 0), x[0]
	for _, v := range x {
		low, high = min(low, v), max(high, v)
	}
	if high <= low {
		return 0, -low
	}
	lowest := -1.0
	for step := -10; step <= 30; step++ {
		by := (float32(most) + 0.1*float32(step)) / (high - low)
		if by-by != 0 {
			return 0, -low
		}
		var sx, sq, sxq, sqq float64
		for i, v := range x {
			n := nearest((v-low)*by, 0, most)
			q[i] = uint8(n)
			sx, sq = sx+float64(v), sq+float64(n)
			sxq, sqq = sxq+float64(v)*float64(n), sqq+float64(n)*float64(n)
		}
		a, b := line(float64(len(x)), sx, sq, sxq, sqq)
		if wrong := misfit(x, q, a, b); lowest < 0 || wrong < lowest {
			lowest, d, m = wrong, float32(a), float32(-b)
		}
	}
	return d, m
}

// line is the least-squares line x ≈ a·q + b through n points of these sums, with b
// at most 0.
func line(n, sx, sq, sxq, sqq float64) (a, b float64) {
	if det := n*sqq - sq*sq; det > 0 {
		a, b = (n*sxq-sx*sq)/det, (sqq*sx-sq*sxq)/det
	}
	if b > 0 || a <= 0 {
		b = min(b, 0)
		if a = 0; sqq > 0 {
			a = max((sxq-b*sq)/sqq, 0)
		}
	}
	return a, b
}

func misfit(x []float32, q []uint8, a, b float64) float64 {
	sum := 0.0
	for i, v := range x {
		e := a*float64(q[i]) + b - float64(v)
		sum += e * e
	}
	return sum
}
