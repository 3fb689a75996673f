package disk

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
)

// Config says where blocks are kept and how many.
type Config struct {
	Dir        string
	Space      string // names everything that changes the bytes of a block besides its ID
	BlockBytes int
	BytesMax   int64  // of all files in Dir
	Key        []byte // of AES, 16 or 32 bytes; empty writes plain bytes
	// QueueBytes bounds the blocks that wait to be written, and ReadyBytes those that were
	// read and not taken. At least one block each.
	QueueBytes, ReadyBytes int
	// Ready, where set, hears of every block that was read, and Failed of what went wrong, from
	// the store's goroutines.
	Ready  func()
	Failed func(error)
}

// segmentBytes is about how large a segment becomes.
const segmentBytes = 64 << 20

// Stats counts what a Store has and did. The first two are of now.
type Stats struct {
	Blocks, Bytes                     int64
	Written, Read, Dropped, Corrupted uint64 // blocks
}

// Store keeps blocks on disk.
type Store struct {
	cfg    Config
	format format
	dir    string // of the space
	lock   *os.File
	puts   chan put
	wakes  chan struct{} // capacity 1: the reader has something to do
	done   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	index    map[ID]place
	writing  map[ID]bool
	segments []*segment    // the oldest first; the last is written to
	number   int           // of the newest segment
	others   []other       // files of other spaces, the oldest first
	total    int64         // bytes of all files
	wanted   []ID          // to be read, in order
	ready    map[ID][]byte // read, and not taken
	stats    Stats
	rate     Rate
	retryAt  time.Time
}

// other is a file of another space.
type other struct {
	name  string
	bytes int64
}

type put struct {
	id    ID
	block []byte
}

// Open takes the folder and reads which blocks it has.
func Open(cfg Config) (*Store, error) {
	if cfg.BlockBytes < 1 || cfg.BytesMax < 1 {
		return nil, errors.New("disk: blocks and limit must be at least one byte long")
	}
	s := &Store{
		cfg: cfg, format: format{blockBytes: cfg.BlockBytes}, index: map[ID]place{}, writing: map[ID]bool{}, ready: map[ID][]byte{},
		puts: make(chan put, max(1, cfg.QueueBytes/cfg.BlockBytes)), wakes: make(chan struct{}, 1), rate: Rate{Start: startPerByte},
	}
	if len(cfg.Key) > 0 {
		c, err := aes.NewCipher(cfg.Key)
		if err != nil {
			return nil, fmt.Errorf("disk: the key: %w", err)
		}
		s.format.sealer, _ = cipher.NewGCM(c) // fails for other block sizes only
	}
	space := fmt.Sprintf("%016x", xxh3.HashString(cfg.Space))
	s.dir = filepath.Join(cfg.Dir, space)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if s.lock, err = lockFile(filepath.Join(cfg.Dir, "lock")); err != nil {
		return nil, fmt.Errorf("disk: %s belongs to another process: %w", cfg.Dir, err)
	}
	if err := s.load(space); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	s.done.Go(s.write)
	s.done.Go(s.read)
	return s, nil
}

// load reads the index, and what other spaces take.
func (s *Store) load(space string) error {
	names, err := filepath.Glob(filepath.Join(s.cfg.Dir, "*", "*.kv"))
	if err != nil {
		return err
	}
	slices.Sort(names) // numbers have one length
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			continue
		}
		s.total += info.Size()
		if filepath.Base(filepath.Dir(name)) != space {
			s.others = append(s.others, other{name, info.Size()})
			continue
		}
		g, err := openSegment(name, &s.format)
		if err != nil {
			s.stats.Corrupted++
			s.others = append(s.others, other{name, info.Size()}) // goes first where room is short
			s.failed(err)
			continue
		}
		var n int
		if _, err := fmt.Sscanf(filepath.Base(name), "%d.kv", &n); err == nil {
			s.number = max(s.number, n)
		}
		s.segments = append(s.segments, g)
		for i, id := range g.ids {
			s.index[id] = place{g, headerBytes + int64(i*s.format.recordBytes())}
		}
	}
	s.trim()
	return nil
}

func (s *Store) failed(err error) {
	if s.cfg.Failed != nil {
		s.cfg.Failed(err)
	}
}

// Has reports whether a block can be read, or will be once it is written.
func (s *Store) Has(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.index[id]
	return there || s.writing[id]
}

// Count is how many of the first ids can be read.
func (s *Store) Count(ids []ID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		if _, there := s.index[id]; !there {
			return i
		}
	}
	return len(ids)
}

// ReadTime is how long reading one block is expected to take.
func (s *Store) ReadTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rate.At(time.Now()) * float64(s.cfg.BlockBytes))
}

// Stats are the counts up to now.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.stats
	t.Blocks, t.Bytes = int64(len(s.index)), s.total
	return t
}

// Close writes what waits, and gives the folder back.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.puts)
	s.mu.Unlock()
	s.wake()
	s.done.Wait()
	var err error
	for _, g := range s.segments {
		err = errors.Join(err, g.file.Close())
	}
	return errors.Join(err, s.lock.Close())
}

func (s *Store) wake() {
	select {
	case s.wakes <- struct{}{}:
	default:
	}
}
