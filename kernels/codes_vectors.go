package kernels

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/forebay-io/forebay/kernels/ref"
)

// codesUnpacking makes numbers of a whole tile in assembly, with a codebook.
type codesUnpacking func(dst, src *byte, rowBytes, blocks int, book *byte)

// codebook has a type's codes as assembly looks them up, as choices among the magnitudes.
//
// For AVX-512, which has 1024 at most, a code is a word: a field of two bits for each of eight columns, or of four bits for
// each of four. Column j is in field j/2 of byte j%2.
//
// For AVX2 it is nibbles, one more than twice the choice. A code of eight is a word, with column j
// in the lower half of byte j, or the upper half of byte j-4. A code of four is two, with all columns
// in lower halves, or, 512 words on, in upper ones.
type codebook struct {
	numbers [64]byte // of the magnitudes, in sixteen bytes
	words   [1024]uint16
	signed  [64]byte // of nibbles, in sixteen bytes: those that are even stand for what a sign makes of the next one's
	nibbles [2048]uint32
}

// upperNibbles is where the words with upper halves begin.
const upperNibbles = 512

var codebooksOfVectors = sync.OnceValue(func() map[Type]*codebook {
	all := map[Type]*codebook{}
	for t := range codedTypes {
		var codes [][]int8
		for _, code := range ref.Codes8(uint32(t)) {
			codes = append(codes, code[:])
		}
		for _, code := range ref.Codes4(uint32(t)) {
			codes = append(codes, code[:])
		}
		all[t] = newCodebook(codes)
	}
	return all
})

// newCodebook makes a codebook of codes, of which a type without a table has none. Numbers with signs
// of their own are those of IQ1: they count eight times, and where others have a sign, they have δ.
func newCodebook(codes [][]int8) *codebook {
	b := new(codebook)
	if len(codes) == 0 {
		return b
	}
	choices := slices.Concat(codes...)
	slices.Sort(choices)
	choices = slices.Compact(choices)
	for i, n := range choices {
		plus, minus := n, -n
		if choices[0] < 0 {
			plus, minus = 8*n+1, 8*n-1
		}
		b.numbers[i] = byte(bytesOver + int(plus))
		b.signed[2*i], b.signed[2*i+1] = byte(bytesOver+int(minus)), byte(bytesOver+int(plus))
	}
	for i, code := range codes {
		bits := 16 / len(code)
		for j, n := range code {
			at, _ := slices.BinarySearch(choices, n)
			if i < len(b.words) {
				b.words[i] |= uint16(at << (j/2*bits + j%2*8))
			}
			nibble := uint32(2*at+1) << (j%4*8 + j/4*4)
			b.nibbles[i] |= nibble
			if len(code) == 4 {
				b.nibbles[upperNibbles+i] |= nibble << 4
			}
		}
	}
	return b
}

// unpackVectors makes the numbers of a whole tile.
func (f codesUnpacking) unpackVectors(dst [][8]numbers, m *Matrix, r int) {
	rowBytes := m.Type.Bytes(m.Cols)
	f((*byte)(unsafe.Pointer(&dst[0])), &m.Data[r*rowBytes], rowBytes, len(dst), &codebooksOfVectors()[m.Type].numbers[0])
}
