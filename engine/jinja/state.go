package jinja

import (
	"context"
	"fmt"
	"strings"
)

// Limits bound one Render. Every field must be set.
type Limits struct {
	Steps int // statements, calls, comparisons, and one for each 256 bytes looked at
	Bytes int // bytes of all strings and lists that are built on the way
	Out   int // bytes of the result
}

const depthMax = 200 // macro calls and levels of nested values

// Error says why a template failed on its input, in Python's words.
type Error struct {
	Line    int
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("template line %d: %s", e.Line, e.Message)
}

// LimitError says which of the Limits, or the depth limit, a template ran into.
type LimitError struct {
	Line  int
	What  string // "steps", "bytes", "output bytes" or "depth"
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("template line %d: more than %d %s", e.Line, e.Limit, e.What)
}

// state is one Render.
type state struct {
	ctx    context.Context
	limits Limits
	steps  int
	bytes  int
	depth  int
	line   int
	out    *strings.Builder
	scope  *scope
}

// Render runs the template with vars. Values in vars must not be shared with
// other renders. It fails with *Error, *LimitError, ctx's error, or what a
// Func in vars returned.
func (t *Template) Render(ctx context.Context, vars map[string]any, limits Limits) (text string, err error) {
	s := &state{ctx: ctx, limits: limits, out: &strings.Builder{}, scope: &scope{}}
	for name, v := range globals {
		s.scope.set(name, v)
	}
	for name, v := range vars {
		s.scope.set(name, v)
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case thrown:
			text, err = "", r.err
		default:
			// A template comes from outside: what it trips over in here
			// must fail one request, not the process.
			text, err = "", &Error{Line: s.line, Message: fmt.Sprint(r)}
		}
	}()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s.run(t.body)
	return s.out.String(), nil
}

func (s *state) fail(format string, args ...any) {
	panic(thrown{&Error{Line: s.line, Message: fmt.Sprintf(format, args...)}})
}

func (s *state) exceed(what string, limit int) {
	panic(thrown{&LimitError{Line: s.line, What: what, Limit: limit}})
}

// step counts one unit of work and looks at the context now and then.
func (s *state) step() {
	s.steps++
	if s.steps > s.limits.Steps {
		s.exceed("steps", s.limits.Steps)
	}
	if s.steps&1023 == 0 {
		if err := s.ctx.Err(); err != nil {
			panic(thrown{err})
		}
	}
}

// work counts the looking at n bytes.
func (s *state) work(n int) {
	s.steps += n >> 8
	s.step()
}

// charge counts n bytes that are about to be built.
func (s *state) charge(n int) {
	if n > s.limits.Bytes-s.bytes {
		s.exceed("bytes", s.limits.Bytes)
	}
	s.bytes += n
	s.work(n)
}

func (s *state) enter() {
	if s.depth++; s.depth > depthMax {
		s.exceed("depth", depthMax)
	}
}

func (s *state) leave() { s.depth-- }

func (s *state) write(text string) {
	if s.out.Len()+len(text) > s.limits.Out {
		s.exceed("output bytes", s.limits.Out)
	}
	s.charge(len(text))
	s.out.WriteString(text)
}

// capture returns what run writes.
func (s *state) capture(run func()) string {
	before := s.out
	s.out = &strings.Builder{}
	run()
	text := s.out.String()
	s.out = before
	return text
}

// scope holds the names of one block; they are few, so a scan is fastest.
type scope struct {
	names  []string
	values []any
	parent *scope
}

func (c *scope) get(name string) (any, bool) {
	for ; c != nil; c = c.parent {
		for i, n := range c.names {
			if n == name {
				return c.values[i], true
			}
		}
	}
	return nil, false
}

func (c *scope) set(name string, value any) {
	for i, n := range c.names {
		if n == name {
			c.values[i] = value
			return
		}
	}
	c.names = append(c.names, name)
	c.values = append(c.values, value)
}

// inScope runs f in a new scope below parent.
func (s *state) inScope(parent *scope, f func()) {
	before := s.scope
	s.scope = &scope{parent: parent}
	f()
	s.scope = before
}
