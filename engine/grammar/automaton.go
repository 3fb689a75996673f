package grammar

import (
	"maps"
	"slices"
)

// State is a state of an Automaton. Dead is the one from which no text is
// completed; no other is like it.
type State int32

// Dead is where a byte leads that may not come.
const Dead State = -1

const (
	none    = -1
	unknown = -2
)

// table holds a row for each state: where each class of bytes leads. It grows by blocks,
// so that no step has to move what is there.
type table struct {
	width int // of a row
	rows  [][]State
	block []State // room for the next rows
}

const rowsOfBlock = 32

func (t *table) add() {
	if len(t.block) == 0 {
		t.block = make([]State, rowsOfBlock*t.width)
		for i := range t.block {
			t.block[i] = unknown
		}
	}
	t.rows = append(t.rows, t.block[:t.width:t.width])
	t.block = t.block[t.width:]
}

func (t *table) bytes() int { return len(t.rows)*(4*t.width+24) + 4*len(t.block) }

// nodeBytes is what a node holds, with its place in the table of nodes.
const nodeBytes = 112

// Automaton is a grammar as a state machine over bytes, made as it is needed.
// It is not safe for several goroutines.
type Automaton struct {
	g      *Grammar
	limits *Limits
	pool   *pool
	spent  int
	base   int // bytes at the start

	lexers      []lexer
	lexerParts  []part
	lexerNext   table
	lexerByHash map[uint64]int32

	rows      []row
	items     []item
	rowByHash map[uint64]int32

	states      []state
	threads     []thread
	stateNext   table
	stateByHash map[uint64]int32
	chars       []charStep // by lexer

	// scratch
	seen       itemSet
	open       []item
	waiting    []item
	kernel     []item
	parts      []part
	newThreads []thread
}

// part is what is left of a terminal.
type part struct {
	terminal int32
	rest     Regex
}

// lexer is a set of parts, sorted by terminal.
type lexer struct {
	parts     span
	accepts   bool // some part may end here
	continues bool // some part may go on
	next      int32
}

// thread is one way to cut the text so far: terminals up to row, and one more begun.
type thread struct{ row, lexer int32 }

type state struct {
	threads span
	final   bool
	next    int32
}

// NewAutomaton is at its start.
func (g *Grammar) NewAutomaton() *Automaton {
	a := &Automaton{g: g, limits: &g.limits, pool: g.pool.clone(),
		lexerByHash: map[uint64]int32{}, rowByHash: map[uint64]int32{}, stateByHash: map[uint64]int32{}}
	a.lexerNext.width, a.stateNext.width = len(g.pool.example), len(g.pool.example)
	a.pool.limits = &Limits{}
	*a.pool.limits = g.limits
	a.pool.limits.Nodes = len(g.pool.nodes) + g.limits.Memory/nodeBytes*4 // one step may pass what Full says
	a.base = a.bytes()
	return a
}

// clone copies what a compiled grammar's pool holds, with room to grow.
func (p *pool) clone() *pool {
	c := *p
	c.nodes, c.first, c.sets, c.text = slices.Clone(p.nodes), slices.Clone(p.first), slices.Clone(p.sets), slices.Clip(p.text)
	c.byKey, c.setIDs, c.derived = maps.Clone(p.byKey), maps.Clone(p.setIDs), maps.Clone(p.derived)
	c.alive, c.relaxed = maps.Clone(p.alive), maps.Clone(p.relaxed)
	c.chars = maps.Clone(p.chars)
	c.buffers = nil
	return &c
}

// begin gives the work of one step, which end takes account of.
func (a *Automaton) begin() { a.pool.work, a.pool.over = a.limits.StepWork, "" }

func (a *Automaton) end() error {
	if a.pool.over == "steps of work" {
		return &LimitError{Limit: "steps of work for one byte", Max: a.limits.StepWork}
	}
	return a.pool.err("")
}

// Start is the state before the first byte.
func (a *Automaton) Start() (State, error) {
	a.begin()
	a.kernel = append(a.kernel[:0], item{a.g.starts[int(a.g.root)-len(a.g.terminals)], 0, a.g.root, here})
	r := a.rowOf(a.kernel)
	if err := a.end(); err != nil {
		return Dead, err
	}
	return a.stateAt(r), nil
}

