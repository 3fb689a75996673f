// Package host keeps the keys and values of blocks in this machine's memory, for an engine
// whose pages are in a GPU's, so that what no longer fits there is copied back and not computed
// again.
//
// Goal: what Take returns is bit by bit what Put was given for the same block, within a limit
// of bytes. Non-goals: which blocks are worth keeping or copying (engine), and what a block
// means (cache). The block that was used longest ago goes first.
//
// Ownership: one goroutine calls Put, Take and Copied; any goroutine may call the rest. The
// memory of a block is taken when it is first needed, and kept for others until Close.
package host

import (
	"container/list"
	"sync"
	"time"

	"github.com/forebay-io/forebay/cache/disk"
)

// startPerByte is five gigabytes a second, until copies say otherwise.
const startPerByte = 0.2

// Store keeps blocks in memory.
type Store struct {
	blockBytes, most int

	mu     sync.Mutex
	blocks map[disk.ID]*list.Element // of order
	order  *list.List                // of *block, the one used last in front
	stats  disk.Stats
	rate   disk.Rate
}

type block struct {
	id    disk.ID
	bytes []byte
}

// New is a store of blocks of blockBytes, of up to bytesMax in all.
func New(blockBytes int, bytesMax int64) *Store {
	return &Store{
		blockBytes: blockBytes, most: int(bytesMax / int64(blockBytes)), blocks: map[disk.ID]*list.Element{}, order: list.New(),
		rate: disk.Rate{Start: startPerByte},
	}
}

// Put keeps a block, which fill writes. Another one goes where there is no room.
func (s *Store) Put(id disk.ID, fill func(block []byte)) {
	s.mu.Lock()
	_, there := s.blocks[id]
	var to []byte
	if last := s.order.Back(); !there && last != nil && s.order.Len() >= s.most {
		old := s.order.Remove(last).(*block)
		delete(s.blocks, old.id)
		to = old.bytes
		s.stats.Dropped++
	}
	s.mu.Unlock()
	if there || s.most == 0 {
		return
	}
	if to == nil {
		to = make([]byte, s.blockBytes)
	}
	fill(to)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks[id] = s.order.PushFront(&block{id, to})
	s.stats.Written++
}

// Take returns a block, valid until the next Put, or nil.
func (s *Store) Take(id disk.ID) (_ []byte, coming bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.blocks[id]
	if e == nil {
		return nil, false
	}
	s.order.MoveToFront(e)
	s.stats.Read++
	return e.Value.(*block).bytes, false
}

// Copied tells how long it took to copy a block to the GPU.
func (s *Store) Copied(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate.Learn(time.Now(), float64(took)/float64(s.blockBytes))
}

// Has reports whether a block is there.
func (s *Store) Has(id disk.ID) bool { return s.Count([]disk.ID{id}) == 1 }

// Count is how many of the first ids are there.
func (s *Store) Count(ids []disk.ID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		if s.blocks[id] == nil {
			return i
		}
	}
	return len(ids)
}

// Room is how many blocks may be put at once.
func (s *Store) Room() int { return s.most }

// Fetch marks blocks as used, so that they stay; Forget changes nothing.
func (s *Store) Fetch(ids []disk.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if e := s.blocks[id]; e != nil {
			s.order.MoveToFront(e)
		}
	}
}

// Forget takes back the wish for blocks.
func (s *Store) Forget([]disk.ID) {}

// ReadTime is how long copying a block to the GPU is expected to take.
func (s *Store) ReadTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rate.At(time.Now()) * float64(s.blockBytes))
}

// Stats are the counts up to now.
func (s *Store) Stats() disk.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.stats
	t.Blocks, t.Bytes = int64(s.order.Len()), int64(s.order.Len())*int64(s.blockBytes)
	return t
}

// Close frees the blocks.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.blocks)
	s.order.Init()
	s.most = 0
	return nil
}
