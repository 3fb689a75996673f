package schema

import (
	"errors"
	"strings"
	"unicode"

	"github.com/forebay-io/forebay/engine/grammar"
)

// A texter makes regular expressions of strings as JSON writes them between
// the quotes. A character has the same spellings wherever it stands, so a
// condition on characters is one on spellings, and and, or and not carry over.
type texter struct {
	b        *grammar.Builder
	any      grammar.Regex // one character
	wide     grammar.Regex // one character, in every escape
	patterns map[string]grammar.Regex
	formats  map[string]grammar.Regex
	emptied  map[grammar.Regex]bool
}

func newTexter(b *grammar.Builder) texter {
	t := texter{b: b, patterns: map[string]grammar.Regex{}, formats: map[string]grammar.Regex{}, emptied: map[grammar.Regex]bool{}}
	t.any = t.spell([]grammar.Range{{Lo: 0, Hi: unicode.MaxRune}})
	hex := t.hex("0123456789abcdefABCDEF")
	notD := t.hex("0123456789abcefABCEF")
	unit := b.Or(b.Cat(notD, hex, hex, hex), b.Cat(t.hex("dD"), t.hex("01234567"), hex, hex))
	pair := b.Cat(t.hex("dD"), t.hex("89abAB"), hex, hex, b.Literal(`\u`), t.hex("dD"), t.hex("cdefCDEF"), hex, hex)
	t.wide = b.Or(t.any, b.Literal(`\/`), b.Cat(b.Literal(`\u`), b.Or(unit, pair)))
	return t
}

func (t *texter) hex(digits string) grammar.Regex {
	var list []grammar.Regex
	for i := range len(digits) {
		list = append(list, t.b.Literal(digits[i:i+1]))
	}
	return t.b.Or(list...)
}

// short are the characters with an escape of one letter.
const short, shortLetters = "\"\\\b\f\n\r\t", `"\bfnrt`

// spell matches one character of the ranges as a JSON string writes it:
// itself, or the escape where JSON asks for one.
func (t *texter) spell(ranges []grammar.Range) grammar.Regex {
	var plain []grammar.Range
	var list []grammar.Regex
	special := func(c rune) bool { return c < 0x20 || c == '"' || c == '\\' }
	for _, r := range ranges {
		for r.Lo <= r.Hi && r.Lo <= '\\' {
			if special(r.Lo) {
				list = append(list, t.escapes(byte(r.Lo))...)
			} else {
				plain = append(plain, grammar.Range{Lo: r.Lo, Hi: r.Lo})
			}
			r.Lo++
		}
		if r.Lo <= r.Hi {
			plain = append(plain, r)
		}
	}
	return t.b.Or(append(list, t.b.Class(plain...))...)
}

