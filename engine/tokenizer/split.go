package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// A splitter returns the length of the first piece of text, which is not
// empty. Pre-tokenizers are written as regular expressions by their makers;
// each splitter here is one of them by hand, because of the look-ahead in
// \s+(?!\S), and to be linear.
type splitter func(text string) int

// pretokenizer is what a name in tokenizer.ggml.pre stands for.
type pretokenizer struct {
	splitters    []splitter // each cuts the pieces of the one before
	ignoreMerges bool       // a piece that is a token needs no merging
	addBOS       bool       // unless the file says otherwise
	nfc          bool       // text is normalised to NFC first
}

var (
	likeGPT2   = pretokenizer{splitters: []splitter{splitGPT2}}
	likeLlama3 = pretokenizer{splitters: []splitter{splitLlama3}, ignoreMerges: true, addBOS: true}
	likeQwen2  = pretokenizer{splitters: []splitter{splitQwen2}, nfc: true}
	likeDigits = pretokenizer{splitters: []splitter{splitDigit, splitGPT2}}
)

// pretokenizers by name. Adding one is adding a line here, and a splitter
// where it has a pattern of its own.
var pretokenizers = map[string]pretokenizer{
	"gpt-2": likeGPT2, "phi-2": likeGPT2, "mpt": likeGPT2, "olmo": likeGPT2, "jais": likeGPT2,
	"gigachat": likeGPT2, "a.x-4.0": likeGPT2, "mellum": likeGPT2, "modern-bert": likeGPT2,

	"llama3": likeLlama3, "llama-v3": likeLlama3, "llama-bpe": likeLlama3, "falcon3": likeLlama3,
	"falcon-h1": likeLlama3, "pixtral": likeLlama3, "midm-2.0": likeLlama3, "lfm2": likeLlama3,

	"qwen2": likeQwen2, "deepseek-r1-qwen": likeQwen2,

	"starcoder": likeDigits, "refact": likeDigits, "command-r": likeDigits, "smollm": likeDigits,
	"codeshell": likeDigits, "exaone": likeDigits, "minerva-7b": likeDigits,

	"default": {splitters: []splitter{splitPunctuation, splitGPT2, splitNumber, splitThreeDigits}},
}

type class uint8

const (
	classOther class = iota
	classLetter
	classNumber
	classSpace
)

var asciiClasses = func() (table [utf8.RuneSelf]class) {
	for r := range table {
		table[r] = runeClass(rune(r))
	}
	return table
}()

func runeClass(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return classLetter
	case unicode.IsNumber(r):
		return classNumber
	case unicode.IsSpace(r):
		return classSpace
	}
	return classOther
}

// first is the class and length of the first character; at the end the length is 0.
func first(text string) (class, int) {
	if text == "" {
		return classOther, 0
	}
	if text[0] < utf8.RuneSelf {
		return asciiClasses[text[0]], 1
	}
	r, size := utf8.DecodeRuneInString(text)
	return runeClass(r), size
}

// run is the length of the characters of class c, at most max, that text begins with.
func run(text string, c class, max int) int {
	n := 0
	for ; max > 0; max-- {
		found, size := first(text[n:])
		if size == 0 || found != c {
			break
		}
		n += size
	}
	return n
}

const unlimited = int(^uint(0) >> 1)

// contraction is the length of 's 't 're 've 'm 'll or 'd, or 0.
func contraction(text string, anyCase bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	lower := func(c byte) byte {
		if anyCase && c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return c
	}
	a := lower(text[1])
	if a == 's' || a == 't' || a == 'm' || a == 'd' {
		return 2
	}
	if len(text) > 2 {
		b := lower(text[2])
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
	if c, size := first(text[space:]); size > 0 && c != classSpace {
		return space + run(text[space:], c, unlimited)
	}
	return splitSpaces(text)
}

// splitSpaces is \s+(?!\S)|\s+ : a run of white space leaves its last
// character to what follows.
func splitSpaces(text string) int {
	n := run(text, classSpace, unlimited)
	if n == len(text) {
		return n
	}
	_, last := utf8.DecodeLastRuneInString(text[:n])
	if n > last {
		return n - last
	}
	return n
}

// splitLlama3 is (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitLlama3(text string) int { return splitModern(text, 3) }

// splitQwen2 is splitLlama3 with one digit a piece.
func splitQwen2(text string) int { return splitModern(text, 1) }

func splitModern(text string, digits int) int {
	if n := contraction(text, true); n > 0 {
		return n
	}
	c, size := first(text)
	switch c {
	case classLetter:
		return run(text, classLetter, unlimited)
	case classNumber:
		return run(text, classNumber, digits)
	}
	if !isNewline(text[0]) {
		if n := run(text[size:], classLetter, unlimited); n > 0 {
			return size + n
		}
	}
	space := 0
	if text[0] == ' ' {
		space = 1
	}
	if n := run(text[space:], classOther, unlimited); n > 0 {
		n += space
		for n < len(text) && isNewline(text[n]) {
			n++
		}
		return n
	}
	for n := run(text, classSpace, unlimited); n > 0; n-- {
		if isNewline(text[n-1]) {
			return n
		}
	}
	return splitSpaces(text)
}

func isNewline(c byte) bool { return c == '\r' || c == '\n' }

// splitRun cuts text into runs that match and runs that do not.
func splitRun(text string, match func(rune) bool, max int) int {
	n, want := 0, false
	for i, r := range text {
		if i == 0 {
			want = match(r)
		} else if match(r) != want || want && n == max {
			return i
		}
		n++
	}
	return len(text)
}

// splitDigit is \p{N}: every digit is a piece, and what stands between.
func splitDigit(text string) int { return splitRun(text, unicode.IsNumber, 1) }

// splitNumber is \p{N}+
func splitNumber(text string) int { return splitRun(text, unicode.IsNumber, unlimited) }

// splitPunctuation is [\p{P}\$\+<=>\^~\|]+
func splitPunctuation(text string) int {
	return splitRun(text, func(r rune) bool {
		switch r {
		case '$', '+', '<', '=', '>', '^', '~', '|':
			return true
		}
		return unicode.IsPunct(r)
	}, unlimited)
}

// splitThreeDigits is [0-9][0-9][0-9]
func splitThreeDigits(text string) int {
	three := func(s string) bool {
		return len(s) >= 3 && isDigit(s[0]) && isDigit(s[1]) && isDigit(s[2])
	}
	if three(text) {
		return 3
	}
	for i := range text {
		if three(text[i:]) {
			return i
		}
	}
	return len(text)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
