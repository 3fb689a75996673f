package host

import (
	"bytes"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache/disk"
)

func id(n byte) disk.ID { return disk.ID{Hash: uint64(n), Check: uint64(n)} }

// TestTheBlockUsedLongestAgoGoes: a block is what was put, the limit holds, and memory is used
// again.
func TestTheBlockUsedLongestAgoGoes(t *testing.T) {
	s := New(4, 11) // room for two
	put := func(n byte) { s.Put(id(n), func(b []byte) { copy(b, bytes.Repeat([]byte{n}, 4)) }) }
	take := func(n byte, want bool) {
		t.Helper()
		got, coming := s.Take(id(n))
		if coming || (got != nil) != want || want && !bytes.Equal(got, bytes.Repeat([]byte{n}, 4)) {
			t.Errorf("block %d is %v", n, got)
		}
	}
	put(1)
	put(2)
	put(2)
	take(1, true)
	put(3)
	take(2, false)
	take(1, true)
	s.Fetch([]disk.ID{id(3)})
	put(4)
	take(1, false)
	take(3, true)
	if n := s.Count([]disk.ID{id(3), id(4), id(1)}); n != 2 || !s.Has(id(4)) || s.Has(id(1)) {
		t.Errorf("the first %d are there", n)
	}
	if got, want := s.Stats(), (disk.Stats{Blocks: 2, Bytes: 8, Written: 4, Read: 3, Dropped: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	put(5)
	take(5, false)
}

func TestNoRoom(t *testing.T) {
	s := New(4, 3)
	s.Put(id(1), func([]byte) { t.Error("a block was asked for that has no room") })
	if s.Room() != 0 || s.Has(id(1)) {
		t.Error("there is room for less than a block")
	}
}

func TestReadTimeIsLearned(t *testing.T) {
	s := New(1<<20, 1<<30)
	before := s.ReadTime()
	for range 50 {
		s.Copied(before / 2)
	}
	if got := s.ReadTime(); got < before/3 || got > before*2/3 {
		t.Errorf("%v where each copy took %v", got, before/2)
	}
	if before > time.Millisecond {
		t.Errorf("a mebibyte is expected to take %v", before)
	}
}
