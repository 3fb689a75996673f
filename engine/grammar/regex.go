package grammar

import "slices"

// Regex is a regular expression over bytes, made by a Builder and good with
// that Builder alone. Equal expressions are equal values.
type Regex int32

const (
	never   Regex = 0 // matches nothing
	epsilon Regex = 1 // matches the empty string
)

type kind uint8

const (
	kindNever kind = iota
	kindEpsilon
	kindSet      // a: index into sets
	kindText     // a: offset into text, b: length > 0
	kindCat      // a then b; a is no kindCat
	kindOr       // a list: a is the first, b the next kindOr or the last; sorted, no doubles
	kindAnd      // as kindOr
	kindNot      // a
	kindTimes    // a, min to max times; a does not match the empty string
	kindMultiple // the rest of a number: see multiple
	kindLabel    // the rest of a label of a host name: see plainLabel and labelNode
)

type node struct {
	kind     kind
	nullable bool
	guarded  bool // holds And or Not, so that it may match nothing without showing it
	finite   bool // matches finitely many texts, as its form shows
	a, b     int32
	min, max int32
}

type nodeKey struct {
	kind           kind
	a, b, min, max int32
}

type byteSet [4]uint64

func (s *byteSet) has(c byte) bool { return s[c>>6]>>(c&63)&1 != 0 }
func (s *byteSet) add(c byte)      { s[c>>6] |= 1 << (c & 63) }

// pool holds interned regular expressions and their derivatives.
type pool struct {
	nodes                []node
	first                []byteSet // by node: what a text that it matches may begin with, and maybe more
	byKey                map[nodeKey]Regex
	sets                 []byteSet
	setIDs               map[byteSet]int32
	text                 []byte
	single               byteSet          // bytes of text so far, each a class of its own
	absent               byteSet          // bytes that no text has
	splitSets, splitText int              // how far splitClasses came
	textIDs              map[string]int32 // offset of whole texts
	derived              map[uint64]Regex // (regex, byte class) to the derivative
	alive                map[Regex]bool   // of guarded nodes
	relaxed              map[Regex]Regex
	chars                map[Regex]bool // those that isChar was asked about
	class                [256]uint8     // bytes that no set tells apart share one
	example              []byte         // a byte of each class
	work                 int            // left; an operation at 0 sets over
	over                 string         // the limit that was met, in words
	overMax              int
	limits               *Limits
	buffers              [][]Regex // for lists being made, one for each level
}

func newPool(l *Limits) *pool {
	p := &pool{byKey: map[nodeKey]Regex{}, setIDs: map[byteSet]int32{}, textIDs: map[string]int32{},
		derived: map[uint64]Regex{}, alive: map[Regex]bool{}, relaxed: map[Regex]Regex{}, chars: map[Regex]bool{}, limits: l, work: l.Work}
	p.node(nodeKey{kind: kindNever}, false)
	p.node(nodeKey{kind: kindEpsilon}, true)
	return p
}

// exceed notes the first limit that was met. From then on results are never.
func (p *pool) exceed(limit string, max int) {
	if p.over == "" {
		p.over, p.overMax = limit, max
	}
}

func (p *pool) err(where string) error {
	if p.over == "" {
		return nil
	}
	return &LimitError{Limit: p.over, Max: p.overMax, Where: where}
}

func (p *pool) spend(n int) bool {
	if p.work -= n; p.work < 0 {
		p.exceed("steps of work", p.limits.Work)
		return false
	}
	return p.over == ""
}

func (p *pool) node(k nodeKey, nullable bool) Regex {
	if id, ok := p.byKey[k]; ok {
		return id
	}
	if len(p.nodes) >= p.limits.Nodes {
		p.exceed("nodes of regular expressions", p.limits.Nodes)
		return never
	}
	n := node{kind: k.kind, nullable: nullable, a: k.a, b: k.b, min: k.min, max: k.max}
	switch k.kind {
	case kindNever, kindEpsilon, kindSet, kindText:
		n.finite = true
	case kindAnd, kindNot:
		n.guarded = true
	case kindCat, kindOr:
		n.guarded = p.nodes[k.a].guarded || p.nodes[k.b].guarded
		n.finite = p.nodes[k.a].finite && p.nodes[k.b].finite
	case kindTimes:
		n.guarded = p.nodes[k.a].guarded
		n.finite = p.nodes[k.a].finite && k.max != Unlimited
	}
	id := Regex(len(p.nodes))
	p.nodes = append(p.nodes, n)
	p.first = append(p.first, p.firstOf(k))
	p.byKey[k] = id
	return id
}

func (p *pool) firstOf(k nodeKey) (s byteSet) {
	switch k.kind {
	case kindSet:
		return p.sets[k.a]
	case kindText:
		s.add(p.text[k.a])
	case kindTimes:
		return p.first[k.a]
	case kindCat, kindOr:
		s = p.first[k.a]
		if k.kind == kindOr || p.nodes[k.a].nullable {
			for i, w := range p.first[k.b] {
				s[i] |= w
			}
		}
	case kindAnd:
		s = p.first[k.a]
		for i, w := range p.first[k.b] {
			s[i] &= w
		}
	case kindNot, kindMultiple, kindLabel:
		return byteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	}
	return s
}

func (p *pool) nullable(r Regex) bool { return p.nodes[r].nullable }

func (p *pool) set(s byteSet) Regex {
	if s == (byteSet{}) {
		return never
	}
	id, ok := p.setIDs[s]
	if !ok {
		id = int32(len(p.sets))
		p.sets = append(p.sets, s)
		p.setIDs[s] = id
	}
	return p.node(nodeKey{kind: kindSet, a: id}, false)
}

