package jinja

import (
	"math"
	"strings"
)

// equal is Python's ==.
func (s *state) equal(a, b any) bool {
	s.enter()
	defer s.leave()
	s.step()
	a, b = plain(a), plain(b)
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		if ok && len(x) == len(y) {
			s.work(len(x))
		}
		return ok && x == y
	case nil:
		return b == nil
	case Undefined:
		_, ok := b.(Undefined)
		return ok
	case *List:
		y, ok := b.(*List)
		if !ok || x.Tuple != y.Tuple || x.kind != y.kind || len(x.Items) != len(y.Items) {
			return false
		}
		for i := range x.Items {
			if !s.equal(x.Items[i], y.Items[i]) {
				return false
			}
		}
		return true
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for _, key := range x.keys {
			if v, ok := y.Get(key); !ok || !s.equal(x.at(key), v) {
				return false
			}
		}
		return true
	case *namespace:
		return a == b
	case *macro:
		return a == b
	case *loop:
		return a == b
	}
	order, ok := numberOrder(a, b)
	return ok && order == 0
}

// numberOrder compares two numbers, -1, 0 or 1.
func numberOrder(a, b any) (int, bool) {
	x, xf, xIsFloat, xok := number(a)
	y, yf, yIsFloat, yok := number(b)
	if !xok || !yok {
		return 0, false
	}
	if !xIsFloat && !yIsFloat {
		return x.Cmp(y), true
	}
	switch {
	case xf < yf:
		return -1, true
	case xf > yf:
		return 1, true
	case xf == yf:
		return 0, true
	}
	return 0, false
}

// order compares two strings, numbers or lists of them as Python's < does.
func (s *state) order(a, b any) int {
	s.enter()
	defer s.leave()
	s.step()
	a, b = plain(a), plain(b)
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			s.work(min(len(x), len(y)))
			return strings.Compare(x, y)
		}
	}
	if x, ok := a.(*List); ok {
		if y, ok := b.(*List); ok && x.Tuple == y.Tuple && x.kind == plainList && y.kind == plainList {
			for i := range min(len(x.Items), len(y.Items)) {
				if !s.equal(x.Items[i], y.Items[i]) {
					return s.order(x.Items[i], y.Items[i])
				}
			}
			return len(x.Items) - len(y.Items)
		}
	}
	o, ok := numberOrder(a, b)
	if !ok && !(isNumber(a) && isNumber(b)) {
		s.fail("'<' not supported between instances of '%s' and '%s'", typeName(a), typeName(b))
	}
	return o
}

func isNumber(v any) bool {
	_, _, _, ok := number(v)
	return ok
}

// isNaN reports whether v is NaN, which has no order.
func isNaN(v any) bool {
	f, ok := v.(float64)
	return ok && math.IsNaN(f)
}
