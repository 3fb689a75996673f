package quant

// encodeQ4_K fits each sub-block of 32, rounds the scales and minima to 6 bits
// relative to the largest, and rounds the numbers with these scales.
func encodeQ4_K(dst []byte, x []float32) []byte {
	var scales, mins [8]float32
	var q [256]uint8
	for j := range scales {
		scales[j], mins[j] = fitMin(x[32*j:32*j+32], 15)
	}
	d, dmin := rounded(extreme(scales[:])/63), rounded(extreme(mins[:])/63)
	var s, m [8]byte
	for j := range scales {
		s[j] = byte(nearest(scales[j]*inverse(d), 0, 63))
		m[j] = byte(nearest(mins[j]*inverse(dmin), 0, 63))
		scale, min := d*float32(s[j]), dmin*float32(m[j])
		for i, v := range x[32*j : 32*j+32] {
			q[32*j+i] = uint8(nearest((v+min)*inverse(scale), 0, 15))
		}
	}
	dst = appendHalf(appendHalf(dst, d), dmin)
	dst = appendScales(dst, s, m)
	for c := 0; c < 256; c += 64 {
		for l := range 32 {
			dst = append(dst, q[c+l]|q[c+32+l]<<4)
		}
	}
	return dst
}

// appendScales packs eight scales and eight minima of 6 bits into 12 bytes, the
// layout that kernels/ref unpacks.
func appendScales(dst []byte, s, m [8]byte) []byte {
	for j := range 4 {
		dst = append(dst, s[j]|s[j+4]>>4<<6)
	}
	for j := range 4 {
		dst = append(dst, m[j]|m[j+4]>>4<<6)
	}
	for j := range 4 {
		dst = append(dst, s[j+4]&15|m[j+4]&15<<4)
	}
	return dst
}

// encodeQ6_K fits each sub-block of 16, rounds the scales to 8 bits relative to
// the largest, and rounds the numbers with these scales.
func encodeQ6_K(dst []byte, x []float32) []byte {
	var scales [16]float32
	for j := range scales {
		scales[j] = fit(x[16*j:16*j+16], -32, 31)
	}
	d := rounded(-extreme(scales[:]) / 128)
	var s [16]int8
	var q [256]uint8
	for j := range scales {
		s[j] = int8(nearest(scales[j]*inverse(d), -128, 127))
		by := inverse(d * float32(s[j]))
		for i, v := range x[16*j : 16*j+16] {
			q[16*j+i] = uint8(nearest(v*by, -32, 31) + 32)
		}
	}
	for h := 0; h < 256; h += 128 {
		for l := range 64 {
			dst = append(dst, q[h+l]&15|q[h+64+l]&15<<4)
		}
	}
	for h := 0; h < 256; h += 128 {
		for l := range 32 {
			dst = append(dst, q[h+l]>>4|q[h+32+l]>>4<<2|q[h+64+l]>>4<<4|q[h+96+l]>>4<<6)
		}
	}
	for _, scale := range s {
		dst = append(dst, byte(scale))
	}
	return appendHalf(dst, d)
}
