package schema

import (
	"errors"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/grammar"
)

// Result is a schema as an expression of the builder that it was compiled into.
type Result struct {
	Value   grammar.Expr
	Ignored []Ignored // words without effect, by pointer
}

// Compile makes an expression of b that matches the instances of a schema,
// given as JSON. The error is a *Refusal, which says what cannot be enforced.
func Compile(b *grammar.Builder, text string, o Options) (r *Result, err error) {
	o.Limits.fill()
	root, refusal := decode(text, &o.Limits)
	if refusal != nil {
		return nil, refusal
	}
	defer func() {
		if p := recover(); p != nil {
			refusal, ok := p.(*Refusal)
			if !ok {
				panic(p)
			}
			r, err = nil, refusal
		}
	}()
	c := newCompiler(b, root, o)
	l := newLowerer(c)
	start := l.lower(c.of(root), c.here)
	if err := b.Err(); err != nil {
		return nil, c.limit(err)
	}
	slices.SortFunc(c.ignored, func(a, b Ignored) int { return strings.Compare(a.Pointer, b.Pointer) })
	return &Result{Value: start, Ignored: slices.Compact(c.ignored)}, nil
}

// Grammar compiles a schema that is the whole of b's grammar.
func Grammar(b *grammar.Builder, text string, o Options) (*grammar.Grammar, []Ignored, error) {
	r, err := Compile(b, text, o)
	if err != nil {
		return nil, nil, err
	}
	g, err := b.Compile(r.Value)
	if err != nil {
		return nil, nil, Whole(text, err, o)
	}
	return g, r.Ignored, nil
}

// Whole refuses a schema that was compiled into a Builder whose Compile gave err. No
// single keyword is at fault: it names the first that is no annotation.
func Whole(text string, err error, o Options) *Refusal {
	o.Limits.fill()
	root, _ := decode(text, &o.Limits)
	k, reason := firstKeyword(root), err.Error()
	if empty := (*grammar.EmptyError)(nil); errors.As(err, &empty) {
		reason = "nothing can match the schema"
	}
	return &Refusal{Pointer: k.pointer(), Keyword: keywordOf(k), Reason: reason}
}

func firstKeyword(root *value) *value {
	for _, m := range root.members {
		if assertions[m.key] {
			return m.value
		}
	}
	return root
}

func (c *compiler) limit(err error) *Refusal {
	k := firstKeyword(c.root)
	return &Refusal{Pointer: k.pointer(), Keyword: keywordOf(k), Reason: err.Error()}
}

func newCompiler(b *grammar.Builder, root *value, o Options) *compiler {
	c := &compiler{Options: o, b: b, root: root, here: firstKeyword(root),
		schemas: map[*value]int{}, byText: map[textKey]*value{}, setIDs: map[string]setID{}, sets: [][]literal{nil, nil},
		shapes: map[setID]*shape{}, schemaOf: map[*value]*shape{}, origin: map[*value]*value{}, open: map[literal]bool{},
		empties: map[setID]bool{}, asked: map[setID]bool{}, constant: map[*value]*value{}}
	c.limits = &c.Options.Limits
	c.draft = draftOf(root)
	c.ids = identify(root, c.draft)
	c.text = newTexter(b)
	return c
}

// draftOf is the draft that $schema names; without it the newest, 2020.
func draftOf(root *value) int {
	s := root.get("$schema")
	if s == nil {
		return 2020
	}
	for _, d := range []struct {
		name string
		n    int
	}{{"draft-03", 3}, {"draft-04", 4}, {"draft-06", 6}, {"draft-07", 7}, {"2019-09", 2019}} {
		if strings.Contains(s.text, d.name) {
			return d.n
		}
	}
	return 2020
}
