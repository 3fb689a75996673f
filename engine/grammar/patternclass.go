package grammar

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	digits     = []Range{{'0', '9'}}
	wordChars  = []Range{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	spaces     = []Range{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}}
	lineBreaks = []Range{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}
)

// class reads what matches one character.
func (p *patternParser) class() Regex {
	from := p.at
	switch {
	case p.take("."):
		return p.o.Alphabet(Complement(lineBreaks))
	case p.take("["):
		return p.o.Alphabet(p.set(from))
	case p.take("\\"):
		list, _ := p.escape(from, false)
		return p.o.Alphabet(list)
	}
	r := p.rune()
	return p.o.Alphabet([]Range{{r, r}})
}

func (p *patternParser) set(from int) []Range {
	not := p.take("^")
	var list []Range
	for !p.take("]") {
		lo, single := p.member(from)
		if p.err != nil {
			return nil
		}
		if !p.peek("-") || strings.HasPrefix(p.text[p.at:], "-]") {
			list = append(list, lo...)
			continue
		}
		at := p.at
		p.at++
		hi, singleHi := p.member(from)
		switch {
		case p.err != nil:
			return nil
		case !single || !singleHi: // the hyphen stands for itself
			list = append(append(append(list, lo...), hi...), Range{'-', '-'})
		case lo[0].Lo > hi[0].Lo:
			p.fail(at, "a range of characters has its ends in the wrong order")
			return nil
		default:
			list = append(list, Range{lo[0].Lo, hi[0].Lo})
		}
	}
	if not {
		return Complement(list)
	}
	return list
}

func (p *patternParser) member(from int) (list []Range, single bool) {
	at := p.at
	switch {
	case p.at >= len(p.text):
		p.fail(from, "the set of characters does not end")
		return nil, false
	case p.take("\\"):
		return p.escape(at, true)
	}
	r := p.rune()
	return []Range{{r, r}}, true
}

// escape reads what follows a backslash. single says that it is one character.
func (p *patternParser) escape(from int, inSet bool) (list []Range, single bool) {
	if p.at >= len(p.text) {
		p.fail(from, "a backslash at the end")
		return nil, false
	}
	one := func(r rune) ([]Range, bool) { return []Range{{r, r}}, true }
	switch r := p.rune(); r {
	case 'd':
		return digits, false
	case 'D':
		return Complement(digits), false
	case 'w':
		return wordChars, false
	case 'W':
		return Complement(wordChars), false
	case 's':
		return spaces, false
	case 'S':
		return Complement(spaces), false
	case 'p', 'P':
		return p.property(from, r == 'P'), false
	case 't':
		return one('\t')
	case 'n':
		return one('\n')
	case 'v':
		return one('\v')
	case 'f':
		return one('\f')
	case 'r':
		return one('\r')
	case 'x':
		return one(p.hex(from, 2))
	case 'u':
		return one(p.unicode(from))
	case 'c':
		if p.at < len(p.text) && unicode.IsLetter(rune(p.text[p.at])) && p.text[p.at] < utf8.RuneSelf {
			return one(p.rune() % 32)
		}
		p.fail(from, `\c needs a letter`)
	case 'b', 'B':
		if inSet && r == 'b' {
			return one('\b')
		}
		p.fail(from, `the word boundary \%c is not supported`, r)
	case 'A', 'Z', 'z', 'G':
		p.fail(from, `\%c is no escape of ECMA-262: use ^ or $`, r)
	case 'k':
		p.fail(from, `the backreference \k is not supported`)
	case '0':
		return one(0)
	default:
		if r >= '1' && r <= '9' {
			p.fail(from, `the backreference \%c is not supported`, r)
			return nil, false
		}
		return one(r)
	}
	return nil, false
}

func (p *patternParser) hex(from, n int) rune {
	if p.at+n <= len(p.text) {
		if v, err := strconv.ParseUint(p.text[p.at:p.at+n], 16, 32); err == nil {
			p.at += n
			return rune(v)
		}
	}
	p.fail(from, "%d hexadecimal digits are missing", n)
	return 0
}

func (p *patternParser) unicode(from int) rune {
	if p.take("{") {
		end := strings.IndexByte(p.text[p.at:], '}')
		if end < 1 || end > 8 {
			p.fail(from, `\u{ does not end`)
			return 0
		}
		r := p.hex(from, end)
		if r > unicode.MaxRune || r < 0 {
			p.fail(from, "there is no such character")
		}
		p.take("}")
		return r
	}
	r := p.hex(from, 4)
	if utf16.IsSurrogate(r) && p.err == nil {
		at := p.at
		if p.take(`\u`) {
			if pair := utf16.DecodeRune(r, p.hex(from, 4)); pair != unicode.ReplacementChar {
				return pair
			}
			p.at = at
		}
	}
	return r
}

var longCategories = map[string]string{
	"Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm", "Other_Letter": "Lo",
	"Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc", "Enclosing_Mark": "Me",
	"Number": "N", "Decimal_Number": "Nd", "Letter_Number": "Nl", "Other_Number": "No", "digit": "Nd",
	"Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe", "Initial_Punctuation": "Pi", "Final_Punctuation": "Pf", "Other_Punctuation": "Po",
	"Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Other_Symbol": "So",
	"Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp",
	"Other": "C", "Control": "Cc", "cntrl": "Cc", "Format": "Cf", "Private_Use": "Co",
}

// property reads {name}, or one letter, after \p.
func (p *patternParser) property(from int, not bool) []Range {
	name := ""
	if p.take("{") {
		end := strings.IndexByte(p.text[p.at:], '}')
		if end < 0 {
			p.fail(from, `\p{ does not end`)
			return nil
		}
		name = p.text[p.at : p.at+end]
		p.at += end + 1
	} else if p.at < len(p.text) {
		name = string(p.rune())
	}
	key, value, named := strings.Cut(name, "=")
	var list []Range
	switch {
	case !named && name == "Any":
		list = []Range{{0, unicode.MaxRune}}
	case !named && name == "ASCII":
		list = []Range{{0, 127}}
	case !named && name == "Alphabetic", !named && name == "Alpha":
		for _, t := range []*unicode.RangeTable{unicode.L, unicode.Nl, unicode.Other_Alphabetic} {
			list = append(list, tableRanges(t)...)
		}
	default:
		table := propertyTable(key, value, named)
		if table == nil {
			p.fail(from, `the property \p{%s} is not known`, name)
			return nil
		}
		list = tableRanges(table)
	}
	if not {
		return Complement(list)
	}
	return list
}

func propertyTable(key, value string, named bool) *unicode.RangeTable {
	category := func(name string) *unicode.RangeTable {
		if short, ok := longCategories[name]; ok {
			name = short
		}
		return unicode.Categories[name]
	}
	switch {
	case !named:
		if t := category(key); t != nil {
			return t
		}
		return unicode.Properties[key]
	case key == "General_Category" || key == "gc":
		return category(value)
	case key == "Script" || key == "sc" || key == "Script_Extensions" || key == "scx":
		return unicode.Scripts[value]
	}
	return nil
}

func tableRanges(t *unicode.RangeTable) (list []Range) {
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			list = append(list, Range{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			list = append(list, Range{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return list
}
