package grammar

import "unicode"

// This file matches labels of host names that stand for letters beyond ASCII: "xn--" and the
// letters in Punycode (RFC 3492). Its numbers say how far the next letter is from the last one and
// where it goes, by rules that depend on all before. No regular expression of bytes says which
// of them are valid, so what is left of a label is a node of its own, with the state of the decoder.

// What bounds a label of InternationalLabel.
const (
	hostLabelBytes = 30
	beyondMax      = 2 // letters beyond ASCII: after the first, nearly every token could begin more
)

// InternationalLabel matches the labels, of up to 30 bytes, of ASCII letters, digits and single
// hyphens with one or two lower-case Latin, Greek or Cyrillic letters, Hiragana or Katakana
// among them, or with Catalan's middle dot between two l. Each is valid by IDNA 2008. Labels of
// other scripts are left out: which of their letters may stand beside which takes tables.
func (b *Builder) InternationalLabel() Regex {
	for c := byte('0'); c <= 'z'; c++ { // each digit is a byte class of its own
		if punycodeDigit(c) >= 0 {
			b.pool.byteRange(c, c)
		}
	}
	b.pool.byteRange('-', '-')
	return b.pool.cat(b.pool.literal("xn--"), b.pool.or([]Regex{b.pool.plainLabel(0, true), b.pool.middleDot()}))
}

// middleDot matches what follows "xn--" where the first "ll" of some letters and digits, and no
// other letter, has a middle dot between.
func (p *pool) middleDot() Regex {
	others := p.or([]Regex{p.byteRange('a', 'k'), p.byteRange('m', 'z'), p.byteRange('0', '9')})
	alnum, l := p.or([]Regex{others, p.byteRange('l', 'l')}), p.byteRange('l', 'l')
	before, beforeL := never, never // without "ll" so far; the same, after an l
	for size := int32(plainMax - 1); size >= 0; size-- {
		after := never // after so many bytes, of which an l is the last, and one more l
		for all := int32(plainMax - 1); all > size; all-- {
			numbers := numbersAfter(all + 1)
			end := p.literal("-" + numbers.write((0xB7-firstLetter)*(all+1)+size))
			after = p.or([]Regex{end, p.cat(alnum, after)})
		}
		goOn := p.cat(others, before)
		before, beforeL = p.or([]Regex{goOn, p.cat(l, beforeL)}), p.or([]Regex{goOn, p.cat(l, after)})
	}
	return before
}

const punycodeDigits = "abcdefghijklmnopqrstuvwxyz0123456789"

// punycodeDigit is the value of a digit of Punycode, -1 for none.
func punycodeDigit(c byte) int32 {
	switch {
	case c >= 'a' && c <= 'z':
		return int32(c - 'a')
	case c >= '0' && c <= '9':
		return int32(c-'0') + 26
	}
	return -1
}

// What stands in a node's max: the phase of a label.
const (
	labelNumbers = iota // letters beyond ASCII, as numbers
	labelPlain          // ASCII, after a letter or digit
	labelHyphen         // ASCII, after a hyphen or at the beginning: the numbers may begin
)

// plainMax is how many bytes of ASCII leave room for a number.
const plainMax = 20

// plainLabel is the node after some bytes of ASCII.
func (p *pool) plainLabel(bytes int32, hyphen bool) Regex {
	phase := int32(labelPlain)
	if hyphen {
		phase = labelHyphen
	}
	return p.node(nodeKey{kind: kindLabel, a: bytes, max: phase}, false)
}

// label is the decoder within the numbers.
type label struct {
	last   int32 // letter so far, or firstLetter
	at     int32 // the place from which the next letter may go in
	count  int32 // characters so far, ASCII ones too
	beyond int32 // letters beyond ASCII so far
	bias   int32
	digits int32 // of the number that has begun
	sum    int32 // of them
	left   int32 // bytes that may follow
}

// The parameters of Punycode.
const (
	punycodeBase = 36
	punycodeMost = 26
	firstLetter  = 0x80
	firstBias    = 72
)

const lastLetter = 0x30FE // that isLabelLetter takes

// isLabelLetter says whether c may stand in a label whose largest letter so far is last.
func isLabelLetter(c, last int32) bool {
	switch {
	case c >= 0xDF && c < 0x17F: // without those that stand for two letters
		return unicode.Is(unicode.Ll, c) && c != 0x133 && c != 0x140 && c != 0x149
	case c == 0x390 || c >= 0x3AC && c <= 0x3CE, c >= 0x430 && c <= 0x45F, c == 0x491:
		return true
	case c == 0xF0B || c >= 0x3005 && c <= 0x3007:
		return true
	case c == 0x30FB: // the middle dot stands only beside Kana
		return last >= 0x3041
	}
	return c >= 0x3041 && c <= 0x3096 || c >= 0x309D && c <= 0x309E || c >= 0x30A1 && c <= lastLetter
}

// whole says whether the label may end here.
func (l *label) whole() bool { return l.digits == 0 && l.last != firstLetter }

