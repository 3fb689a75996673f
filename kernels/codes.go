package kernels

import (
	"math"
	"sync"
	"unsafe"

	"github.com/forebay-io/forebay/kernels/ref"
)

// Types whose blocks are codes from tables (Type.Coded) have no product of their own in assembly.
// Their rows become bytes, a tile or two at a time, and these go through a product of bytes: so
// the rows of a prompt share what a code costs, and memory keeps the codes only. A word of eight
// bytes is the unit of this work: it has the numbers of a code of eight, or of two of four, and
// all their signs are applied at once. Vectors that are loaded by index are no faster, and much
// slower on some processors.

// numbers are 32 columns of 16 rows, with a word of each row side by side: a float32 scale for
// each half of the columns, then the bytes of four columns at a time. A byte is a number
// plus bytesOver.
type numbers [scaleWords + 8][RowTile]uint32

const (
	scaleWords = 2
	bytesOver  = 64
)

// coded is how rows of a type become numbers.
type coded struct {
	// unpack writes a block of 256 columns of row r.
	unpack func(dst *[8]numbers, r int, block []byte)
	// bytes is the product: of one scale a block, or of two.
	bytes Type
}

// The types of numbers. No file has them: bytes32 has equal scales in both halves.
const (
	bytes32 Type = 1<<16 + iota
	bytes16
)

var codedTypes = map[Type]coded{
	IQ2_XXS: {unpackIQ2_XXS, bytes32}, IQ2_XS: {unpackIQ2_XS, bytes16}, IQ2_S: {unpackIQ2_S, bytes16},
	IQ3_XXS: {unpackIQ3_XXS, bytes32}, IQ3_S: {unpackIQ3_S, bytes32},
	IQ1_S: {unpackIQ1_S, bytes32}, IQ1_M: {unpackIQ1_M, bytes16},
	TQ1_0: {unpackTQ1_0, bytes32}, TQ2_0: {unpackTQ2_0, bytes32},
}

// Coded reports whether t's blocks are codes from tables. Every set keeps them as they are stored.
func (t Type) Coded() bool { return codedTypes[t].unpack != nil }

// codedTiles are two tiles of numbers, with every column.
type codedTiles struct{ numbers [][8]numbers }

var codedTilesKept = make(kept[codedTiles], keptMost)

// unpackTile makes the numbers of some rows, RowTile at most. Lanes of rows that a tile lacks keep
// what they had, which reaches no output.
func (d *integers) unpackTile(dst [][8]numbers, m *Matrix, r, rows int) {
	if f := d.unpackings[m.Type]; f != nil && rows == RowTile {
		f.unpackVectors(dst, m, r)
		return
	}
	c := codedTypes[m.Type]
	size := m.Type.BlockBytes()
	rowBytes := len(dst) * size
	for b := range dst {
		for k := range rows {
			c.unpack(&dst[b], k, m.Data[(r+k)*rowBytes+b*size:][:size])
		}
	}
}

// multiplyCoded multiplies weights of a type that is Coded.
func (d *integers) multiplyCoded(dst []float32, dstStride int, m *Matrix, x []Block, n, r0, r1 int) {
	checkMatMul(dst, dstStride, m, len(x)*BlockLen, n, r0, r1)
	step := 2 * d.lanes
	if n <= d.fewRows {
		step = RowTile
	}
	c, blocks := codedTypes[m.Type], m.Cols/ref.BlockLenMax
	tiles := codedTilesKept.take()
	defer codedTilesKept.keep(tiles)
	if need := step / RowTile * blocks; len(tiles.numbers) < need {
		tiles.numbers = make([][8]numbers, need)
	}
	image := unsafe.Slice((*byte)(unsafe.Pointer(&tiles.numbers[0])), len(tiles.numbers)*int(unsafe.Sizeof(tiles.numbers[0])))
	for r := r0; r < r1; r += step {
		rows := min(step, r1-r)
		for t := 0; t < rows; t += RowTile {
			d.unpackTile(tiles.numbers[t/RowTile*blocks:][:blocks], m, r+t, min(RowTile, rows-t))
		}
		d.multiply(dst[r:], dstStride, &Matrix{Type: c.bytes, Rows: rows, Cols: m.Cols, Data: image}, x, n, 0, rows)
	}
}

// eachByte is a word of equal bytes.
const eachByte = 0x0101010101010101

// The codebooks as words of magnitudes with their highest bits set, which withSigns takes, and
// that of IQ1 as eight times its numbers, plus bytesOver.
var codeWords = sync.OnceValue(func() *codebooks {
	w := new(codebooks)
	for t, dst := range map[uint32][]uint64{ref.IQ2_XXS: w.iq2xxs[:], ref.IQ2_XS: w.iq2xs[:], ref.IQ2_S: w.iq2s[:], ref.IQ1_S: w.iq1[:]} {
		for i, code := range ref.Codes8(t) {
			for j, n := range code {
				b := byte(n) | 0x80
				if t == ref.IQ1_S {
					b = byte(8*n + bytesOver)
				}
				dst[i] |= uint64(b) << (8 * j)
			}
		}
	}
	for t, dst := range map[uint32][]uint32{ref.IQ3_XXS: w.iq3xxs[:], ref.IQ3_S: w.iq3s[:]} {
		for i, code := range ref.Codes4(t) {
			for j, n := range code {
				dst[i] |= uint32(byte(n)|0x80) << (8 * j)
			}
		}
	}
	return w
})

type codebooks struct {
	iq2xxs [256]uint64
	iq2xs  [512]uint64
	iq2s   [1024]uint64
	iq1    [2048]uint64
	iq3xxs [256]uint32
	iq3s   [512]uint32
}

// minuses has 0x7f in the bytes whose signs are set, of eight signs; evenMinuses of seven
// and of an eighth that makes the number of them even.
var (
	minuses     = signWords()
	evenMinuses = func() (words [128]uint64) {
		for i := range words {
			words[i] = minuses[ref.EvenSigns(byte(i))]
		}
		return words
	}()
)

func signWords() (words [256]uint64) {
	for i := range words {
		for j := range 8 {
			words[i] |= uint64(i>>j&1) * 0x7f << (8 * j)
		}
	}
	return words
}

// withSigns makes bytes of magnitudes of a codebook, in place of which minus has 0x7f where
// they are negative. In a byte, (128|m)−64 is 64+m, and ((128|m)^127)−127−64 is 64−m: neither
// borrows from the next.
func withSigns(magnitudes, minus uint64) uint64 {
	return magnitudes ^ minus - minus - bytesOver*eachByte
}

// put writes eight columns of row r, from column 8·i on.
func (n *numbers) put(i, r int, bytes uint64) {
	n[scaleWords+2*i][r], n[scaleWords+2*i+1][r] = uint32(bytes), uint32(bytes>>32)
}

// scale writes the scales of row r.
func (n *numbers) scale(r int, first, second float32) {
	n[0][r], n[1][r] = math.Float32bits(first), math.Float32bits(second)
}
