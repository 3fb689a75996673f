package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A splitter returns the length of the first piece of text, which is not empty: a
// match of the pattern, or the gap before the next match. Models define their
// pre-tokenizers as regular expressions. Each splitter implements one of them by
// hand, because Go's regexp lacks the look-ahead of \s+(?!\S), and to be linear.
type splitter func(text string) int

// modern is the family of GPT-4's pattern. Its alternatives, in order:
// contractions, words, digits, other characters, newlines, white space.
type modern struct {
	contractions bool // (?i:'s|'t|'re|'ve|'m|'ll|'d), before words
	words        func(text string) int
	digits       int   // \p{N}{1,digits}; 0 leaves digits to the later alternatives
	rest         class // of [^\s\p{L}\p{N}]+, which a space may precede
	restEnd      string
	newlines     func(text string) int
}

func (m modern) split(text string) int {
	if m.contractions {
		if n := contraction(text, true); n > 0 {
			return n
		}
	}
	if n := m.words(text); n > 0 {
		return n
	}
	if n := run(text, number, m.digits); n > 0 {
		return n
	}
	space := 0
	if text[0] == ' ' {
		space = 1
	}
	if n := run(text[space:], m.rest, unlimited); n > 0 {
		n += space
		for n < len(text) && strings.IndexByte(m.restEnd, text[n]) >= 0 {
			n++
		}
		return n
	}
	if n := m.newlines(text); n > 0 {
		return n
	}
	return splitSpaces(text)
}

// lineEnd is \s*[\r\n]+ : white space up to and including its last newline.
func lineEnd(text string) int {
	for n := run(text, white, unlimited); n > 0; n-- {
		if isNewline(text[n-1]) {
			return n
		}
	}
	return 0
}

func isNewline(c byte) bool { return c == '\r' || c == '\n' }

// word is [^\r\n\p{L}\p{N}]?[c]+
func word(c class) func(text string) int {
	return func(text string) int {
		found, size := first(text)
		if found&(letter|number) == 0 && !isNewline(text[0]) {
			if n := run(text[size:], c, unlimited); n > 0 {
				return size + n
			}
		}
		return run(text, c, unlimited)
	}
}

// casedWord is the word of GPT-4o's pattern: the case changes from upper to lower
// at most once. With U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and
// L = [\p{Ll}\p{Lm}\p{Lo}\p{M}], both minus the classes in without, the
// alternatives in order are:
//
//	[^\r\n\p{L}\p{N}]?U*L+ and [^\r\n\p{L}\p{N}]?U+L*
//
// A contraction may follow.
func casedWord(without class, contractions bool) func(text string) int {
	const u, l = upper | caseless | mark, lower | caseless | mark
	// match returns the length of the first alternative that matches, or 0. full
	// says that it is U*L+.
	match := func(text string) (n int, full bool) {
		end := 0 // end of the last character in the run of U that is also in L
		for {
			c, size := first(text[n:])
			if size == 0 || c&u == 0 || c&without != 0 {
				break
			}
			if n += size; c&l != 0 {
				end = n
			}
		}
		if more := runWithout(text[n:], l, without); more > 0 {
			return n + more, true
		}
		if end > 0 {
			return end, true
		}
		return n, false
	}
	return func(text string) int {
		start, n, full := 0, 0, false
		found, size := first(text)
		if found&(letter|number) == 0 && !isNewline(text[0]) {
			start = size
			n, full = match(text[start:])
		}
		if !full { // the leading character may be a mark, which belongs to the word
			if bare, all := match(text); all || n == 0 {
				start, n = 0, bare
			}
		}
		if n == 0 {
			return 0
		}
		n += start
		if contractions {
			n += contraction(text[n:], true)
		}
		return n
	}
}

var (
	splitLlama3 = modern{true, word(letter), 3, visible, "\r\n", lineEnd}.split
	splitQwen2  = modern{true, word(letter), 1, visible, "\r\n", lineEnd}.split
	splitQwen35 = modern{true, word(letter | mark), 1, visible &^ mark, "\r\n", lineEnd}.split
	splitGPT4o  = modern{false, casedWord(0, true), 3, visible, "\r\n/", lineEnd}.split
	splitTekken = modern{false, casedWord(0, false), 1, visible, "\r\n/", lineEnd}.split
	splitKimi   = modern{false, kimiWord, 3, visible, "\r\n", lineEnd}.split
	// splitSeed is like splitQwen2, but newlines are separate pieces.
	splitSeed = modern{true, word(letter), 1, visible, "", lineEnd}.split
	// splitLlama3Words comes after a splitter of digits.
	splitLlama3Words = modern{true, word(letter), unlimited, visible, "\r\n", lineEnd}.split
)

