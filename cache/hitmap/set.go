package hitmap

// Set is the hashes of the blocks that an engine holds, as far as is known.
// Its zero value is empty. It is as large as the engine's page pool.
type Set struct{ held map[uint64]struct{} }

// Follow takes the news of the engine's journal.
func (s *Set) Follow(n News) {
	if n.Missed {
		s.Clear()
	}
	for _, c := range n.Changes {
		s.Apply(c)
	}
}

// Apply takes one change.
func (s *Set) Apply(c Change) {
	if c.Evicted {
		delete(s.held, c.Hash)
		return
	}
	if s.held == nil {
		s.held = map[uint64]struct{}{}
	}
	s.held[c.Hash] = struct{}{}
}

// Clear forgets all blocks: for news that are Missed, and for an engine that
// was lost.
func (s *Set) Clear() { clear(s.held) }

// Len counts the blocks that are held.
func (s *Set) Len() int { return len(s.held) }

// Holds reports whether one block is held.
func (s *Set) Holds(hash uint64) bool {
	_, ok := s.held[hash]
	return ok
}

// Match counts the leading blocks of a prompt that are held. blocks are the
// prompt's chained hashes, so a block counts only after all before it.
func (s *Set) Match(blocks []uint64) int {
	for i, hash := range blocks {
		if !s.Holds(hash) {
			return i
		}
	}
	return len(blocks)
}
