package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// joiner is inserted by the norm package into runs of more than 30 combining marks
// (its stream-safe format). It is not part of NFC.
const joiner = "\u034f"

// nfc returns text in Unicode's normalization form C.
func nfc(text string) string {
	if norm.NFC.IsNormalString(text) {
		return text
	}
	out := norm.NFC.String(text)
	if strings.Count(out, joiner) == strings.Count(text, joiner) {
		return out
	}
	var b strings.Builder
	for text != "" { // invalid bytes stay unchanged
		n := validLength(text)
		b.WriteString(nfcLong(text[:n]))
		if n < len(text) {
			b.WriteByte(text[n])
			n++
		}
		text = text[n:]
	}
	return b.String()
}

// validLength returns the length of the valid UTF-8 at the start of text.
func validLength(text string) int {
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return i
			}
		}
	}
	return len(text)
}

// nfcLong is nfc for UTF-8 with runs of combining marks of any length: decompose, order
// the marks by class, compose (Unicode Standard Annex 15).
func nfcLong(text string) string {
	type mark struct {
		r     rune
		class uint8
	}
	var marks []mark
	for _, r := range text {
		for _, d := range norm.NFD.String(string(r)) {
			marks = append(marks, mark{d, norm.NFD.PropertiesString(string(d)).CCC()})
		}
	}
	for i := 0; i < len(marks); i++ {
		end := i
		for end < len(marks) && marks[end].class > 0 {
			end++
		}
		slices.SortStableFunc(marks[i:end], func(a, b mark) int { return int(a.class) - int(b.class) })
		i = max(i, end)
	}
	out := make([]rune, 0, len(marks))
	starter, last := -1, uint8(0)
	for _, m := range marks {
		if starter >= 0 && (last < m.class || last == 0 && starter == len(out)-1) {
			pair := norm.NFC.String(string(out[starter]) + string(m.r))
			if r, size := utf8.DecodeRuneInString(pair); size == len(pair) {
				out[starter] = r
				continue
			}
		}
		if m.class == 0 {
			starter = len(out)
		}
		last = m.class
		out = append(out, m.r)
	}
	return string(out)
}
