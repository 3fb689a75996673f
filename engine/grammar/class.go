package grammar

import (
	"slices"
	"unicode/utf8"
)

// Range is a range of code points, both ends in it.
type Range struct{ Lo, Hi rune }

// normal sorts and joins ranges and leaves out surrogates, which UTF-8 cannot hold.
func normal(ranges []Range) []Range {
	var list []Range
	for _, r := range ranges {
		r.Lo, r.Hi = max(r.Lo, 0), min(r.Hi, utf8.MaxRune)
		if r.Lo < 0xD800 && r.Hi >= r.Lo {
			list = append(list, Range{r.Lo, min(r.Hi, 0xD7FF)})
		}
		if r.Hi > 0xDFFF && r.Hi >= r.Lo {
			list = append(list, Range{max(r.Lo, 0xE000), r.Hi})
		}
	}
	slices.SortFunc(list, func(a, b Range) int { return int(a.Lo) - int(b.Lo) })
	kept := list[:0]
	for _, r := range list {
		if n := len(kept); n > 0 && r.Lo <= kept[n-1].Hi+1 && (kept[n-1].Hi < 0xD800) == (r.Lo < 0xD800) {
			kept[n-1].Hi = max(kept[n-1].Hi, r.Hi)
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// Complement is every code point that is not in ranges.
func Complement(ranges []Range) []Range {
	var list []Range
	next := rune(0)
	for _, r := range normal(ranges) {
		if r.Lo > next {
			list = append(list, Range{next, r.Lo - 1})
		}
		next = r.Hi + 1
	}
	if next <= utf8.MaxRune {
		list = append(list, Range{next, utf8.MaxRune})
	}
	return normal(list)
}

// utf8Class matches one code point of ranges, in UTF-8.
func (p *pool) utf8Class(ranges []Range) Regex {
	var list []Regex
	for _, r := range normal(ranges) {
		lo := r.Lo
		for _, last := range []rune{0x7F, 0x7FF, 0xFFFF, utf8.MaxRune} {
			if lo > r.Hi || lo > last {
				continue
			}
			var a, b [utf8.UTFMax]byte
			hi := min(r.Hi, last)
			n := utf8.EncodeRune(a[:], lo)
			utf8.EncodeRune(b[:], hi)
			list = p.sequences(list, a[:n], b[:n])
			lo = hi + 1
		}
	}
	return p.or(list)
}

func (p *pool) byteRange(lo, hi byte) Regex {
	var s byteSet
	for c := int(lo); c <= int(hi); c++ {
		s.add(byte(c))
	}
	return p.set(s)
}

// sequences appends what matches the encodings from a to b, which have one length.
func (p *pool) sequences(list []Regex, a, b []byte) []Regex {
	if len(a) == 1 {
		return append(list, p.byteRange(a[0], b[0]))
	}
	var least, most [utf8.UTFMax]byte
	for i := range a {
		least[i], most[i] = 0x80, 0xBF
	}
	tail := func(a, b []byte) Regex { return p.or(p.sequences(nil, a, b)) }
	if a[0] == b[0] {
		return append(list, p.cat(p.byteRange(a[0], a[0]), tail(a[1:], b[1:])))
	}
	lo, hi := a[0], b[0]
	if !slices.Equal(a[1:], least[1:len(a)]) {
		list = append(list, p.cat(p.byteRange(lo, lo), tail(a[1:], most[1:len(a)])))
		lo++
	}
	var above Regex
	if !slices.Equal(b[1:], most[1:len(b)]) {
		above = p.cat(p.byteRange(hi, hi), tail(least[1:len(b)], b[1:]))
		hi--
	}
	if lo <= hi {
		list = append(list, p.cat(p.byteRange(lo, hi), tail(least[1:len(a)], most[1:len(a)])))
	}
	if above != never {
		list = append(list, above)
	}
	return list
}
