package jinja

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Limits bound one Render. Every field must be set.
type Limits struct {
	Steps int // statements, calls, comparisons, and one for each 256 bytes read
	Bytes int // bytes of all strings and lists that are built
	Out   int // bytes of the result
}

const (
	depthMax = 200    // macro calls and levels of nested values
	treeMax  = 20_000 // nested expressions under evaluation, over all macro calls
)

// Error is a template's failure on its input, with Python's message.
type Error struct {
	Line    int
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("template line %d: %s", e.Line, e.Message)
}

// LimitError names the limit that a template exceeded: one of Limits, or the depth.
type LimitError struct {
	Line  int
	What  string // "steps", "bytes", "output bytes", "levels of depth" or "bits of a number"
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("template line %d: stopped at the limit of %d %s: it does too much for an input of this size", e.Line, e.Limit, e.What)
}

// state is one Render.
type state struct {
	ctx      context.Context
	limits   Limits
	steps    int
	bytes    int
	look     int // the step at which ctx is checked next
	depth    int
	tree     int
	line     int
	out      *strings.Builder
	scope    *scope
	fromJSON func(text string) (any, error)
}

// Render runs the template with vars, which stay as they are: methods that would
// change them fail, as in Jinja2's immutable sandbox. It marks their lists and dicts,
// so they must not be shared with a render that runs at the same time. It fails with *Error, *LimitError, ctx's error, or what a
// Func in vars returned.
func (t *Template) Render(ctx context.Context, vars map[string]any, limits Limits) (text string, err error) {
	s := &state{ctx: ctx, limits: limits, out: &strings.Builder{}, scope: &scope{}, fromJSON: t.FromJSON}
	for name, v := range globals {
		s.scope.set(name, v)
	}
	for name, v := range vars {
		keep(v)
		s.scope.set(name, v)
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case thrown:
			text, err = "", r.err
		default:
			// A template is untrusted. A fault of ours that it triggers must fail
			// one request, not the process.
			text, err = "", &Error{Line: s.line, Message: fmt.Sprint(r)}
		}
	}()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s.run(t.body)
	return s.out.String(), nil
}

// keep marks v, and all that it holds, as input.
func keep(v any) {
	switch v := v.(type) {
	case *List:
		v.input = true
		for _, item := range v.Items {
			keep(item)
		}
	case *Dict:
		v.input = true
		for _, item := range v.items {
			keep(item)
		}
	}
}

func (s *state) fail(format string, args ...any) {
	panic(thrown{&Error{Line: s.line, Message: fmt.Sprintf(format, args...)}})
}

func (s *state) exceed(what string, limit int) {
	panic(thrown{&LimitError{Line: s.line, What: what, Limit: limit}})
}

// step counts one unit of work and regularly checks the context.
func (s *state) step() {
	s.steps++
	if s.steps > s.limits.Steps {
		s.exceed("steps", s.limits.Steps)
	}
	if s.steps >= s.look {
		s.look = s.steps + 1024
		if err := s.ctx.Err(); err != nil {
			panic(thrown{err})
		}
	}
}

// work counts the reading of n bytes.
func (s *state) work(n int) {
	s.steps += n >> 8
	s.step()
}

// charge counts n bytes before they are built. Bytes are never returned.
func (s *state) charge(n int) {
	n = max(n, 0)
	if n > s.limits.Bytes-s.bytes {
		s.exceed("bytes", s.limits.Bytes)
	}
	s.bytes += n
	s.work(n)
}

func (s *state) enter() {
	if s.depth++; s.depth > depthMax {
		s.exceed("levels of depth", depthMax)
	}
}

func (s *state) leave() { s.depth-- }

// inner evaluates a nested expression and bounds the depth. Chains of operators
// make trees deep, and macros stack them. Go cannot recover from the overflow of a
// goroutine's stack.
func (s *state) inner(e expr) any {
	s.step()
	if s.tree++; s.tree > treeMax {
		s.exceed("levels of depth", treeMax)
	}
	v := e.eval(s)
	s.tree--
	return v
}

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

// scope holds the names of one block. A scan is fastest for few names; a block
// with many names has an index.
type scope struct {
	names  []string
	values []any
	index  map[string]int // of all names, once there are more than scannedMax
	parent *scope
}

const scannedMax = 24

// find returns the position of name in this block, or -1.
func (c *scope) find(name string) int {
	if c.index != nil {
		if i, ok := c.index[name]; ok {
			return i
		}
		return -1
	}
	return slices.Index(c.names, name)
}

func (c *scope) get(name string) (any, bool) {
	for ; c != nil; c = c.parent {
		if i := c.find(name); i >= 0 {
			return c.values[i], true
		}
	}
	return nil, false
}

func (c *scope) set(name string, value any) {
	if i := c.find(name); i >= 0 {
		c.values[i] = value
		return
	}
	c.names = append(c.names, name)
	c.values = append(c.values, value)
	switch {
	case c.index != nil:
		c.index[name] = len(c.names) - 1
	case len(c.names) > scannedMax:
		c.index = make(map[string]int, len(c.names))
		for i, n := range c.names {
			c.index[n] = i
		}
	}
}

// inScope runs f in a new scope below parent.
func (s *state) inScope(parent *scope, f func()) {
	before := s.scope
	s.scope = &scope{parent: parent}
	f()
	s.scope = before
}
