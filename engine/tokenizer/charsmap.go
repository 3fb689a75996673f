package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// charsmap is SentencePiece's normaliser: a table of texts and what stands in their place. At each position
// the longest text of the table is replaced. The table is a double array (Aoe, 1989), as the library Darts lays it
// out, and behind it the replacements, each ended by a zero.
type charsmap struct {
	units []uint32
	texts string
}

// newCharsmap reads a table: its size in bytes, the double array, the replacements.
func newCharsmap(blob []byte) (*charsmap, error) {
	if len(blob) < 4 {
		return nil, errors.New("a table of characters is shorter than its head")
	}
	size := int(binary.LittleEndian.Uint32(blob))
	if size < 4 || size%4 != 0 || size > len(blob)-4 {
		return nil, errors.New("a table of characters says another size than it has")
	}
	c := &charsmap{units: make([]uint32, size/4), texts: string(blob[4+size:])}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(blob[4+4*i:])
	}
	for to := range strings.SplitSeq(c.texts, "\x00") {
		if len(to) > charsmapBytesMax {
			return nil, fmt.Errorf("a table of characters has a replacement of %d bytes; allowed are %d", len(to), charsmapBytesMax)
		}
	}
	return c, nil
}

// The parts of a unit of the double array.
const (
	unitLeaf  = 1 << 8       // a text of the table ends here
	unitValue = 1<<31 - 1    // of a leaf
	unitLabel = 1<<31 | 0xff // the byte that leads to it
	unitFar   = 1 << 9       // its offset counts 256 times as much
)

func offset(unit uint32) uint32 { return unit >> 10 << ((unit & unitFar) >> 6) }

// longest finds the longest text of the table that text begins with, and where its replacement begins.
func (c *charsmap) longest(text string) (n int, at uint32, ok bool) {
	node := offset(c.units[0])
	for i := range len(text) {
		node ^= uint32(text[i])
		if uint64(node) >= uint64(len(c.units)) {
			break
		}
		unit := c.units[node]
		if unit&unitLabel != uint32(text[i]) {
			break
		}
		if node ^= offset(unit); uint64(node) >= uint64(len(c.units)) {
			break
		}
		if unit&unitLeaf != 0 {
			n, at, ok = i+1, c.units[node]&unitValue, true
		}
	}
	return n, at, ok
}

// charsmapBytesMax is the length of the longest text of a table that is looked for, and of the longest replacement:
// a text grows by no more than that. The longest of Unicode's compatibility forms has 33 bytes.
const charsmapBytesMax = 64

// normalize replaces what the table has, and what is no UTF-8 by U+FFFD.
func (c *charsmap) normalize(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for text != "" {
		n, at, ok := c.longest(text[:min(len(text), charsmapBytesMax)])
		if !ok || uint64(at) > uint64(len(c.texts)) {
			r, size := utf8.DecodeRuneInString(text)
			b.WriteRune(r)
			text = text[size:]
			continue
		}
		to, _, _ := strings.Cut(c.texts[at:], "\x00")
		b.WriteString(to)
		text = text[n:]
	}
	return b.String()
}
