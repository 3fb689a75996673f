package tokenizer

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// deepseekLetters lists the letters of DeepSeek's first pattern: single letters and
// ranges.
const deepseekLetters = "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"

// listed makes a test from a list of characters and ranges such as [a-z_].
func listed(list string) func(rune) bool {
	var table unicode.RangeTable
	runes := []rune(list)
	for i := 0; i < len(runes); i++ {
		lo, hi := runes[i], runes[i]
		if i+2 < len(runes) && runes[i+1] == '-' {
			hi = runes[i+2]
			i += 2
		}
		table.R32 = append(table.R32, unicode.Range32{Lo: uint32(lo), Hi: uint32(hi), Stride: 1})
	}
	slices.SortFunc(table.R32, func(a, b unicode.Range32) int { return cmp.Compare(a.Lo, b.Lo) })
	var ascii [utf8.RuneSelf]bool
	for r := range ascii {
		ascii[r] = unicode.Is(&table, rune(r))
	}
	return func(r rune) bool {
		if r < utf8.RuneSelf {
			return ascii[r]
		}
		return unicode.Is(&table, r)
	}
}

// afterSpace makes a splitter of \s?[…]+
func afterSpace(match func(rune) bool) splitter {
	return isolate(func(text string) int {
		space := 0
		if c, size := first(text); c&white != 0 {
			space = size
		}
		n := leading(text[space:], match)
		if n == 0 {
			n = leading(text, match) // the space may match too
			space = 0
		}
		if n == 0 {
			return 0
		}
		return space + n
	})
}

// leading returns the length of the matching characters at the start of text.
func leading(text string, match func(rune) bool) int {
	for i, r := range text {
		if !match(r) || r == utf8.RuneError {
			return i
		}
	}
	return len(text)
}

var (
	splitEachNewline  = isolate(func(text string) int { return leading(text[:1], func(r rune) bool { return isNewline(byte(r)) }) })
	splitDSLetters    = afterSpace(listed(deepseekLetters))
	splitDSMarks      = afterSpace(listed("!-/:-~！-／：-～‘-‟\u3000-。"))
	splitSpaceLetters = afterSpace(unicode.IsLetter)
	splitSpaceMarks   = afterSpace(unicode.IsPunct)
	splitCJK          = splitRunes(isCJK)
	// In GGUF files, by the reading of their converter, white space is in no list.
	splitDSMarksVisible = afterSpace(listed("!-/:-~！-／：-～‘-‟、-。"))
	splitCJKVisible     = splitRunes(func(r rune) bool { return !unicode.IsSpace(r) && isCJK(r) })
	splitCJK3           = splitRunes(listed("一-龥\u3040-ゟ゠-ヿ"))
)

var isCJK = listed("一-龥ࠀ-一가-\ud7ff")

// splitTrailing is \s+$ , where $ is the end of a line or of the text. If a run of
// white space does not end there, no part of it does, so it is skipped at once;
// trying every start would be quadratic.
func splitTrailing(text string) int {
	for at := 0; at < len(text); {
		n := run(text[at:], white, unlimited)
		match := n
		if at+n < len(text) {
			match = strings.LastIndexByte(text[at:at+n], '\n')
		}
		switch {
		case match > 0 && at == 0:
			return match
		case match > 0:
			return at
		}
		at += n
		at += runWithout(text[at:], anyRune, white)
	}
	return len(text)
}

// splitDeepSeek3 is [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
// ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ and leaves gaps.
var splitDeepSeek3 = isolate(func(text string) int {
	c, size := first(text)
	if text[0] < utf8.RuneSelf && c&(punctuation|sign) != 0 {
		if n := leading(text[1:], isASCIILetter); n > 0 {
			return 1 + n
		}
	}
	if c&(letter|punctuation|sign) == 0 && !isNewline(text[0]) {
		if n := run(text[size:], letter|mark, unlimited); n > 0 {
			return size + n
		}
	}
	if n := run(text, letter|mark, unlimited); n > 0 {
		return n
	}
	space := 0
	if text[0] == ' ' {
		space = 1
	}
	if n := run(text[space:], punctuation|sign, unlimited); n > 0 {
		n += space
		return n + len(text[n:]) - len(strings.TrimLeft(text[n:], "\r\n"))
	}
	if n := lineEnd(text); n > 0 {
		return n
	}
	if c&white != 0 {
		return splitSpaces(text)
	}
	return 0
})

func isASCIILetter(r rune) bool { return r|0x20 >= 'a' && r|0x20 <= 'z' }
