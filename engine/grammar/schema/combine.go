package schema

import "slices"

// meet is the intersection of two shapes.
func (c *compiler) meet(a, b *shape) *shape {
	s := &shape{null: a.null && b.null, yes: a.yes && b.yes, no: a.no && b.no}
	for _, x := range a.numbers {
		for _, y := range b.numbers {
			c.spend(4)
			if n := x.both(y); !n.empty() {
				s.numbers = append(s.numbers, n)
			}
		}
	}
	for i := range a.strings {
		for j := range b.strings {
			if t, ok := c.meetTexts(&a.strings[i], &b.strings[j]); ok {
				s.strings = append(s.strings, t)
			}
		}
	}
	for i := range a.arrays {
		for j := range b.arrays {
			if x, ok := c.meetArrays(&a.arrays[i], &b.arrays[j]); ok {
				s.arrays = append(s.arrays, x)
			}
		}
	}
	for i := range a.objects {
		for j := range b.objects {
			s.objects = append(s.objects, c.meetObjects(&a.objects[i], &b.objects[j])...)
		}
	}
	c.count(s)
	return s
}

// count holds the number of alternatives to the limit.
func (c *compiler) count(s *shape) {
	n := max(len(s.numbers), len(s.strings), len(s.arrays), len(s.objects))
	c.spend(n)
	if n > c.limits.Alternatives {
		c.refuseLimit("combining it with its siblings gives too many alternatives", c.limits.Alternatives)
	}
}

// join is the union of two shapes.
func (c *compiler) join(a, b *shape) *shape {
	s := &shape{null: a.null || b.null, yes: a.yes || b.yes, no: a.no || b.no,
		numbers: slices.Concat(a.numbers, b.numbers), strings: slices.Concat(a.strings, b.strings),
		arrays: slices.Concat(a.arrays, b.arrays), objects: slices.Concat(a.objects, b.objects)}
	c.count(s)
	return s
}

func (c *compiler) meetTexts(a, b *texts) (texts, bool) {
	c.spend(4 + len(a.listed) + len(b.listed))
	t := texts{min: max(a.min, b.min), max: least(a.max, b.max), conditions: slices.Clone(a.conditions),
		except: slices.Concat(a.except, b.except), at: first(a.at, b.at)}
	for _, x := range b.conditions {
		if !slices.ContainsFunc(t.conditions, x.same) {
			t.conditions = append(t.conditions, x)
		}
	}
	switch {
	case a.isListed:
		t.listed, t.isListed = filter(a.listed, func(s string) bool { return c.holds(b, s) }), true
	case b.isListed:
		t.listed, t.isListed = filter(b.listed, func(s string) bool { return c.holds(a, s) }), true
	}
	if t.isListed { // what was checked is no condition any more
		t.min, t.max, t.conditions, t.except = 0, unlimited, nil, nil
	}
	return t, !c.noText(&t)
}

func (x condition) same(y condition) bool {
	return x.pattern == y.pattern && x.name == y.name && x.negated == y.negated
}

func (c *compiler) meetArrays(a, b *arrays) (arrays, bool) {
	x := arrays{rest: c.union(a.rest, b.rest), min: max(a.min, b.min), max: least(a.max, b.max),
		some: slices.Concat(a.some, b.some), unique: first(a.unique, b.unique), at: first(a.at, b.at)}
	for i := range max(len(a.prefix), len(b.prefix)) {
		x.prefix = append(x.prefix, c.union(a.item(i), b.item(i)))
	}
	c.spend(4 + len(x.prefix))
	if x.max != unlimited && x.min > x.max {
		return x, false
	}
	for i := range x.min {
		if c.none(x.item(i)) {
			return x, false
		}
		if i > len(x.prefix) {
			break
		}
	}
	return x, true
}

// item is what the array's i-th item is.
func (a *arrays) item(i int) setID {
	if i < len(a.prefix) {
		return a.prefix[i]
	}
	return a.rest
}