// kimiWord is \p{Han}+ or the cased word without it.
func kimiWord(text string) int {
	if n := run(text, han, unlimited); n > 0 {
		return n
	}
	return kimiCased(text)
}

var kimiCased = casedWord(han, true)

// contraction returns the length of 's 't 're 've 'm 'll or 'd, or 0. With anyCase,
// s may also be the long s (ſ), which folds to it.
func contraction(text string, anyCase bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	lowered := func(c byte) byte {
		if anyCase && c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return c
	}
	a := lowered(text[1])
	if a == 's' || a == 't' || a == 'm' || a == 'd' {
		return 2
	}
	if anyCase && strings.HasPrefix(text[1:], "ſ") {
		return 1 + len("ſ")
	}
	if len(text) > 2 {
		b := lowered(text[2])
		if a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l' {
			return 3
		}
	}
	return 0
}

// splitGPT2 is 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func splitGPT2(text string) int {
	if n := contraction(text, false); n > 0 {
		return n
	}
	space := 0
	if text[0] == ' ' {
		space = 1
	}
	for _, c := range [...]class{letter, number, visible} {
		if n := run(text[space:], c, unlimited); n > 0 {
			return space + n
		}
	}
	return splitSpaces(text)
}

// splitSpaces is \s+(?!\S)|\s+ : a run of white space leaves its last character to
// the next piece. Any other piece is one character.
func splitSpaces(text string) int {
	n := run(text, white, unlimited)
	if n == 0 {
		_, n = first(text)
		return n
	}
	if n == len(text) {
		return n
	}
	_, last := utf8.DecodeLastRuneInString(text[:n])
	if n > last {
		return n - last
	}
	return n
}

// isolate makes a splitter from a pattern that leaves gaps. match returns the
// length of a match at the start of text, or 0.
func isolate(match func(text string) int) splitter {
	return func(text string) int {
		if n := match(text); n > 0 {
			return n
		}
		for i := range text {
			if i > 0 && match(text[i:]) > 0 {
				return i
			}
		}
		return len(text)
	}
}

// runs makes a splitter for runs of at most max characters of a class.
func runs(c class, max int) splitter {
	return func(text string) int {
		if n := run(text, c, max); n > 0 {
			return n
		}
		return runWithout(text, anyRune, c)
	}
}

// splitRun cuts text into runs that match and runs that do not.
func splitRun(text string, match func(rune) bool) int {
	want := false
	for i, r := range text {
		if i == 0 {
			want = match(r)
		} else if match(r) != want {
			return i
		}
	}
	return len(text)
}

// splitRunes makes a splitter for runs of matching characters.
func splitRunes(match func(rune) bool) splitter {
	return func(text string) int { return splitRun(text, match) }
}

var (
	splitDigit       = runs(number, 1)         // \p{N}
	splitNumber      = runs(number, unlimited) // \p{N}+
	splitDigits3     = runs(number, 3)         // \p{N}{1,3}
	splitFalconMarks = splitRunes(func(r rune) bool { return unicode.IsPunct(r) || strings.ContainsRune("$+<=>^~|`", r) })
	splitPunctuation = splitRunes(func(r rune) bool { return unicode.IsPunct(r) || strings.ContainsRune("$+<=>^~|", r) })
	// splitNewlines is [^\n]+|[\n]+
	splitNewlines = splitRunes(func(r rune) bool { return r == '\n' })
)

// splitThreeDigits is [0-9][0-9][0-9]
var splitThreeDigits = isolate(func(s string) int {
	if len(s) >= 3 && isDigit(s[0]) && isDigit(s[1]) && isDigit(s[2]) {
		return 3
	}
	return 0
})

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// splitBloom is  ?[^(\s|.,!?…。，、।۔،)]+ : the brackets and the bar are in the class.
var splitBloom = isolate(func(text string) int {
	space := 0
	if text[0] == ' ' {
		space = 1
	}
	n := space
	for _, r := range text[space:] {
		if unicode.IsSpace(r) || strings.ContainsRune("(|.,!?…。，、।۔،)", r) {
			break
		}
		n += utf8.RuneLen(r)
		if r == utf8.RuneError && !strings.HasPrefix(text[n-utf8.RuneLen(r):], string(utf8.RuneError)) {
			n -= utf8.RuneLen(r) - 1 // an invalid byte
		}
	}
	if n == space {
		return 0
	}
	return n
})
