package jinja

import (
	"math"
	"math/big"
	"unicode/utf8"
)

// Undefined is the value of a name, attribute or item that does not exist. It
// prints as "" and fails when it is called or an attribute of it is read.
type Undefined struct{ What string }

// List is a Python list or tuple.
type List struct {
	Items []any
	Tuple bool
	kind  listKind
	input bool // of Render's variables: the template may not change it
	group bool // a pair that groupby gives: its items have the names grouper and list
}

// listKind is the Python type of a List.
type listKind string

const (
	plainList listKind = ""
	rangeList listKind = "range"
	iterator  listKind = "generator" // returns its items once, and is true even if empty
	// The views of a dict have a length but no index.
	keysView   listKind = "dict_keys"
	valuesView listKind = "dict_values"
	itemsView  listKind = "dict_items"
)

// indexed reports whether l supports l[i].
func (l *List) indexed() bool { return l.kind == plainList || l.kind == rangeList }

// Dict is a Python dict: keys in order of insertion.
type Dict struct {
	keys  []any
	items map[any]any
	input bool // as in List
}

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{items: map[any]any{}} }

// Get returns the value of key, and whether there is one.
func (d *Dict) Get(key any) (any, bool) {
	if !hashable(key) {
		return nil, false
	}
	v, ok := d.items[sameKey(key)]
	return v, ok
}

// sameKey maps keys that are equal in Python, such as 1, 1.0 and true, to one key.
func sameKey(key any) any {
	switch k := key.(type) {
	case bool:
		return int64(boolInt(k))
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<62 {
			return int64(k)
		}
	}
	return key
}

// Set adds or replaces the value of key, which must be a string, number, bool or nil.
func (d *Dict) Set(key, value any) {
	same := sameKey(key)
	if _, ok := d.items[same]; !ok {
		d.keys = append(d.keys, key)
	}
	d.items[same] = value
}

// at returns the value of a key, which d must have.
func (d *Dict) at(key any) any { return d.items[sameKey(key)] }

// Keys returns the keys in order. The caller must not change the slice.
func (d *Dict) Keys() []any { return d.keys }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

func (d *Dict) remove(key any) {
	delete(d.items, sameKey(key))
	for i, k := range d.keys {
		if sameKey(k) == sameKey(key) {
			d.keys = append(d.keys[:i:i], d.keys[i+1:]...)
			return
		}
	}
}

func hashable(key any) bool {
	switch key.(type) {
	case nil, bool, int64, float64, string:
		return true
	}
	return false
}

// Func is a function that a template may call. Its error ends the render.
type Func func(args []any) (any, error)

// builtin is a function of the language itself.
type builtin func(s *state, a args) any

type namespace struct{ vars Dict }

// reference is the variable self. It has no blocks, because there is no inheritance.
type reference struct{}

// typeName is Python's name of v's type, for messages.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case Undefined:
		return "Undefined"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *List:
		switch {
		case v.Tuple:
			return "tuple"
		case v.kind != plainList:
			return string(v.kind)
		}
		return "list"
	case *Dict:
		return "dict"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case reference:
		return "TemplateReference None"
	}
	return "function"
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *List:
		return len(v.Items) > 0 || v.kind == iterator
	case *Dict:
		return v.Len() > 0
	}
	return true
}

// number converts a bool or number for arithmetic. isFloat says that the result is
// a float.
func number(v any) (i *big.Int, f float64, isFloat, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return big.NewInt(1), 1, false, true
		}
		return new(big.Int), 0, false, true
	case int64:
		return big.NewInt(v), float64(v), false, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return v, f, false, true
	case float64:
		return nil, v, true, true
	}
	return nil, 0, false, false
}

// small converts v to an int64 if it fits.
func small(v *big.Int) any {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}

// length is Python's len(v).
func (s *state) length(v any) int {
	switch v := v.(type) {
	case string:
		s.work(len(v))
		return utf8.RuneCountInString(v)
	case markup:
		return s.length(string(v))
	case *List:
		if v.kind != iterator {
			return len(v.Items)
		}
	case *Dict:
		return v.Len()
	case Undefined:
		return 0
	}
	s.fail("object of type '%s' has no len()", typeName(v))
	return 0
}

// iterate returns the items of a loop over v.
func (s *state) iterate(v any) []any {
	switch v := v.(type) {
	case *List:
		items := v.Items
		if v.kind == iterator {
			v.Items = nil
		}
		return items
	case *Dict:
		return v.keys
	case markup:
		return s.iterate(string(v))
	case string:
		s.charge(16 * len(v))
		list := make([]any, 0, len(v))
		for _, r := range v {
			list = append(list, string(r))
		}
		return list
	case Undefined:
		return nil
	}
	s.fail("'%s' object is not iterable", typeName(v))
	return nil
}