// meetObjects is the intersection of two sets of objects, as alternatives.
func (c *compiler) meetObjects(a, b *objects) []objects {
	o := objects{min: max(a.min, b.min), max: least(a.max, b.max), names: slices.Concat(a.names, b.names), at: first(a.at, b.at),
		index: make(map[string]int, len(a.listed)+len(b.listed))}
	c.spend(4 + len(a.listed) + len(b.listed))
	add := func(x, y *objects, unplaced bool) {
		for _, p := range x.listed {
			if _, have := o.index[p.name]; have || p.unplaced != unplaced {
				continue
			}
			if i, ok := y.index[p.name]; ok {
				p.set, p.required = c.union(p.set, y.listed[i].set), p.required || y.listed[i].required
			} else {
				p.set = c.union(p.set, c.otherSet(y, p.name))
			}
			o.index[p.name] = len(o.listed)
			o.listed = append(o.listed, p)
		}
	}
	add(a, b, false)
	add(b, a, false)
	add(a, b, true)
	add(b, a, true)
	o.others = c.meetOthers(a.others, b.others)
	if !c.possible(&o) {
		return nil
	}
	switch {
	case a.one != nil && b.one != nil:
		c.refuseHere("two of the schemas each ask for a property that is not listed")
	case a.one != nil:
		return c.placeOne(&o, a, b)
	case b.one != nil:
		return c.placeOne(&o, b, a)
	}
	return []objects{o}
}

// placeOne says where the property that from asks for may be: among those
// that only with lists, or among the others.
func (c *compiler) placeOne(o, from, with *objects) []objects {
	var list []objects
	for _, p := range with.listed {
		if _, known := from.index[p.name]; known || !c.named(from.one.names, p.name) {
			continue
		}
		q := o.listed[o.index[p.name]]
		q.set, q.required = c.union(q.set, from.one.set), true
		if alternative := o.with(q); c.possible(&alternative) {
			list = append(list, alternative)
		}
	}
	for _, k := range c.meetOthers(o.others, []others{*from.one}) {
		alternative := *o
		alternative.one = &k
		list = append(list, alternative)
	}
	return list
}

// possible says whether an object can be, as far as is seen at once.
func (c *compiler) possible(o *objects) bool {
	required := 0
	for i, p := range o.listed {
		c.spend(1)
		if p.required {
			required++
			if c.none(p.set) {
				return false
			}
		} else if p.set != nothing && c.eager && c.none(p.set) {
			o.listed[i].set = nothing
		}
	}
	return o.max == unlimited || required <= o.max && o.min <= o.max
}

// otherSet is what a name that o does not list is.
func (c *compiler) otherSet(o *objects, name string) setID {
	for _, k := range o.others {
		if c.named(k.names, name) {
			return k.set
		}
	}
	return nothing
}

// meetOthers tells the names of two lists of classes apart at once.
func (c *compiler) meetOthers(a, b []others) []others {
	var list []others
	for _, x := range a {
		for _, y := range b {
			c.spend(2)
			k := others{names: slices.Clone(x.names), set: c.union(x.set, y.set)}
			for _, n := range y.names {
				if !slices.ContainsFunc(k.names, n.same) {
					k.names = append(k.names, n)
				}
			}
			if k.set == nothing {
				continue
			}
			if len(x.names) > 0 && len(y.names) > 0 && c.noName(k.names) {
				continue
			}
			list = append(list, k)
		}
	}
	if len(list) > c.limits.Alternatives {
		c.refuseLimit("its patterns overlap in too many ways", c.limits.Alternatives)
	}
	return list
}

// complement is what a shape does not allow.
func (c *compiler) complement(s *shape) *shape {
	all := anyShape()
	r := &shape{null: !s.null, yes: !s.yes, no: !s.no,
		numbers: all.numbers, strings: all.strings, arrays: all.arrays, objects: all.objects}
	for i := range s.numbers {
		r = c.meetType(r, &shape{numbers: s.numbers[i].complement()}, 0)
	}
	for i := range s.strings {
		r = c.meetType(r, &shape{strings: s.strings[i].complement()}, 1)
	}
	for i := range s.arrays {
		r = c.meetType(r, &shape{arrays: c.notArrays(&s.arrays[i])}, 2)
	}
	for i := range s.objects {
		r = c.meetType(r, &shape{objects: c.notObjects(&s.objects[i])}, 3)
	}
	return r
}

