package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// longUpper lists the letters whose upper case has several characters, each
// followed by its upper case. Source: Unicode's SpecialCasing.txt.
const longUpper = "ßSS ŉʼN ǰJ̌ ΐΪ́ ΰΫ́ ևԵՒ ẖH̱ ẗT̈ ẘW̊ ẙY̊ ẚAʾ ὐΥ̓ ὒΥ̓̀ ὔΥ̓́ ὖΥ̓͂ ᾀἈΙ ᾁἉΙ ᾂἊΙ ᾃἋΙ " +
	"ᾄἌΙ ᾅἍΙ ᾆἎΙ ᾇἏΙ ᾈἈΙ ᾉἉΙ ᾊἊΙ ᾋἋΙ ᾌἌΙ ᾍἍΙ ᾎἎΙ ᾏἏΙ ᾐἨΙ ᾑἩΙ ᾒἪΙ ᾓἫΙ " +
	"ᾔἬΙ ᾕἭΙ ᾖἮΙ ᾗἯΙ ᾘἨΙ ᾙἩΙ ᾚἪΙ ᾛἫΙ ᾜἬΙ ᾝἭΙ ᾞἮΙ ᾟἯΙ ᾠὨΙ ᾡὩΙ ᾢὪΙ ᾣὫΙ " +
	"ᾤὬΙ ᾥὭΙ ᾦὮΙ ᾧὯΙ ᾨὨΙ ᾩὩΙ ᾪὪΙ ᾫὫΙ ᾬὬΙ ᾭὭΙ ᾮὮΙ ᾯὯΙ ᾲᾺΙ ᾳΑΙ ᾴΆΙ ᾶΑ͂ ᾷΑ͂Ι " +
	"ᾼΑΙ ῂῊΙ ῃΗΙ ῄΉΙ ῆΗ͂ ῇΗ͂Ι ῌΗΙ ῒΪ̀ ΐΪ́ ῖΙ͂ ῗΪ͂ ῢΫ̀ ΰΫ́ ῤΡ̓ ῦΥ͂ ῧΫ͂ " +
	"ῲῺΙ ῳΩΙ ῴΏΙ ῶΩ͂ ῷΩ͂Ι ῼΩΙ ﬀFF ﬁFI ﬂFL ﬃFFI ﬄFFL ﬅST ﬆST ﬓՄՆ ﬔՄԵ ﬕՄԻ ﬖՎՆ ﬗՄԽ"

var upperOf, foldOf = func() (upper, fold *strings.Replacer) {
	var ups, folds []string
	for word := range strings.FieldsSeq(longUpper) {
		_, size := utf8.DecodeRuneInString(word)
		ups = append(ups, word[:size], word[size:])
		folds = append(folds, word[:size], strings.ToLower(word[size:]))
	}
	return strings.NewReplacer(ups...), strings.NewReplacer(append(folds, "ς", "σ")...)
}()

// upper is Python's str.upper, lower is str.lower, titled is the title case of a
// word's first character, and folded is str.casefold. The result can be three
// times as long as text.
func upper(text string) string {
	if isASCII(text) {
		return strings.ToUpper(text)
	}
	return strings.ToUpper(upperOf.Replace(text))
}

func lower(text string) string {
	if isASCII(text) || !strings.ContainsAny(text, "İΣ") {
		return strings.ToLower(text)
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == 'İ':
			b.WriteString("i̇")
		case r == 'Σ' && endsWord(text[:i], text[i+len("Σ"):]):
			b.WriteRune('ς')
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// endsWord reports whether before ends with a letter and after does not begin
// with one.
func endsWord(before, after string) bool {
	last, _ := utf8.DecodeLastRuneInString(before)
	next, _ := utf8.DecodeRuneInString(after)
	return unicode.IsLetter(last) && !unicode.IsLetter(next)
}

func titled(first rune) string {
	if t := unicode.ToTitle(first); t != first || first < utf8.RuneSelf {
		return string(t)
	}
	long := upperOf.Replace(string(first))
	head, size := utf8.DecodeRuneInString(long)
	return string(unicode.ToUpper(head)) + strings.ToLower(long[size:])
}

func folded(text string) string { return foldOf.Replace(lower(text)) }

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// capitalized is str.capitalize.
func capitalized(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return titled(first) + lower(text[size:])
}

// title upper-cases the first character of each run of word characters.
func title(s *state, text string, isWord func(rune) bool, first func(rune) string) any {
	s.charge(3 * len(text))
	text = lower(text)
	var b strings.Builder
	inside := false
	for _, r := range text {
		if word := isWord(r); word && !inside {
			b.WriteString(first(r))
			inside = true
		} else {
			b.WriteRune(r)
			inside = word
		}
	}
	return b.String()
}
