package grammar

import "fmt"

// position is a place within a rule. What waits there is a symbol, a counted
// repetition, or nothing; final ends the rule that was entered.
type position struct {
	sym     int32 // symbol that leads to target; none is noSymbol
	target  int32
	counted bool // sym, min to max times, at this same place
	final   bool
	min     int32
	max     int32
	jumps   []int32 // places that are reached without a symbol
}

const noSymbol = -1

// Grammar is a compiled grammar. It does not change.
type Grammar struct {
	pool      *pool // as compiled; each Automaton works on a copy
	limits    Limits
	terminals []terminal
	positions []position
	starts    []int32 // of a rule, by symbol minus the number of terminals
	names     []string
	nullable  []bool // by symbol
	root      int32  // symbol
	size      int
}

// compiler turns expressions into positions.
type compiler struct {
	b     *Builder
	g     *Grammar
	inner map[Expr]int32
	todo  []innerRule
	err   error
}

type innerRule struct {
	symbol int32
	body   Expr
}

// Compile makes the grammar whose texts start matches.
func (b *Builder) Compile(start Expr) (*Grammar, error) {
	if err := b.Err(); err != nil {
		return nil, err
	}
	b.pool.work = b.limits.Work
	b.leaveOut()
	b.pool.splitClasses()
	g := &Grammar{pool: b.pool, limits: b.limits, terminals: b.terminals}
	c := &compiler{b: b, g: g, inner: map[Expr]int32{}}
	for _, r := range b.rules {
		c.newRule(r.name)
	}
	for i, r := range b.rules {
		if !r.defined {
			return nil, fmt.Errorf("rule %s is used but not defined", r.name)
		}
		c.todo = append(c.todo, innerRule{int32(len(b.terminals) + i), r.body})
	}
	g.root = c.newRule("the grammar")
	c.todo = append(c.todo, innerRule{g.root, start})
	for len(c.todo) > 0 && c.err == nil {
		next := c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		c.body(next)
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := g.trim(); err != nil {
		return nil, err
	}
	g.size = g.bytes()
	return g, nil
}

func (c *compiler) newRule(name string) int32 {
	c.g.names = append(c.g.names, name)
	c.g.starts = append(c.g.starts, 0)
	return int32(len(c.b.terminals) + len(c.g.names) - 1)
}

func (c *compiler) position() int32 {
	if len(c.g.positions) >= c.b.limits.Positions && c.err == nil {
		c.err = &LimitError{Limit: "places within rules", Max: c.b.limits.Positions}
	}
	c.g.positions = append(c.g.positions, position{sym: noSymbol})
	return int32(len(c.g.positions) - 1)
}

func (c *compiler) body(r innerRule) {
	start, end := c.position(), c.position()
	c.g.positions[end].final = true
	c.g.starts[int(r.symbol)-len(c.b.terminals)] = start
	c.expr(r.body, start, end, true)
}

// expr puts e between two places. last says that the rule ends after it, so
// that a rule is entered by a jump: its end is then the end of both.
func (c *compiler) expr(e Expr, from, to int32, last bool) {
	if c.err != nil {
		return
	}
	x := &c.b.exprs[e]
	switch x.kind {
	case exprTerminal:
		c.edge(from, x.a, to)
	case exprRule:
		c.rule(int32(len(c.b.terminals))+x.a, from, to, last)
	case exprSeq:
		if len(x.list) == 0 {
			c.jump(from, to)
		}
		for i, m := range x.list {
			next := to
			if i < len(x.list)-1 {
				next = c.position()
			}
			c.expr(m, from, next, last && next == to)
			from = next
		}
	case exprChoice:
		for _, m := range x.list {
			c.expr(m, from, to, last)
		}
	case exprRepeat:
		c.repeat(x, e, from, to, last)
	}
}

func (c *compiler) rule(symbol, from, to int32, last bool) {
	if !last {
		c.edge(from, symbol, to)
		return
	}
	// The place that it jumps to is known once every rule has one.
	p := c.position()
	c.g.positions[p] = position{sym: symbol, target: tailCall}
	c.jump(from, p)
}

const tailCall = -2

func (c *compiler) repeat(x *expr, e Expr, from, to int32, last bool) {
	body := x.list[0]
	switch {
	case x.max == 0:
		c.jump(from, to)
	case x.min == 0 && x.max == 1:
		c.expr(body, from, to, last)
		c.jump(from, to)
	case x.min <= 1 && x.max == Unlimited:
		loop := c.position()
		if x.min == 0 {
			c.jump(from, loop)
		} else {
			c.expr(body, from, loop, false)
		}
		c.expr(body, loop, loop, false)
		c.jump(loop, to)
	default:
		symbol, ok := c.inner[e]
		if !ok {
			symbol = c.counted(x, e)
		}
		c.rule(symbol, from, to, last)
	}
}

// counted is a rule of one place that repeats a symbol.
func (c *compiler) counted(x *expr, e Expr) int32 {
	symbol := c.newRule("a repetition")
	c.inner[e] = symbol
	p := c.position()
	c.g.starts[int(symbol)-len(c.b.terminals)] = p
	c.g.positions[p] = position{sym: c.symbol(x.list[0]), counted: true, min: x.min, max: x.max}
	return symbol
}

// symbol is a symbol that matches e.
func (c *compiler) symbol(e Expr) int32 {
	switch x := &c.b.exprs[e]; x.kind {
	case exprTerminal:
		return x.a
	case exprRule:
		return int32(len(c.b.terminals)) + x.a
	}
	if s, ok := c.inner[-1-e]; ok {
		return s
	}
	s := c.newRule("a part")
	c.inner[-1-e] = s
	c.todo = append(c.todo, innerRule{s, e})
	return s
}

// edge leads from one place to another by a symbol.
func (c *compiler) edge(from, symbol, to int32) {
	if p := &c.g.positions[from]; p.sym == noSymbol && !p.final {
		p.sym, p.target = symbol, to
		return
	}
	p := c.position()
	c.g.positions[p].sym, c.g.positions[p].target = symbol, to
	c.jump(from, p)
}

func (c *compiler) jump(from, to int32) {
	if from != to {
		c.g.positions[from].jumps = append(c.g.positions[from].jumps, to)
	}
}

// trim resolves tail calls, removes what derives nothing, and finds which
// symbols match the empty string.
func (g *Grammar) trim() error {
	t := len(g.terminals)
	for i := range g.positions {
		if p := &g.positions[i]; p.target == tailCall {
			*p = position{sym: noSymbol, jumps: []int32{g.starts[int(p.sym)-t]}}
		}
	}
	live, empty := make([]bool, t), make([]bool, t)
	for i, term := range g.terminals {
		live[i], empty[i] = g.pool.live(term.re), g.pool.nullable(term.re)
		if err := g.pool.err(term.name); err != nil {
			return err
		}
	}
	reaches, derives := g.fixpoint(live)
	for i := range g.positions {
		p := &g.positions[i]
		if p.sym != noSymbol && (!derives[p.sym] || !p.counted && !reaches[p.target]) {
			if p.sym = noSymbol; p.counted { // none at all: min is 0, or the place is not reached
				p.counted, p.final = false, p.min == 0
			}
		}
		kept := p.jumps[:0]
		for _, j := range p.jumps {
			if reaches[j] {
				kept = append(kept, j)
			}
		}
		p.jumps = kept
	}
	if !derives[g.root] {
		return &EmptyError{g.names[int(g.root)-t]}
	}
	_, g.nullable = g.fixpoint(empty)
	for i := range g.positions {
		if p := &g.positions[i]; p.counted && g.nullable[p.sym] {
			p.min = 0
		}
	}
	return nil
}

// fixpoint says from which places the end of a rule is reached by symbols
// that hold, and which symbols hold, given the terminals that do.
func (g *Grammar) fixpoint(terminals []bool) (places, symbols []bool) {
	t := len(terminals)
	symbols = append(append([]bool{}, terminals...), make([]bool, len(g.starts))...)
	places = make([]bool, len(g.positions))
	users := make([][]int32, len(g.positions))    // places that lead to one
	waiting := make([][]int32, len(g.starts))     // places where a rule is awaited
	startsAt := make([][]int32, len(g.positions)) // rules by their first place
	var queue []int32
	for i := range g.positions {
		p := &g.positions[i]
		for _, j := range p.jumps {
			users[j] = append(users[j], int32(i))
		}
		if p.sym != noSymbol {
			if !p.counted {
				users[p.target] = append(users[p.target], int32(i))
			}
			if int(p.sym) >= t {
				waiting[int(p.sym)-t] = append(waiting[int(p.sym)-t], int32(i))
			}
		}
		queue = append(queue, int32(i))
	}
	for r, s := range g.starts {
		startsAt[s] = append(startsAt[s], int32(r))
	}
	for len(queue) > 0 {
		i := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if places[i] || !g.holds(i, places, symbols) {
			continue
		}
		places[i] = true
		queue = append(queue, users[i]...)
		for _, r := range startsAt[i] {
			symbols[t+int(r)] = true
			queue = append(queue, waiting[r]...)
		}
	}
	return places, symbols
}

func (g *Grammar) holds(i int32, places, symbols []bool) bool {
	p := &g.positions[i]
	if p.final || p.counted && p.min == 0 {
		return true
	}
	if p.sym != noSymbol && symbols[p.sym] && (p.counted || places[p.target]) {
		return true
	}
	for _, j := range p.jumps {
		if places[j] {
			return true
		}
	}
	return false
}

// Limits are those that the grammar was built with.
func (g *Grammar) Limits() Limits { return g.limits }

// Size is the number of bytes that the grammar holds, without its automata.
func (g *Grammar) Size() int { return g.size }

func (g *Grammar) bytes() int {
	n := len(g.pool.nodes)*80 + len(g.pool.derived)*24 + len(g.pool.sets)*80 + len(g.pool.text)*2
	for i := range g.positions {
		n += 48 + 4*len(g.positions[i].jumps)
	}
	return n + len(g.terminals)*32 + len(g.names)*40
}
