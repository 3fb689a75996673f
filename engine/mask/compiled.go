package mask

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/forebay-io/forebay/engine/grammar"
)

// Compiled is a grammar for a vocabulary.
type Compiled struct {
	trie    *Trie
	grammar *grammar.Grammar
	limits  grammar.Limits
	size    atomic.Int64

	// Notes are the maker's, kept with the grammar.
	Notes []string

	mu     sync.Mutex
	shared *shared // what matchers make and use now
}

// shared is an automaton with its masks. When it is full a fresh one takes its
// place, and each matcher moves there at its next token.
type shared struct {
	auto  *grammar.Automaton
	start grammar.State
	masks masks
	// the walk's: states by depth, and where their bytes lead
	stack []grammar.State
	rows  [][]grammar.State
}

// Compile makes a grammar ready for a vocabulary.
func Compile(g *grammar.Grammar, t *Trie) (*Compiled, error) {
	for b := range 256 {
		if g.Absent(byte(b)) && !bytes.Contains(t.missing, []byte{byte(b)}) {
			return nil, fmt.Errorf("the grammar leaves out byte %#x, which the vocabulary has", b)
		}
	}
	c := &Compiled{trie: t, grammar: g, limits: g.Limits()}
	var err error
	if c.shared, err = c.fresh(); err != nil {
		return nil, err
	}
	c.measure()
	return c, nil
}

func (c *Compiled) fresh() (*shared, error) {
	s := &shared{auto: c.grammar.NewAutomaton(), stack: make([]grammar.State, depthMax+2), rows: make([][]grammar.State, depthMax+2)}
	s.masks.init(max(c.limits.Masks, 1), c.trie.words)
	var err error
	s.start, err = s.auto.Start()
	return s, err
}

// Size is the number of bytes that the grammar, its automaton and masks hold.
func (c *Compiled) Size() int { return int(c.size.Load()) }

func (c *Compiled) measure() {
	c.size.Store(int64(c.grammar.Size() + c.shared.auto.Size() + c.shared.masks.bytes()))
}

// mask sets the bits of the tokens that may come in a state.
func (c *Compiled) mask(s *shared, state grammar.State, dst []uint64, remember bool) error {
	if remember {
		if known := s.masks.get(state); known != nil {
			copy(dst, known)
			return nil
		}
	}
	if err := c.compute(s, state, dst); err != nil {
		return err
	}
	if s.auto.Accepting(state) {
		for _, id := range c.trie.ends {
			dst[id>>6] |= 1 << (id & 63)
		}
	}
	if remember {
		s.masks.put(state, dst)
	}
	return nil
}

func (c *Compiled) compute(s *shared, state grammar.State, dst []uint64) error {
	if !s.auto.Continues(state) {
		clear(dst)
		return nil
	}
	least, exact, err := s.auto.Chars(state)
	if err != nil {
		return err
	}
	nodes := c.trie.all
	copy(dst, c.trie.safe[least])
	if exact {
		nodes = c.trie.rest
	}
	return c.walk(s, state, nodes, dst)
}

// walk tries every token of nodes, byte by byte; a byte that may not come
// passes all that begin so.
func (c *Compiled) walk(s *shared, state grammar.State, nodes []node, dst []uint64) error {
	auto, classes := s.auto, s.auto.Classes()
	stack, rows := s.stack, s.rows
	stack[0], rows[0] = state, auto.Known(state)
	limit := auto.Spent() + c.limits.MaskWork
	for i := 0; i < len(nodes); {
		n := nodes[i]
		next := rows[n.depth()][classes[n.byte()]]
		if next < grammar.Dead {
			var err error
			if next, err = auto.Next(stack[n.depth()], n.byte()); err != nil {
				return err
			}
			if auto.Spent() > limit {
				return &grammar.LimitError{Limit: "steps of work for one mask", Max: c.limits.MaskWork}
			}
		}
		if next == grammar.Dead {
			i += n.size()
			continue
		}
		if token := n.token(); token != noToken {
			dst[token>>6] |= 1 << (token & 63)
		}
		if n.size() > 1 {
			stack[n.depth()+1], rows[n.depth()+1] = next, auto.Known(next)
		}
		i++
	}
	return nil
}

// renewed is the automaton to use from now on.
func (c *Compiled) renewed() (*shared, error) {
	if c.shared.auto.Full() {
		s, err := c.fresh()
		if err != nil {
			return nil, err
		}
		c.shared = s
	}
	return c.shared, nil
}

// masks remembers masks by state; the one that was not used for longest goes.
type masks struct {
	at    map[grammar.State]int32
	slots []slot
	max   int
	words int
	hand  int // of the clock that finds what was not used
}

type slot struct {
	state grammar.State
	bits  []uint64
	used  bool
}

func (m *masks) init(max, words int) {
	m.at, m.max, m.words = make(map[grammar.State]int32, max), max, words
}

func (m *masks) bytes() int { return len(m.slots) * (m.words*8 + 48) }

func (m *masks) get(s grammar.State) []uint64 {
	i, ok := m.at[s]
	if !ok {
		return nil
	}
	m.slots[i].used = true
	return m.slots[i].bits
}

func (m *masks) put(s grammar.State, bits []uint64) {
	if len(m.slots) < m.max {
		m.at[s] = int32(len(m.slots))
		m.slots = append(m.slots, slot{s, append([]uint64(nil), bits[:m.words]...), true})
		return
	}
	for m.slots[m.hand].used {
		m.slots[m.hand].used = false
		m.hand = (m.hand + 1) % len(m.slots)
	}
	old := &m.slots[m.hand]
	delete(m.at, old.state)
	m.at[s] = int32(m.hand)
	old.state, old.used = s, true
	copy(old.bits, bits)
	m.hand = (m.hand + 1) % len(m.slots)
}

// errShort says that a mask has no room for the vocabulary.
func errShort(have, want int) error {
	return fmt.Errorf("the mask has %d words, the vocabulary needs %d", have, want)
}