// write is the digits of a number that has not begun.
func (l *label) write(number int32) string {
	var digits []byte
	for k := int32(punycodeBase); ; k += punycodeBase {
		least := min(max(k-l.bias, 1), punycodeMost)
		if number < least {
			return string(append(digits, punycodeDigits[number]))
		}
		digits = append(digits, punycodeDigits[least+(number-least)%(punycodeBase-least)])
		number = (number - least) / (punycodeBase - least)
	}
}

// take goes on by a digit, and says false where none of isLabelLetter can come of it.
func (l *label) take(digit int32) bool {
	weight, least := int64(1), int32(0)
	for i := int32(0); ; i++ {
		if least = min(max(punycodeBase*(i+1)-l.bias, 1), punycodeMost); i == l.digits {
			break
		}
		weight *= int64(punycodeBase - least)
	}
	sum, size := int64(l.sum)+int64(digit)*weight, l.count+1
	if l.left--; l.left < 0 || l.beyond == beyondMax || sum > int64((lastLetter-l.last)*size+l.count-l.at) {
		return false
	}
	l.sum = int32(sum)
	if digit >= least { // the number goes on
		l.digits++
		return true
	}
	place := l.at + l.sum
	c := l.last + place/size
	if !isLabelLetter(c, l.last) {
		return false
	}
	l.bias = punycodeBias(l.sum, size, l.last == firstLetter)
	l.last, l.at, l.count, l.digits, l.sum = c, place%size+1, size, 0, 0
	l.beyond++
	return true
}

// punycodeBias is the bias after a number, by which the next one is written.
func punycodeBias(number, count int32, first bool) int32 {
	const skew, damp = 38, 700
	if first {
		number /= damp
	} else {
		number /= 2
	}
	number += number / count
	k := int32(0)
	for ; number > (punycodeBase-1)*punycodeMost/2; k += punycodeBase {
		number /= punycodeBase - 1
	}
	return k + punycodeBase*number/(number+skew)
}

// end appends digits that make the label whole, and says whether there are any.
func (l *label) end(text []byte) ([]byte, bool) {
	for digit := range int32(punycodeBase) {
		next := *l
		if !next.take(digit) {
			continue
		}
		text := append(text, punycodeDigits[digit])
		if next.whole() {
			return text, true
		}
		if text, ok := next.end(text); ok {
			return text, true
		}
	}
	return text, false
}

// labelNode is the node of a label's numbers after one more digit.
func (p *pool) labelNode(l label, digit int32) Regex {
	if !p.spend(punycodeBase) || !l.take(digit) {
		return never
	}
	if !l.whole() {
		var room [hostLabelBytes]byte
		if _, ok := l.end(room[:0]); !ok {
			return never
		}
	}
	return p.node(nodeKey{kind: kindLabel, a: l.last<<6 | l.at, b: l.sum, min: l.bias<<18 | l.beyond<<15 | l.digits<<12 | l.left<<6 | l.count}, l.whole())
}

// looseLabel matches all that is left of any label.
func (p *pool) looseLabel() Regex {
	var s byteSet
	for c := range byte(128) {
		if c == '-' || punycodeDigit(c) >= 0 {
			s.add(c)
		}
	}
	return p.times(p.set(s), 0, Unlimited)
}

// labelOf is the decoder of a node within the numbers.
func labelOf(n node) label {
	return label{last: n.a >> 6, at: n.a & 63, sum: n.b, bias: n.min >> 18, beyond: n.min >> 15 & 7, digits: n.min >> 12 & 7, left: n.min >> 6 & 63, count: n.min & 63}
}

// numbersAfter is the decoder after some bytes of ASCII, of which the last is a hyphen, or after none.
func numbersAfter(bytes int32) label {
	return label{last: firstLetter, count: max(bytes-1, 0), bias: firstBias, left: hostLabelBytes - int32(len("xn--")) - bytes}
}

// labelWitness appends a text that ends a label.
func (p *pool) labelWitness(text []byte, n node) []byte {
	l := labelOf(n)
	switch n.max {
	case labelPlain:
		text, l = append(text, '-'), numbersAfter(n.a+1)
	case labelHyphen:
		l = numbersAfter(n.a)
	}
	text, _ = l.end(text)
	return text
}

// labelAfter is what follows a byte of a label.
func (p *pool) labelAfter(n node, class uint8) Regex {
	c := p.example[class]
	digit := punycodeDigit(c)
	switch {
	case n.max == labelNumbers && digit >= 0:
		return p.labelNode(labelOf(n), digit)
	case n.max == labelPlain && c == '-':
		return p.plainLabel(n.a+1, true)
	case n.max == labelNumbers || digit < 0:
		return never
	}
	plain, numbers := never, never
	if n.a+2 <= plainMax { // the hyphen at its end has room
		plain = p.plainLabel(n.a+1, false)
	}
	if n.max == labelHyphen {
		numbers = p.labelNode(numbersAfter(n.a), digit)
	}
	return p.or([]Regex{plain, numbers})
}