func (p *pool) literal(s string) Regex {
	switch len(s) {
	case 0:
		return epsilon
	case 1:
		var set byteSet
		set.add(s[0])
		return p.set(set)
	}
	at, ok := p.textIDs[s]
	if !ok {
		at = int32(len(p.text))
		p.text = append(p.text, s...)
		p.textIDs[s] = at
	}
	return p.node(nodeKey{kind: kindText, a: at, b: int32(len(s))}, false)
}

// textTail is a text without its first byte.
func (p *pool) textTail(at, length int32) Regex {
	if length == 1 {
		return epsilon
	}
	if length == 2 {
		return p.literal(string(p.text[at+1 : at+2]))
	}
	return p.node(nodeKey{kind: kindText, a: at + 1, b: length - 1}, false)
}

func (p *pool) cat(a, b Regex) Regex {
	switch {
	case a == never || b == never:
		return never
	case a == epsilon:
		return b
	case b == epsilon:
		return a
	}
	if n := p.nodes[a]; n.kind == kindCat {
		return p.cat(Regex(n.a), p.cat(Regex(n.b), b))
	}
	return p.node(nodeKey{kind: kindCat, a: int32(a), b: int32(b)}, p.nullable(a) && p.nullable(b))
}

// each appends the members of a list of one kind.
func (p *pool) each(dst []Regex, k kind, r Regex) []Regex {
	for p.nodes[r].kind == k {
		dst = append(dst, Regex(p.nodes[r].a))
		r = Regex(p.nodes[r].b)
	}
	return append(dst, r)
}

// or joins; it changes list.
func (p *pool) or(list []Regex) Regex {
	flat := p.buffer()
	var set byteSet
	some := false
	for _, r := range list {
		from := len(flat)
		flat = p.each(flat, kindOr, r)
		kept := flat[:from]
		for _, m := range flat[from:] {
			switch n := &p.nodes[m]; n.kind {
			case kindNever:
			case kindSet:
				for i, w := range p.sets[n.a] {
					set[i] |= w
				}
				some = true
			default:
				kept = append(kept, m)
			}
		}
		flat = kept
	}
	if some {
		flat = append(flat, p.set(set))
	}
	r := p.list(kindOr, flat)
	p.release(flat)
	return r
}

func (p *pool) and(list []Regex) Regex {
	flat := p.buffer()
	defer func() { p.release(flat) }()
	for _, r := range list {
		flat = p.each(flat, kindAnd, r)
	}
	if slices.Contains(flat, never) {
		return never
	}
	all := p.not(never)
	flat = slices.DeleteFunc(flat, func(r Regex) bool { return r == all })
	if len(flat) == 0 {
		return all
	}
	if slices.Contains(flat, epsilon) {
		for _, r := range flat {
			if !p.nullable(r) {
				return never
			}
		}
		return epsilon
	}
	return p.list(kindAnd, flat)
}

// list sorts and interns a list of kindOr or kindAnd.
func (p *pool) list(k kind, flat []Regex) Regex {
	slices.Sort(flat)
	flat = slices.Compact(flat)
	if len(flat) == 0 || !p.spend(len(flat)) {
		return never
	}
	tail := flat[len(flat)-1]
	for i := len(flat) - 2; i >= 0; i-- {
		a, b := p.nullable(flat[i]), p.nullable(tail)
		nullable := a || b
		if k == kindAnd {
			nullable = a && b
		}
		tail = p.node(nodeKey{kind: k, a: int32(flat[i]), b: int32(tail)}, nullable)
	}
	return tail
}

func (p *pool) not(r Regex) Regex {
	if n := p.nodes[r]; n.kind == kindNot {
		return Regex(n.a)
	}
	return p.node(nodeKey{kind: kindNot, a: int32(r)}, !p.nullable(r))
}

func (p *pool) times(r Regex, min, max int32) Regex {
	switch {
	case max == 0 || r == epsilon:
		return epsilon
	case r == never:
		if min == 0 {
			return epsilon
		}
		return never
	}
	if p.nullable(r) {
		min = 0
		if r = p.nonEmpty(r); r == never {
			return epsilon
		}
	}
	if n := p.nodes[r]; n.kind == kindTimes && n.min <= 1 && n.max == Unlimited { // (x+){m,n} is x{m,}
		return p.times(Regex(n.a), min, Unlimited)
	}
	if min == 1 && max == 1 {
		return r
	}
	return p.node(nodeKey{kind: kindTimes, a: int32(r), min: min, max: max}, min == 0)
}

// nonEmpty is r without the empty string.
func (p *pool) nonEmpty(r Regex) Regex {
	switch n := p.nodes[r]; n.kind {
	case kindEpsilon:
		return never
	case kindTimes: // min is 0: its operand is not nullable
		return p.times(Regex(n.a), 1, n.max)
	case kindOr:
		list := p.each(nil, kindOr, r)
		for i := range list {
			if p.nullable(list[i]) {
				list[i] = p.nonEmpty(list[i])
			}
		}
		return p.or(list)
	case kindCat: // both are nullable
		a, b := Regex(n.a), Regex(n.b)
		return p.or([]Regex{p.cat(p.nonEmpty(a), b), p.nonEmpty(b)})
	}
	return p.and([]Regex{r, p.not(epsilon)})
}

func (p *pool) buffer() []Regex {
	if n := len(p.buffers); n > 0 {
		b := p.buffers[n-1]
		p.buffers = p.buffers[:n-1]
		return b[:0]
	}
	return make([]Regex, 0, 16)
}

func (p *pool) release(b []Regex) { p.buffers = append(p.buffers, b) }
