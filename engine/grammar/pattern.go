package grammar

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// PatternOptions says how Pattern reads a regular expression.
type PatternOptions struct {
	// Search matches a text that holds a match anywhere, as the pattern of a
	// JSON Schema does. Without it the whole text must match.
	Search bool
	// Alphabet writes one code point of the ranges. Nil is UTF-8; a JSON
	// string's writes some as escapes.
	Alphabet func(ranges []Range) Regex
}

// Pattern reads a regular expression in the syntax of ECMA-262 (flag u, but as
// lenient as without it on escapes and braces that mean nothing else).
// Backreferences, lookbehind, word boundaries and inline flags are refused by
// name, and so is a lookahead within a group or an anchor within a repetition.
func (b *Builder) Pattern(text string, o PatternOptions) (Regex, error) {
	if len(text) > b.limits.SourceSize {
		return never, &LimitError{Limit: "bytes of a regular expression", Max: b.limits.SourceSize}
	}
	if o.Alphabet == nil {
		o.Alphabet = b.pool.utf8Class
	}
	if !utf8.ValidString(text) {
		return never, &SyntaxError{Kind: "regular expression", Reason: "it is not valid UTF-8"}
	}
	p := &patternParser{b: b, text: text, o: o}
	p.any = b.pool.times(o.Alphabet([]Range{{0, unicode.MaxRune}}), 0, Unlimited)
	parts := p.alternatives(true)
	if p.err == nil && p.at < len(text) {
		p.fail(p.at, "a group ends that did not begin")
	}
	if p.err != nil {
		return never, p.err
	}
	var list []Regex
	for _, part := range parts {
		list = append(list, p.completed(part).re)
	}
	if err := b.Err(); err != nil {
		return never, err
	}
	return b.pool.or(list), nil
}

// anchored is an expression that may have to begin where the text does, or
// end where it does.
type anchored struct {
	re         Regex
	begin, end bool
}

type patternParser struct {
	b     *Builder
	text  string
	at    int
	depth int
	o     PatternOptions
	any   Regex // every text
	err   error
}

func (p *patternParser) fail(at int, format string, args ...any) []anchored {
	if p.err == nil {
		p.err = &SyntaxError{Kind: "regular expression", Offset: at, Reason: fmt.Sprintf(format, args...)}
	}
	p.at = len(p.text)
	return nil
}

func (p *patternParser) peek(s string) bool { return strings.HasPrefix(p.text[p.at:], s) }

func (p *patternParser) take(s string) bool {
	if p.peek(s) {
		p.at += len(s)
		return true
	}
	return false
}

func (p *patternParser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
	return r
}

// completed reaches from where the text begins to where it ends, as far as
// the whole expression asks for it.
func (p *patternParser) completed(a anchored) anchored {
	if p.o.Search && !a.begin {
		a.re = p.b.pool.cat(p.any, a.re)
	}
	return anchored{p.toEnd(a), true, true}
}

func (p *patternParser) toEnd(a anchored) Regex {
	if a.end || !p.o.Search {
		return a.re
	}
	return p.b.pool.cat(a.re, p.any)
}

// term is a part of a sequence: alternatives, or a lookahead.
type term struct {
	parts []anchored
	ahead bool
	not   bool
}

func (p *patternParser) alternatives(top bool) []anchored {
	if p.depth++; p.depth > p.b.limits.Nesting {
		return p.fail(p.at, "groups are nested more than %d deep", p.b.limits.Nesting)
	}
	defer func() { p.depth-- }()
	var parts []anchored
	for {
		parts = append(parts, p.sequence(top)...)
		if p.err != nil || !p.take("|") {
			return p.merge(parts)
		}
	}
}

// merge joins what has the same anchors.
func (p *patternParser) merge(parts []anchored) (merged []anchored) {
	for _, begin := range []bool{false, true} {
		for _, end := range []bool{false, true} {
			var list []Regex
			for _, a := range parts {
				if a.begin == begin && a.end == end {
					list = append(list, a.re)
				}
			}
			if re := p.b.pool.or(list); re != never {
				merged = append(merged, anchored{re, begin, end})
			}
		}
	}
	return merged
}

func (p *patternParser) sequence(top bool) []anchored {
	var terms []term
	for p.at < len(p.text) && !p.peek("|") && !p.peek(")") {
		from := p.at
		t := p.term()
		if p.err != nil {
			return nil
		}
		if t.ahead && !top {
			return p.fail(from, "a lookahead within a group is not supported")
		}
		terms = append(terms, t)
	}
	rest := []anchored{{re: epsilon}}
	for i := len(terms) - 1; i >= 0; i-- {
		if terms[i].ahead {
			rest = p.lookahead(terms[i], rest)
		} else {
			rest = p.join(terms[i].parts, rest)
		}
	}
	return rest
}

