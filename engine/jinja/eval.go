package jinja

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

type expr interface{ eval(s *state) any }

type literal struct{ value any }

func (l literal) eval(*state) any { return l.value }

type nameExpr string

func (n nameExpr) eval(s *state) any {
	if v, ok := s.scope.get(string(n)); ok {
		return v
	}
	return Undefined{"'" + string(n) + "' is undefined"}
}

// captured is an expression: the rendered text of a block.
type captured struct{ body []stmt }

func (c *captured) eval(s *state) any {
	return s.capture(func() { s.inScope(s.scope, func() { s.run(c.body) }) })
}

type listExpr struct {
	items []expr
	tuple bool
}

func (l *listExpr) eval(s *state) any {
	return &List{Items: s.evalAll(l.items), Tuple: l.tuple}
}

func (s *state) evalAll(list []expr) []any {
	s.charge(16 * len(list))
	values := make([]any, len(list))
	for i, e := range list {
		values[i] = s.inner(e)
	}
	return values
}

type dictExpr struct{ keys, values []expr }

func (d *dictExpr) eval(s *state) any {
	dict := NewDict()
	s.charge(64 * len(d.keys))
	for i := range d.keys {
		key := plain(s.inner(d.keys[i]))
		if s.needHashable(key); !hashable(key) {
			s.fail("keys of type '%s' are not supported", typeName(key))
		}
		dict.Set(key, s.inner(d.values[i]))
	}
	return dict
}

// needHashable fails for values that Python cannot use as a key of a dict.
func (s *state) needHashable(v any) {
	switch v := v.(type) {
	case *Dict:
		s.fail("unhashable type: 'dict'")
	case *List:
		if !v.Tuple && v.kind == plainList {
			s.fail("unhashable type: 'list'")
		}
	}
}

type condExpr struct{ yes, cond, no expr }

func (c *condExpr) eval(s *state) any {
	switch {
	case truth(s.inner(c.cond)):
		return s.inner(c.yes)
	case c.no != nil:
		return s.inner(c.no)
	}
	return Undefined{"the inline if-expression evaluated to false and no else section was defined"}
}

type logicExpr struct {
	or          bool
	left, right expr
}

func (l *logicExpr) eval(s *state) any {
	if v := s.inner(l.left); truth(v) == l.or {
		return v
	}
	return s.inner(l.right)
}

type notExpr struct{ value expr }

func (n *notExpr) eval(s *state) any { return !truth(s.inner(n.value)) }

type negateExpr struct{ value expr }

func (n *negateExpr) eval(s *state) any {
	v := s.inner(n.value)
	i, f, isFloat, ok := number(v)
	switch {
	case !ok:
		s.fail("bad operand type for unary -: '%s'", typeName(v))
	case isFloat:
		return -f
	}
	return small(new(big.Int).Neg(i))
}

// compareExpr is a chain such as a < b < c. It is true if every comparison is.
type compareExpr struct {
	first expr
	ops   []string
	rest  []expr
}

