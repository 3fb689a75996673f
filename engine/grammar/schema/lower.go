package schema

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/forebay-io/forebay/engine/grammar"
)

// indent bounds the spaces after a newline: sixteen levels of two.
const indent = 32

// maxUnique bounds the values of an array with uniqueItems: any of them may
// have come already, so there is a rule for each subset.
const maxUnique = 8

// lowerer makes rules of shapes: for each set of schemas one.
type lowerer struct {
	*compiler
	numbers numberer
	values  map[setID]grammar.Expr
	queue   []pending

	line       grammar.Regex // a newline and indentation, or nothing
	after      grammar.Regex // the white space after a comma
	colon      grammar.Regex
	openArray  grammar.Expr
	closeArray grammar.Expr
	comma      grammar.Expr
	noItems    grammar.Expr
	openObject grammar.Expr
	endObject  grammar.Expr
	noMembers  grammar.Expr
	anyName    grammar.Regex
}

type pending struct {
	set  setID
	rule grammar.Expr
	at   *value // the keyword that wants it
}

func newLowerer(c *compiler) *lowerer {
	b := c.b
	l := &lowerer{compiler: c, numbers: newNumberer(b), values: map[setID]grammar.Expr{}}
	l.line, l.after, l.colon = b.Epsilon(), b.Epsilon(), b.Literal(":")
	if !c.Compact {
		line := b.Cat(b.Literal("\n"), b.Times(b.Literal(" "), 0, indent))
		if c.OneLine {
			line = b.Epsilon()
		}
		l.line = b.Times(line, 0, 1)
		l.after = b.Times(b.Or(b.Literal(" "), line), 0, 1)
		l.colon = b.Cat(l.colon, b.Times(b.Literal(" "), 0, 1))
	}
	l.openArray = b.Terminal("[", b.Cat(b.Literal("["), l.line))
	l.closeArray = b.Terminal("]", b.Cat(l.line, b.Literal("]")))
	l.comma = b.Terminal(",", b.Cat(b.Literal(","), l.after))
	l.noItems = b.Terminal("[]", b.Cat(b.Literal("["), l.line, b.Literal("]")))
	l.openObject = b.Terminal("{", b.Literal("{"))
	l.endObject = b.Terminal("}", b.Cat(l.line, b.Literal("}")))
	l.noMembers = b.Terminal("{}", b.Cat(b.Literal("{"), l.line, b.Literal("}")))
	l.anyName = b.Times(c.text.any, 0, grammar.Unlimited)
	return l
}

// lower is the rule of a set, and with it those of all that it holds.
func (l *lowerer) lower(set setID, at *value) grammar.Expr {
	start := l.value(set, at)
	for len(l.queue) > 0 {
		p := l.queue[0]
		l.queue = l.queue[1:]
		l.here = p.at
		l.b.Define(p.rule, l.body(l.expand(p.set), p.at))
		l.met(p.at)
	}
	return start
}

// value matches the values of a set. What is no array or object is one
// terminal; the others are a rule, which the queue defines.
func (l *lowerer) value(set setID, at *value) grammar.Expr {
	if e, ok := l.values[set]; ok {
		return e
	}
	l.here = at
	s := l.expand(set)
	var e grammar.Expr
	if len(s.arrays)+len(s.objects) == 0 {
		e = l.scalar(s)
	} else {
		e = l.b.Rule("value " + strconv.Itoa(int(set)))
		l.queue = append(l.queue, pending{set, e, at})
	}
	l.values[set] = e
	return e
}

func (l *lowerer) body(s *shape, at *value) grammar.Expr {
	var list []grammar.Expr
	if s.null || s.yes || s.no || len(s.numbers)+len(s.strings) > 0 {
		list = append(list, l.scalar(s))
	}
	for i := range s.arrays {
		a := s.arrays[i]
		if a.at == nil {
			a.at = at
		}
		list = append(list, l.array(&a))
	}
	for i := range s.objects {
		o := s.objects[i]
		if o.at == nil {
			o.at = at
		}
		list = append(list, l.object(&o))
	}
	slices.Sort(list)
	return l.b.Choice(slices.Compact(list)...)
}

