package jinja

import "slices"

// jump says how a statement ended: normally, or by break or continue.
type jump uint8

const (
	jumpNone jump = iota
	jumpBreak
	jumpContinue
)

type stmt interface{ run(s *state) jump }

func (s *state) run(body []stmt) jump {
	for _, st := range body {
		s.step()
		if j := st.run(s); j != jumpNone {
			return j
		}
	}
	return jumpNone
}

type textStmt string

func (t textStmt) run(s *state) jump {
	s.write(string(t))
	return jumpNone
}

type jumpStmt jump

func (j jumpStmt) run(*state) jump { return jump(j) }

type outputStmt struct {
	line  int
	value expr
}

func (o *outputStmt) run(s *state) jump {
	s.line = o.line
	s.write(s.str(o.value.eval(s)))
	return jumpNone
}

type ifStmt struct {
	line      int
	conds     []expr
	bodies    [][]stmt
	otherwise []stmt
}

func (i *ifStmt) run(s *state) jump {
	s.line = i.line
	for n, cond := range i.conds {
		if truth(cond.eval(s)) {
			return s.run(i.bodies[n])
		}
	}
	return s.run(i.otherwise)
}

// scopeStmt is {% with %} and {% generation %}.
type scopeStmt struct{ body []stmt }

func (c *scopeStmt) run(s *state) (j jump) {
	s.inScope(s.scope, func() { j = s.run(c.body) })
	return j
}

type setStmt struct {
	line   int
	target target
	field  string // of a namespace
	value  expr
}

func (t *setStmt) run(s *state) jump {
	s.line = t.line
	value := t.value.eval(s)
	if t.field == "" {
		s.bind(t.target, value)
		return jumpNone
	}
	v, _ := s.scope.get(t.target.name)
	ns, ok := v.(*namespace)
	if !ok {
		s.fail("cannot assign attribute on non-namespace object")
	}
	ns.vars.Set(t.field, value)
	return jumpNone
}

// bind sets one name, or unpacks value into several names.
func (s *state) bind(t target, value any) {
	if t.list == nil {
		s.scope.set(t.name, value)
		return
	}
	items := s.iterate(value)
	if len(items) != len(t.list) {
		s.fail("cannot unpack %d values into %d names", len(items), len(t.list))
	}
	for i, inner := range t.list {
		s.bind(inner, items[i])
	}
}

type withStmt struct {
	line   int
	names  []target
	values []expr
	body   []stmt
}

func (w *withStmt) run(s *state) (j jump) {
	s.line = w.line
	values := s.evalAll(w.values)
	s.inScope(s.scope, func() {
		for i, name := range w.names {
			s.bind(name, values[i])
		}
		j = s.run(w.body)
	})
	return j
}

type forStmt struct {
	line            int
	targets         target
	over, cond      expr
	recursive       bool
	body, otherwise []stmt
}

// loop is the variable "loop" inside a for.
type loop struct {
	of      *forStmt
	outside *scope
	items   []any
	index   int
	depth   int
	changed any
}

func (f *forStmt) run(s *state) jump {
	s.line = f.line
	return f.each(s, f.over.eval(s), 0)
}

// each runs the loop over the items of v; depth counts recursive loops.
func (f *forStmt) each(s *state, v any, depth int) jump {
	items := s.iterate(v)
	if f.cond != nil {
		items = f.filter(s, items)
	}
	end := jumpNone
	if len(items) == 0 {
		s.inScope(s.scope, func() { end = s.run(f.otherwise) })
		return end
	}
	l := &loop{of: f, outside: s.scope, items: items, depth: depth}
	for l.index = 0; l.index < len(items) && end != jumpBreak; l.index++ {
		s.step()
		s.inScope(s.scope, func() {
			s.scope.set("loop", l)
			s.bind(f.targets, items[l.index])
			end = s.run(f.body)
		})
	}
	return jumpNone
}

func (f *forStmt) filter(s *state, items []any) []any {
	s.charge(16 * len(items))
	var kept []any
	for _, item := range items {
		s.step()
		s.inScope(s.scope, func() {
			s.bind(f.targets, item)
			if truth(f.cond.eval(s)) {
				kept = append(kept, item)
			}
		})
	}
	return kept
}

// again calls a recursive loop: it returns the loop's text for other items.
func (l *loop) again(s *state, a args) any {
	if !l.of.recursive || len(a.pos) != 1 {
		s.fail("The loop must have the 'recursive' marker to be called, with one value.")
	}
	s.enter()
	defer s.leave()
	return s.capture(func() {
		before := s.scope
		s.scope = l.outside
		l.of.each(s, a.pos[0], l.depth+1)
		s.scope = before
	})
}

