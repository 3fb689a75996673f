package kernels

import "encoding/binary"

// The transposition of 16 rows, eight bytes of a row at a time: a block of 8×8 bytes in
// eight words is transposed by exchanging bytes, then 16 bits, then 32 bits.

// tileRows are the rows of a tile.
type tileRows [RowTile][]byte

func word(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// exchange swaps the upper part of each 2·shift bits of a with the lower part of b's.
func exchange(a, b uint64, shift int, mask uint64) (uint64, uint64) {
	t := (a>>shift ^ b) & mask
	return a ^ t<<shift, b ^ t
}

// layEight writes 8 columns of bytes, stride bytes apart: byte at+i of all rows at i·stride.
func layEight(dst []byte, stride int, rows *tileRows, at int) {
	const one, two, four = 0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0x00000000ffffffff
	for half := 0; half < RowTile; half += 8 {
		a, b, c, d := word(rows[half], at), word(rows[half+1], at), word(rows[half+2], at), word(rows[half+3], at)
		e, f, g, h := word(rows[half+4], at), word(rows[half+5], at), word(rows[half+6], at), word(rows[half+7], at)
		a, b = exchange(a, b, 8, one)
		c, d = exchange(c, d, 8, one)
		e, f = exchange(e, f, 8, one)
		g, h = exchange(g, h, 8, one)
		a, c = exchange(a, c, 16, two)
		b, d = exchange(b, d, 16, two)
		e, g = exchange(e, g, 16, two)
		f, h = exchange(f, h, 16, two)
		a, e = exchange(a, e, 32, four)
		b, f = exchange(b, f, 32, four)
		c, g = exchange(c, g, 32, four)
		d, h = exchange(d, h, 32, four)
		out := dst[half : 7*stride+half+8]
		binary.LittleEndian.PutUint64(out, a)
		binary.LittleEndian.PutUint64(out[stride:], b)
		binary.LittleEndian.PutUint64(out[2*stride:], c)
		binary.LittleEndian.PutUint64(out[3*stride:], d)
		binary.LittleEndian.PutUint64(out[4*stride:], e)
		binary.LittleEndian.PutUint64(out[5*stride:], f)
		binary.LittleEndian.PutUint64(out[6*stride:], g)
		binary.LittleEndian.PutUint64(out[7*stride:], h)
	}
}

// layBytes writes n bytes of each row, one at a time.
func layBytes(dst []byte, rows *tileRows, at, n int) {
	if n < 8 {
		for r, row := range rows {
			for i, b := range row[at : at+n] {
				dst[RowTile*i+r] = b
			}
		}
		return
	}
	for i := 0; i < n; i += 8 {
		i = min(i, n-8) // the last eight may overlap those before
		layEight(dst[RowTile*i:], RowTile, rows, at+i)
	}
}

// cacheLine is how many bytes of a row are read before the next row: where rows are a power
// of two apart, sixteen lines at once do not fit into the cache.
const cacheLine = 64

// layHalves writes n bytes of each row, two at a time.
func layHalves(dst []byte, rows *tileRows, at, n int) {
	const one, two = 0x0000ffff0000ffff, 0x00000000ffffffff
	words := n &^ 7
	for line := 0; line < words; line += cacheLine {
		for r := 0; r < RowTile; r += 4 {
			for i := line; i < min(line+cacheLine, words); i += 8 {
				a, b, c, d := word(rows[r], at+i), word(rows[r+1], at+i), word(rows[r+2], at+i), word(rows[r+3], at+i)
				a, b = exchange(a, b, 16, one)
				c, d = exchange(c, d, 16, one)
				a, c = exchange(a, c, 32, two)
				b, d = exchange(b, d, 32, two)
				out := dst[RowTile*i+2*r:][:6*RowTile+8]
				binary.LittleEndian.PutUint64(out, a)
				binary.LittleEndian.PutUint64(out[2*RowTile:], b)
				binary.LittleEndian.PutUint64(out[4*RowTile:], c)
				binary.LittleEndian.PutUint64(out[6*RowTile:], d)
			}
		}
	}
	for i := words; i < n; i += 2 {
		for r, row := range rows {
			binary.LittleEndian.PutUint16(dst[RowTile*i+2*r:], binary.LittleEndian.Uint16(row[at+i:]))
		}
	}
}

// layWords writes n bytes of each row, four at a time.
func layWords(dst []byte, rows *tileRows, at, n int) {
	words := n &^ 7
	for line := 0; line < words; line += cacheLine {
		for r := 0; r < RowTile; r += 2 {
			for i := line; i < min(line+cacheLine, words); i += 8 {
				a, b := exchange(word(rows[r], at+i), word(rows[r+1], at+i), 32, 0x00000000ffffffff)
				out := dst[RowTile*i+4*r:][:4*RowTile+8]
				binary.LittleEndian.PutUint64(out, a)
				binary.LittleEndian.PutUint64(out[4*RowTile:], b)
			}
		}
	}
	for i := words; i < n; i += 4 {
		for r, row := range rows {
			copy(dst[RowTile*i+4*r:][:4], row[at+i:])
		}
	}
}

// layAbove128 is layWords of signed bytes, to which it adds 128.
func layAbove128(dst []byte, rows *tileRows, at, n int) {
	layWords(dst, rows, at, n)
	for i := 0; i < RowTile*n; i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], word(dst, i)^0x8080808080808080)
	}
}

