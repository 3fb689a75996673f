package kernels

import (
	"encoding/binary"
	"math"

	"github.com/forebay-io/forebay/kernels/ref"
)

// image is how a type lies in the tiles of the vector sets: bytes for each row of
// every columns, and how a stored block becomes them.
type image struct {
	columns, bytes int
	pack           func(l lane, block []byte)
}

// images has the types that are stored in blocks. An image takes no more than 6 %
// over what is stored.
var images = map[Type]image{
	Q8_0: {32, 34, packBytes}, Q4_0: {32, 18, packBytes}, IQ4_NL: {32, 18, packBytes},
	Q4_1: {32, 20, packQ4_1}, Q5_0: {32, 22, packQ5_0}, Q5_1: {32, 24, packQ5_1}, MXFP4: {32, 18, packMXFP4},
	Q2_K: {256, 84, packQ2_K}, Q3_K: {256, 114, packQ3_K}, Q4_K: {256, 148, packQ4_K}, Q5_K: {256, 180, packQ5_K},
	Q6_K: {256, 210, packQ6_K}, IQ4_XS: {256, 138, packIQ4_XS},
}

// imageBytes is the size of a row of n elements in the tiles.
func imageBytes(t Type, n int) int {
	if im, ok := images[t]; ok {
		return n / im.columns * im.bytes
	}
	return t.Bytes(n)
}

// packTiles lays a matrix out in tiles of RowTile rows for the vector sets. A
// lane of a vector is a row, so the rows' values for one column lie side by side
// and one output never crosses lanes:
//
//	F32, F16, BF16:   column 0 of rows 0–15 │ column 1 of rows 0–15 │ …
//
//	types in blocks:  scales of rows 0–15 │ minima of rows 0–15 │ elements of rows 0–15, column by column
//	                  then the next 32 columns of the same 16 rows
//
//	super-blocks:     d of rows 0–15 │ dmin of rows 0–15 │ eight such blocks, whose scales and minima are bytes
//
// Elements of less than a byte share bytes, always within one row: a byte has the
// nibbles of the columns j and j+16 of its block (pairs), or two bits of each of j,
// j+8, j+16 and j+24 (quads). What is left of an element is a bit in a plane: 16
// bits, one of each row, behind the bytes of its columns.
func packTiles(t Type, rows, cols int, raw []byte) *Matrix {
	checkPack(t, rows, cols, raw)
	rowBytes, packedBytes := t.Bytes(cols), imageBytes(t, cols)
	tiles := (rows + RowTile - 1) / RowTile
	m := &Matrix{Type: t, Rows: rows, Cols: cols, Data: make([]byte, tiles*RowTile*packedBytes)}
	im, inBlocks := images[t]
	for r := range rows {
		tile := m.Data[r/RowTile*RowTile*packedBytes:][:RowTile*packedBytes]
		row := raw[r*rowBytes:][:rowBytes]
		if !inBlocks {
			lane{tile, r % RowTile}.spread(0, row, t.BlockBytes())
			continue
		}
		for block := t.BlockBytes(); len(row) > 0; row, tile = row[block:], tile[RowTile*im.bytes:] {
			im.pack(lane{tile, r % RowTile}, row[:block])
		}
	}
	return m
}

// lane is one row's place in a tile, or in a block of it.
type lane struct {
	tile []byte
	row  int
}

// from is the lane from at on, counted in bytes of one row.
func (l lane) from(at int) lane { return lane{l.tile[RowTile*at:], l.row} }

// spread puts the elements of src, size bytes each, RowTile elements apart.
func (l lane) spread(at int, src []byte, size int) {
	dst := l.tile[RowTile*at+l.row*size:]
	switch size {
	case 1:
		for i, b := range src {
			dst[RowTile*i] = b
		}
	case 2:
		for i := 0; i < len(src); i += 2 {
			binary.LittleEndian.PutUint16(dst[RowTile*i:], binary.LittleEndian.Uint16(src[i:]))
		}
	case 4:
		for i := 0; i < len(src); i += 4 {
			binary.LittleEndian.PutUint32(dst[RowTile*i:], binary.LittleEndian.Uint32(src[i:]))
		}
	}
}

// put writes a byte that stands alone.
func (l lane) put(at int, b byte) { l.tile[RowTile*at+l.row] = b }

// plane sets the row's bit in the 16 bits at byte at of the tile.
func (l lane) plane(at int, bit byte) { l.tile[at+l.row/8] |= bit & 1 << (l.row % 8) }

// packBytes: a half, then bytes that are pairs already, or elements.
func packBytes(l lane, block []byte) {
	l.spread(0, block[:2], 2)
	l.spread(2, block[2:], 1)
}

func packQ4_1(l lane, block []byte) {
	l.spread(0, block[:4], 2)
	l.spread(4, block[4:], 1)
}

