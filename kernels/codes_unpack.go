package kernels

import (
	"encoding/binary"

	"github.com/forebay-io/forebay/kernels/ref"
)

// A function here unpacks a block of 256 columns of one row, whose layout package ref
// documents, eight columns at a time.

func halfAt(block []byte, at int) float32 {
	return ref.Half(binary.LittleEndian.Uint16(block[at:]))
}

func unpackIQ2_XXS(dst *[8]numbers, r int, block []byte) {
	r &= RowTile - 1
	codes, minus, d := &codeWords().iq2xxs, &evenMinuses, halfAt(block, 0)
	for b := range dst {
		n, w := &dst[b], word(block, 2+8*b)
		signs := w >> 32
		s := d * (0.5 + float32(int32(signs>>28))) * 0.25
		n.scale(r, s, s)
		n.put(0, r, withSigns(codes[w&255], minus[signs&127]))
		n.put(1, r, withSigns(codes[w>>8&255], minus[signs>>7&127]))
		n.put(2, r, withSigns(codes[w>>16&255], minus[signs>>14&127]))
		n.put(3, r, withSigns(codes[w>>24&255], minus[signs>>21&127]))
	}
}

// quarterScales are d·(½+s)/4 for the two nibbles of a byte.
func quarterScales(d float32, b byte) (first, second float32) {
	return d * (0.5 + float32(b&15)) * 0.25, d * (0.5 + float32(b>>4)) * 0.25
}

func unpackIQ2_XS(dst *[8]numbers, r int, block []byte) {
	r &= RowTile - 1
	codes, minus, d := &codeWords().iq2xs, &evenMinuses, halfAt(block, 0)
	for b := range dst {
		n, w := &dst[b], word(block, 2+8*b)
		first, second := quarterScales(d, block[66+b])
		n.scale(r, first, second)
		n.put(0, r, withSigns(codes[w&511], minus[w>>9&127]))
		n.put(1, r, withSigns(codes[w>>16&511], minus[w>>25&127]))
		n.put(2, r, withSigns(codes[w>>32&511], minus[w>>41&127]))
		n.put(3, r, withSigns(codes[w>>48&511], minus[w>>57]))
	}
}

func unpackIQ2_S(dst *[8]numbers, r int, block []byte) {
	r &= RowTile - 1
	codes, minus, d := &codeWords().iq2s, &minuses, halfAt(block, 0)
	for b := range dst {
		n, low, high := &dst[b], binary.LittleEndian.Uint32(block[2+4*b:]), uint32(block[66+b])
		signs := binary.LittleEndian.Uint32(block[34+4*b:])
		first, second := quarterScales(d, block[74+b])
		n.scale(r, first, second)
		n.put(0, r, withSigns(codes[low&255|high<<8&768], minus[signs&255]))
		n.put(1, r, withSigns(codes[low>>8&255|high<<6&768], minus[signs>>8&255]))
		n.put(2, r, withSigns(codes[low>>16&255|high<<4&768], minus[signs>>16&255]))
		n.put(3, r, withSigns(codes[low>>24|high<<2&768], minus[signs>>24]))
	}
}

func unpackIQ3_XXS(dst *[8]numbers, r int, block []byte) {
	r &= RowTile - 1
	codes, minus, d := &codeWords().iq3xxs, &evenMinuses, halfAt(block, 0)
	for b := range dst {
		n, w, signs := &dst[b], word(block, 2+8*b), binary.LittleEndian.Uint32(block[66+4*b:])
		s := d * (0.5 + float32(int32(signs>>28))) * 0.5
		n.scale(r, s, s)
		for i := range 4 {
			eight := uint64(codes[w&255]) | uint64(codes[w>>8&255])<<32
			n.put(i, r, withSigns(eight, minus[signs&127]))
			w, signs = w>>16, signs>>7
		}
	}
}

func unpackIQ3_S(dst *[8]numbers, r int, block []byte) {
	r &= RowTile - 1
	codes, minus, d := &codeWords().iq3s, &minuses, halfAt(block, 0)
	for b := range dst {
		n, w, high := &dst[b], word(block, 2+8*b), uint64(block[66+b])<<8
		signs := binary.LittleEndian.Uint32(block[74+4*b:])
		s := d * float32(1+2*int32(block[106+b/2]>>(b%2*4)&15))
		n.scale(r, s, s)
		for i := range 4 {
			eight := uint64(codes[w&255|high&256]) | uint64(codes[w>>8&255|high>>1&256])<<32
			n.put(i, r, withSigns(eight, minus[signs&255]))
			w, high, signs = w>>16, high>>2, signs>>8
		}
	}
}

