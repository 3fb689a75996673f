package schema

import (
	"math/big"
	"strconv"
)

// schemaList reads allOf, anyOf, oneOf.
func (c *compiler) schemaList(v *value) []setID {
	if v.kind != kindArray || len(v.items) == 0 {
		refuse(v, "it must be a list of schemas")
	}
	var list []setID
	for _, x := range v.items {
		list = append(list, c.child(x))
	}
	return list
}

func (c *compiler) allOf(v *value) (s *shape) {
	if k := v.get("allOf"); k != nil {
		c.at(k, func() {
			for i, set := range c.schemaList(k) {
				if x := c.expand(set); i == 0 {
					s = x
				} else {
					s = c.meet(s, x)
				}
			}
		})
	}
	return s
}

func (c *compiler) anyOf(v *value) (s *shape) {
	if k := v.get("anyOf"); k != nil {
		c.at(k, func() { s = c.any(c.schemaList(k)) })
	}
	return s
}

func (c *compiler) any(list []setID) *shape {
	s := &shape{}
	seen := map[setID]bool{}
	for _, set := range list {
		if !seen[set] {
			s = c.join(s, c.expand(set))
		}
		seen[set] = true
	}
	return s
}

// oneOf is anyOf where no two of the schemas can hold at once. Where two can,
// each is taken without the other.
func (c *compiler) oneOf(v *value) (s *shape) {
	k := v.get("oneOf")
	if k == nil {
		return nil
	}
	c.at(k, func() {
		list := c.schemaList(k)
		if c.says(v, "anyOf") || c.says(c.root, "anyOf") {
			s = c.any(list)
			return
		}
		s = c.exactlyOne(k, list)
	})
	return s
}

// says reads the extension "x-forebay": {"oneOf": …}.
func (c *compiler) says(v *value, what string) bool {
	x := v.get("x-forebay").get("oneOf")
	return x != nil && x.kind == kindString && x.text == what
}

func (c *compiler) exactlyOne(k *value, list []setID) *shape {
	without := make([][]int, len(list))
	for i := range list {
		for j := range i {
			if c.apart(list[i], list[j]) {
				continue
			}
			without[i] = append(without[i], j)
			without[j] = append(without[j], i)
		}
	}
	s := &shape{}
	for i, set := range list {
		if len(without[i]) > 0 {
			if set == nothing {
				continue
			}
			for _, j := range without[i] {
				set = c.union(set, c.negation(k, list[j]))
			}
		}
		var x *shape
		if r := c.attempt(func() { x = c.expand(set) }); r != nil {
			c.refuseHere("two of its schemas may hold at once, and they cannot be told apart: " + r.Reason + ` (use anyOf, or "x-forebay": {"oneOf": "anyOf"} to allow both)`)
		}
		s = c.join(s, x)
	}
	return s
}

// apart says whether two sets are seen to have nothing in common.
func (c *compiler) apart(a, b setID) bool {
	if a == b {
		return a == nothing
	}
	eager := c.eager
	c.eager = true
	defer func() { c.eager = eager }()
	return c.none(c.union(a, b))
}

// negation is the set of what is not in a set; k is the keyword that wants it.
func (c *compiler) negation(k *value, set setID) setID {
	switch {
	case set == anything:
		return nothing
	case set == nothing:
		return anything
	}
	for _, l := range c.sets[set] {
		if _, ok := c.origin[l.schema]; !ok {
			c.origin[l.schema] = k
		}
	}
	if len(c.sets[set]) > 1 {
		c.refuseHere("the negation of several schemas at once is not supported")
	}
	l := c.sets[set][0]
	return c.intern([]literal{{l.schema, !l.negated}})
}

func (c *compiler) not(v *value) (s *shape) {
	if k := v.get("not"); k != nil {
		c.at(k, func() { s = c.expand(c.negation(k, c.child(k))) })
	}
	return s
}

// conditional is (if and then) or (not if and else).
func (c *compiler) conditional(v *value) (s *shape) {
	k := v.get("if")
	if k == nil || v.get("then") == nil && v.get("else") == nil {
		return nil
	}
	branch := func(key string) setID {
		if b := v.get(key); b != nil {
			return c.child(b)
		}
		return anything
	}
	c.at(k, func() {
		holds := c.child(k)
		not := c.negation(k, holds)
		s = c.join(c.expand(c.union(holds, branch("then"))), c.expand(c.union(not, branch("else"))))
	})
	return s
}