func packQ5_0(l lane, block []byte) {
	l.spread(0, block[:2], 2)
	l.from(2).fives(block[6:], binary.LittleEndian.Uint32(block[2:]))
}

func packQ5_1(l lane, block []byte) {
	l.spread(0, block[:4], 2)
	l.from(4).fives(block[8:], binary.LittleEndian.Uint32(block[4:]))
}

// fives writes 16 pairs, each with its planes: bit i of high is element i's.
func (l lane) fives(pairs []byte, high uint32) {
	for j, b := range pairs[:16] {
		at := 20 * j
		l.tile[at+l.row] = b
		l.plane(at+16, byte(high>>j))
		l.plane(at+18, byte(high>>(j+16)))
	}
}

// packMXFP4 writes half the scale as bfloat16, which has it exactly, for a table
// of doubled numbers.
func packMXFP4(l lane, block []byte) {
	bits := math.Float32bits(ref.HalfPower(block[0])) >> 16
	l.spread(0, []byte{byte(bits), byte(bits >> 8)}, 2)
	l.spread(2, block[1:], 1)
}

// packQ2_K: the bytes of scale and minimum stay as they are. Sub-blocks of a block
// of 32 are its halves.
func packQ2_K(l lane, block []byte) {
	l.spread(0, block[80:84], 2)
	for b := range 8 {
		at := 4 + 10*b
		l.spread(at, block[2*b:2*b+2], 1)
		low := block[16+b/4*32:][:32]
		for j := range 8 {
			l.put(at+2+j, quad(low, j, b%4*2))
		}
	}
}

// quad takes the bit pairs of the columns j, j+8, j+16 and j+24 together.
func quad(bytes []byte, j, shift int) byte {
	return bytes[j]>>shift&3 | bytes[j+8]>>shift&3<<2 | bytes[j+16]>>shift&3<<4 | bytes[j+24]>>shift&3<<6
}

func packQ3_K(l lane, block []byte) {
	l.spread(0, block[108:110], 2)
	for b := range 8 {
		at := 2 + 14*b
		for h := range 2 {
			l.put(at+h, byte(ref.ScaleQ3_K(block[96:108], 2*b+h)))
		}
		high, low := block[:32], block[32+b/4*32:][:32]
		for j := range 8 {
			turn := l.from(at + 2).tile[24*j:]
			turn[l.row] = quad(low, j, b%4*2)
			for i := range 4 {
				lane{turn, l.row}.plane(16+2*i, high[j+8*i]>>b)
			}
		}
	}
}

// pair is a byte with the nibbles of the columns j and j+16 of a block, whose
// nibbles are the low or the high ones of 32 bytes.
func pair(bytes []byte, j, shift int) byte {
	return bytes[j]>>shift&15 | bytes[j+16]>>shift&15<<4
}

func packQ4_K(l lane, block []byte) {
	l.spread(0, block[:4], 2)
	for b := range 8 {
		at := 4 + 18*b
		scale, min := ref.ScaleMin(block[4:16], b)
		l.put(at, scale)
		l.put(at+1, min)
		nibbles := block[16+b/2*32:][:32]
		for j := range 16 {
			l.put(at+2+j, pair(nibbles, j, b%2*4))
		}
	}
}

func packQ5_K(l lane, block []byte) {
	l.spread(0, block[:4], 2)
	for b := range 8 {
		at := 4 + 22*b
		scale, min := ref.ScaleMin(block[4:16], b)
		l.put(at, scale)
		l.put(at+1, min)
		nibbles := block[48+b/2*32:][:32]
		var pairs [16]byte
		var high uint32
		for j := range pairs {
			pairs[j] = pair(nibbles, j, b%2*4)
		}
		for j, h := range block[16:48] {
			high |= uint32(h>>b&1) << j
		}
		l.from(at+2).fives(pairs[:], high)
	}
}

func packQ6_K(l lane, block []byte) {
	l.spread(0, block[208:210], 2)
	for b := range 8 {
		at := 2 + 26*b
		l.spread(at, block[192+2*b:][:2], 1)
		low, high := block[b/4*64+b%2*32:][:32], block[128+b/4*32:][:32]
		for j := range 8 {
			l.put(at+2+3*j, pair(low, j, b/2%2*4))
			l.put(at+3+3*j, pair(low, j+8, b/2%2*4))
			l.put(at+4+3*j, quad(high, j, b%4*2))
		}
	}
}

func packIQ4_XS(l lane, block []byte) {
	l.spread(0, block[:2], 2)
	for b := range 8 {
		at := 2 + 17*b
		l.put(at, byte(ref.ScaleIQ4_XS(block, b)))
		l.spread(at+1, block[8+16*b:][:16], 1)
	}
}

// normScale is 1/√(sum/n+eps), computed in float64.
func normScale(sum float64, n int, eps float32) float32 {
	return float32(1 / math.Sqrt(sum/float64(n)+float64(eps)))
}