// stateAt is the state just after a row, with no terminal begun.
func (a *Automaton) stateAt(r int32) State {
	a.newThreads = a.newThreads[:0]
	if a.lexers[a.rows[r].lexer].continues {
		a.newThreads = append(a.newThreads, thread{r, a.rows[r].lexer})
	}
	return a.stateOf(a.newThreads, a.rows[r].final)
}

// Next is the state after one more byte.
func (a *Automaton) Next(s State, c byte) (State, error) {
	if n := a.stateNext.rows[s][a.pool.class[c]]; n != unknown {
		return State(n), nil
	}
	return a.compute(s, a.pool.class[c])
}

// Known is where bytes lead from s, as far as it is known: by the class of a byte, the
// state, Dead, or something less, for which Next has to be asked.
func (a *Automaton) Known(s State) []State { return a.stateNext.rows[s] }

// Classes is the class of each byte. It does not change.
func (a *Automaton) Classes() *[256]uint8 { return &a.pool.class }

func (a *Automaton) compute(s State, class uint8) (State, error) {
	a.begin()
	n := a.step(s, class)
	a.spent += a.limits.StepWork - a.pool.work
	if err := a.end(); err != nil {
		return Dead, err
	}
	a.stateNext.rows[s][class] = n
	return n, nil
}

// Spent is the work of all bytes so far, in steps.
func (a *Automaton) Spent() int { return a.spent }

// Only says which byte alone may follow in s, if it is one.
func (a *Automaton) Only(s State) (c byte, ok bool, err error) {
	for b := range 256 {
		n, err := a.Next(s, byte(b))
		if err != nil {
			return 0, false, err
		}
		if n == Dead {
			continue
		}
		if ok {
			return 0, false, nil
		}
		c, ok = byte(b), true
	}
	return c, ok, nil
}

// Accepting says whether the text may end in s.
func (a *Automaton) Accepting(s State) bool { return a.states[s].final }

// Continues says whether any byte may follow in s.
func (a *Automaton) Continues(s State) bool {
	t := a.states[s].threads
	return t.from < t.to
}

// Full says that the automaton should be replaced, by a Mover, to free memory.
func (a *Automaton) Full() bool { return a.bytes()-a.base > a.limits.Memory }

// Size is the number of bytes that the automaton holds.
func (a *Automaton) Size() int { return a.bytes() }

func (a *Automaton) bytes() int {
	return len(a.pool.nodes)*nodeBytes + len(a.pool.derived)*28 + len(a.pool.sets)*80 +
		len(a.lexers)*48 + len(a.lexerParts)*8 + a.lexerNext.bytes() +
		len(a.rows)*60 + len(a.items)*16 +
		len(a.states)*60 + len(a.threads)*8 + a.stateNext.bytes()
}

func (a *Automaton) step(s State, class uint8) State {
	a.kernel, a.newThreads = a.kernel[:0], a.newThreads[:0]
	threads := a.states[s].threads
	for i := threads.from; i < threads.to; i++ {
		t := a.threads[i]
		q := a.lexerAfter(t.lexer, class)
		if q == none {
			continue
		}
		if a.lexers[q].continues {
			a.newThreads = append(a.newThreads, thread{t.row, q})
		}
		if !a.lexers[q].accepts {
			continue
		}
		for _, p := range a.lexerParts[a.lexers[q].parts.from:a.lexers[q].parts.to] {
			if a.pool.nullable(p.rest) {
				a.eachWaiting(t.row, p.terminal, func(it item) { a.kernel = append(a.kernel, it) })
			}
		}
	}
	final := false
	if len(a.kernel) > 0 {
		r := a.rowOf(a.kernel)
		if r == none || a.pool.over != "" {
			return Dead
		}
		final = a.rows[r].final
		if q := a.rows[r].lexer; a.lexers[q].continues {
			a.newThreads = append(a.newThreads, thread{r, q})
		}
	}
	if len(a.newThreads) == 0 && !final {
		return Dead
	}
	if len(a.newThreads) > a.limits.Threads {
		a.pool.exceed("ways to read the text at the same time", a.limits.Threads)
		return Dead
	}
	return a.stateOf(a.newThreads, final)
}

