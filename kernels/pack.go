package kernels

import "unsafe"

// image is the layout of a type in the tiles of the vector sets: bytes for each row of
// columns columns. row makes one row's bytes from a stored block, in the order of the fields;
// it is nil if the block has that order already. The fields then interleave the bytes of
// sixteen rows.
type image struct {
	columns, bytes int
	row            func(dst, block []byte)
	head           []field // once
	block          []field // for every 32 columns
}

// field is a group of bytes of a row, with the function that writes the groups of 16 rows to
// a tile.
type field struct {
	bytes int
	lay   func(dst []byte, rows *tileRows, at, n int)
}

var (
	oneHalf   = field{2, layHalves}
	twoHalves = field{4, layHalves}
)

// layout has the images of the quantised types. An image takes at most 6 % over what is
// stored; other types lie number by number.
type layout map[Type]image

// floatTiles is for products of float32 activations: elements lie column by column.
var floatTiles = layout{
	Q8_0:   {32, 34, nil, nil, []field{oneHalf, {32, layBytes}}},
	Q4_0:   {32, 18, nil, nil, []field{oneHalf, {16, layBytes}}},
	IQ4_NL: {32, 18, nil, nil, []field{oneHalf, {16, layBytes}}},
	Q4_1:   {32, 20, nil, nil, []field{twoHalves, {16, layBytes}}},
	Q5_0:   {32, 22, nil, nil, []field{oneHalf, {20, layFives}}},
	Q5_1:   {32, 24, nil, nil, []field{twoHalves, {20, layFives}}},
	MXFP4:  {32, 18, rowMXFP4, nil, []field{oneHalf, {16, layBytes}}},
	Q2_K:   {256, 84, rowQ2_K, []field{twoHalves}, []field{{10, layBytes}}},
	Q3_K:   {256, 114, rowQ3_K, []field{oneHalf}, []field{{2, layBytes}, {12, layThrees}}},
	Q4_K:   {256, 148, rowQ4_K, []field{twoHalves}, []field{{18, layBytes}}},
	Q5_K:   {256, 180, rowQ5_K, []field{twoHalves}, []field{{2, layBytes}, {20, layFives}}},
	Q6_K:   {256, 210, rowQ6_K, []field{oneHalf}, []field{{2, layBytes}, {24, laySixes}}},
	IQ4_XS: {256, 138, rowIQ4_XS, []field{oneHalf}, []field{{17, layBytes}}},
}

// byteTiles is for products of blocks: four columns of a row lie side by side, so that a
// vector has four bytes of each of 16 rows. Where elements share bytes, the columns of two
// or four vectors share them; a plane has a bit for each byte of a vector.
var byteTiles = layout{
	Q8_0:   {32, 34, nil, nil, []field{oneHalf, {32, layAbove128}}},
	Q4_0:   {32, 18, nil, nil, []field{oneHalf, {16, layWords}}},
	IQ4_NL: {32, 18, nil, nil, []field{oneHalf, {16, layWords}}},
	Q4_1:   {32, 20, nil, nil, []field{twoHalves, {16, layWords}}},
	Q5_0:   {32, 22, nil, nil, []field{oneHalf, {20, layWordsPlanes}}},
	Q5_1:   {32, 24, nil, nil, []field{twoHalves, {20, layWordsPlanes}}},
	MXFP4:  {32, 18, rowMXFP4, nil, []field{oneHalf, {16, layWords}}},
	Q2_K:   {256, 84, rowQ2_K, []field{twoHalves}, []field{{2, layBytes}, {8, layWords}}},
	Q3_K:   {256, 114, rowQ3_K, []field{oneHalf}, []field{{2, layBytes}, {12, layWordsPlanes}}},
	Q4_K:   {256, 148, rowQ4_K, []field{twoHalves}, []field{{2, layBytes}, {16, layWords}}},
	Q5_K:   {256, 180, rowQ5_K, []field{twoHalves}, []field{{2, layBytes}, {20, layWordsPlanes}}},
	Q6_K:   {256, 210, rowQ6_K, []field{oneHalf}, []field{{2, layBytes}, {24, layWords}}},
	IQ4_XS: {256, 138, rowIQ4_XS, []field{oneHalf}, []field{{1, layBytes}, {16, layWords}}},
}

// imageMax is no less than the size of any image.
const imageMax = 256

// rowBytes is the size of a row of n elements in the tiles.
func (l layout) rowBytes(t Type, n int) int {
	if t == bytes32 || t == bytes16 {
		return n / BlockLen * int(unsafe.Sizeof(numbers{})) / RowTile
	}
	if im, ok := l[t]; ok {
		return n / im.columns * im.bytes
	}
	return t.Bytes(n)
}

// pack lays out a matrix in tiles of RowTile rows for the vector sets. A lane of a vector
// is a row, so the rows' values for one column lie side by side and an output never crosses
// lanes:
//
//	F32, F16, BF16:   column 0 of rows 0–15 │ column 1 of rows 0–15 │ …
//
//	types in blocks:  scales of rows 0–15 │ minima of rows 0–15 │ elements of rows 0–15, column by column
//	                  then the next 32 columns of the same 16 rows
//
//	super-blocks:     d of rows 0–15 │ dmin of rows 0–15 │ eight such blocks, whose scales and minima are bytes
//
// Elements of less than a byte share bytes, always within one row: a byte has the nibbles
// of the columns j and j+16 of its block, or two bits of each of the columns j, j+8, j+16
// and j+24 (a quad). A remaining bit of an element is in a plane: 16 bits, one of each row,
// behind the bytes of its columns.
func (l layout) pack(t Type, rows, cols int, raw []byte) *Matrix {
	checkPack(t, rows, cols, raw)
	rowBytes, tileBytes := t.Bytes(cols), RowTile*l.rowBytes(t, cols)
	tiles := (rows + RowTile - 1) / RowTile
	m := &Matrix{Type: t, Rows: rows, Cols: cols, Data: make([]byte, tiles*tileBytes)}
	im, inBlocks := l[t]
	var none []byte // in place of rows that the last tile lacks
	if rows%RowTile != 0 {
		none = make([]byte, rowBytes)
	}
	for tile := range tiles {
		var from tileRows
		for i := range from {
			from[i] = none
			if r := tile*RowTile + i; r < rows {
				from[i] = raw[r*rowBytes:][:rowBytes]
			}
		}
		dst := m.Data[tile*tileBytes:][:tileBytes]
		switch {
		case inBlocks:
			im.pack(dst, &from, t.BlockBytes())
		case t == F32:
			layWords(dst, &from, 0, rowBytes)
		default:
			layHalves(dst, &from, 0, rowBytes)
		}
	}
	return m
}

// pack writes a tile from rows of blocks, blockBytes each.
func (im *image) pack(dst []byte, from *tileRows, blockBytes int) {
	var made [RowTile][imageMax]byte
	rows := *from
	if im.row != nil {
		for i := range rows {
			rows[i] = made[i][:im.bytes]
		}
	}
	lay := func(fields []field, at int) int {
		for _, f := range fields {
			f.lay(dst[:RowTile*f.bytes], &rows, at, f.bytes)
			dst, at = dst[RowTile*f.bytes:], at+f.bytes
		}
		return at
	}
	for block := 0; block < len(from[0]); block += blockBytes {
		at := block
		if im.row != nil {
			at = 0
			for i, row := range from {
				im.row(rows[i], row[block:][:blockBytes])
			}
		}
		at = lay(im.head, at)
		for range im.columns / 32 {
			at = lay(im.block, at)
		}
	}
}
