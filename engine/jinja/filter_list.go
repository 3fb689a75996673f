package jinja

import (
	"slices"
	"strconv"
	"strings"
)

func filterList(s *state, v any, _ args) any {
	items := s.iterate(v)
	s.charge(16 * len(items))
	return &List{Items: slices.Clone(items)}
}

func filterJoin(s *state, v any, a args) any {
	items, attribute := s.iterate(v), a.get(1, "attribute", nil)
	texts := make([]string, len(items))
	separator := s.str(a.get(0, "d", ""))
	for i, item := range items {
		if attribute != nil {
			item = s.path(item, attribute)
		}
		texts[i] = s.str(item)
		s.charge(len(texts[i]) + len(separator) + 16)
	}
	return strings.Join(texts, separator)
}

// path looks up a name with dots, or an index.
func (s *state) path(v, path any) any {
	name, ok := path.(string)
	if !ok {
		return s.item(v, path)
	}
	for part := range strings.SplitSeq(name, ".") {
		s.step()
		if i, err := strconv.ParseInt(part, 10, 64); err == nil {
			v = s.item(v, i)
		} else {
			v = s.item(v, part)
		}
	}
	return v
}

func filterMap(s *state, v any, a args) any {
	items := s.some(v)
	s.charge(16 * len(items))
	out := &List{Items: make([]any, len(items)), kind: iterator}
	attribute, byAttribute := a.name("attribute")
	if !byAttribute && len(a.pos) == 0 {
		s.fail("map requires a filter argument")
	}
	for i, item := range items {
		s.step()
		if byAttribute {
			value := s.path(item, attribute)
			if _, undefined := value.(Undefined); undefined {
				value = a.get(unlimited, "default", value)
			}
			out.Items[i] = value
			continue
		}
		name := a.text(s, 0, "filter", "")
		filter, ok := filters[name]
		if !ok {
			s.fail("No filter named '%s' found.", name)
		}
		out.Items[i] = filter(s, item, args{pos: a.pos[1:], named: a.named})
	}
	return out
}

// some is iterate, but returns nothing for false values such as none and 0.
func (s *state) some(v any) []any {
	if !truth(v) {
		return nil
	}
	return s.iterate(v)
}

const unlimited = int(^uint(0) >> 1)

// selecting returns select, reject, selectattr or rejectattr.
func selecting(byAttribute, keep bool) filterFunc {
	return func(s *state, v any, a args) any {
		rest := a
		if byAttribute {
			if len(a.pos) == 0 {
				s.fail("Missing parameter for attribute name")
			}
			rest.pos = a.pos[1:]
		}
		out := &List{Items: []any{}, kind: iterator}
		items := s.some(v)
		s.charge(16 * len(items))
		for _, item := range items {
			s.step()
			value := item
			if byAttribute {
				value = s.path(item, a.pos[0])
			}
			holds := truth(value)
			if len(rest.pos) > 0 {
				holds = s.test(s.str(rest.pos[0]), value, args{pos: rest.pos[1:]})
			}
			if holds == keep {
				out.Items = append(out.Items, item)
			}
		}
		return out
	}
}

// sortKey returns the key of v for sort and unique: v, or its attribute named by
// argument attributeAt. Strings are compared without case unless argument caseAt
// is true.
func (s *state) sortKey(v any, a args, caseAt, attributeAt int) any {
	if attribute := a.get(attributeAt, "attribute", nil); attribute != nil {
		v = s.path(v, attribute)
	}
	if text, ok := v.(string); ok && !a.flag(caseAt, "case_sensitive", false) {
		s.charge(len(text))
		return lower(text)
	}
	return v
}

func (s *state) sorted(items []any, reverse bool, key func(any) any) []any {
	s.charge(16 * len(items))
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(a, b any) int {
		o := s.order(key(a), key(b))
		if reverse {
			return -o
		}
		return o
	})
	return items
}

// filterSort sorts by attributes separated by commas, or by the items. Keys are
// lists, as in Jinja2, so that equal values need no order.
func filterSort(s *state, v any, a args) any {
	flags := args{named: []namedArg{{"case_sensitive", a.flag(1, "case_sensitive", false)}}}
	attribute := a.get(2, "attribute", nil)
	attributes := []any{attribute}
	if names, ok := attribute.(string); ok {
		attributes = s.texts(strings.Split(names, ",")).Items
	}
	key := func(v any) any {
		keys := make([]any, len(attributes))
		for i, attribute := range attributes {
			keys[i] = v
			if attribute != nil {
				keys[i] = s.path(v, attribute)
			}
			keys[i] = s.sortKey(keys[i], flags, 0, 1)
		}
		return &List{Items: keys}
	}
	return &List{Items: s.sorted(s.iterate(v), a.flag(0, "reverse", false), key)}
}