func (c *compareExpr) eval(s *state) any {
	left := s.inner(c.first)
	for i, op := range c.ops {
		right := s.inner(c.rest[i])
		if !s.holds(op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (s *state) holds(op string, a, b any) bool {
	switch op {
	case "==":
		return s.equal(a, b)
	case "!=":
		return !s.equal(a, b)
	case "<":
		return s.order(a, b) < 0 && !isNaN(a) && !isNaN(b)
	case "<=":
		return s.order(a, b) <= 0 && !isNaN(a) && !isNaN(b)
	case ">":
		return s.order(a, b) > 0 && !isNaN(a) && !isNaN(b)
	case ">=":
		return s.order(a, b) >= 0 && !isNaN(a) && !isNaN(b)
	case "in":
		return s.contains(b, a)
	}
	return !s.contains(b, a)
}

func (s *state) contains(in, v any) bool {
	v = plain(v)
	switch in := plain(in).(type) {
	case string:
		text, ok := v.(string)
		if !ok {
			s.fail("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		s.work(len(in))
		return strings.Contains(in, text)
	case *Dict:
		s.needHashable(v)
		_, ok := in.Get(v)
		return ok
	case *List:
		for _, item := range s.iterate(in) {
			if s.equal(item, v) {
				return true
			}
		}
		return false
	case Undefined:
		return false
	}
	s.fail("argument of type '%s' is not iterable", typeName(in))
	return false
}

type attrExpr struct {
	of   expr
	name string
}

func (a *attrExpr) eval(s *state) any {
	return s.attr(s.inner(a.of), a.name)
}

// attr is v.name: Jinja looks for an attribute first, then for an item.
func (s *state) attr(v any, name string) any {
	switch v := v.(type) {
	case Undefined:
		s.fail("%s", v.what())
	case *Dict:
		if m := method(v, name); m != nil {
			return m
		}
		if value, ok := v.items[name]; ok {
			return value
		}
	case *namespace:
		if value, ok := v.vars.Get(name); ok {
			return value
		}
	case *loop:
		return v.attr(name)
	case *cycler:
		return v.attr(name)
	case *macro:
		if value, ok := v.attr(name); ok {
			return value
		}
	default:
		if m := method(v, name); m != nil {
			return m
		}
		if l, ok := v.(*List); ok && l.group && (name == "grouper" || name == "list") {
			return l.Items[boolInt(name == "list")]
		}
	}
	return Undefined{"'" + typeName(v) + " object' has no attribute '" + name + "'"}
}

func (u Undefined) what() string {
	if u.What == "" {
		return "value is undefined"
	}
	return u.What
}

type itemExpr struct{ of, key expr }

func (i *itemExpr) eval(s *state) any {
	return s.item(s.inner(i.of), s.inner(i.key))
}

// item is v[key]: Jinja looks for an item first, then for an attribute.
func (s *state) item(v, key any) any {
	v, key = plain(v), plain(key)
	switch v := v.(type) {
	case Undefined:
		s.fail("%s", v.what())
	case *Dict:
		if value, ok := v.Get(key); ok {
			return value
		}
	case *List:
		if n, ok := index(key); ok && v.indexed() {
			if n < 0 {
				n += int64(len(v.Items))
			}
			if n >= 0 && n < int64(len(v.Items)) {
				return v.Items[n]
			}
		}
	case string:
		if n, ok := index(key); ok {
			if piece := s.slice(v, n, n+1, int64(1)); n != -1 && piece != "" {
				return piece
			} else if n == -1 && v != "" {
				_, size := utf8.DecodeLastRuneInString(v)
				return v[len(v)-size:]
			}
		}
	}
	if name, ok := key.(string); ok {
		return s.attr(v, name)
	}
	return Undefined{"'" + typeName(v) + " object' has no element " + s.str(key)}
}

// index converts an integer or a bool to an index.
func index(v any) (int64, bool) {
	if b, ok := v.(bool); ok {
		return int64(boolInt(b)), true
	}
	n, ok := v.(int64)
	return n, ok
}

type sliceExpr struct {
	of    expr
	parts [3]expr
}

func (c *sliceExpr) eval(s *state) any {
	v := plain(s.inner(c.of))
	var parts [3]any
	for i, part := range c.parts {
		if part != nil {
			parts[i] = s.inner(part)
		}
	}
	if parts[2] == nil {
		parts[2] = int64(1)
	}
	return s.slice(v, parts[0], parts[1], parts[2])
}

// slice is v[from:to:by] of a list or string, with Python's rules for
// negative and missing ends.
func (s *state) slice(v, from, to, by any) any {
	step, ok := by.(int64)
	if !ok || step == 0 {
		s.fail("slice step must be an integer other than zero")
	}
	list, isList := v.(*List)
	isList = isList && list.indexed()
	text, isText := v.(string)
	if !isList && !isText {
		s.fail("'%s' object is not subscriptable", typeName(v))
	}
	var runes []rune
	n := int64(0)
	if isList {
		n = int64(len(list.Items))
	} else {
		s.charge(4 * len(text))
		runes = []rune(text)
		n = int64(len(runes))
	}
	step = min(max(step, -n-1), n+1) // keeps the index from overflowing
	first, last := int64(0), n
	if step < 0 {
		first, last = n-1, -1
	}
	first = s.sliceEnd(from, first, n, step)
	last = s.sliceEnd(to, last, n, step)
	if isText {
		var b strings.Builder
		for i := first; step > 0 && i < last || step < 0 && i > last; i += step {
			b.WriteRune(runes[i])
		}
		return b.String()
	}
	s.charge(16 * len(list.Items))
	items := []any{}
	for i := first; step > 0 && i < last || step < 0 && i > last; i += step {
		items = append(items, list.Items[i])
	}
	return &List{Items: items, Tuple: list.Tuple, kind: list.kind}
}

func (s *state) sliceEnd(v any, missing, n, step int64) int64 {
	if v == nil {
		return missing
	}
	i, ok := v.(int64)
	if !ok {
		s.fail("slice indices must be integers or None, not %s", typeName(v))
	}
	if i < 0 {
		i += n
	}
	if step < 0 {
		return max(min(i, n-1), -1)
	}
	return max(min(i, n), 0)
}
