package schema

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/forebay-io/forebay/engine/grammar"
)

// compiler is one compilation. Its methods end it by a panic with a *Refusal.
type compiler struct {
	Options
	limits  *Limits
	b       *grammar.Builder
	root    *value
	draft   int
	ids     *identifiers
	ignored []Ignored

	work int    // steps done
	here *value // the keyword at work, named where a limit is met

	schemas  map[*value]int // the order in which schemas were met
	byText   map[textKey]*value
	sets     [][]literal
	setIDs   map[string]setID
	shapes   map[setID]*shape
	schemaOf map[*value]*shape
	origin   map[*value]*value // of a negated schema: the keyword that negates it
	open     map[literal]bool  // schemas being looked into, with nothing between
	empties  map[setID]bool
	asked    map[setID]bool // sets whose emptiness is being found
	eager    bool           // look for alternatives that cannot be
	constant map[*value]*value
	text     texter
	values   int // of enums
	bytes    int
	listed   int // properties
}

func (c *compiler) spend(n int) {
	if c.work += n; c.work > c.limits.Work {
		c.refuseLimit("combining schemas takes too many steps", c.limits.Work)
	}
}

// refuseHere refuses the keyword at work.
func (c *compiler) refuseHere(reason string) { refuse(c.here, reason) }

func (c *compiler) refuseLimit(reason string, limit int) {
	c.refuseHere(reason + "; the limit is " + strconv.Itoa(limit))
}

// at runs f with v as the keyword at work.
func (c *compiler) at(v *value, f func()) {
	before := c.here
	c.here = v
	f()
	c.here = before
}

// attempt runs f and returns the refusal that ended it, if any. A limit of
// work is none to go on from.
func (c *compiler) attempt(f func()) (r *Refusal) {
	here, open := c.here, len(c.open)
	defer func() {
		if p := recover(); p != nil {
			refusal, ok := p.(*Refusal)
			if !ok || c.work > c.limits.Work {
				panic(p)
			}
			r = refusal
			c.here = here
			if len(c.open) != open {
				clear(c.open)
			}
		}
	}()
	f()
	return nil
}

// intern gives a list of literals its set.
func (c *compiler) intern(list []literal) setID {
	c.spend(1 + len(list))
	var kept []literal
	for _, l := range list {
		l = c.simple(l)
		trivial, holds := c.trivial(l.schema)
		switch {
		case trivial && holds != l.negated:
			continue
		case trivial:
			return nothing
		}
		kept = append(kept, l)
	}
	if len(kept) == 0 {
		return anything
	}
	for _, l := range kept {
		if _, ok := c.schemas[l.schema]; !ok {
			c.schemas[l.schema] = len(c.schemas)
		}
	}
	slices.SortFunc(kept, func(a, b literal) int { // what is negated comes last, as the first gives properties their order
		if a.negated != b.negated {
			if b.negated {
				return -1
			}
			return 1
		}
		return cmp.Compare(c.schemas[a.schema], c.schemas[b.schema])
	})
	kept = slices.Compact(kept)
	var key []byte
	for _, l := range kept {
		if l.negated && slices.Contains(kept, literal{schema: l.schema}) {
			return nothing
		}
		n := c.schemas[l.schema] << 1
		if l.negated {
			n |= 1
		}
		key = binary.AppendUvarint(key, uint64(n))
	}
	if id, ok := c.setIDs[string(key)]; ok {
		return id
	}
	id := setID(len(c.sets))
	c.sets = append(c.sets, kept)
	c.setIDs[string(key)] = id
	return id
}

// of is the set of one schema.
func (c *compiler) of(v *value) setID { return c.intern([]literal{{schema: v}}) }

// union is the set of all schemas of both.
func (c *compiler) union(a, b setID) setID {
	switch {
	case a == b || b == anything:
		return a
	case a == anything:
		return b
	case a == nothing || b == nothing:
		return nothing
	}
	return c.intern(slices.Concat(c.sets[a], c.sets[b]))
}

