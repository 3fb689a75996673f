package jinja

import (
	"math/big"
)

const rangeMax = 100000 // as in Jinja2's sandbox

var globals = map[string]any{
	"range":     builtin(makeRange),
	"namespace": builtin(makeNamespace),
	"dict":      builtin(makeDict),
	"joiner":    builtin(makeJoiner),
	"cycler":    builtin(makeCycler),
	"self":      reference{},
}

func makeRange(s *state, a args) any {
	from, to, by := 0, 0, 1
	switch len(a.pos) {
	case 1:
		to = a.integer(s, 0, "stop", 0)
	case 2, 3:
		from, to = a.integer(s, 0, "start", 0), a.integer(s, 1, "stop", 0)
		by = a.integer(s, 2, "step", 1)
	default:
		s.fail("range expected 1 to 3 arguments, got %d", len(a.pos))
	}
	if by == 0 {
		s.fail("range() arg 3 must not be zero")
	}
	// The difference of two ints always fits an unsigned one.
	n := uint64(0)
	if by > 0 && from < to {
		n = (uint64(to)-uint64(from)-1)/uint64(by) + 1
	} else if by < 0 && from > to {
		n = (uint64(from)-uint64(to)-1)/-uint64(by) + 1
	}
	if n > rangeMax {
		s.fail("Range too big. The sandbox blocks ranges larger than %d.", rangeMax)
	}
	s.charge(16 * int(n))
	items := make([]any, n)
	for i := range items {
		items[i] = int64(from + i*by)
	}
	return &List{Items: items, kind: rangeList}
}

func makeNamespace(s *state, a args) any {
	ns := &namespace{vars: *NewDict()}
	for _, v := range a.pos {
		d, ok := v.(*Dict)
		if !ok {
			s.fail("namespace takes a dict, not %s", typeName(v))
		}
		s.update(&ns.vars, d)
	}
	for _, n := range a.named {
		ns.vars.Set(n.name, n.value)
	}
	return ns
}

func makeDict(s *state, a args) any {
	d := NewDict()
	if len(a.pos) > 0 {
		s.update(d, a.pos[0])
	}
	for _, n := range a.named {
		d.Set(n.name, n.value)
	}
	return d
}

// update adds the items of a dict or of a list of pairs.
func (s *state) update(d *Dict, from any) {
	if other, ok := from.(*Dict); ok {
		from = s.pairs(other)
	}
	for _, item := range s.iterate(from) {
		s.charge(64)
		pair := s.iterate(item)
		if len(pair) != 2 || !hashable(plain(pair[0])) {
			s.fail("cannot update a dict with %s", typeName(item))
		}
		d.Set(plain(pair[0]), pair[1])
	}
}

func makeJoiner(s *state, a args) any {
	separator, used := a.text(s, 0, "sep", ", "), false
	return builtin(func(*state, args) any {
		if used {
			return separator
		}
		used = true
		return ""
	})
}

// cycler is Jinja2's cycler: next() returns its items in turn.
type cycler struct {
	items []any
	at    int
}

func makeCycler(s *state, a args) any {
	if len(a.pos) == 0 {
		s.fail("at least one item has to be provided")
	}
	return &cycler{items: a.pos}
}

func (c *cycler) attr(name string) any {
	switch name {
	case "current":
		return c.items[c.at]
	case "next":
		return builtin(func(*state, args) any {
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v
		})
	case "reset":
		return builtin(func(*state, args) any {
			c.at = 0
			return nil
		})
	}
	return Undefined{"'Cycler' has no attribute '" + name + "'"}
}

type testFunc func(s *state, v any, a args) bool

// compared returns a test that compares a value with its argument by op.
func compared(op string) testFunc {
	return func(s *state, v any, a args) bool { return s.holds(op, v, a.get(0, "other", nil)) }
}

func isType[T any](_ *state, v any, _ args) bool {
	_, ok := v.(T)
	return ok
}

func isInteger(_ *state, v any, _ args) bool {
	switch v.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func isMultiple(s *state, v any, by, rest int64) bool {
	return s.equal(s.arithmetic("%", v, by), rest)
}

// tests is filled in init because tests and the filters that use them refer
// to each other.
var tests map[string]testFunc

func init() {
	tests = map[string]testFunc{
		"defined":   func(_ *state, v any, _ args) bool { _, undefined := v.(Undefined); return !undefined },
		"undefined": isType[Undefined],
		"none":      func(_ *state, v any, _ args) bool { return v == nil },
		"boolean":   isType[bool],
		"true":      func(_ *state, v any, _ args) bool { return v == true },
		"false":     func(_ *state, v any, _ args) bool { return v == false },
		"integer":   isInteger,
		"float":     isType[float64],
		"number":    func(_ *state, v any, _ args) bool { _, _, _, ok := number(v); return ok },
		"string":    isType[string],
		"mapping":   isType[*Dict],
		"iterable":  isIterable,
		"sequence":  isSequence,
		"callable": func(_ *state, v any, _ args) bool {
			switch v.(type) {
			case builtin, Func, *macro, Undefined:
				return true
			}
			return false
		},
		"odd":  func(s *state, v any, _ args) bool { return isMultiple(s, v, 2, 1) },
		"even": func(s *state, v any, _ args) bool { return isMultiple(s, v, 2, 0) },
		"divisibleby": func(s *state, v any, a args) bool {
			return isMultiple(s, v, int64(a.integer(s, 0, "num", 1)), 0)
		},
		"lower":  hasCase(lower, upper),
		"upper":  hasCase(upper, lower),
		"sameas": isSame,
		"in":     compared("in"),
		"filter": func(_ *state, v any, _ args) bool { name, _ := v.(string); return filters[name] != nil },
		"test":   func(_ *state, v any, _ args) bool { name, _ := v.(string); return tests[name] != nil },
		"eq":     compared("=="), "equalto": compared("=="), "==": compared("=="),
		"ne": compared("!="), "!=": compared("!="),
		"lt": compared("<"), "lessthan": compared("<"), "<": compared("<"),
		"gt": compared(">"), "greaterthan": compared(">"), ">": compared(">"),
		"le": compared("<="), "<=": compared("<="),
		"ge": compared(">="), ">=": compared(">="),
	}
}

func isIterable(_ *state, v any, _ args) bool {
	switch v.(type) {
	case string, *List, *Dict, Undefined:
		return true
	}
	return false
}

// isSequence holds for values with a length and items. For Jinja2 these include
// dicts, strings and undefined values.
func isSequence(s *state, v any, a args) bool {
	l, ok := v.(*List)
	return isIterable(s, v, a) && (!ok || l.indexed())
}

// isSame holds for the same object. Equal small values of one type are the same
// object.
func isSame(s *state, v any, a args) bool {
	other := plain(a.get(0, "other", nil))
	return typeName(v) == typeName(other) && s.holds("==", v, other) && (v == other || !isMutable(v))
}

func isMutable(v any) bool {
	switch v.(type) {
	case *List, *Dict:
		return true
	}
	return false
}

// hasCase holds for text that has letters and that to does not change.
func hasCase(to, from func(string) string) testFunc {
	return func(s *state, v any, _ args) bool {
		text := s.printed(v)
		return to(text) == text && from(text) != text
	}
}