func (l *loop) attr(name string) any {
	n := len(l.items)
	switch name {
	case "index":
		return int64(l.index + 1)
	case "index0":
		return int64(l.index)
	case "revindex":
		return int64(n - l.index)
	case "revindex0":
		return int64(n - l.index - 1)
	case "first":
		return l.index == 0
	case "last":
		return l.index == n-1
	case "length":
		return int64(n)
	case "depth":
		return int64(l.depth + 1)
	case "depth0":
		return int64(l.depth)
	case "previtem":
		if l.index > 0 {
			return l.items[l.index-1]
		}
		return Undefined{"there is no previous item"}
	case "nextitem":
		if l.index+1 < n {
			return l.items[l.index+1]
		}
		return Undefined{"there is no next item"}
	case "cycle":
		return builtin(func(s *state, a args) any {
			if len(a.pos) == 0 {
				s.fail("no items for cycling given")
			}
			return a.pos[l.index%len(a.pos)]
		})
	case "changed":
		return builtin(func(s *state, a args) any {
			now := &List{Items: a.pos}
			same := l.changed != nil && s.equal(l.changed, now)
			l.changed = now
			return !same
		})
	}
	return Undefined{"'loop' has no attribute '" + name + "'"}
}

type macroStmt struct {
	line     int
	name     string
	params   []string
	defaults []expr // nil for a parameter without default
	body     []stmt
	special  special
}

// special says which names beside its parameters a macro's body uses.
type special struct{ varargs, kwargs, caller bool }

func (sp *special) see(name string) {
	sp.varargs = sp.varargs || name == "varargs"
	sp.kwargs = sp.kwargs || name == "kwargs"
	sp.caller = sp.caller || name == "caller"
}

// macro is a macro with the scope in which it was defined.
type macro struct {
	*macroStmt
	scope  *scope
	caller *macro
}

func (m *macroStmt) run(s *state) jump {
	s.scope.set(m.name, &macro{macroStmt: m, scope: s.scope})
	return jumpNone
}

func (m *macro) call(s *state, a args) string {
	s.enter()
	defer s.leave()
	if len(a.pos) > len(m.params) && !m.special.varargs {
		s.fail("macro '%s' takes not more than %d argument(s)", m.name, len(m.params))
	}
	return s.capture(func() {
		s.inScope(m.scope, func() {
			for i, param := range m.params {
				s.step()
				s.scope.set(param, m.argument(s, a, i))
			}
			m.setSpecial(s, a)
			s.run(m.body)
		})
	})
}

// setSpecial sets caller, varargs and kwargs if the body uses them.
func (m *macro) setSpecial(s *state, a args) {
	kwargs := NewDict()
	for _, named := range a.named {
		s.step()
		i := slices.Index(m.params, named.name)
		if i >= len(a.pos) {
			continue
		}
		if !m.special.kwargs {
			s.fail("macro '%s' takes no keyword argument '%s'", m.name, named.name)
		}
		s.charge(64)
		kwargs.Set(named.name, named.value)
	}
	if m.special.kwargs {
		s.scope.set("kwargs", kwargs)
	}
	if m.special.varargs {
		s.scope.set("varargs", &List{Items: a.pos[min(len(m.params), len(a.pos)):], Tuple: true})
	}
	switch {
	case m.caller != nil && !m.special.caller:
		s.fail("macro '%s' takes no keyword argument 'caller'", m.name)
	case m.caller != nil:
		s.scope.set("caller", m.caller)
	case m.special.caller && !slices.Contains(m.params, "caller"):
		s.scope.set("caller", Undefined{"No caller defined"})
	}
}

// attr returns an attribute of a macro.
func (m *macro) attr(name string) (any, bool) {
	switch name {
	case "name":
		return m.name, true
	case "arguments":
		list := &List{Items: []any{}, Tuple: true}
		for _, param := range m.params {
			list.Items = append(list.Items, param)
		}
		return list, true
	case "catch_kwargs":
		return m.special.kwargs, true
	case "catch_varargs":
		return m.special.varargs, true
	case "caller":
		return m.special.caller, true
	}
	return nil, false
}

func (m *macro) argument(s *state, a args, i int) any {
	if i < len(a.pos) {
		return a.pos[i]
	}
	if v, ok := a.name(m.params[i]); ok {
		return v
	}
	if m.defaults[i] != nil {
		return m.defaults[i].eval(s)
	}
	return Undefined{"parameter '" + m.params[i] + "' was not provided"}
}
