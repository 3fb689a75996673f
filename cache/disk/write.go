package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// pauseAfterFailure is how long nothing is written after the disk refused something.
const pauseAfterFailure = 10 * time.Second

// Put keeps a block: fill writes its bytes, before Put returns. It does nothing where the
// block is there already, or too many wait to be written.
func (s *Store) Put(id ID, fill func(block []byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.index[id]; there || s.closed || s.writing[id] || time.Now().Before(s.retryAt) {
		return
	}
	if len(s.puts) == cap(s.puts) {
		s.stats.Dropped++
		return
	}
	p := put{id, make([]byte, s.cfg.BlockBytes)}
	fill(p.block)
	s.writing[id] = true
	s.puts <- p // has room: only Put sends, under mu
}

// Room is how many blocks Put would take now.
func (s *Store) Room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || time.Now().Before(s.retryAt) {
		return 0
	}
	return cap(s.puts) - len(s.puts)
}

// write is the writer.
func (s *Store) write() {
	var record []byte
	for p := range s.puts {
		record = s.format.record(record[:0], p.id, p.block)
		err := s.append(p.id, record)
		s.mu.Lock()
		delete(s.writing, p.id)
		if err != nil {
			s.stats.Dropped++
			s.retryAt = time.Now().Add(pauseAfterFailure)
		}
		s.mu.Unlock()
		if err != nil {
			s.failed(err)
		}
	}
}

// append writes a record to the newest segment, or to a new one.
func (s *Store) append(id ID, record []byte) error {
	s.mu.Lock()
	var g *segment
	if n := len(s.segments); n > 0 && s.segments[n-1].bytes+int64(len(record)) <= segmentBytes {
		g = s.segments[n-1]
	}
	s.mu.Unlock()
	if g == nil {
		var err error
		if g, err = s.newSegment(); err != nil {
			return err
		}
	}
	if _, err := g.file.WriteAt(record, g.bytes); err != nil {
		return fmt.Errorf("%s: %w", g.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index[id] = place{g, g.bytes}
	g.ids = append(g.ids, id)
	g.bytes += int64(len(record))
	s.total += int64(len(record))
	s.stats.Written++
	s.trim()
	return nil
}

func (s *Store) newSegment() (*segment, error) {
	name := filepath.Join(s.dir, fmt.Sprintf("%010d.kv", s.number+1))
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(s.format.header()); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(name))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &segment{file: file, name: name, bytes: headerBytes}
	s.number++
	s.segments = append(s.segments, g)
	s.total += headerBytes
	return g, nil
}

// trim removes files until all are within the limit: those of other spaces, and then
// the oldest segments, but not the one that is written to. The caller holds mu, or is alone.
func (s *Store) trim() {
	for s.total > s.cfg.BytesMax && len(s.others) > 0 {
		o := s.others[0]
		s.others = s.others[1:]
		s.total -= o.bytes
		if err := os.Remove(o.name); err != nil {
			s.failed(err)
		}
	}
	for s.total > s.cfg.BytesMax && len(s.segments) > 1 {
		g := s.segments[0]
		s.segments = s.segments[1:]
		s.total -= g.bytes
		for _, id := range g.ids {
			if s.index[id].segment == g {
				delete(s.index, id)
			}
		}
		g.gone = true
		if err := os.Remove(g.name); err != nil {
			s.failed(err)
		}
		if g.uses == 0 {
			_ = g.file.Close() // it was removed; there is nothing to lose
		}
	}
}
