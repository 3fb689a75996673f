package schema

import (
	"math/big"
	"slices"
)

// A setID names a set of schemas that all hold for one value. Sets are
// interned: the same schemas are the same set.
type setID int32

const (
	anything setID = 0 // the empty set of schemas
	nothing  setID = 1 // the schema false
)

// A literal is a schema, or its negation, as a member of a set.
type literal struct {
	schema  *value
	negated bool
}

// A shape is what a set allows, by JSON type: for each the alternatives, any
// of which may hold. No alternatives: the type is not allowed.
type shape struct {
	null    bool
	yes, no bool // true, false
	numbers []numbers
	strings []texts
	arrays  []arrays
	objects []objects
}

func anyShape() *shape {
	return &shape{null: true, yes: true, no: true, numbers: []numbers{{}}, strings: []texts{{max: unlimited}},
		arrays: []arrays{{max: unlimited}}, objects: []objects{anyObject()}}
}

func (s *shape) empty() bool {
	return !s.null && !s.yes && !s.no && len(s.numbers)+len(s.strings)+len(s.arrays)+len(s.objects) == 0
}

const unlimited = -1

// numbers is a set of numbers: every field is a condition, the zero value none.
type numbers struct {
	low, high               *big.Rat
	lowOpen, highOpen       bool // the bound itself is not in the set
	integer, fraction       bool // only integers; only what is no integer
	multiples, notMultiples []*big.Rat
	listed                  []*big.Rat // the only ones, where isListed
	isListed                bool
	except                  []*big.Rat
	at                      *value // a keyword to name when it cannot be lowered
}

// texts is a set of strings.
type texts struct {
	min, max   int // characters; max may be unlimited
	conditions []condition
	listed     []string // the only ones, where isListed
	isListed   bool
	except     []string
	at         *value
}

// A condition is a pattern or a format that a string has, or has not.
type condition struct {
	pattern bool
	name    string // the pattern, or the format's name
	negated bool
	at      *value
}

// arrays is a set of arrays.
type arrays struct {
	prefix   []setID
	rest     setID
	min, max int
	some     []some // what some of the items are
	unique   *value // the keyword uniqueItems where it holds
	at       *value
}

// some says that from min to max of the items (max may be unlimited) are of the set.
type some struct {
	set      setID
	min, max int
}

// objects is a set of objects.
type objects struct {
	listed   []property
	index    map[string]int
	others   []others // the names that are not listed, told apart; a name in none of them is not allowed
	one      *others  // there is a property of these besides the listed
	names    []setID  // what the names of all properties are
	min, max int
	at       *value
}

type property struct {
	name     string
	set      setID
	required bool
	unplaced bool // it is only asked for or forbidden; where it is described gives it its place
}

// others is a class of names with what their values are.
type others struct {
	names []condition
	set   setID
}

func anyObject() objects { return objects{others: []others{{}}, max: unlimited} }

// with is o with a property changed or added; o's own lists stay as they are.
func (o objects) with(p property) objects {
	o.listed = slices.Clone(o.listed)
	if i, ok := o.index[p.name]; ok {
		o.listed[i] = p
		return o
	}
	index := make(map[string]int, len(o.listed)+1)
	for k, i := range o.index {
		index[k] = i
	}
	index[p.name] = len(o.listed)
	o.index, o.listed = index, append(o.listed, p)
	return o
}

// holds says whether x is in the set.
func (n *numbers) holds(x *big.Rat) bool {
	if n.low != nil {
		if d := x.Cmp(n.low); d < 0 || d == 0 && n.lowOpen {
			return false
		}
	}
	if n.high != nil {
		if d := x.Cmp(n.high); d > 0 || d == 0 && n.highOpen {
			return false
		}
	}
	if n.integer && !x.IsInt() || n.fraction && x.IsInt() {
		return false
	}
	divides := func(m *big.Rat) bool { return new(big.Rat).Quo(x, m).IsInt() }
	if slices.ContainsFunc(n.notMultiples, divides) || slices.ContainsFunc(n.multiples, func(m *big.Rat) bool { return !divides(m) }) {
		return false
	}
	equal := func(y *big.Rat) bool { return x.Cmp(y) == 0 }
	if n.isListed && !slices.ContainsFunc(n.listed, equal) {
		return false
	}
	return !slices.ContainsFunc(n.except, equal)
}

