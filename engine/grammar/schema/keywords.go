package schema

import (
	"math/big"
	"strconv"
	"strings"
)

// annotations say nothing about an instance. Some are OpenAPI's; its
// discriminator repeats what oneOf and const say.
var annotations = words(`$anchor $comment $defs $dynamicAnchor $id $recursiveAnchor $schema $vocabulary contentEncoding contentMediaType
	contentSchema default definitions deprecated description discriminator example examples externalDocs id readOnly title writeOnly xml`)

func annotation(key string) bool { return annotations[key] || strings.HasPrefix(key, "x-") }

// assertions are the keywords that are enforced or refused. They are read
// together by type; a keyword that is in neither table is unknown.
var assertions = words(`$dynamicRef $recursiveRef $ref additionalItems additionalProperties allOf anyOf const contains dependencies dependentRequired
	dependentSchemas else enum exclusiveMaximum exclusiveMinimum format if items maxContains maxItems maxLength maxProperties maximum
	minContains minItems minLength minProperties minimum multipleOf not oneOf pattern patternProperties prefixItems properties
	propertyNames required then type unevaluatedItems unevaluatedProperties uniqueItems`)

// schema is the shape of a schema.
func (c *compiler) schema(v *value) *shape {
	if s, ok := c.schemaOf[v]; ok {
		return s
	}
	switch v.kind {
	case kindTrue:
		return anyShape()
	case kindFalse:
		return &shape{}
	case kindObject:
	default:
		refuse(v, "a schema is an object, true or false")
	}
	l := literal{schema: v}
	if c.open[l] {
		c.refuseHere("the schema refers to itself with nothing in between")
	}
	c.open[l] = true
	s := c.keywords(v)
	delete(c.open, l)
	c.schemaOf[v] = s
	return s
}

func (c *compiler) keywords(v *value) *shape {
	for _, m := range v.members {
		if !annotation(m.key) && !assertions[m.key] {
			c.unknown(m.value)
		}
	}
	for _, key := range []string{"$dynamicRef", "$recursiveRef"} {
		if r := v.get(key); r != nil {
			refuse(r, "dynamic references are not supported")
		}
	}
	if r := v.get("$ref"); r != nil && c.draft <= 7 {
		return c.alone(v, r)
	}
	s := c.typed(v)
	if r := v.get("$ref"); r != nil {
		c.at(r, func() { s = c.meet(s, c.schema(c.resolve(r))) })
	}
	for _, key := range []string{"const", "enum"} {
		if e := v.get(key); e != nil {
			c.at(e, func() { s = c.meet(s, c.constants(e, key == "const")) })
		}
	}
	for _, step := range []func(*value) *shape{c.allOf, c.anyOf, c.oneOf, c.not, c.conditional, c.dependent} {
		if x := step(v); x != nil {
			s = c.meet(s, x)
		}
	}
	return s
}

// alone is what a $ref refers to, as up to draft 7 what stands beside it has
// no effect.
func (c *compiler) alone(v, r *value) (s *shape) {
	for _, m := range v.members {
		switch {
		case m.value == r || !assertions[m.key]:
		case c.Strict:
			refuse(m.value, "beside $ref it has no effect up to draft 7")
		default:
			c.ignored = append(c.ignored, Ignored{m.value.pointer(), m.key})
		}
	}
	c.at(r, func() { s = c.schema(c.resolve(r)) })
	return s
}

// unknown notes a word that is in no table, or refuses it when strict.
func (c *compiler) unknown(v *value) {
	if c.Strict {
		refuse(v, "the word is not known")
	}
	c.ignored = append(c.ignored, Ignored{v.pointer(), v.step})
}

func (c *compiler) resolve(ref *value) *value {
	if ref.kind != kindString {
		refuse(ref, "it must be a string")
	}
	target := c.ids.find(ref.parent, ref.text)
	if target == nil {
		refuse(ref, strconv.Quote(ref.text)+" is not in the schema; other documents are not fetched")
	}
	return target
}

var typeNames = map[string]func(*shape, *shape){
	"null":    func(s, from *shape) { s.null = from.null },
	"boolean": func(s, from *shape) { s.yes, s.no = from.yes, from.no },
	"string":  func(s, from *shape) { s.strings = from.strings },
	"array":   func(s, from *shape) { s.arrays = from.arrays },
	"object":  func(s, from *shape) { s.objects = from.objects },
	"number":  func(s, from *shape) { s.numbers = from.numbers },
	"integer": func(s, from *shape) {
		if len(s.numbers) > 0 {
			return
		}
		for _, n := range from.numbers {
			s.numbers = append(s.numbers, n.both(numbers{integer: true}))
		}
	},
}

// typed is what the keywords of single types and type itself allow.
func (c *compiler) typed(v *value) *shape {
	all := anyShape()
	all.numbers = []numbers{c.numeric(v)}
	all.strings = []texts{c.textual(v)}
	all.arrays = []arrays{c.array(v)}
	o := c.object(v)
	all.objects = []objects{o}
	if u := v.get("unevaluatedProperties"); u != nil && !c.harmless(u) {
		all.objects = c.meetObjects(&o, c.unevaluatedProperties(v, u))
	}
	t := v.get("type")
	if t == nil {
		return all
	}
	s := &shape{}
	names := []*value{t}
	if t.kind == kindArray {
		names = t.items
	}
	for _, n := range names {
		pick := typeNames[n.text]
		if n.kind != kindString || pick == nil {
			refuse(t, "a type is one of null, boolean, number, integer, string, array and object")
		}
		pick(s, all)
	}
	return s
}

