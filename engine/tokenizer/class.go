package tokenizer

import (
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// class is a set of character kinds, as the patterns distinguish them.
type class uint16

const (
	upper       class = 1 << iota // \p{Lu} \p{Lt}
	lower                         // \p{Ll}
	caseless                      // \p{Lm} \p{Lo}
	mark                          // \p{M}
	number                        // \p{N}
	white                         // \s
	punctuation                   // \p{P}
	sign                          // \p{S}
	other
	han // with caseless: \p{Han}

	letter  = upper | lower | caseless                // \p{L}
	visible = mark | punctuation | sign | other       // [^\s\p{L}\p{N}]
	anyRune = letter | visible | number | white | han // .
)

// classPages holds the classes of 256 characters each. A page is made at its first
// use, because Unicode's tables are slow and a text uses few pages.
var classPages [(unicode.MaxRune + 1) / 256]atomic.Pointer[[256]class]

func classPage(page rune) *[256]class {
	if p := classPages[page].Load(); p != nil {
		return p
	}
	p := new([256]class)
	for i := range p {
		p[i] = runeClass(page<<8 | rune(i))
	}
	classPages[page].Store(p)
	return p
}

func runeClass(r rune) class {
	switch {
	case unicode.Is(unicode.Ll, r):
		return lower
	case unicode.In(r, unicode.Lu, unicode.Lt):
		return upper
	case unicode.IsLetter(r):
		if unicode.Is(unicode.Han, r) {
			return caseless | han
		}
		return caseless
	case unicode.IsMark(r):
		return mark
	case unicode.IsNumber(r):
		if unicode.Is(unicode.Han, r) {
			return number | han
		}
		return number
	case unicode.IsSpace(r):
		return white
	case unicode.IsPunct(r):
		return punctuation
	case unicode.IsSymbol(r):
		if unicode.Is(unicode.Han, r) {
			return sign | han
		}
		return sign
	}
	return other
}

// first returns the class and the length of the first character; 0 and 0 at the
// end. An invalid byte is a character of a class that is only in visible.
func first(text string) (class, int) {
	if text == "" {
		return 0, 0
	}
	if c := text[0]; c < utf8.RuneSelf {
		return classPage(0)[c], 1
	}
	r, size := utf8.DecodeRuneInString(text)
	return classPage(r >> 8)[r&255], size
}

// run returns the length, in bytes, of the characters in c at the start of text, at
// most max characters.
func run(text string, c class, max int) int {
	ascii, n := classPage(0), 0
	for ; max > 0 && n < len(text); max-- {
		if b := text[n]; b < utf8.RuneSelf {
			if ascii[b]&c == 0 {
				break
			}
			n++
			continue
		}
		found, size := first(text[n:])
		if found&c == 0 {
			break
		}
		n += size
	}
	return n
}

// runWithout is run of the classes in c that are not also in without.
func runWithout(text string, c, without class) int {
	n := 0
	for {
		found, size := first(text[n:])
		if size == 0 || found&c == 0 || found&without != 0 {
			return n
		}
		n += size
	}
}

const unlimited = int(^uint(0) >> 1)
