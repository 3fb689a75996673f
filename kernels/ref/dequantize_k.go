package ref

import "encoding/binary"

// The types in super-blocks of 256 elements. Each has scales of its sub-blocks,
// which are 16 or 32 elements, as small integers, and the scales' own scale.

// dequantizeQ2_K: 16 bytes, each a scale (low nibble) and a minimum (high); 64
// bytes of 2-bit q; half d, half dmin. w = d·scale·q − dmin·minimum.
//
// Sub-blocks are 16 elements. Each half of 128 elements has 32 bytes, whose bit
// pairs 0, 1, 2, 3 hold the elements l, l+32, l+64 and l+96.
func dequantizeQ2_K(dst []float32, block []byte) {
	scales, q := block[:16], block[16:80]
	d, dmin := half(block[80:]), half(block[82:])
	for i := range dst {
		s := scales[i/16]
		pair := q[i/128*32+i%32] >> (i / 32 % 4 * 2) & 3
		dst[i] = float32(float32(d*float32(s&15))*float32(pair)) - float32(dmin*float32(s>>4))
	}
}

// dequantizeQ3_K: 32 bytes of high bits, 64 bytes of low 2 bits as in Q2_K, 12
// bytes of 6-bit scales, half d. w = d·(scale−32)·q with q from −4 to 3: a high
// bit that is clear takes 4 away. Bit i/32 of high byte i%32 is element i's.
func dequantizeQ3_K(dst []float32, block []byte) {
	high, low, packed := block[:32], block[32:96], block[96:108]
	d := half(block[108:])
	var scales [16]float32
	for i := range scales {
		scales[i] = float32(d * float32(ScaleQ3_K(packed, i)))
	}
	for i := range dst {
		q := int(low[i/128*32+i%32] >> (i / 32 % 4 * 2) & 3)
		if high[i%32]>>(i/32)&1 == 0 {
			q -= 4
		}
		dst[i] = scales[i/16] * float32(q)
	}
}

// ScaleQ3_K takes the scale of sub-block i out of 12 bytes: its low nibble is in
// the first eight, its high two bits in the others.
func ScaleQ3_K(packed []byte, i int) int8 {
	nibble := packed[i%8] >> (i / 8 * 4) & 15
	return int8(nibble|packed[8+i%4]>>(i/4*2)&3<<4) - 32
}

// ScaleMin takes scale and minimum of sub-block j out of the 12 bytes of 6-bit
// numbers that Q4_K and Q5_K have.
func ScaleMin(packed []byte, j int) (scale, min byte) {
	if j < 4 {
		return packed[j] & 63, packed[j+4] & 63
	}
	return packed[j+4]&15 | packed[j-4]>>6<<4, packed[j+4]>>4 | packed[j]>>6<<4
}

// dequantizeQ4_K: half d, half dmin; 12 bytes of scales and minima; 128 bytes of
// nibbles. w = d·scale·q − dmin·minimum. Sub-blocks are 32 elements; the 32 bytes
// of a pair hold the first one's q in their low nibbles and the second's in the high.
func dequantizeQ4_K(dst []float32, block []byte) {
	d, dmin := half(block), half(block[2:])
	for j := range 8 {
		scale, min := ScaleMin(block[4:16], j)
		ds, dm := float32(d*float32(scale)), float32(dmin*float32(min))
		for l, b := range block[16+j/2*32:][:32] {
			dst[32*j+l] = float32(ds*float32(b>>(j%2*4)&15)) - dm
		}
	}
}

// dequantizeQ5_K is Q4_K with 32 bytes of high bits before the nibbles: bit j of
// byte l is bit 4 of element l of sub-block j.
func dequantizeQ5_K(dst []float32, block []byte) {
	d, dmin := half(block), half(block[2:])
	for j := range 8 {
		scale, min := ScaleMin(block[4:16], j)
		ds, dm := float32(d*float32(scale)), float32(dmin*float32(min))
		for l, b := range block[48+j/2*32:][:32] {
			q := b>>(j%2*4)&15 | block[16+l]>>j&1<<4
			dst[32*j+l] = float32(ds*float32(q)) - dm
		}
	}
}

// dequantizeQ6_K: 128 bytes of low nibbles, 64 bytes of high 2 bits, 16 signed
// bytes of scales, half d. w = d·scale·(q−32). Sub-blocks are 16 elements. Each
// half of 128 elements has 64 low and 32 high bytes: element l+32·k has bits 2k
// and 2k+1 of high byte l, and the low or, from k = 2 on, the high nibble of low
// byte l + 32·(k mod 2).
func dequantizeQ6_K(dst []float32, block []byte) {
	low, high, scales := block[:128], block[128:192], block[192:208]
	d := half(block[208:])
	for i := range dst {
		h, k, l := i/128, i/32%4, i%32
		q := low[64*h+32*(k%2)+l]>>(k/2*4)&15 | high[32*h+l]>>(2*k)&3<<4
		dst[i] = float32(d*float32(int8(scales[i/16]))) * float32(int(q)-32)
	}
}

// dequantizeIQ4_XS: half d; a word with the high 2 bits of eight 6-bit scales, 4
// bytes with their low nibbles; eight blocks of nibbles. w = d·(scale−32)·iq4[n].
func dequantizeIQ4_XS(dst []float32, block []byte) {
	d := half(block)
	for j := range 8 {
		nibbles(dst[32*j:32*j+32], block[8+16*j:][:16], float32(d*float32(ScaleIQ4_XS(block, j))), &iq4)
	}
}

// ScaleIQ4_XS takes the scale of sub-block j out of a block.
func ScaleIQ4_XS(block []byte, j int) int8 {
	high := binary.LittleEndian.Uint16(block[2:])
	return int8(block[4+j/2]>>(j%2*4)&15|byte(high>>(2*j)&3)<<4) - 32
}
