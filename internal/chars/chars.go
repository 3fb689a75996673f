// Package chars reads bytes that may be broken UTF-8 as characters, by one rule
// for prompts, answers and their offsets: each maximal subpart of an ill-formed
// sequence is one U+FFFD (the Unicode Standard, section 3.9; the WHATWG's decoder
// does the same). So it does not matter whether text was generated, echoed, or
// decoded by a browser.
package chars

import "unicode/utf8"

// Next returns the size of the first character of s, and whether it is one. If it
// is not, its bytes are one maximal subpart. s must not be empty.
func Next(s string) (size int, ok bool) {
	r, size := utf8.DecodeRuneInString(s)
	if r != utf8.RuneError || size != 1 {
		return size, true
	}
	for size < len(s) && !utf8.FullRuneInString(s[:size+1]) {
		size++
	}
	return size, false
}

// Open returns how many bytes at the end of s begin a character that further
// bytes may complete, 0 to 3.
func Open(s string) int {
	for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
		tail := s[len(s)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRuneInString(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Append appends p as valid UTF-8.
func Append(dst, p []byte) []byte {
	if utf8.Valid(p) {
		return append(dst, p...)
	}
	for len(p) > 0 {
		size, ok := Next(string(p[:min(len(p), utf8.UTFMax)]))
		if ok {
			dst = append(dst, p[:size]...)
		} else {
			dst = append(dst, "\uFFFD"...)
		}
		p = p[size:]
	}
	return dst
}

// Counter counts the characters of text that comes in pieces. The zero value is
// ready to use.
type Counter struct {
	whole int     // characters that are complete
	open  [3]byte // the beginning of the next one
	n     int     // bytes in open
}

// Add counts piece and returns the index of the character that its first byte
// belongs to.
func (c *Counter) Add(piece []byte) (at int) {
	at = c.whole
	for i, b := range piece {
		var p [utf8.UTFMax]byte
		n := copy(p[:], c.open[:c.n])
		p[n] = b
		if size, _ := Next(string(p[:n+1])); size <= n { // b does not go on with what is open
			c.whole++
			n, p[0] = 0, b
		}
		if i == 0 {
			at = c.whole
		}
		if c.n = 0; utf8.FullRune(p[:n+1]) {
			c.whole++
		} else {
			c.n = copy(c.open[:], p[:n+1])
		}
	}
	return at
}