// join is one after the other. What ends where the text does is followed by
// nothing, what begins where it does follows nothing.
func (p *patternParser) join(first, second []anchored) []anchored {
	var parts []anchored
	for _, x := range first {
		for _, y := range second {
			rx, ry := x.re, y.re
			if x.end {
				if !p.b.pool.nullable(ry) {
					continue
				}
				ry = epsilon
			}
			if y.begin {
				if !p.b.pool.nullable(rx) {
					continue
				}
				rx = epsilon
			}
			parts = append(parts, anchored{p.b.pool.cat(rx, ry), x.begin || y.begin, x.end || y.end})
		}
	}
	if len(first) == 1 && len(second) == 1 {
		return parts
	}
	return p.merge(parts)
}

// lookahead holds what follows, up to the end of the text, to an expression.
func (p *patternParser) lookahead(t term, rest []anchored) []anchored {
	var list []Regex
	begin := false
	for _, a := range t.parts {
		begin = begin || a.begin
		if !a.end {
			a.re = p.b.pool.cat(a.re, p.any)
		}
		list = append(list, a.re)
	}
	if begin {
		return p.fail(p.at, "an anchor ^ within a lookahead is not supported")
	}
	ahead := p.b.pool.or(list)
	if t.not {
		ahead = p.b.pool.not(ahead)
	}
	var parts []anchored
	for _, a := range rest {
		parts = append(parts, anchored{p.b.pool.and([]Regex{p.toEnd(a), ahead}), a.begin, true})
	}
	return parts
}

func (p *patternParser) term() term {
	from := p.at
	var parts []anchored
	switch {
	case p.take("(?=") || p.take("(?!"):
		t := term{ahead: true, not: p.text[p.at-1] == '!'}
		t.parts = p.group(from)
		if p.at < len(p.text) && strings.ContainsRune("*+?{", rune(p.text[p.at])) {
			p.fail(p.at, "a lookahead cannot be repeated")
		}
		return t
	case p.take("^"):
		parts = []anchored{{re: epsilon, begin: true}}
	case p.take("$"):
		parts = []anchored{{re: epsilon, end: true}}
	case p.peek("("):
		parts = p.openGroup(from)
	case p.peek("*") || p.peek("+") || p.peek("?"):
		p.fail(from, "a repetition of nothing")
	default:
		parts = []anchored{{re: p.class()}}
	}
	return term{parts: p.quantified(parts)}
}

func (p *patternParser) openGroup(from int) []anchored {
	p.take("(")
	switch {
	case p.take("?:"):
	case p.peek("?<=") || p.peek("?<!"):
		return p.fail(from, "lookbehind (%s) is not supported", p.text[from:from+4])
	case p.take("?<") || p.take("?P<"):
		end := strings.IndexByte(p.text[p.at:], '>')
		if end < 1 {
			return p.fail(from, "a group's name does not end")
		}
		p.at += end + 1
	case p.peek("?"):
		return p.fail(from, "the group (%s is not supported: inline flags and such have no meaning here", p.text[from+1:min(from+3, len(p.text))])
	}
	return p.group(from)
}

func (p *patternParser) group(from int) []anchored {
	parts := p.alternatives(false)
	if p.err == nil && !p.take(")") {
		p.fail(from, "the group does not end")
	}
	return parts
}

func (p *patternParser) quantified(parts []anchored) []anchored {
	if p.err != nil || p.at >= len(p.text) {
		return parts
	}
	from := p.at
	min, max, ok := p.quantifier()
	if !ok {
		return parts
	}
	if !p.take("?") && p.peek("+") {
		return p.fail(p.at, "a possessive repetition is not supported")
	}
	if _, _, again := p.quantifier(); again {
		return p.fail(p.at, "a repetition of a repetition needs a group")
	}
	switch {
	case max != Unlimited && min > max:
		return p.fail(from, "the repetition {%d,%d} has its bounds in the wrong order", min, max)
	case min > p.b.limits.Count || max > p.b.limits.Count:
		return p.fail(from, "a repetition above %d", p.b.limits.Count)
	case min == 0 && max == 1:
		return p.merge(append(parts, anchored{re: epsilon}))
	case min == 1 && max == 1:
		return parts
	}
	var plain []Regex
	for _, a := range parts {
		if a.begin || a.end {
			return p.fail(from, "an anchor (^ or $) within a repetition is not supported")
		}
		plain = append(plain, a.re)
	}
	return []anchored{{re: p.b.pool.times(p.b.pool.or(plain), int32(min), int32(max))}}
}

func (p *patternParser) quantifier() (min, max int, ok bool) {
	switch {
	case p.take("*"):
		return 0, Unlimited, true
	case p.take("+"):
		return 1, Unlimited, true
	case p.take("?"):
		return 0, 1, true
	case !p.peek("{"):
		return 0, 0, false
	}
	from := p.at
	p.at++
	min, ok = p.number()
	max = min
	if ok && p.take(",") {
		if max, ok = p.number(); !ok {
			max, ok = Unlimited, true
		}
	}
	if !ok || !p.take("}") { // a brace that stands for itself
		p.at = from
		return 0, 0, false
	}
	return min, max, true
}

// number reads digits; above what any limit allows it stays there.
func (p *patternParser) number() (n int, ok bool) {
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		n = min(10*n+int(p.text[p.at]-'0'), 1<<30)
		p.at++
		ok = true
	}
	return n, ok
}