// trivial says whether a schema allows everything or nothing, and which.
func (c *compiler) trivial(v *value) (is, holds bool) {
	switch v.kind {
	case kindTrue:
		return true, true
	case kindFalse:
		return true, false
	case kindObject:
		for _, m := range v.members {
			if !annotation(m.key) {
				return false, false
			}
		}
		return true, true
	}
	return false, false
}

type textKey struct {
	text string
	base *value
}

// sharedText bounds the text of schemas that are compared, so that comparing
// costs no more than reading.
const sharedText = 2048

// simple is l with what stands for its schema: the target of a lone $ref, and
// one of several schemas with the same text.
func (c *compiler) simple(l literal) literal {
	for range maxAliases {
		ref := c.alias(l.schema)
		if ref == nil {
			break
		}
		l.schema = c.resolve(ref)
	}
	v := l.schema
	if v.kind != kindObject || len(v.raw) > sharedText || v.raw == "" {
		return l
	}
	key := textKey{v.raw, c.ids.resource(v)}
	if shared, ok := c.byText[key]; ok {
		l.schema = shared
	} else {
		c.byText[key] = v
	}
	return l
}

const maxAliases = 100 // a chain of references that is longer is a cycle, found where it is looked into

// alias is the $ref of a schema that has nothing else.
func (c *compiler) alias(v *value) *value {
	ref := v.get("$ref")
	if ref == nil || ref.kind != kindString || v.get("$id") != nil {
		return nil
	}
	for _, m := range v.members {
		if m.key != "$ref" && !annotation(m.key) {
			return nil
		}
	}
	return ref
}

// expand is the shape of a set.
func (c *compiler) expand(id setID) *shape {
	if s, ok := c.shapes[id]; ok {
		return s
	}
	var s *shape
	switch id {
	case anything:
		s = anyShape()
	case nothing:
		s = &shape{}
	default:
		for i, l := range c.sets[id] {
			if x := c.literal(l); i == 0 {
				s = x
			} else {
				s = c.meet(s, x)
			}
		}
	}
	c.shapes[id] = s
	return s
}

// literal is the shape of one schema or its negation.
func (c *compiler) literal(l literal) *shape {
	if !l.negated {
		return c.schema(l.schema)
	}
	var s *shape
	origin := c.origin[l.schema]
	if r := c.attempt(func() {
		c.at(origin, func() { s = c.complement(c.schema(l.schema)) })
	}); r != nil {
		if origin == nil || keywordOf(origin) == r.Keyword && origin.pointer() == r.Pointer {
			panic(r)
		}
		refuse(origin, "it needs the negation of "+l.schema.pointer()+", where "+r.Keyword+" cannot be enforced: "+r.Reason)
	}
	return s
}

// none says whether a set is seen to allow nothing. What is being found out
// further up counts as possible.
func (c *compiler) none(id setID) bool {
	switch {
	case id == anything:
		return false
	case id == nothing:
		return true
	case !c.eager && len(c.sets[id]) < 2:
		return false
	}
	if e, ok := c.empties[id]; ok {
		return e
	}
	if c.asked[id] || len(c.asked) > maxDepth {
		return false
	}
	c.asked[id] = true
	defer delete(c.asked, id)
	empty, outer := false, c.open
	c.open = map[literal]bool{} // a level of the value lies between
	r := c.attempt(func() { empty = c.hollow(c.expand(id)) })
	c.open = outer
	if r != nil {
		return false // whoever needs the set is refused there
	}
	c.empties[id] = empty
	return empty
}

// maxDepth bounds how deep emptiness is looked for. Beyond it a set counts as possible.
const maxDepth = 24

// hollow says whether no alternative of a shape can be.
func (c *compiler) hollow(s *shape) bool {
	if s.null || s.yes || s.no || len(s.numbers)+len(s.strings) > 0 {
		return false
	}
	for i := range s.objects {
		o := &s.objects[i]
		if !slices.ContainsFunc(o.listed, func(p property) bool { return p.required && c.none(p.set) }) {
			return false
		}
	}
	for i := range s.arrays {
		a := &s.arrays[i]
		can := true
		for k := 0; k < a.min && k <= len(a.prefix) && can; k++ {
			can = !c.none(a.item(k))
		}
		if can {
			return false
		}
	}
	return true
}
