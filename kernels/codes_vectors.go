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
// For AVX-512 a code is a word: a field of two bits for each of eight columns, or of four bits for
// each of four. Column j is in field j/2 of byte j%2.
//
// For AVX2 it is nibbles, one more than twice the choice. A code of eight is a word, with column j
// in the lower half of byte j, or the upper half of byte j-4. A code of four is two, with all columns
// in lower halves, or, 512 words on, in upper ones.
type codebook struct {
	numbers [64]byte // of the magnitudes, in sixteen bytes
	words   [1024]uint16
	signed  [64]byte // of nibbles, in sixteen bytes: those that are even stand for minus the next one's
	nibbles [1024]uint32
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
		if book := new(codebook); book.fill(codes) {
			all[t] = book
		}
	}
	return all
})

// fill reports whether the codes fit.
func (b *codebook) fill(codes [][]int8) bool {
	if len(codes) == 0 || len(codes) > len(b.words) {
		return false
	}
	magnitudes := slices.Concat(codes...)
	slices.Sort(magnitudes)
	magnitudes = slices.Compact(magnitudes)
	for i, m := range magnitudes {
		b.numbers[i] = bytesOver + byte(m)
		b.signed[2*i], b.signed[2*i+1] = bytesOver-byte(m), bytesOver+byte(m)
	}
	for i, code := range codes {
		bits := 16 / len(code)
		for j, m := range code {
			at, _ := slices.BinarySearch(magnitudes, m)
			b.words[i] |= uint16(at << (j/2*bits + j%2*8))
			nibble := uint32(2*at+1) << (j%4*8 + j/4*4)
			b.nibbles[i] |= nibble
			if len(code) == 4 {
				b.nibbles[upperNibbles+i] |= nibble << 4
			}
		}
	}
	return true
}

// unpackVectors makes the numbers of a whole tile.
func (f codesUnpacking) unpackVectors(dst [][8]numbers, m *Matrix, r int) {
	rowBytes := m.Type.Bytes(m.Cols)
	f((*byte)(unsafe.Pointer(&dst[0])), &m.Data[r*rowBytes], rowBytes, len(dst), &codebooksOfVectors()[m.Type].numbers[0])
}
