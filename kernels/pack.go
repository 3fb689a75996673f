package kernels

import (
	"encoding/binary"
	"math"
)

// packTiles lays a matrix out in tiles of RowTile rows for the vector sets. A
// lane of a vector is a row, so the rows' values for one column lie side by side
// and one output never crosses lanes:
//
//	raw, row r:        d │ q0 q1 … q31 │ d │ q0 q1 …        (Q8_0; Q4_0 has 16 bytes of two nibbles)
//
//	tile, one block:   d of rows 0–15 │ q0 of rows 0–15 │ q1 of rows 0–15 │ … │ q31 of rows 0–15
//	                   then the next block of the same 16 rows
//
//	F32, F16, BF16:    column 0 of rows 0–15 │ column 1 of rows 0–15 │ …
//
// The image takes the bytes of the raw one, and of the rows of zeros that fill
// the last tile.
func packTiles(t Type, rows, cols int, raw []byte) *Matrix {
	checkPack(t, rows, cols, raw)
	rowBytes := t.Bytes(cols)
	tiles := (rows + RowTile - 1) / RowTile
	m := &Matrix{Type: t, Rows: rows, Cols: cols, Data: make([]byte, tiles*RowTile*rowBytes)}
	for r := range rows {
		tile := m.Data[r/RowTile*RowTile*rowBytes:]
		packRow(t, tile, raw[r*rowBytes:][:rowBytes], r%RowTile)
	}
	return m
}

// packRow spreads one raw row over its lane of a tile.
func packRow(t Type, tile, row []byte, lane int) {
	switch t {
	case F32:
		spread(tile, row, lane, 4)
	case F16, BF16:
		spread(tile, row, lane, 2)
	default: // a half, then bytes
		block := t.BlockBytes()
		for at := 0; at < len(row); at += block {
			spread(tile[RowTile*at:], row[at:at+2], lane, 2)
			spread(tile[RowTile*(at+2):], row[at+2:at+block], lane, 1)
		}
	}
}

// spread puts the elements of src, size bytes each, RowTile elements apart.
func spread(dst, src []byte, lane, size int) {
	dst = dst[lane*size:]
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

// normScale is 1/√(sum/n+eps), computed in float64.
func normScale(sum float64, n int, eps float32) float32 {
	return float32(1 / math.Sqrt(sum/float64(n)+float64(eps)))
}