// layWordsPlanes lays out a word, whose bit j belongs to column j, and bytes, as layWords
// does. Behind them are the planes of eight groups of four columns, with four bits a row.
func layWordsPlanes(dst []byte, rows *tileRows, at, n int) {
	layWords(dst, rows, at+4, n-4)
	var planes [8]uint64
	for r, row := range rows {
		bits := binary.LittleEndian.Uint32(row[at:])
		for g := range planes {
			planes[g] |= uint64(bits>>(4*g)&15) << (4 * r)
		}
	}
	for g, plane := range planes {
		binary.LittleEndian.PutUint64(dst[RowTile*(n-4)+8*g:], plane)
	}
}

// layFives lays out such a word and 16 bytes of nibbles. The two planes of a byte's columns
// are behind it.
func layFives(dst []byte, rows *tileRows, at, _ int) {
	layEight(dst, 20, rows, at+4)
	layEight(dst[8*20:], 20, rows, at+12)
	layPlanes(dst[16:], 20, [4]int{0, 8 * 20, 2, 8*20 + 2}, rows, at)
}

// layThrees lays out such a word and 8 quads. A quad's four planes are behind it.
func layThrees(dst []byte, rows *tileRows, at, _ int) {
	layEight(dst, 24, rows, at+4)
	layPlanes(dst[16:], 24, [4]int{0, 2, 4, 6}, rows, at)
}

// laySixes lays out, for each j, the nibbles of the columns j and j+16, those of j+8 and
// j+24, and the quad of all four.
func laySixes(dst []byte, rows *tileRows, at, _ int) {
	for i := range 3 {
		layEight(dst[RowTile*i:], 3*RowTile, rows, at+8*i)
	}
}

// layPlanes writes a plane for each bit of the rows' words: that of bit 8b+i to
// first[b]+i·stride.
func layPlanes(dst []byte, stride int, first [4]int, rows *tileRows, at int) {
	for half := range 2 {
		two := func(r int) uint64 { // the words of two rows
			low, high := rows[8*half+r][at:], rows[8*half+r+4][at:]
			return uint64(binary.LittleEndian.Uint32(low)) | uint64(binary.LittleEndian.Uint32(high))<<32
		}
		a, b, c, d := two(0), two(1), two(2), two(3)
		a, b = exchange(a, b, 8, 0x00ff00ff00ff00ff)
		c, d = exchange(c, d, 8, 0x00ff00ff00ff00ff)
		a, c = exchange(a, c, 16, 0x0000ffff0000ffff)
		b, d = exchange(b, d, 16, 0x0000ffff0000ffff)
		for i, square := range [4]uint64{a, b, c, d} {
			square = transposeBits(square)
			out := dst[first[i]+half:][:7*stride+1]
			for c := range 8 {
				out[c*stride] = byte(square >> (8 * c))
			}
		}
	}
}

// transposeBits makes bit r of byte c from bit c of byte r.
func transposeBits(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00aa00aa00aa00aa
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000cccc0000cccc
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000f0f0f0f0
	return x ^ t ^ t<<28
}