// filterGroupby sorts by an attribute and returns pairs of a value and the items
// with that value, which are called grouper and list.
func filterGroupby(s *state, v any, a args) any {
	attribute := a.get(0, "attribute", nil)
	value := func(item any) any {
		found := s.path(item, attribute)
		if _, missing := found.(Undefined); missing {
			return a.get(1, "default", found)
		}
		return found
	}
	flags := args{named: []namedArg{{"case_sensitive", a.flag(2, "case_sensitive", false)}}}
	key := func(item any) any { return s.sortKey(value(item), flags, 0, 1) }
	out := &List{Items: []any{}}
	var last any
	for i, item := range s.sorted(s.iterate(v), false, key) {
		s.charge(64)
		if k := key(item); i == 0 || !s.equal(k, last) {
			last = k
			out.Items = append(out.Items, &List{Items: []any{value(item), &List{}}, Tuple: true, group: true})
		}
		group := out.Items[len(out.Items)-1].(*List).Items[1].(*List)
		group.Items = append(group.Items, item)
	}
	return out
}

// filterSlice cuts a list into columns of about equal length.
func filterSlice(s *state, v any, a args) any {
	items, n := s.iterate(v), a.integer(s, 0, "slices", 1)
	fill := a.get(1, "fill_with", nil)
	if n <= 0 {
		s.fail("integer division or modulo by zero")
	}
	s.chargeTimes(48, int64(n))
	s.charge(16 * len(items))
	out := &List{Items: []any{}, kind: iterator}
	size, longer := len(items)/n, len(items)%n
	for i, from := 0, 0; i < n; i++ {
		to := from + size + boolInt(i < longer)
		column := slices.Clone(items[from:to])
		if fill != nil && i >= longer {
			column = append(column, fill)
		}
		out.Items = append(out.Items, &List{Items: column})
		from = to
	}
	return out
}

func filterDictsort(s *state, v any, a args) any {
	d, ok := v.(*Dict)
	if !ok {
		s.fail("'%s' object has no attribute 'items'", typeName(v))
	}
	at := 0
	if by := a.text(s, 1, "by", "key"); by == "value" {
		at = 1
	} else if by != "key" {
		s.fail("You can only sort by either \"key\" or \"value\"")
	}
	key := func(pair any) any { return s.sortKey(pair.(*List).Items[at], a, 0, unlimited) }
	return &List{Items: s.sorted(s.pairs(d).Items, a.flag(2, "reverse", false), key)}
}

func filterUnique(s *state, v any, a args) any {
	out := &List{Items: []any{}, kind: iterator}
	var seen []any
	known := map[any]bool{}
	for _, item := range s.iterate(v) {
		s.charge(32)
		key := s.sortKey(item, a, 0, 1)
		if hashable(key) {
			if known[sameKey(key)] {
				continue
			}
			known[sameKey(key)] = true
		} else {
			if slices.ContainsFunc(seen, func(v any) bool { return s.equal(v, key) }) {
				continue
			}
			seen = append(seen, key)
		}
		out.Items = append(out.Items, item)
	}
	return out
}

func filterMax(s *state, v any, a args) any { return s.extreme(v, a, 1) }
func filterMin(s *state, v any, a args) any { return s.extreme(v, a, -1) }

func (s *state) extreme(v any, a args, sign int) any {
	items := s.iterate(v)
	if len(items) == 0 {
		return Undefined{"No aggregated item, sequence was empty."}
	}
	best := items[0]
	for _, item := range items[1:] {
		if sign*s.order(s.sortKey(item, a, 0, 1), s.sortKey(best, a, 0, 1)) > 0 {
			best = item
		}
	}
	return best
}

func filterSum(s *state, v any, a args) any {
	sum := a.get(1, "start", int64(0))
	for _, item := range s.iterate(v) {
		s.step()
		if attribute := a.get(0, "attribute", nil); attribute != nil {
			item = s.path(item, attribute)
		}
		sum = s.add(sum, item)
	}
	return sum
}
