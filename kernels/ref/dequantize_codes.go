package ref

import (
	"encoding/binary"
	"math"
)

// This file has ggml's types whose bytes are codes of several numbers: codebooks.go has
// these. Products are rounded one by one, in ggml's order: scale, number, sign.

func dequantizeCodes(dst []float32, t uint32, block []byte) {
	switch t {
	case IQ2_XXS:
		dequantizeIQ2_XXS(dst, block)
	case IQ2_XS:
		dequantizeIQ2_XS(dst, block)
	case IQ2_S:
		dequantizeIQ2_S(dst, block)
	case IQ3_XXS:
		dequantizeIQ3_XXS(dst, block)
	case IQ3_S:
		dequantizeIQ3_S(dst, block)
	case IQ1_S:
		dequantizeIQ1_S(dst, block)
	case IQ1_M:
		dequantizeIQ1_M(dst, block)
	case TQ1_0:
		dequantizeTQ1_0(dst, block)
	case TQ2_0:
		dequantizeTQ2_0(dst, block)
	}
}

// EvenSigns completes seven sign bits with an eighth, so that the number of minus signs
// is even.
func EvenSigns(bits byte) byte {
	parity := bits ^ bits>>4
	parity ^= parity >> 2
	parity ^= parity >> 1
	return bits | parity<<7
}

// signed writes d·code with the signs of its numbers, a bit each.
func signed(dst []float32, d float32, code []int8, signs byte) {
	for j, x := range code {
		dst[j] = math.Float32frombits(math.Float32bits(d*float32(x)) ^ uint32(signs>>j&1)<<31)
	}
}

// dequantizeIQ2_XXS: half d; for every 32 elements four code bytes, and a word with four
// times seven sign bits and a scale s; w = d·(½+s)/4·code.
func dequantizeIQ2_XXS(dst []float32, block []byte) {
	d := half(block)
	for b := range 8 {
		codes := block[2+8*b:]
		word := binary.LittleEndian.Uint32(codes[4:])
		db := d * (0.5 + float32(word>>28)) * 0.25
		for i := range 4 {
			signed(dst[32*b+8*i:], db, iq2xxs[codes[i]][:], EvenSigns(byte(word>>(7*i))&127))
		}
	}
}

// dequantizeIQ2_XS: half d; for every 8 elements 16 bits, nine of a code and seven sign
// bits; for every 16 elements a nibble s; w = d·(½+s)/4·code.
func dequantizeIQ2_XS(dst []float32, block []byte) {
	d, scales := half(block), block[66:]
	for i := range 32 {
		code := binary.LittleEndian.Uint16(block[2+2*i:])
		db := d * (0.5 + float32(nibble(scales, i/2))) * 0.25
		signed(dst[8*i:], db, iq2xs[code&511][:], EvenSigns(byte(code>>9)))
	}
}

// nibble is nibble i of bytes, the low one of a byte first.
func nibble(bytes []byte, i int) byte { return bytes[i/2] >> (4 * (i % 2)) & 15 }

// dequantizeIQ2_S: half d; for every 8 elements the low byte of a code, then a byte of
// signs each, then two high bits each; for every 16 elements a nibble s; w = d·(½+s)/4·code.
func dequantizeIQ2_S(dst []float32, block []byte) {
	d, low, signs, high, scales := half(block), block[2:], block[34:], block[66:], block[74:]
	for i := range 32 {
		code := int(low[i]) | int(high[i/4]>>(2*(i%4))&3)<<8
		db := d * (0.5 + float32(nibble(scales, i/2))) * 0.25
		signed(dst[8*i:], db, iq2s[code][:], signs[i])
	}
}

// dequantizeIQ3_XXS: half d; for every 4 elements a code byte; for every 32 a word with four
// times seven sign bits and a scale s; w = d·(½+s)/2·code.
func dequantizeIQ3_XXS(dst []float32, block []byte) {
	d := half(block)
	for b := range 8 {
		codes, word := block[2+8*b:], binary.LittleEndian.Uint32(block[66+4*b:])
		db := d * (0.5 + float32(word>>28)) * 0.5
		for i := range 4 {
			signs := EvenSigns(byte(word>>(7*i)) & 127)
			signed(dst[32*b+8*i:], db, iq3xxs[codes[2*i]][:], signs)
			signed(dst[32*b+8*i+4:], db, iq3xxs[codes[2*i+1]][:], signs>>4)
		}
	}
}