func (a *Automaton) stateOf(threads []thread, final bool) State {
	slices.SortFunc(threads, func(x, y thread) int {
		if x.row != y.row {
			return int(x.row) - int(y.row)
		}
		return int(x.lexer) - int(y.lexer)
	})
	threads = slices.Compact(threads)
	h := uint64(1)
	if final {
		h = 2
	}
	for _, t := range threads {
		h = mix(h, uint64(uint32(t.row))<<32|uint64(uint32(t.lexer)))
	}
	first, ok := a.stateByHash[h]
	if !ok {
		first = none
	}
	for i := first; i != none; i = a.states[i].next {
		st := &a.states[i]
		if st.final == final && slices.Equal(a.threads[st.threads.from:st.threads.to], threads) {
			return State(i)
		}
	}
	id := int32(len(a.states))
	from := int32(len(a.threads))
	a.threads = append(a.threads, threads...)
	a.states = append(a.states, state{threads: span{from, int32(len(a.threads))}, final: final, next: first})
	a.stateNext.add()
	a.stateByHash[h] = id
	return State(id)
}

// startState is the lexer of the terminals that a row waits for.
func (a *Automaton) startState(items span) int32 {
	a.parts = a.parts[:0]
	for _, it := range a.at(items) { // in the order of symbols
		sym := a.g.positions[it.pos].sym
		if int(sym) >= len(a.g.terminals) {
			break
		}
		if n := len(a.parts); n > 0 && a.parts[n-1].terminal == sym {
			continue
		}
		a.parts = append(a.parts, part{sym, a.g.terminals[sym].re})
	}
	return a.lexerOf(a.parts)
}

func (a *Automaton) lexerOf(parts []part) int32 {
	h := uint64(3)
	for _, p := range parts {
		h = mix(h, uint64(uint32(p.terminal))<<32|uint64(uint32(p.rest)))
	}
	first, ok := a.lexerByHash[h]
	if !ok {
		first = none
	}
	for i := first; i != none; i = a.lexers[i].next {
		if s := a.lexers[i].parts; slices.Equal(a.lexerParts[s.from:s.to], parts) {
			return i
		}
	}
	l := lexer{parts: span{from: int32(len(a.lexerParts))}, next: first}
	for _, p := range parts {
		l.accepts = l.accepts || a.pool.nullable(p.rest)
		l.continues = l.continues || p.rest != epsilon
	}
	a.lexerParts = append(a.lexerParts, parts...)
	l.parts.to = int32(len(a.lexerParts))
	id := int32(len(a.lexers))
	a.lexers = append(a.lexers, l)
	a.lexerNext.add()
	a.lexerByHash[h] = id
	return id
}

// lexerAfter is the lexer after a byte of the class, none if no part can go on.
func (a *Automaton) lexerAfter(q int32, class uint8) int32 {
	if n := a.lexerNext.rows[q][class]; n != unknown {
		return int32(n)
	}
	a.parts = a.parts[:0]
	s := a.lexers[q].parts
	if !a.pool.spend(1 + int(s.to-s.from)/16) {
		return none
	}
	for i := s.from; i < s.to; i++ {
		p := a.lexerParts[i]
		if d := a.pool.derive(p.rest, class); d != never && a.pool.live(d) {
			a.parts = append(a.parts, part{p.terminal, d})
		}
	}
	if a.pool.over != "" {
		return none
	}
	n := int32(none)
	if len(a.parts) > 0 {
		n = a.lexerOf(a.parts)
	}
	a.lexerNext.rows[q][class] = State(n)
	return n
}

// Accepts says whether the grammar matches the whole of text.
func (a *Automaton) Accepts(text string) (bool, error) {
	s, err := a.Start()
	for i := 0; i < len(text) && s != Dead && err == nil; i++ {
		s, err = a.Next(s, text[i])
	}
	return err == nil && s != Dead && a.Accepting(s), err
}
