package jinja

// arguments holds the argument expressions of a call; args holds their values.
type arguments struct {
	positional []expr
	names      []string
	named      []expr
	// unpacked is x in *x, and unpackedNamed is x in **x; nil if absent.
	unpacked, unpackedNamed expr
}

type namedArg struct {
	name  string
	value any
}

type args struct {
	pos   []any
	named []namedArg
}

func (a arguments) eval(s *state) args {
	var out args
	if len(a.positional) > 0 {
		out.pos = s.evalAll(a.positional)
	}
	for i, name := range a.names {
		out.named = append(out.named, namedArg{name, s.inner(a.named[i])})
	}
	if a.unpacked != nil {
		more := s.iterate(s.inner(a.unpacked))
		s.charge(16 * len(more))
		out.pos = append(out.pos, more...)
	}
	if a.unpackedNamed == nil {
		return out
	}
	d, ok := s.inner(a.unpackedNamed).(*Dict)
	if !ok {
		s.fail("argument after ** must be a mapping")
	}
	s.charge(32 * d.Len())
	for _, key := range d.keys {
		name, ok := key.(string)
		if _, again := out.name(name); !ok || again {
			s.fail("keywords must be strings, each given once")
		}
		out.named = append(out.named, namedArg{name, d.at(key)})
	}
	return out
}

func (a args) name(name string) (any, bool) {
	for _, n := range a.named {
		if n.name == name {
			return n.value, true
		}
	}
	return nil, false
}

// get returns argument i, or the argument called name, or missing.
func (a args) get(i int, name string, missing any) any {
	if i < len(a.pos) {
		return a.pos[i]
	}
	if v, ok := a.name(name); ok {
		return v
	}
	return missing
}

// text, integer and flag are get for values of one type.
func (a args) text(s *state, i int, name, missing string) string {
	v := plain(a.get(i, name, missing))
	text, ok := v.(string)
	if !ok {
		s.fail("argument '%s' must be str, not %s", name, typeName(v))
	}
	return text
}

func (a args) integer(s *state, i int, name string, missing int) int {
	v := a.get(i, name, int64(missing))
	n, ok := v.(int64)
	if !ok {
		s.fail("argument '%s' must be int, not %s", name, typeName(v))
	}
	return int(n)
}

func (a args) flag(i int, name string, missing bool) bool {
	return truth(a.get(i, name, missing))
}

type callExpr struct {
	fn     expr
	args   arguments
	caller *macroStmt // of a call block
}

func (c *callExpr) eval(s *state) any {
	fn := s.inner(c.fn)
	a := c.args.eval(s)
	switch fn := fn.(type) {
	case *loop:
		return fn.again(s, a)
	case *macro:
		if c.caller != nil {
			with := *fn
			with.caller = &macro{macroStmt: c.caller, scope: s.scope}
			fn = &with
		}
		return fn.call(s, a)
	case builtin:
		return fn(s, a)
	case Func:
		for i, v := range a.pos {
			a.pos[i] = plain(v)
		}
		v, err := fn(a.pos)
		if err != nil {
			panic(thrown{err})
		}
		return v
	case Undefined:
		s.fail("%s", fn.what())
	default:
		s.fail("'%s' object is not callable", typeName(fn))
	}
	return nil
}

type filterExpr struct {
	in   expr
	name string
	args arguments
}

func (f *filterExpr) eval(s *state) any {
	filter, ok := filters[f.name]
	if !ok {
		s.fail("No filter named '%s' found.", f.name)
	}
	in := s.inner(f.in)
	if !keepsMarkup[f.name] {
		in = plain(in)
	}
	return filter(s, in, f.args.eval(s))
}

type testExpr struct {
	in     expr
	name   string
	args   arguments
	negate bool
}

func (t *testExpr) eval(s *state) any {
	return s.test(t.name, s.inner(t.in), t.args.eval(s)) != t.negate
}

func (s *state) test(name string, v any, a args) bool {
	s.step()
	if name == "escaped" {
		_, ok := v.(markup)
		return ok
	}
	v = plain(v)
	test, ok := tests[name]
	if !ok {
		s.fail("No test named '%s' found.", name)
	}
	return test(s, v, a)
}