// dequantizeIQ3_S: half d; for every 4 elements the low byte of a code, then a high bit each;
// for every 8 elements a byte of signs; for every 32 a nibble s; w = d·(1+2s)·code.
func dequantizeIQ3_S(dst []float32, block []byte) {
	d, low, high, signs, scales := half(block), block[2:], block[66:], block[74:], block[106:]
	for i := range 64 {
		code := int(low[i]) | int(high[i/8]>>(i%8)&1)<<8
		db := d * float32(1+2*int(nibble(scales, i/8)))
		signed(dst[4*i:], db, iq3s[code][:], signs[i/2]>>(4*(i%2)))
	}
}

// iq1Delta is what the types IQ1 add to their numbers, or take off.
const iq1Delta = 0.125

// moved writes d·(code±δ).
func moved(dst []float32, d, delta float32, code *[8]int8) {
	for j, x := range code {
		dst[j] = d * (float32(x) + delta)
	}
}

// dequantizeIQ1_S: half d; for every 8 elements the low byte of a code; for every 32 a word
// with three high bits each, a scale s of three bits and the sign of δ; w = d·(2s+1)·(code±δ).
func dequantizeIQ1_S(dst []float32, block []byte) {
	d, low := half(block), block[2:]
	for i := range 32 {
		word := binary.LittleEndian.Uint16(block[34+i/4*2:])
		dl, delta := d*float32(2*(word>>12&7)+1), float32(iq1Delta)
		if word&0x8000 != 0 {
			delta = -delta
		}
		moved(dst[8*i:], dl, delta, &iq1[int(low[i])|int(word>>(3*(i%4))&7)<<8])
	}
}

// dequantizeIQ1_M: for every 8 elements the low byte of a code, then a nibble each, with
// three high bits and the sign of δ; four words with four scales s of three bits each, one
// for every 16 elements, and four bits of the half d each; w = d·(2s+1)·(code±δ).
func dequantizeIQ1_M(dst []float32, block []byte) {
	low, high, scales := block, block[32:], block[48:]
	word := func(i int) uint16 { return binary.LittleEndian.Uint16(scales[2*i:]) }
	d := Half(word(0)>>12 | word(1)>>12<<4 | word(2)>>12<<8 | word(3)>>12<<12)
	for i := range 32 {
		s := word(i/8) >> (3 * (i / 2 % 4)) & 7
		h, delta := nibble(high, i), float32(iq1Delta)
		if h&8 != 0 {
			delta = -delta
		}
		moved(dst[8*i:], d*float32(2*s+1), delta, &iq1[int(low[i])|int(h&7)<<8])
	}
}

// powers3 bring a digit of a number in base 3 to its front, modulo 256.
var powers3 = [...]byte{1, 3, 9, 27, 81}

// dequantizeTQ1_0: bytes that are fractions of 256, with five digits in base 3 each: 32 bytes
// with the elements j, j+32, …, 16 bytes with the next ones in steps of 16, and four
// bytes, with four digits, in steps of 4; half d; w = d·(digit−1).
func dequantizeTQ1_0(dst []float32, block []byte) {
	d := half(block[52:])
	for _, part := range [...]struct{ from, bytes, digits int }{{0, 32, 5}, {32, 16, 5}, {48, 4, 4}} {
		for _, power := range powers3[:part.digits] {
			for j, b := range block[part.from:][:part.bytes] {
				dst[j] = d * float32(int(uint16(b*power)*3>>8)-1)
			}
			dst = dst[part.bytes:]
		}
	}
}

// dequantizeTQ2_0: 64 bytes of two bits q of four elements each, 32 apart; half d;
// w = d·(q−1).
func dequantizeTQ2_0(dst []float32, block []byte) {
	d := half(block[64:])
	for i := range dst {
		b := block[i/128*32+i%32]
		dst[i] = d * float32(int(b>>(2*(i/32%4))&3)-1)
	}
}
