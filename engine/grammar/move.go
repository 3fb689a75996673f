package grammar

// Mover carries states from a full automaton to a fresh one of the same
// grammar, with what they need and nothing else.
type Mover struct {
	from, to *Automaton
	base     Regex // expressions below it are the grammar's own
	rows     map[int32]int32
	lexers   map[int32]int32
	regexes  map[Regex]Regex
}

// NewMover carries states from one automaton to another.
func NewMover(from, to *Automaton) *Mover {
	return &Mover{from, to, Regex(len(from.g.pool.nodes)), map[int32]int32{}, map[int32]int32{}, map[Regex]Regex{}}
}

// Move is s in the other automaton.
func (m *Mover) Move(s State) (State, error) {
	m.to.begin()
	m.to.pool.work = m.to.limits.Work
	st := m.from.states[s]
	threads := make([]thread, 0, st.threads.to-st.threads.from)
	for _, t := range m.from.threads[st.threads.from:st.threads.to] {
		threads = append(threads, thread{m.row(t.row), m.lexer(t.lexer)})
	}
	if err := m.to.end(); err != nil {
		return Dead, err
	}
	return m.to.stateOf(threads, st.final), nil
}

func (m *Mover) row(r int32) int32 {
	if moved, ok := m.rows[r]; ok || m.to.pool.over != "" {
		return moved
	}
	old := m.from.at(m.from.rows[r].kernel)
	kernel := make([]item, len(old))
	for i, it := range old {
		kernel[i] = it
		if it.origin != here {
			kernel[i].origin = m.row(it.origin)
		}
	}
	if m.to.pool.over != "" {
		return 0
	}
	moved := m.to.rowOf(kernel)
	m.rows[r] = moved
	return moved
}

func (m *Mover) lexer(q int32) int32 {
	if moved, ok := m.lexers[q]; ok {
		return moved
	}
	s := m.from.lexers[q].parts
	parts := make([]part, 0, s.to-s.from)
	for _, p := range m.from.lexerParts[s.from:s.to] {
		parts = append(parts, part{p.terminal, m.regex(p.rest)})
	}
	moved := m.to.lexerOf(parts)
	m.lexers[q] = moved
	return moved
}

func (m *Mover) regex(r Regex) Regex {
	if r < m.base {
		return r
	}
	if moved, ok := m.regexes[r]; ok {
		return moved
	}
	n, p := m.from.pool.nodes[r], m.to.pool
	var moved Regex
	switch n.kind {
	case kindSet:
		moved = p.set(m.from.pool.sets[n.a])
	case kindText: // derivatives make no text: it is the tail of one of the grammar's
		moved = p.node(nodeKey{kind: kindText, a: n.a, b: n.b}, false)
	case kindMultiple, kindLabel:
		moved = p.node(nodeKey{kind: n.kind, a: n.a, b: n.b, min: n.min, max: n.max}, n.nullable)
	case kindCat:
		moved = p.cat(m.regex(Regex(n.a)), m.regex(Regex(n.b)))
	case kindNot:
		moved = p.not(m.regex(Regex(n.a)))
	case kindTimes:
		moved = p.times(m.regex(Regex(n.a)), n.min, n.max)
	default:
		list := m.from.pool.each(nil, n.kind, r)
		for i := range list {
			list[i] = m.regex(list[i])
		}
		if n.kind == kindAnd {
			moved = p.and(list)
		} else {
			moved = p.or(list)
		}
	}
	m.regexes[r] = moved
	return moved
}
