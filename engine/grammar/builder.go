package grammar

import (
	"fmt"
	"slices"
	"unicode"
)

// Expr is an expression of a grammar, made by a Builder and good with that
// Builder alone.
type Expr int32

type exprKind uint8

const (
	exprTerminal exprKind = iota // a: index of the terminal
	exprRule                     // a: index of the rule
	exprSeq                      // list
	exprChoice                   // list
	exprRepeat                   // list[0], min to max times
)

type expr struct {
	kind     exprKind
	a        int32
	min, max int32
	list     []Expr
}

type exprKey struct {
	kind        exprKind
	a, min, max int32
	list        string
}

type terminal struct {
	name string
	re   Regex
}

type rule struct {
	name    string
	body    Expr
	defined bool
}

// Builder makes a grammar. Make one with NewBuilder.
type Builder struct {
	pool      *pool
	limits    Limits
	exprs     []expr
	byKey     map[exprKey]Expr
	terminals []terminal
	rules     []rule
	positions int // of expressions, counted as they are made
	absent    byteSet
	failed    error
}

// NewBuilder is an empty grammar.
func NewBuilder(l Limits) *Builder {
	b := &Builder{limits: l, byKey: map[exprKey]Expr{}}
	b.pool = newPool(&b.limits)
	return b
}

// Limits says what the builder was made with.
func (b *Builder) Limits() Limits { return b.limits }

// Err is the first error so far.
func (b *Builder) Err() error {
	if b.failed == nil {
		return b.pool.err("")
	}
	return b.failed
}

func (b *Builder) fail(err error) {
	if b.failed == nil {
		b.failed = err
	}
}

// Never matches nothing.
func (b *Builder) Never() Regex { return never }

// Epsilon matches the empty string alone.
func (b *Builder) Epsilon() Regex { return epsilon }

// Everything matches every string of bytes, valid UTF-8 or not, and the bytes
// of Token too; see Text.
func (b *Builder) Everything() Regex { return b.pool.not(never) }

// Literal matches s.
func (b *Builder) Literal(s string) Regex { return b.pool.literal(s) }

// Literals matches any of list, at the cost of a tree of their prefixes.
func (b *Builder) Literals(list []string) Regex {
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	return b.pool.literals(slices.Compact(sorted), 0)
}

// literals matches what follows the first skip bytes, which list's members share.
func (p *pool) literals(list []string, skip int) Regex {
	if len(list) == 0 || !p.spend(1) {
		return never
	}
	if len(list) == 1 {
		return p.literal(list[0][skip:])
	}
	shared := skip // sorted, so the first and the last share what all do
	first, last := list[0], list[len(list)-1]
	for shared < len(first) && shared < len(last) && first[shared] == last[shared] {
		shared++
	}
	var members []Regex
	for from := 0; from < len(list); {
		if len(list[from]) == shared {
			members = append(members, epsilon)
			from++
			continue
		}
		to := from + 1
		for to < len(list) && list[to][shared] == list[from][shared] {
			to++
		}
		members = append(members, p.literals(list[from:to], shared))
		from = to
	}
	return p.cat(p.literal(first[skip:shared]), p.or(members))
}

// Class matches one code point of the ranges, in UTF-8.
func (b *Builder) Class(ranges ...Range) Regex { return b.pool.utf8Class(ranges) }

// Bytes matches one byte from lo to hi.
func (b *Builder) Bytes(lo, hi byte) Regex { return b.pool.byteRange(lo, hi) }

// Text matches every text: bytes that are valid UTF-8.
func (b *Builder) Text() Regex {
	return b.pool.times(b.pool.utf8Class([]Range{{0, unicode.MaxRune}}), 0, Unlimited)
}

// Token matches the token with this id and nothing else. Where a grammar has
// it, it stands for the control token, whatever that token's text is.
func (b *Builder) Token(id int32) Regex {
	if id < 0 || id > TokenMax {
		b.fail(fmt.Errorf("token %d is out of range", id))
		return never
	}
	bytes := TokenBytes(id)
	return b.pool.literal(string(bytes[:]))
}

// TokenMax is the largest id that Token takes.
const TokenMax = 1<<21 - 1

// TokenBytes are the bytes that stand for a control token: 0xFF, which no text
// holds, and the id in three bytes of seven bits.
func TokenBytes(id int32) [4]byte {
	return [4]byte{0xFF, byte(id >> 14), byte(id >> 7 & 127), byte(id & 127)}
}

// Cat matches one after the other.
func (b *Builder) Cat(list ...Regex) Regex {
	r := epsilon
	for i := len(list) - 1; i >= 0; i-- {
		r = b.pool.cat(list[i], r)
	}
	return r
}

// Or matches what any of list does.
func (b *Builder) Or(list ...Regex) Regex { return b.pool.or(list) }

