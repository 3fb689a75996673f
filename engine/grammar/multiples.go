package grammar

// Multiples matches decimal digits, with a point and digits after it or
// without, whose value is a multiple of m/10^scale. It takes zeros in front,
// and no digits as 0; use And to have numbers as they are written. m and scale are small: there
// are m states for each digit after the point.
func (b *Builder) Multiples(m, scale int) Regex {
	for c := byte('0'); c <= '9'; c++ { // each digit is a byte class of its own
		b.pool.byteRange(c, c)
	}
	b.pool.byteRange('.', '.')
	return b.pool.multiple(0, int32(m), int32(scale), beforePoint)
}

const beforePoint = -1

// multiple is the node for the rest of a number: remainder is of the digits
// so far, place the number of digits after the point, or beforePoint.
func (p *pool) multiple(remainder, m, scale, place int32) Regex {
	r := int64(remainder) // as it is when the digits that are missing are 0
	for range scale - max(place, 0) {
		r = r * 10 % int64(m)
	}
	return p.node(nodeKey{kind: kindMultiple, a: remainder, b: m, min: scale, max: place}, r == 0 && place != 0)
}

// multipleAfter is what follows a byte of a number.
func (p *pool) multipleAfter(n node, class uint8) Regex {
	c, place := p.example[class], n.max
	switch {
	case c == '.' && place == beforePoint:
		return p.multiple(n.a, n.b, n.min, 0)
	case c < '0' || c > '9':
		return never
	case place >= n.min && place >= 0 && c != '0':
		return never
	case place >= n.min && place >= 0: // more zeros change nothing; but one digit must follow a point
		return p.multiple(n.a, n.b, n.min, max(place, 1))
	}
	if place >= 0 {
		place++
	}
	return p.multiple(int32((int64(n.a)*10+int64(c-'0'))%int64(n.b)), n.b, n.min, place)
}