// scalar is one terminal for all values that hold no others.
func (l *lowerer) scalar(s *shape) grammar.Expr {
	var list []grammar.Regex
	for _, w := range []struct {
		word string
		is   bool
	}{{"null", s.null}, {"true", s.yes}, {"false", s.no}} {
		if w.is {
			list = append(list, l.b.Literal(w.word))
		}
	}
	for i := range s.numbers {
		list = append(list, l.numbers.regex(&s.numbers[i]))
	}
	for i := range s.strings {
		t := l.within(&s.strings[i])
		list = append(list, l.b.Cat(l.b.Literal(`"`), l.text.regex(t), l.b.Literal(`"`)))
	}
	return l.b.Terminal("value", l.b.Or(list...))
}

// within holds the bounds of a string to what the builder counts.
func (l *lowerer) within(t *texts) *texts {
	most := l.b.Limits().Count
	if t.min > most {
		refuse(t.at, "a string of more than "+strconv.Itoa(most)+" characters is too long")
	}
	if t.max > most {
		x := *t
		x.max = most
		return &x
	}
	return t
}

// counts holds the bounds of an array or object to what the builder counts.
func (l *lowerer) counts(min, max int, at *value) (int, int) {
	most := l.b.Limits().Count
	if min > most {
		refuse(at, "more than "+strconv.Itoa(most)+" are too many")
	}
	if max > most {
		max = most
	}
	return min, max
}

func (l *lowerer) array(a *arrays) grammar.Expr {
	a.min, a.max = l.counts(a.min, a.max, a.at)
	a.some = filter(a.some, func(s some) bool { return s.min > 0 || s.max != unlimited })
	if a.rest == nothing {
		a.max = least(a.max, len(a.prefix))
	}
	if a.max != unlimited && a.min > a.max {
		return l.b.Choice()
	}
	if a.unique != nil && (a.max == unlimited || a.max > 1) {
		return l.unique(a)
	}
	if len(a.some) > 0 {
		return l.some(a)
	}
	items := l.items(a)
	if items == l.b.Choice() || a.max == 0 {
		return l.noItems
	}
	list := []grammar.Expr{l.b.Seq(l.openArray, items, l.closeArray)}
	if a.min == 0 {
		list = append(list, l.noItems)
	}
	return l.b.Choice(list...)
}

// items matches one item or more; all but the first have their comma in front.
func (l *lowerer) items(a *arrays) grammar.Expr {
	b := l.b
	rest := func(have int) grammar.Expr {
		lo, hi := max(0, a.min-have), unlimited
		if a.max != unlimited {
			hi = a.max - have
		}
		if hi == 0 || a.rest == nothing {
			if lo > 0 {
				return b.Choice()
			}
			return b.Seq()
		}
		return b.Repeat(b.Seq(l.comma, l.value(a.rest, a.at)), lo, hi)
	}
	if len(a.prefix) == 0 {
		return b.Seq(l.value(a.rest, a.at), rest(1))
	}
	n := len(a.prefix)
	if a.max != unlimited {
		n = min(n, a.max)
	}
	if n == 0 {
		return b.Choice()
	}
	tail := rest(n)
	for i := n - 1; i > 0; i-- {
		l.spend(1)
		tail = b.Seq(l.comma, l.value(a.prefix[i], a.at), tail)
		if i >= a.min {
			tail = b.Optional(tail)
		}
		if i%8 == 0 {
			r := b.Rule("item " + strconv.Itoa(i))
			b.Define(r, tail)
			tail = r
		}
	}
	return b.Seq(l.value(a.prefix[0], a.at), tail)
}