// number reads a keyword that is a number.
func (c *compiler) number(v *value) *big.Rat {
	if v.kind != kindNumber {
		refuse(v, "it must be a number")
	}
	r := rational(v.text)
	if r == nil {
		refuse(v, "the number has more than "+strconv.Itoa(maxExponent)+" digits")
	}
	return r
}

// size reads a keyword that counts; without it it is def.
func (c *compiler) size(v *value, key string, def int) int {
	n := v.get(key)
	if n == nil {
		return def
	}
	r := c.number(n)
	if !r.IsInt() || r.Sign() < 0 {
		refuse(n, "it must be a whole number from 0")
	}
	const most = 1 << 30
	if r.Num().IsInt64() && r.Num().Int64() < most {
		return int(r.Num().Int64())
	}
	if def == unlimited {
		return unlimited // a maximum that no answer reaches
	}
	refuse(n, "no answer is as long as that")
	return 0
}

func (c *compiler) numeric(v *value) numbers {
	var n numbers
	exclusive := func(key string) (*big.Rat, bool) {
		x := v.get(key)
		switch {
		case x == nil || x.kind == kindFalse:
			return nil, false
		case x.kind == kindTrue: // draft 4: the bound beside it is open
			return nil, true
		}
		n.at = x
		return c.number(x), false
	}
	if x := v.get("minimum"); x != nil {
		n.low, n.at = c.number(x), x
	}
	if x := v.get("maximum"); x != nil {
		n.high, n.at = c.number(x), x
	}
	low, open := exclusive("exclusiveMinimum")
	n.lowOpen = open && n.low != nil
	if low != nil {
		n = n.both(numbers{low: low, lowOpen: true})
	}
	high, open := exclusive("exclusiveMaximum")
	n.highOpen = open && n.high != nil
	if high != nil {
		n = n.both(numbers{high: high, highOpen: true})
	}
	if x := v.get("multipleOf"); x != nil {
		m := c.number(x)
		if m.Sign() <= 0 {
			refuse(x, "it must be above 0")
		}
		n.multiples, n.at = []*big.Rat{m}, x
	}
	return n
}

func (c *compiler) textual(v *value) texts {
	t := texts{min: c.size(v, "minLength", 0), max: c.size(v, "maxLength", unlimited), at: first(v.get("maxLength"), v.get("minLength"))}
	if p := v.get("pattern"); p != nil {
		if p.kind != kindString {
			refuse(p, "it must be a string")
		}
		t.conditions, t.at = append(t.conditions, condition{pattern: true, name: p.text, at: p}), p
	}
	if f := v.get("format"); f != nil {
		switch {
		case f.kind != kindString:
			c.unknown(f)
		case c.text.knows(f.text):
			t.conditions, t.at = append(t.conditions, condition{name: f.text, at: f}), f
		case c.Strict && !numericFormats[f.text]:
			refuse(f, "the format "+strconv.Quote(f.text)+" is not enforced")
		case !numericFormats[f.text]:
			c.ignored = append(c.ignored, Ignored{f.pointer(), "format"})
		}
	}
	return t
}

// numericFormats are OpenAPI's names for the widths of numbers: hints for a
// decoder, which say nothing about strings.
var numericFormats = words("double float int32 int64")

// array reads the keywords of arrays. items as a list is the older spelling of prefixItems.
func (c *compiler) array(v *value) arrays {
	a := arrays{min: c.size(v, "minItems", 0), max: c.size(v, "maxItems", unlimited)}
	items, rest := v.get("items"), v.get("items")
	prefix := v.get("prefixItems")
	if items != nil && items.kind == kindArray {
		if prefix != nil {
			refuse(items, "it is a list beside prefixItems")
		}
		prefix, rest = items, v.get("additionalItems")
	}
	if prefix != nil {
		if prefix.kind != kindArray {
			refuse(prefix, "it must be a list of schemas")
		}
		c.at(prefix, func() {
			for _, x := range prefix.items {
				a.prefix = append(a.prefix, c.child(x))
			}
		})
		a.at = prefix
	}
	if rest != nil {
		a.rest, a.at = c.child(rest), rest
	}
	if u := v.get("uniqueItems"); u != nil && u.kind == kindTrue {
		a.unique = u
	}
	if k := v.get("contains"); k != nil {
		a.some = []some{{c.child(k), c.size(v, "minContains", 1), c.size(v, "maxContains", unlimited)}}
		a.at = k
	}
	if a.at == nil {
		a.at = first(v.get("maxItems"), v.get("minItems"))
	}
	if u := v.get("unevaluatedItems"); u != nil && !c.harmless(u) {
		a, _ = c.meetArrays(&a, c.unevaluatedItems(v, u))
	}
	return a
}

// child is the set of a schema for a part of the instance.
func (c *compiler) child(v *value) setID {
	if v.kind != kindObject && v.kind != kindTrue && v.kind != kindFalse {
		refuse(v, "a schema is an object, true or false")
	}
	return c.of(v)
}

func (c *compiler) harmless(v *value) bool {
	is, holds := c.trivial(v)
	return is && holds
}