// meetType is a with the alternatives of one type intersected with b's.
func (c *compiler) meetType(a, b *shape, which int) *shape {
	m, r := c.meet(a, b), *a
	switch which {
	case 0:
		r.numbers = m.numbers
	case 1:
		r.strings = m.strings
	case 2:
		r.arrays = m.arrays
	default:
		r.objects = m.objects
	}
	return &r
}

// notSet is a set of schemas negated: one of them does not hold.
func (c *compiler) notSet(s setID) []setID {
	var list []setID
	for _, l := range c.sets[s] {
		if _, ok := c.origin[l.schema]; !ok {
			c.origin[l.schema] = c.here
		}
		list = append(list, c.intern([]literal{{l.schema, !l.negated}}))
	}
	if s == nothing {
		list = append(list, anything)
	}
	return list
}

func (c *compiler) notArrays(a *arrays) []arrays {
	var list []arrays
	if a.min > 0 {
		list = append(list, arrays{max: a.min - 1, at: a.at})
	}
	if a.max != unlimited {
		list = append(list, arrays{min: a.max + 1, max: unlimited, at: a.at})
	}
	for i, s := range a.prefix {
		for _, not := range c.notSet(s) {
			x := arrays{prefix: make([]setID, i+1), min: i + 1, max: unlimited, at: a.at}
			x.prefix[i] = not
			list = append(list, x)
		}
	}
	for _, not := range c.notSet(a.rest) {
		switch {
		case a.rest == nothing:
			list = append(list, arrays{min: len(a.prefix) + 1, max: unlimited, at: a.at})
		case len(a.prefix) > 0:
			c.refuseHere("an item after prefixItems would have to differ from items")
		default:
			list = append(list, arrays{max: unlimited, some: []some{{not, 1, unlimited}}, at: a.at})
		}
	}
	for _, s := range a.some {
		if s.min > 0 {
			list = append(list, arrays{max: unlimited, some: []some{{s.set, 0, s.min - 1}}, at: a.at})
		}
		if s.max != unlimited {
			list = append(list, arrays{max: unlimited, some: []some{{s.set, s.max + 1, unlimited}}, at: a.at})
		}
	}
	if a.unique != nil {
		c.refuseHere("an array would have to hold the same item twice")
	}
	return list
}

func (c *compiler) notObjects(o *objects) []objects {
	var list []objects
	anyNames := anyObject()
	anyNames.at = o.at
	if o.min > 0 {
		x := anyNames
		x.max = o.min - 1
		list = append(list, x)
	}
	if o.max != unlimited {
		x := anyNames
		x.min = o.max + 1
		list = append(list, x)
	}
	listed := anyNames // lists o's names, so that one of the others is none of them
	listed.index = o.index
	for _, p := range o.listed {
		if p.required {
			list = append(list, anyNames.with(property{name: p.name, set: nothing, unplaced: true}))
		}
		for _, not := range c.notSet(p.set) {
			list = append(list, anyNames.with(property{name: p.name, set: not, required: true, unplaced: true}))
		}
		listed.listed = append(listed.listed, property{name: p.name, unplaced: true})
	}
	var allowed []others
	for _, k := range o.others {
		allowed = append(allowed, k)
		for _, not := range c.notSet(k.set) {
			x := listed
			x.one = &others{k.names, not}
			list = append(list, x)
		}
	}
	for _, k := range c.outside(allowed) { // a name that is not allowed
		x := listed
		x.one = &k
		list = append(list, x)
	}
	if len(o.names) > 0 {
		c.refuseHere("a name would have to differ from propertyNames")
	}
	if o.one != nil {
		x := listed
		x.others = c.meetOthers(x.others, c.outside([]others{*o.one}))
		for _, not := range c.notSet(o.one.set) {
			x.others = append(x.others, others{o.one.names, not})
		}
		if len(c.notSet(o.one.set)) > 1 {
			c.refuseHere("all properties that are not listed would have to differ from a schema")
		}
		list = append(list, x)
	}
	return list
}

// outside is the names that are in none of the classes.
func (c *compiler) outside(classes []others) []others {
	rest := []others{{}}
	for _, k := range classes {
		var not []others
		for i, n := range k.names { // not the i-th condition, but all before it
			names := slices.Clone(k.names[:i])
			n.negated = !n.negated
			not = append(not, others{names: append(names, n)})
		}
		rest = c.meetOthers(rest, not)
	}
	return rest
}