func (t *texter) escapes(c byte) []grammar.Regex {
	var list []grammar.Regex
	if i := strings.IndexByte(short, c); i >= 0 {
		list = append(list, t.b.Literal(`\`+shortLetters[i:i+1]))
	}
	if c < 0x20 {
		list = append(list, t.b.Cat(t.b.Literal(`\u00`+string('0'+c>>4)), t.digit(c&15)))
	}
	return list
}

func (t *texter) digit(n byte) grammar.Regex {
	return t.b.Or(t.b.Literal("0123456789abcdef"[n:n+1]), t.b.Literal("0123456789ABCDEF"[n:n+1]))
}

// quote writes a string as JSON does, in its shortest form, without the quotes.
func quote(s string) string {
	if strings.IndexFunc(s, func(c rune) bool { return c < 0x20 || c == '"' || c == '\\' }) < 0 {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch k := strings.IndexByte(short, c); {
		case k >= 0:
			b.WriteByte('\\')
			b.WriteByte(shortLetters[k])
		case c < 0x20:
			b.WriteString(`\u00`)
			b.WriteByte('0' + c>>4)
			b.WriteByte("0123456789abcdef"[c&15])
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func (t *texter) quoted(list []string) grammar.Regex {
	spelled := make([]string, len(list))
	for i, s := range list {
		spelled[i] = quote(s)
	}
	return t.b.Literals(spelled)
}

func (t *texter) knows(format string) bool { return formats[format] != "" }

// condition is the regular expression of a pattern or format, without its negation: where
// c is negated, it matches at least all that the format does, else at most.
func (t *texter) condition(c condition) grammar.Regex {
	cache, source, key := t.patterns, c.name, c.name
	if !c.pattern {
		cache, source = t.formats, formats[c.name]
	}
	if wide := widest[c.name]; wide != "" && !c.pattern && c.negated {
		source, key = wide, "not "+key
	}
	if r, ok := cache[key]; ok {
		return r
	}
	r, err := t.b.Pattern(source, grammar.PatternOptions{Search: c.pattern, Alphabet: t.spell})
	if err != nil {
		reason := err.Error()
		if syntax := (*grammar.SyntaxError)(nil); errors.As(err, &syntax) {
			reason = syntax.Reason
		}
		refuse(c.at, "in "+clip(c.name)+" "+reason)
	}
	if !c.pattern && c.name == "hostname" && !c.negated {
		r = t.b.And(r, t.b.Times(t.any, 1, 253))
	}
	cache[key] = r
	return r
}

// internationalHost matches host names of up to eight labels of up to 30 bytes, which
// are no more than 253 together, with international ones among them.
func (t *texter) internationalHost() grammar.Regex {
	ascii, err := t.b.Pattern(labelOf(30), grammar.PatternOptions{Alphabet: t.spell})
	if err != nil {
		return t.b.Never()
	}
	label := t.b.Or(ascii, t.b.InternationalLabel())
	return t.b.Cat(label, t.b.Times(t.b.Cat(t.b.Literal("."), label), 0, 7))
}

func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

// regex matches the spellings of the strings of a set.
func (t *texter) regex(x *texts) grammar.Regex {
	if x.isListed {
		return t.quoted(x.listed)
	}
	unit := t.wide
	if len(x.conditions)+len(x.except) > 0 {
		unit = t.any
	}
	var list []grammar.Regex
	narrow := x.min > 0 || x.max != unlimited || len(x.conditions) == 0
	for _, k := range x.conditions {
		r := t.condition(k)
		switch {
		case k.negated:
			r, narrow = t.b.Not(r), true
		case !k.pattern && k.name == "hostname" && len(x.conditions)+len(x.except) == 1:
			// Beside another condition it may take too long to see which labels meet both.
			r = t.b.Or(r, t.internationalHost())
		}
		list = append(list, r)
	}
	if len(x.except) > 0 {
		list, narrow = append(list, t.b.Not(t.quoted(x.except))), true
	}
	if narrow {
		list = append(list, t.b.Times(unit, x.min, x.max))
	}
	if len(list) == 1 {
		return list[0]
	}
	return t.b.And(list...)
}

// met refuses the keyword at work if the builder met a limit.
func (c *compiler) met(at *value) {
	if err := c.b.Err(); err != nil {
		if at == nil {
			at = c.here
		}
		refuse(at, err.Error())
	}
}

// holds says whether a string is in a set.
func (c *compiler) holds(t *texts, s string) bool {
	if t.isListed {
		for _, x := range t.listed {
			if x == s {
				return true
			}
		}
		return false
	}
	if t.min == 0 && t.max == unlimited && len(t.conditions)+len(t.except) == 0 {
		return true
	}
	c.spend(8 + len(s))
	n := 0
	for range s {
		n++
	}
	if n < t.min || t.max != unlimited && n > t.max {
		return false
	}
	for _, x := range t.except {
		if x == s {
			return false
		}
	}
	return c.named(t.conditions, s)
}

// named says whether a name meets all conditions.
func (c *compiler) named(conditions []condition, name string) bool {
	for _, k := range conditions {
		r := c.text.condition(k)
		matches := c.b.Match(r, quote(name))
		c.met(k.at)
		if matches == k.negated {
			return false
		}
	}
	return true
}

// noName says whether no name meets all conditions.
func (c *compiler) noName(conditions []condition) bool {
	return c.noText(&texts{max: unlimited, conditions: conditions})
}

// noText says whether a set of strings is empty.
func (c *compiler) noText(t *texts) bool {
	switch {
	case t.isListed:
		return len(t.listed) == 0
	case t.max != unlimited && t.min > t.max:
		return true
	case len(t.conditions) == 0:
		return false
	case len(t.conditions) == 1 && !t.conditions[0].negated && t.min == 0 && t.max == unlimited && len(t.except) == 0:
		return false
	}
	r := c.text.regex(t)
	empty, ok := c.text.emptied[r]
	if !ok {
		c.spend(50)
		empty = c.b.Empty(r)
		c.met(t.conditions[0].at)
		c.text.emptied[r] = empty
	}
	return empty
}
