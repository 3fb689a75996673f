package jinja

// jump says how a statement ended.
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
	line    int
	targets []string
	field   string // of a namespace
	value   expr
}

func (t *setStmt) run(s *state) jump {
	s.line = t.line
	value := t.value.eval(s)
	if t.field == "" {
		s.bind(t.targets, value)
		return jumpNone
	}
	v, _ := s.scope.get(t.targets[0])
	ns, ok := v.(*namespace)
	if !ok {
		s.fail("cannot assign attribute on non-namespace object")
	}
	ns.vars[t.field] = value
	return jumpNone
}

// bind sets one name, or unpacks value into several.
func (s *state) bind(targets []string, value any) {
	if len(targets) == 1 {
		s.scope.set(targets[0], value)
		return
	}
	items := s.iterate(value)
	if len(items) != len(targets) {
		s.fail("cannot unpack %d values into %d names", len(items), len(targets))
	}
	for i, name := range targets {
		s.scope.set(name, items[i])
	}
}

type forStmt struct {
	line            int
	targets         []string
	over, cond      expr
	body, otherwise []stmt
}

// loop is the variable of that name inside a for.
type loop struct {
	items   []any
	index   int
	depth   int
	changed any
}

func (f *forStmt) run(s *state) jump {
	s.line = f.line
	items := s.iterate(f.over.eval(s))
	if f.cond != nil {
		items = f.filter(s, items)
	}
	if len(items) == 0 {
		return s.run(f.otherwise)
	}
	l := &loop{items: items}
	if outer, ok := s.scope.get("loop"); ok {
		if o, ok := outer.(*loop); ok {
			l.depth = o.depth + 1
		}
	}
	end := jumpNone
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
	defaults []expr // nil where there is none
	body     []stmt
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
	if len(a.pos) > len(m.params) {
		s.fail("macro '%s' takes not more than %d argument(s)", m.name, len(m.params))
	}
	return s.capture(func() {
		s.inScope(m.scope, func() {
			for i, param := range m.params {
				s.step()
				s.scope.set(param, m.argument(s, a, i))
			}
			for _, named := range a.named {
				s.step()
				if _, ok := s.scope.get(named.name); !ok {
					s.fail("macro '%s' takes no keyword argument '%s'", m.name, named.name)
				}
			}
			if m.caller != nil {
				s.scope.set("caller", m.caller)
			}
			s.run(m.body)
		})
	})
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
