package disk

import (
	"slices"
	"time"
)

// Fetch asks for blocks to be read, in this order, after those that were asked for before.
func (s *Store) Fetch(ids []ID) {
	s.mu.Lock()
	for _, id := range ids {
		if _, there := s.index[id]; there && s.ready[id] == nil && !slices.Contains(s.wanted, id) {
			s.wanted = append(s.wanted, id)
		}
	}
	s.mu.Unlock()
	s.wake()
}

// Take returns a block that was read; it is the caller's. Where it is nil, coming says
// whether it is still being read.
func (s *Store) Take(id ID) (block []byte, coming bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if block = s.ready[id]; block != nil {
		delete(s.ready, id)
		s.wake() // there is room for another
		return block, false
	}
	return nil, slices.Contains(s.wanted, id)
}

// Forget takes back the wish for blocks.
func (s *Store) Forget(ids []ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.ready, id)
		s.wanted = slices.DeleteFunc(s.wanted, func(w ID) bool { return w == id })
	}
	s.wake()
}

// read is the reader. It stops where ReadyBytes wait to be taken.
func (s *Store) read() {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return
		}
		var id ID
		var at place
		most := max(1, s.cfg.ReadyBytes/s.cfg.BlockBytes)
		if len(s.wanted) > 0 && len(s.ready) < most {
			id = s.wanted[0]
			if at = s.index[id]; at.segment == nil { // it was trimmed
				s.wanted = s.wanted[1:]
				s.mu.Unlock()
				continue
			}
			at.segment.uses++
		}
		s.mu.Unlock()
		if at.segment == nil {
			<-s.wakes
			continue
		}
		s.readOne(id, at)
		if s.cfg.Ready != nil {
			s.cfg.Ready()
		}
	}
}

// readOne reads a block and makes it ready.
func (s *Store) readOne(id ID, at place) {
	began := time.Now()
	record := make([]byte, s.format.recordBytes())
	_, err := at.segment.file.ReadAt(record, at.offset)
	var block []byte
	if err == nil {
		block, err = s.format.block(record, id)
	}
	took := time.Since(began)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.segment.uses--; at.segment.gone && at.segment.uses == 0 {
		_ = at.segment.file.Close() // it was removed; there is nothing to lose
	}
	if err != nil {
		s.stats.Corrupted++
		delete(s.index, id)
	}
	i := slices.Index(s.wanted, id)
	if i < 0 { // nobody wants it any more
		return
	}
	s.wanted = slices.Delete(s.wanted, i, i+1)
	if err == nil {
		s.rate.Learn(began.Add(took), float64(took)/float64(len(record)))
		s.stats.Read++
		s.ready[id] = block
	}
}