// some matches arrays of which a number of items is of a set: between those,
// items of the rest, which where there is a maximum are not of the set.
func (l *lowerer) some(a *arrays) grammar.Expr {
	b, s := l.b, a.some[0]
	if len(a.some) > 1 || len(a.prefix) > 0 || a.min > s.min || a.max != unlimited {
		refuse(a.at, "it is not supported beside other keywords that count items or tell them apart by place")
	}
	s.min, s.max = l.counts(s.min, s.max, a.at)
	other := a.rest
	if s.max != unlimited {
		other = l.union(other, l.negation(a.at, s.set))
		if s.min > s.max {
			return b.Choice()
		}
	}
	it := l.value(l.union(a.rest, s.set), a.at)
	list := []grammar.Expr{}
	others := b.Choice()
	if other != nothing {
		others = b.Repeat(b.Seq(l.comma, l.value(other, a.at)), 0, unlimited)
	} else {
		others = b.Seq()
	}
	more := func(taken int) grammar.Expr {
		hi := s.max
		if hi != unlimited {
			hi -= taken
		}
		return b.Repeat(b.Seq(l.comma, it, others), max(0, s.min-taken), hi)
	}
	if s.max != 0 {
		list = append(list, b.Seq(l.openArray, it, others, more(1), l.closeArray))
	}
	if other != nothing {
		list = append(list, b.Seq(l.openArray, l.value(other, a.at), others, more(0), l.closeArray))
	}
	if s.min == 0 {
		list = append(list, l.noItems)
	}
	return b.Choice(list...)
}

// unique matches arrays of a few values in any order, none twice.
func (l *lowerer) unique(a *arrays) grammar.Expr {
	b := l.b
	values := l.finite(a)
	if values == nil || len(a.some) > 0 {
		refuse(a.unique, "it is enforced for up to "+strconv.Itoa(maxUnique)+" listed values, and where there is at most one item")
	}
	n := len(values)
	if a.min > n {
		return b.Choice()
	}
	rules := make([]grammar.Expr, 1<<n)
	for set := len(rules) - 1; set >= 0; set-- {
		l.spend(n)
		have := bits.OnesCount(uint(set))
		var list []grammar.Expr
		if have >= a.min && have > 0 {
			list = append(list, l.closeArray)
		}
		for i, v := range values {
			if set>>i&1 != 0 || a.max != unlimited && have >= a.max {
				continue
			}
			before := l.comma
			if have == 0 {
				before = l.openArray
			}
			list = append(list, b.Seq(before, v, rules[set|1<<i]))
		}
		rules[set] = b.Rule("unique")
		if set == 0 && a.min == 0 {
			list = append(list, l.noItems)
		}
		b.Define(rules[set], b.Choice(list...))
	}
	return rules[0]
}

// finite is the values of an array's items, nil if they are not a few.
func (l *lowerer) finite(a *arrays) []grammar.Expr {
	if len(a.prefix) > 0 {
		return nil
	}
	s := l.expand(a.rest)
	if len(s.arrays)+len(s.objects) > 0 {
		return nil
	}
	var list []grammar.Expr
	add := func(s *shape) { list = append(list, l.scalar(s)) }
	for _, w := range []*shape{{null: s.null}, {yes: s.yes}, {no: s.no}} {
		if !w.empty() {
			add(w)
		}
	}
	seen := map[string]bool{}
	for _, n := range s.numbers {
		for _, x := range n.listed {
			if k := x.String(); !seen[k] {
				one := n
				one.listed = one.listed[:0:0]
				one.listed = append(one.listed, x)
				add(&shape{numbers: []numbers{one}})
				seen[k] = true
			}
		}
		if !n.isListed {
			return nil
		}
	}
	for _, t := range s.strings {
		for _, x := range t.listed {
			if k := `"` + x; !seen[k] {
				add(&shape{strings: []texts{{max: unlimited, listed: []string{x}, isListed: true}}})
				seen[k] = true
			}
		}
		if !t.isListed {
			return nil
		}
	}
	if len(list) > maxUnique {
		return nil
	}
	return slices.Clip(list)
}
