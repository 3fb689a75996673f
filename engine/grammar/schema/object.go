package schema

import (
	"slices"
	"strconv"

	"github.com/forebay-io/forebay/engine/grammar"
)

// object matches objects: the listed properties in their order, each that is
// optional there or not, then the others. It is a chain of rules, one for each
// property and, where the number of properties is bounded, each number so far.
func (l *lowerer) object(o *objects) grammar.Expr {
	o, ok := l.nameable(o)
	if !ok {
		return l.b.Choice()
	}
	o.min, o.max = l.counts(o.min, o.max, o.at)
	required := 0
	var optional bool
	for _, p := range o.listed {
		if p.required {
			required++
		} else if p.set != nothing {
			optional = true
		}
	}
	if o.min <= required {
		o.min = 0
	}
	if o.max != unlimited && o.max < required {
		return l.b.Choice()
	}
	if !optional && len(o.others) == 0 && o.one == nil {
		if o.min > required {
			return l.b.Choice()
		}
		o.max = unlimited
	}
	c := &chain{lowerer: l, o: o}
	c.cap = max(o.min, o.max, 1)
	if len(o.others) > 0 || o.one != nil {
		c.build()
	}
	members := c.from(len(o.listed))
	list := []grammar.Expr{l.b.Seq(l.openObject, members, l.endObject)}
	if required == 0 && o.min == 0 && o.one == nil {
		list = append(list, l.noMembers)
	}
	return l.b.Choice(list...)
}

// nameable is o with what propertyNames leaves of its names; false if a
// required one is not left.
func (l *lowerer) nameable(o *objects) (*objects, bool) {
	if len(o.names) == 0 {
		return o, true
	}
	x := *o
	x.listed = slices.Clone(o.listed)
	for _, set := range o.names {
		names := l.expand(set).strings
		for i, p := range x.listed {
			if slices.ContainsFunc(names, func(t texts) bool { return l.holds(&t, p.name) }) {
				continue
			}
			if p.required {
				return o, false
			}
			x.listed[i].set = nothing
		}
	}
	return &x, true
}

// chain makes the rules of one object.
type chain struct {
	*lowerer
	o     *objects
	cap   int    // numbers of properties from here on are not told apart
	other []pair // of the others
	one   []pair
}

// pair is what matches a property: with a comma in front or as the first.
type pair struct{ first, later grammar.Expr }

func (c *chain) pair(name grammar.Regex, set setID) pair {
	b := c.b
	key := b.Cat(b.Literal(`"`), name, b.Literal(`"`), c.colon)
	value := c.value(set, c.o.at)
	return pair{b.Seq(b.Terminal("name", b.Cat(c.line, key)), value), b.Seq(b.Terminal("name", b.Cat(b.Literal(","), c.after, key)), value)}
}

// build makes the pairs of the names that are not listed.
func (c *chain) build() {
	listed := make([]string, len(c.o.listed))
	for i, p := range c.o.listed {
		listed[i] = p.name
	}
	make := func(k *others) (list []pair) {
		if name := c.name(k, listed); name != c.b.Never() {
			list = append(list, c.pair(name, k.set))
		}
		return list
	}
	for i := range c.o.others {
		c.other = append(c.other, make(&c.o.others[i])...)
	}
	if c.o.one != nil {
		c.one = make(c.o.one)
	}
}

// name matches the names of a class that are not listed.
func (c *chain) name(k *others, listed []string) grammar.Regex {
	name := c.text.regex(&texts{max: unlimited, conditions: k.names, except: listed})
	if len(k.names)+len(listed) == 0 {
		name = c.anyName
	}
	for _, set := range c.o.names {
		var list []grammar.Regex
		for _, t := range c.expand(set).strings {
			if len(t.conditions) == 0 && len(t.except) == 0 && !t.isListed {
				list = append(list, c.b.Times(c.text.any, t.min, c.within(&t).max))
			} else {
				list = append(list, c.text.regex(c.within(&t)))
			}
		}
		name = c.b.And(name, c.b.Or(list...))
	}
	return name
}

// from matches all members; n is the number of listed properties. The rules
// are made from the last property to the first.
func (c *chain) from(n int) grammar.Expr {
	after := c.tails(n)
	for i := n - 1; i >= 0; i-- {
		p := c.o.listed[i]
		var member pair
		if p.set != nothing {
			member = c.pair(c.text.quoted([]string{p.name}), p.set)
		}
		rules := make([]grammar.Expr, min(i, c.cap)+1)
		c.spend(8 * len(rules))
		for have := range rules {
			rules[have] = c.link(&p, have, member, after)
		}
		after = rules
	}
	return after[0]
}

// link matches the members from p on, when have are there before it; after
// are the rules of those that follow.
func (c *chain) link(p *property, have int, member pair, after []grammar.Expr) grammar.Expr {
	b := c.b
	take := b.Choice()
	switch {
	case p.set == nothing && p.required:
		return take
	case p.set == nothing:
		return after[have]
	case c.o.max != unlimited && have >= c.o.max:
	case have == 0:
		take = b.Seq(member.first, after[min(have+1, c.cap)])
	default:
		take = b.Seq(member.later, after[min(have+1, c.cap)])
	}
	if p.required {
		return take
	}
	r := b.Rule("members from " + strconv.Quote(p.name))
	b.Define(r, b.Choice(take, after[have]))
	return r
}

// tails are what follows all n listed properties, by how many of them are there.
func (c *chain) tails(n int) []grammar.Expr {
	list := make([]grammar.Expr, min(n, c.cap)+1)
	for have := range list {
		list[have] = c.tail(have)
	}
	return list
}

// tail matches what follows the listed properties when have of them are there.
func (c *chain) tail(have int) grammar.Expr {
	b := c.b
	lo, hi := max(0, c.o.min-have), unlimited
	if c.o.max != unlimited {
		hi = c.o.max - have
	}
	if c.o.one != nil {
		return c.withOne(have, lo, hi)
	}
	if len(c.other) == 0 || hi == 0 {
		if lo > 0 || have == 0 { // an object without members is matched elsewhere
			return b.Choice()
		}
		return b.Seq()
	}
	first, later := c.choices(c.other)
	if have > 0 {
		return b.Repeat(later, lo, hi)
	}
	if hi != unlimited {
		hi--
	}
	return b.Seq(first, b.Repeat(later, max(0, lo-1), hi))
}

func (c *chain) choices(list []pair) (first, later grammar.Expr) {
	var f, l []grammar.Expr
	for _, p := range list {
		f, l = append(f, p.first), append(l, p.later)
	}
	return c.b.Choice(f...), c.b.Choice(l...)
}

// withOne is a tail in which a property of the class one must be.
func (c *chain) withOne(have, lo, hi int) grammar.Expr {
	b := c.b
	if lo > 1 || hi != unlimited {
		refuse(c.o.at, "a property that is not listed is asked for where their number is bounded")
	}
	first, later := c.choices(c.other)
	oneFirst, oneLater := c.choices(c.one)
	any := b.Repeat(later, 0, unlimited)
	if have > 0 {
		return b.Seq(any, oneLater, any)
	}
	return b.Choice(b.Seq(oneFirst, any), b.Seq(first, any, oneLater, any))
}