// dependent reads dependentRequired, dependentSchemas and the older
// dependencies: for each name, it is absent or the rest holds.
func (c *compiler) dependent(v *value) (s *shape) {
	for _, key := range []string{"dependencies", "dependentRequired", "dependentSchemas"} {
		k := v.get(key)
		if k == nil {
			continue
		}
		if k.kind != kindObject {
			refuse(k, "it must be an object")
		}
		for _, m := range k.members {
			c.at(k, func() {
				if x := c.dependency(m, key); s == nil {
					s = x
				} else {
					s = c.meet(s, x)
				}
			})
		}
	}
	return s
}

func (c *compiler) dependency(m member, key string) *shape {
	absent, present := anyShape(), &shape{}
	absent.objects = []objects{anyObject().with(property{name: m.key, set: nothing, unplaced: true})}
	needed := func(o objects, name string) objects {
		return o.with(property{name: name, required: true, unplaced: true})
	}
	switch {
	case m.value.kind == kindArray && key != "dependentSchemas":
		o := anyObject()
		for _, n := range c.nameList(m.value) {
			o = needed(o, n)
		}
		present.objects = []objects{needed(o, m.key)}
	case m.value.kind == kindString && key == "dependencies": // draft 3
		present.objects = []objects{needed(needed(anyObject(), m.value.text), m.key)}
	case key == "dependentRequired":
		c.refuseHere("it must be an object of lists of names")
	default:
		present.objects = c.meet(c.expand(c.child(m.value)), &shape{objects: []objects{needed(anyObject(), m.key)}}).objects
	}
	return c.join(absent, present)
}

// constants is the shape of the values of an enum or a const.
func (c *compiler) constants(v *value, isConst bool) *shape {
	list := []*value{v}
	if !isConst {
		if v.kind != kindArray {
			refuse(v, "it must be a list of values")
		}
		list = v.items
	}
	c.values += len(list)
	c.bytes += len(v.raw)
	switch {
	case c.values > c.limits.EnumValues:
		refuse(v, "the schema lists more than "+strconv.Itoa(c.limits.EnumValues)+" values")
	case c.bytes > c.limits.EnumBytes:
		refuse(v, "the schema lists values of more than "+strconv.Itoa(c.limits.EnumBytes)+" bytes")
	}
	s := &shape{}
	n, t := numbers{isListed: true, at: v}, texts{max: unlimited, isListed: true, at: v}
	for _, x := range list {
		c.spend(4)
		switch x.kind {
		case kindNull:
			s.null = true
		case kindTrue:
			s.yes = true
		case kindFalse:
			s.no = true
		case kindNumber:
			n.listed = append(n.listed, c.exact(v, x))
		case kindString:
			t.listed = append(t.listed, x.text)
		case kindArray:
			s.arrays = append(s.arrays, c.constArray(v, x))
		case kindObject:
			s.objects = append(s.objects, c.constObject(v, x))
		}
	}
	if len(n.listed) > 0 {
		s.numbers = []numbers{n}
	}
	if len(t.listed) > 0 {
		s.strings = []texts{t}
	}
	c.count(s)
	return s
}

func (c *compiler) exact(v, x *value) *big.Rat {
	r := rational(x.text)
	if r == nil {
		refuse(v, "the number has more than "+strconv.Itoa(maxExponent)+" digits")
	}
	return r
}

// constantSet is a schema that allows one value, which is a part of v.
func (c *compiler) constantSet(v, x *value) setID {
	s, ok := c.constant[x]
	if !ok {
		s = &value{kind: kindObject, members: []member{{"const", x}}, index: map[string]int{"const": 0}, parent: v, step: "const"}
		c.constant[x] = s
	}
	return c.of(s)
}

func (c *compiler) constArray(v, x *value) arrays {
	a := arrays{rest: nothing, min: len(x.items), max: len(x.items), at: v}
	for _, item := range x.items {
		a.prefix = append(a.prefix, c.constantSet(v, item))
	}
	return a
}

func (c *compiler) constObject(v, x *value) objects {
	o := objects{index: x.index, max: unlimited, at: v}
	for _, m := range x.members {
		o.listed = append(o.listed, property{name: m.key, set: c.constantSet(v, m.value), required: true})
	}
	return o
}
