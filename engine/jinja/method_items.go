package jinja

import "slices"

func init() {
	dictMethods = map[string]func(s *state, d *Dict, a args) any{
		"get": func(_ *state, d *Dict, a args) any {
			if v, ok := d.Get(a.get(0, "key", nil)); ok {
				return v
			}
			return a.get(1, "default", nil)
		},
		"items": func(s *state, d *Dict, _ args) any { return s.pairs(d) },
		"keys": func(s *state, d *Dict, _ args) any {
			s.charge(16 * d.Len())
			return &List{Items: slices.Clone(d.keys), kind: keysView}
		},
		"values": func(s *state, d *Dict, _ args) any {
			out := &List{Items: make([]any, 0, d.Len()), kind: valuesView}
			s.charge(16 * d.Len())
			for _, key := range d.keys {
				out.Items = append(out.Items, d.at(key))
			}
			return out
		},
		"copy": func(s *state, d *Dict, _ args) any {
			out := NewDict()
			s.update(out, d)
			return out
		},
		"update": func(s *state, d *Dict, a args) any {
			if len(a.pos) > 0 {
				s.update(d, a.pos[0])
			}
			for _, n := range a.named {
				d.Set(n.name, n.value)
			}
			return nil
		},
		"pop": func(s *state, d *Dict, a args) any {
			key := a.get(0, "key", nil)
			v, ok := d.Get(key)
			if !ok {
				return a.get(1, "default", Undefined{"no such key"})
			}
			s.work(64 * d.Len())
			d.remove(key)
			return v
		},
	}
}

// readsList lists the methods of lists that tuples have too.
var readsList = map[string]bool{"index": true, "count": true}

// Jinja2's sandbox refuses the methods that change a list or dict. Templates written
// for other renderers use them on what they have made themselves, and there they
// work. The variables of a Render stay as they are, as in the sandbox.
func init() {
	listMethods = map[string]func(s *state, l *List, a args) any{
		"append": func(s *state, l *List, a args) any {
			s.charge(16)
			l.Items = append(l.Items, a.get(0, "object", nil))
			return nil
		},
		"extend": func(s *state, l *List, a args) any {
			more := s.iterate(a.get(0, "iterable", nil))
			s.charge(16 * len(more))
			l.Items = append(l.Items, more...)
			return nil
		},
		"pop": func(s *state, l *List, a args) any {
			i := a.integer(s, 0, "index", -1)
			if i < 0 {
				i += len(l.Items)
			}
			if i < 0 || i >= len(l.Items) {
				s.fail("pop index out of range")
			}
			v := l.Items[i]
			s.work(16 * len(l.Items))
			l.Items = append(l.Items[:i:i], l.Items[i+1:]...)
			return v
		},
		"copy": func(s *state, l *List, _ args) any { return filterList(s, l, args{}) },
		"index": func(s *state, l *List, a args) any {
			for i, v := range l.Items {
				if s.equal(v, a.get(0, "value", nil)) {
					return int64(i)
				}
			}
			s.fail("value is not in list")
			return nil
		},
		"count": func(s *state, l *List, a args) any {
			n := int64(0)
			for _, v := range l.Items {
				n += int64(boolInt(s.equal(v, a.get(0, "value", nil))))
			}
			return n
		},
	}
}