// And matches what every one of list does.
func (b *Builder) And(list ...Regex) Regex { return b.pool.and(list) }

// Not matches every string of bytes that r does not. Of texts alone, join it to
// Text by And.
func (b *Builder) Not(r Regex) Regex { return b.pool.not(r) }

// Times matches r from min to max times; max may be Unlimited.
func (b *Builder) Times(r Regex, min, max int) Regex {
	if !b.bounds(min, max) {
		return never
	}
	return b.pool.times(r, int32(min), int32(max))
}

func (b *Builder) bounds(min, max int) bool {
	switch {
	case min < 0 || max < Unlimited:
		b.fail(fmt.Errorf("a repetition of %d to %d times is below zero", min, max))
	case max != Unlimited && min > max:
		b.fail(fmt.Errorf("a repetition of at least %d and at most %d times matches nothing", min, max))
	case min > b.limits.Count || max > b.limits.Count:
		b.fail(&LimitError{Limit: "repetitions", Max: b.limits.Count})
	default:
		return true
	}
	return false
}

// Empty says whether r matches nothing at all. Over a limit it is true and
// Err is set.
func (b *Builder) Empty(r Regex) bool {
	b.pool.splitClasses()
	return !b.pool.live(r)
}

// Match says whether r matches the whole of s.
func (b *Builder) Match(r Regex, s string) bool {
	b.pool.splitClasses()
	for i := 0; i < len(s) && r != never; i++ {
		r = b.pool.derive(r, b.pool.class[s[i]])
	}
	return b.pool.nullable(r)
}

// Terminal is an expression that matches r. The name is for errors.
func (b *Builder) Terminal(name string, r Regex) Expr {
	key := exprKey{kind: exprTerminal, a: int32(r)}
	if e, ok := b.byKey[key]; ok {
		return e
	}
	b.terminals = append(b.terminals, terminal{name, r})
	return b.intern(key, expr{kind: exprTerminal, a: int32(len(b.terminals) - 1)})
}

// Rule declares a rule, which Define completes. Each call makes a new one.
func (b *Builder) Rule(name string) Expr {
	b.rules = append(b.rules, rule{name: name})
	n := int32(len(b.rules) - 1)
	return b.intern(exprKey{kind: exprRule, a: n}, expr{kind: exprRule, a: n})
}

// Define says what a rule matches. A rule is defined once.
func (b *Builder) Define(r, body Expr) {
	e := &b.exprs[r]
	if e.kind != exprRule {
		b.fail(fmt.Errorf("Define of an expression that is no rule"))
		return
	}
	if b.rules[e.a].defined {
		b.fail(fmt.Errorf("rule %s is defined twice", b.rules[e.a].name))
		return
	}
	b.rules[e.a].body, b.rules[e.a].defined = body, true
}

// Seq matches one after the other; of nothing, it matches the empty string.
func (b *Builder) Seq(list ...Expr) Expr {
	if len(list) == 1 {
		return list[0]
	}
	return b.listed(exprSeq, list)
}

// Choice matches what any of list does; of nothing, it matches nothing.
func (b *Builder) Choice(list ...Expr) Expr {
	if len(list) == 1 {
		return list[0]
	}
	return b.listed(exprChoice, list)
}

func (b *Builder) listed(k exprKind, list []Expr) Expr {
	key := make([]byte, 0, 4*len(list))
	for _, e := range list {
		key = append(key, byte(e), byte(e>>8), byte(e>>16), byte(e>>24))
	}
	return b.intern(exprKey{kind: k, list: string(key)}, expr{kind: k, list: list})
}

// Optional matches e or the empty string.
func (b *Builder) Optional(e Expr) Expr { return b.Repeat(e, 0, 1) }

// Repeat matches e from min to max times; max may be Unlimited.
func (b *Builder) Repeat(e Expr, min, max int) Expr {
	if !b.bounds(min, max) {
		return b.Choice()
	}
	if min == 1 && max == 1 {
		return e
	}
	x := expr{kind: exprRepeat, min: int32(min), max: int32(max), list: []Expr{e}}
	return b.intern(exprKey{kind: exprRepeat, a: int32(e), min: x.min, max: x.max}, x)
}

func (b *Builder) intern(key exprKey, e expr) Expr {
	if id, ok := b.byKey[key]; ok {
		return id
	}
	if b.positions += 1 + len(e.list); b.positions > b.limits.Positions {
		b.fail(&LimitError{Limit: "places within rules", Max: b.limits.Positions})
	}
	if b.failed != nil && len(b.exprs) > 0 { // no room is used after an error
		return 0
	}
	e.list = slices.Clone(e.list)
	id := Expr(len(b.exprs))
	b.exprs = append(b.exprs, e)
	b.byKey[key] = id
	return id
}
