package schema

import "strconv"

// object reads the keywords of objects.
func (c *compiler) object(v *value) objects {
	o := objects{index: map[string]int{}, min: c.size(v, "minProperties", 0), max: c.size(v, "maxProperties", unlimited)}
	rest := v.get("additionalProperties")
	set := anything
	if rest != nil {
		set, o.at = c.child(rest), rest
	}
	o.others = []others{{set: set}}
	if p := v.get("patternProperties"); p != nil {
		if p.kind != kindObject {
			refuse(p, "it must be an object of schemas")
		}
		c.at(p, func() { o.others = c.patterned(p.members, p, set) })
		o.at = p
	} else if set == nothing {
		o.others = nil
	}
	if p := v.get("properties"); p != nil {
		if p.kind != kindObject {
			refuse(p, "it must be an object of schemas")
		}
		if c.listed += len(p.members); c.listed > c.limits.Properties {
			refuse(p, "the schema lists more than "+strconv.Itoa(c.limits.Properties)+" properties")
		}
		for _, m := range p.members {
			s := c.child(m.value)
			if v.get("patternProperties") != nil {
				s = c.union(s, c.patternSet(v.get("patternProperties"), m.key))
			}
			o.index[m.key] = len(o.listed)
			o.listed = append(o.listed, property{name: m.key, set: s})
		}
		o.at = p
	}
	if r := v.get("required"); r != nil {
		c.require(&o, r)
	}
	if n := v.get("propertyNames"); n != nil && !c.harmless(n) {
		o.names, o.at = []setID{c.child(n)}, n
	}
	if o.at == nil {
		o.at = first(v.get("maxProperties"), v.get("minProperties"))
	}
	return o
}

// require marks the listed names as required. One that has no schema of its
// own comes after those that have.
func (c *compiler) require(o *objects, r *value) {
	for _, n := range c.nameList(r) {
		i, ok := o.index[n]
		if !ok {
			i = len(o.listed)
			o.index[n] = i
			o.listed = append(o.listed, property{name: n, set: c.otherSet(o, n), unplaced: true})
		}
		o.listed[i].required = true
	}
	if o.at == nil {
		o.at = r
	}
}

func (c *compiler) nameList(v *value) []string {
	if v.kind != kindArray {
		refuse(v, "it must be a list of names")
	}
	var names []string
	for _, x := range v.items {
		if x.kind != kindString {
			refuse(v, "it must be a list of names")
		}
		names = append(names, x.text)
	}
	return names
}

// patterned tells names apart by which of the patterns they match.
func (c *compiler) patterned(patterns []member, p *value, rest setID) []others {
	classes := []others{{}}
	for _, m := range patterns {
		c.child(m.value)
		has := condition{pattern: true, name: m.key, at: p}
		not := has
		not.negated = true
		next := classes[:0:0]
		for _, k := range classes {
			c.spend(16)
			in := others{names: append(c.telling(k.names, has), has), set: c.union(k.set, c.of(m.value))}
			if c.noName(in.names) { // the class is apart from the pattern as it is
				next = append(next, k)
				continue
			}
			next = append(next, in)
			if out := append(k.names[:len(k.names):len(k.names)], not); !c.noName(out) {
				next = append(next, others{names: out, set: k.set})
			}
		}
		if classes = next; len(classes) > c.limits.Alternatives {
			c.refuseLimit("its patterns overlap in too many ways", c.limits.Alternatives)
		}
	}
	var allowed []others
	for _, k := range classes {
		matched := false
		for _, n := range k.names {
			matched = matched || !n.negated
		}
		if !matched {
			k.set = rest
		}
		if k.set != nothing {
			allowed = append(allowed, k)
		}
	}
	return allowed
}

// telling is the conditions but for the negations that has implies.
func (c *compiler) telling(names []condition, has condition) []condition {
	return filter(names, func(n condition) bool {
		if !n.negated {
			return true
		}
		n.negated = false
		return !c.noName([]condition{n, has})
	})
}

// patternSet is what a name is by the patterns that it matches.
func (c *compiler) patternSet(p *value, name string) setID {
	set := anything
	for _, m := range p.members {
		if c.named([]condition{{pattern: true, name: m.key, at: p}}, name) {
			set = c.union(set, c.of(m.value))
		}
	}
	return set
}
