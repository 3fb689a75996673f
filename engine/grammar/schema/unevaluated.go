package schema

// evaluated is what the schemas for one instance say of its parts, so far as
// that does not depend on the instance.
type evaluated struct {
	names    []string
	patterns []member
	all      bool // every property
	items    int  // so many items
	allItems bool
	seen     map[*value]bool
}

// perhaps are the keywords whose schemas hold for some instances only, so that
// what they evaluate depends on the instance. not evaluates nothing.
var perhaps = words("anyOf dependencies dependentSchemas if oneOf")

// evaluates reads the schemas of v that hold for the same instance; u is the
// keyword that asks, and is left out itself.
func (c *compiler) evaluates(v, u *value, e *evaluated) {
	if v.kind != kindObject || e.seen[v] {
		return
	}
	e.seen[v] = true
	c.spend(len(v.members))
	for _, m := range v.members {
		switch {
		case m.value == u:
		case perhaps[m.key]:
			refuse(u, "it is not supported beside "+m.key)
		case m.key == "contains" && u.step == "unevaluatedItems":
			refuse(u, "it is not supported beside contains")
		case m.key == "properties":
			for _, p := range m.value.members {
				e.names = append(e.names, p.key)
			}
		case m.key == "patternProperties":
			e.patterns = append(e.patterns, m.value.members...)
		case m.key == "additionalProperties" || m.key == "unevaluatedProperties":
			e.all = true
		case m.key == "prefixItems":
			e.items = max(e.items, len(m.value.items))
		case m.key == "items" && m.value.kind == kindArray:
			e.items = max(e.items, len(m.value.items))
			e.allItems = e.allItems || v.get("additionalItems") != nil
		case m.key == "items" || m.key == "unevaluatedItems":
			e.allItems = true
		case m.key == "$ref":
			c.evaluates(c.resolve(m.value), u, e)
		case m.key == "allOf":
			for _, x := range m.value.items {
				c.evaluates(x, u, e)
			}
		}
	}
}

// unevaluatedProperties is the objects whose properties that no schema
// beside u evaluates are of u.
func (c *compiler) unevaluatedProperties(v, u *value) *objects {
	e := &evaluated{seen: map[*value]bool{}}
	c.evaluates(v, u, e)
	o := anyObject()
	o.index = map[string]int{}
	if o.at = u; e.all {
		return &o
	}
	for i := range e.patterns {
		e.patterns[i].value = &value{kind: kindTrue, parent: u}
	}
	c.at(u, func() { o.others = c.patterned(e.patterns, u, c.child(u)) })
	for _, n := range e.names {
		if _, ok := o.index[n]; !ok {
			o.index[n] = len(o.listed)
			o.listed = append(o.listed, property{name: n, unplaced: true})
		}
	}
	return &o
}

// unevaluatedItems is the arrays whose items that no schema beside u
// evaluates are of u.
func (c *compiler) unevaluatedItems(v, u *value) *arrays {
	e := &evaluated{seen: map[*value]bool{}}
	c.evaluates(v, u, e)
	a := &arrays{max: unlimited, at: u}
	if !e.allItems {
		a.prefix, a.rest = make([]setID, e.items), c.child(u)
	}
	return a
}