// shiftOf is what a sign of δ adds to each byte of IQ1, whose numbers are eight times ref's: 1 or −1.
func shiftOf(sign uint32) uint64 {
	if sign != 0 {
		return ^uint64(eachByte - 1)
	}
	return eachByte
}

func unpackIQ1_S(dst *[8]numbers, r int, block []byte) {
	r &= RowTile - 1
	codes, d := &codeWords().iq1, halfAt(block, 0)
	for b := range dst {
		n, low := &dst[b], binary.LittleEndian.Uint32(block[2+4*b:])
		high := uint32(binary.LittleEndian.Uint16(block[34+2*b:]))
		s := d * float32(int32(2*(high>>12&7)+1)) * 0.125
		n.scale(r, s, s)
		shift := shiftOf(high >> 15)
		n.put(0, r, codes[low&255|high<<8&0x700]+shift)
		n.put(1, r, codes[low>>8&255|high<<5&0x700]+shift)
		n.put(2, r, codes[low>>16&255|high<<2&0x700]+shift)
		n.put(3, r, codes[low>>24|high>>1&0x700]+shift)
	}
}

func unpackIQ1_M(dst *[8]numbers, r int, block []byte) {
	r &= RowTile - 1
	codes, scales := &codeWords().iq1, word(block, 48)
	d := ref.Half(uint16(scales>>12&15 | scales>>24&0xf0 | scales>>36&0xf00 | scales>>48&0xf000))
	for b := range dst {
		n, low := &dst[b], binary.LittleEndian.Uint32(block[4*b:])
		high := uint32(binary.LittleEndian.Uint16(block[32+2*b:]))
		six := scales >> (b/2*16 + b%2*6)
		n.scale(r, d*float32(int32(2*(six&7)+1))*0.125, d*float32(int32(2*(six>>3&7)+1))*0.125)
		n.put(0, r, codes[low&255|high<<8&0x700]+shiftOf(high&8))
		n.put(1, r, codes[low>>8&255|high<<4&0x700]+shiftOf(high&0x80))
		n.put(2, r, codes[low>>16&255|high&0x700]+shiftOf(high&0x800))
		n.put(3, r, codes[low>>24|high>>4&0x700]+shiftOf(high&0x8000))
	}
}

// nextDigits takes the next digit in base 3 of each byte of w, which are fractions of 256.
func nextDigits(w *uint64) uint64 {
	const even = 0x00ff00ff00ff00ff
	a, b := *w&even*3, *w>>8&even*3
	*w = a&even | b&even<<8
	return a>>8&even | b&^even
}

// trits are the bytes of digits, whose numbers are one less.
func trits(digits uint64) uint64 { return digits + (bytesOver-1)*eachByte }

func unpackTQ1_0(dst *[8]numbers, r int, block []byte) {
	r &= RowTile - 1
	d := halfAt(block, 52)
	for b := range dst {
		dst[b].scale(r, d, d)
	}
	for i := range 4 {
		w := word(block, 8*i)
		for b := range 5 {
			dst[b].put(i, r, trits(nextDigits(&w)))
		}
	}
	for i := range 2 {
		w := word(block, 32+8*i)
		for k := range 5 { // from column 160 on, sixteen of a digit
			dst[5+k/2].put(k%2*2+i, r, trits(nextDigits(&w)))
		}
	}
	w := uint64(binary.LittleEndian.Uint32(block[48:]))
	for i := range 2 {
		first := nextDigits(&w)
		dst[7].put(2+i, r, trits(first|nextDigits(&w)<<32))
	}
}

func unpackTQ2_0(dst *[8]numbers, r int, block []byte) {
	r &= RowTile - 1
	d := halfAt(block, 64)
	for b := range dst {
		n := &dst[b]
		n.scale(r, d, d)
		for i := range 4 {
			n.put(i, r, trits(word(block, b/4*32+8*i)>>(b%4*2)&(3*eachByte)))
		}
	}
}