// empty says whether the set is seen to be empty at a glance.
func (n *numbers) empty() bool {
	if n.isListed {
		return len(n.listed) == 0
	}
	if n.integer && n.fraction {
		return true
	}
	if n.low == nil || n.high == nil {
		return false
	}
	d := n.low.Cmp(n.high)
	if d > 0 || d == 0 && (n.lowOpen || n.highOpen || !n.holds(n.low)) {
		return true
	}
	if n.integer {
		first := ceil(n.low)
		if n.lowOpen && n.low.IsInt() {
			first.Add(first, big.NewInt(1))
		}
		x := new(big.Rat).SetInt(first)
		d := x.Cmp(n.high)
		return d > 0 || d == 0 && n.highOpen
	}
	return false
}

func floor(x *big.Rat) *big.Int {
	q, _ := new(big.Int).DivMod(x.Num(), x.Denom(), new(big.Int))
	return q
}

func ceil(x *big.Rat) *big.Int {
	return new(big.Int).Neg(floor(new(big.Rat).Neg(x)))
}

// both is the intersection of two sets of numbers.
func (n numbers) both(m numbers) numbers {
	if m.low != nil {
		if d := 1; n.low != nil {
			d = m.low.Cmp(n.low)
			if d == 0 {
				n.lowOpen = n.lowOpen || m.lowOpen
			}
			if d > 0 {
				n.low, n.lowOpen = m.low, m.lowOpen
			}
		} else {
			n.low, n.lowOpen = m.low, m.lowOpen
		}
	}
	if m.high != nil {
		if n.high == nil || m.high.Cmp(n.high) < 0 {
			n.high, n.highOpen = m.high, m.highOpen
		} else if m.high.Cmp(n.high) == 0 {
			n.highOpen = n.highOpen || m.highOpen
		}
	}
	n.integer, n.fraction = n.integer || m.integer, n.fraction || m.fraction
	n.multiples = slices.Concat(n.multiples, m.multiples)
	n.notMultiples = slices.Concat(n.notMultiples, m.notMultiples)
	n.except = slices.Concat(n.except, m.except)
	if m.isListed && !n.isListed {
		n.listed, n.isListed = m.listed, true
	} else if m.isListed {
		n.listed = filter(n.listed, m.holds)
	}
	if n.isListed {
		n.listed = filter(n.listed, n.holds)
	}
	if n.at == nil {
		n.at = m.at
	}
	return n
}

func filter[T any](list []T, keep func(T) bool) []T {
	var kept []T
	for _, x := range list {
		if keep(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

// complement is every number that is not in the set.
func (n *numbers) complement() []numbers {
	var list []numbers
	if n.low != nil {
		list = append(list, numbers{high: n.low, highOpen: !n.lowOpen, at: n.at})
	}
	if n.high != nil {
		list = append(list, numbers{low: n.high, lowOpen: !n.highOpen, at: n.at})
	}
	if n.integer {
		list = append(list, numbers{fraction: true, at: n.at})
	}
	if n.fraction {
		list = append(list, numbers{integer: true, at: n.at})
	}
	for _, m := range n.multiples {
		list = append(list, numbers{notMultiples: []*big.Rat{m}, at: n.at})
	}
	for _, m := range n.notMultiples {
		list = append(list, numbers{multiples: []*big.Rat{m}, at: n.at})
	}
	if n.isListed {
		list = append(list, numbers{except: n.listed, at: n.at})
	}
	if len(n.except) > 0 {
		list = append(list, numbers{listed: n.except, isListed: true, at: n.at})
	}
	return list
}

// complement is every string that is not in the set.
func (t *texts) complement() []texts {
	var list []texts
	if t.min > 0 {
		list = append(list, texts{max: t.min - 1, at: t.at})
	}
	if t.max != unlimited {
		list = append(list, texts{min: t.max + 1, max: unlimited, at: t.at})
	}
	for _, c := range t.conditions {
		c.negated = !c.negated
		list = append(list, texts{max: unlimited, conditions: []condition{c}, at: t.at})
	}
	if t.isListed {
		list = append(list, texts{max: unlimited, except: t.listed, at: t.at})
	}
	if len(t.except) > 0 {
		list = append(list, texts{max: unlimited, listed: t.except, isListed: true, at: t.at})
	}
	return list
}

func least(a, b int) int { // of two maxima
	if a == unlimited || b != unlimited && b < a {
		return b
	}
	return a
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}
