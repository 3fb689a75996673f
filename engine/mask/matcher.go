package mask

import (
	"fmt"

	"github.com/forebay-io/forebay/engine/grammar"
)

// RollbackMax is how many tokens Rollback can take back.
const RollbackMax = 64

// ForcedMax is the most bytes that Forced returns.
const ForcedMax = 256

// Matcher follows one answer.
type Matcher struct {
	c       *Compiled
	shared  *shared
	states  [RollbackMax + 1]grammar.State // a ring: the state after each of the last tokens
	ended   [RollbackMax + 1]bool          // an end token came
	tokens  int
	oldest  int
	forced  []byte
	noMemo  bool // Mask computes each mask afresh
	failure error
}

// NewMatcher is at the beginning of an answer.
func (c *Compiled) NewMatcher() *Matcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &Matcher{c: c, shared: c.shared, forced: make([]byte, 0, ForcedMax)}
	m.states[0] = c.shared.start
	return m
}

// Remember says whether masks are remembered; they are, unless told not to be.
// It changes no mask.
func (m *Matcher) Remember(on bool) { m.noMemo = !on }

// Remembered says whether Mask has nothing to compute.
func (m *Matcher) Remembered() bool {
	if m.failure != nil || m.ended[m.here()] {
		return true
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return !m.noMemo && m.shared.masks.get(m.states[m.here()]) != nil
}

// Words is the length of a mask of Mask.
func (m *Matcher) Words() int { return m.c.trie.words }

func (m *Matcher) here() int { return m.tokens % len(m.states) }

// Mask sets dst to the tokens that may come next, one bit each. dst holds
// Trie.Words words; bits above the vocabulary are zero. After the end nothing
// may come.
func (m *Matcher) Mask(dst []uint64) error {
	if m.failure != nil {
		return m.failure
	}
	if len(dst) < m.c.trie.words {
		return errShort(len(dst), m.c.trie.words)
	}
	dst = dst[:m.c.trie.words]
	if m.ended[m.here()] {
		clear(dst)
		return nil
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.failure = m.c.mask(m.shared, m.states[m.here()], dst, !m.noMemo)
	return m.failure
}

// Accept takes a token. It says false, and changes nothing, if the token may not come.
func (m *Matcher) Accept(token int32) (bool, error) {
	if m.failure != nil || m.ended[m.here()] {
		return false, m.failure
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if err := m.move(); err != nil {
		m.failure = err
		return false, err
	}
	state, ok, err := m.after(token)
	if err != nil {
		m.failure = err
		return false, err
	}
	if ok {
		m.push(state, false)
		return true, nil
	}
	if m.c.trie.vocabulary.IsEnd(token) && m.shared.auto.Accepting(m.states[m.here()]) {
		m.push(m.states[m.here()], true)
		return true, nil
	}
	return false, nil
}

// after is the state after a token's bytes.
func (m *Matcher) after(token int32) (grammar.State, bool, error) {
	v := m.c.trie.vocabulary
	if token < 0 || int(token) >= v.Size() {
		return grammar.Dead, false, nil
	}
	if v.IsControl(token) {
		if token > grammar.TokenMax {
			return grammar.Dead, false, nil
		}
		control := grammar.TokenBytes(token)
		return m.follow(control[:], false)
	}
	return m.follow(v.Bytes(token), true)
}

func (m *Matcher) follow(bytes []byte, text bool) (grammar.State, bool, error) {
	state := m.states[m.here()]
	if len(bytes) == 0 || len(bytes) > depthMax {
		return grammar.Dead, false, nil
	}
	for _, c := range bytes {
		if text && c == 0xFF {
			return grammar.Dead, false, nil
		}
		next, err := m.shared.auto.Next(state, c)
		if err != nil || next == grammar.Dead {
			return grammar.Dead, false, err
		}
		state = next
	}
	return state, true, nil
}

func (m *Matcher) push(s grammar.State, end bool) {
	m.tokens++
	m.states[m.here()], m.ended[m.here()] = s, end
	m.oldest = max(m.oldest, m.tokens-RollbackMax)
}

// move carries the states into the automaton that is in use, if that changed.
func (m *Matcher) move() error {
	to, err := m.c.renewed()
	if err != nil {
		return err
	}
	m.c.measure()
	if to == m.shared {
		return nil
	}
	mover := grammar.NewMover(m.shared.auto, to.auto)
	for i := m.oldest; i <= m.tokens; i++ {
		s := &m.states[i%len(m.states)]
		if *s, err = mover.Move(*s); err != nil {
			return err
		}
	}
	m.shared = to
	return nil
}

// Rollback takes back the last n tokens, at most RollbackMax.
func (m *Matcher) Rollback(n int) error {
	if n < 0 || n > m.tokens-m.oldest {
		return fmt.Errorf("%d tokens cannot be taken back: %d are kept", n, m.tokens-m.oldest)
	}
	m.tokens -= n
	return nil
}

// Forced is the bytes that have to come next whatever the model says, as far
// as they are known; it is good until the next call.
func (m *Matcher) Forced() ([]byte, error) {
	if m.failure != nil || m.ended[m.here()] {
		return nil, m.failure
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	m.forced = m.forced[:0]
	auto, s := m.shared.auto, m.states[m.here()]
	for len(m.forced) < ForcedMax && !auto.Accepting(s) {
		c, ok, err := auto.Only(s)
		if err != nil {
			m.failure = err
			return nil, err
		}
		if !ok || c == 0xFF {
			break
		}
		m.forced = append(m.forced, c)
		if s, err = auto.Next(s, c); err != nil {
			return nil, err
		}
	}
	return m.forced, nil
}

// CanEnd says whether the answer may end here.
func (m *Matcher) CanEnd() bool {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return m.ended[m.here()] || m.shared.auto.Accepting(m.states[m.here()])
}

// Done says whether nothing but the end may come.
func (m *Matcher) Done() bool {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return m.ended[m.here()] || !m.shared.auto.Continues(m.states[m.here()])
}
