package disk

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const blockBytes = 3000

// content is a block's bytes, which its id decides.
func content(id ID) []byte {
	r, b := rand.New(rand.NewPCG(id.Hash, id.Check)), make([]byte, blockBytes)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func open(t *testing.T, dir string, change func(*Config)) *Store {
	t.Helper()
	c := Config{Dir: dir, Space: "model", BlockBytes: blockBytes, BytesMax: 1 << 30, QueueBytes: 1 << 20, ReadyBytes: 1 << 20}
	if change != nil {
		change(&c)
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fill puts n blocks and waits until they are written.
func fill(t *testing.T, s *Store, from, n int) (ids []ID) {
	t.Helper()
	for i := range n {
		id := ID{uint64(from + i), ^uint64(from + i)}
		for s.Room() == 0 {
			time.Sleep(time.Millisecond)
		}
		s.Put(id, func(b []byte) { copy(b, content(id)) })
		ids = append(ids, id)
	}
	eventually(t, "the blocks are written", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.writing) == 0
	})
	return ids
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

// take fetches a block and waits for it; nil where there is none.
func take(t *testing.T, s *Store, id ID) (block []byte) {
	t.Helper()
	s.Fetch([]ID{id})
	eventually(t, "a block is read", func() bool {
		var coming bool
		block, coming = s.Take(id)
		return block != nil || !coming
	})
	return block
}

// TestBlocksOutliveTheProcess: what was put is read, bit by bit, also after a restart, with
// a key and without.
func TestBlocksOutliveTheProcess(t *testing.T) {
	for name, key := range map[string][]byte{"plain": nil, "encrypted": bytes.Repeat([]byte{7}, 32)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			withKey := func(c *Config) { c.Key = key }
			s := open(t, dir, withKey)
			ids := fill(t, s, 0, 50)
			for again := range 2 {
				for _, id := range ids {
					if got := take(t, s, id); !bytes.Equal(got, content(id)) {
						t.Fatalf("round %d: block %v is not what was put", again, id)
					}
				}
				if st := s.Stats(); st.Blocks != 50 || st.Dropped+st.Corrupted != 0 {
					t.Errorf("%+v", st)
				}
				if s.Count(append(slices.Clone(ids[:9]), ID{99, 99})) != 9 || s.Has(ID{99, 99}) {
					t.Error("it has what it has not")
				}
				s.Close()
				s = open(t, dir, withKey)
			}
			raw, err := os.ReadFile(filepath.Join(s.dir, "0000000001.kv"))
			if err != nil || bytes.Contains(raw, content(ids[3])) != (key == nil) {
				t.Errorf("the file has the block in plain bytes: %v, %v", key == nil, err)
			}
		})
	}
}

// TestDamagedFiles: what is cut, changed, foreign or of another key is passed over, and
// the rest is read.
func TestDamagedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		harm   func(raw []byte) []byte
		change func(*Config)
		left   int // of 20 blocks
	}{
		"cut in the last record": {harm: func(b []byte) []byte { return b[:len(b)-1] }, left: 19},
		"one bit":                {harm: func(b []byte) []byte { b[headerBytes+5*(idBytes+blockBytes)+1000] ^= 4; return b }, left: 19},
		"an id":                  {harm: func(b []byte) []byte { b[headerBytes+5*(idBytes+blockBytes)] ^= 4; return b }, left: 19},
		"the header":             {harm: func(b []byte) []byte { b[0] = 'x'; return b }},
		"empty":                  {harm: func([]byte) []byte { return nil }},
		"another key":            {change: func(c *Config) { c.Key = bytes.Repeat([]byte{8}, 16) }},
		"another length":         {change: func(c *Config) { c.BlockBytes = blockBytes + 1 }},
		"another space":          {change: func(c *Config) { c.Space = "other" }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, nil)
			ids := fill(t, s, 0, 20)
			s.Close()
			if c.harm != nil {
				path := filepath.Join(s.dir, "0000000001.kv")
				raw, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(path, c.harm(raw), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			s = open(t, dir, c.change)
			left := 0
			for _, id := range ids {
				switch got := take(t, s, id); {
				case bytes.Equal(got, content(id)):
					left++
				case got != nil:
					t.Errorf("block %v has other bytes", id)
				}
			}
			if left != c.left {
				t.Errorf("%d of 20 blocks are left, want %d", left, c.left)
			}
			fill(t, s, 100, 3) // it goes on
		})
	}
}

// TestLimits: the folder stays within its size, the oldest goes first, other models' files before all.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	other := open(t, dir, func(c *Config) { c.Space = "other" })
	fill(t, other, 0, 100)
	other.Close()
	const most = 3 * segmentBytes
	big := func(c *Config) { c.BlockBytes, c.BytesMax, c.QueueBytes = 8<<20, most, 64<<20 }
	s := open(t, dir, big)
	size := func() (n int64) {
		names, _ := filepath.Glob(filepath.Join(dir, "*", "*.kv"))
		for _, name := range names {
			if info, err := os.Stat(name); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	ids := fill(t, s, 0, 60)
	if n := size(); n > most || n < most/2 || s.Stats().Bytes != n {
		t.Errorf("%d bytes in the folder, counted %d, limit %d", n, s.Stats().Bytes, most)
	}
	if names, _ := filepath.Glob(filepath.Join(other.dir, "*.kv")); len(names) != 0 {
		t.Errorf("files of another model are still there: %v", names)
	}
	if s.Has(ids[0]) || !s.Has(ids[59]) {
		t.Error("the oldest is there, or the newest is not")
	}
	if _, err := Open(s.cfg); err == nil {
		t.Error("a second process took the folder")
	}
}

// TestSlowDiskCostsBlocks and not time: what finds no room in the queue is dropped and counted.
func TestSlowDiskCostsBlocks(t *testing.T) {
	s := open(t, t.TempDir(), func(c *Config) { c.QueueBytes = 1 })
	for i := range 1000 {
		s.Put(ID{uint64(i), 2}, func([]byte) {})
	}
	fill(t, s, 5000, 1)
	if st := s.Stats(); st.Dropped == 0 || st.Dropped+st.Written != 1001 || st.Blocks != int64(st.Written) {
		t.Errorf("%+v", st)
	}
}

// TestFailedWrites pause the writing, and are told.
func TestFailedWrites(t *testing.T) {
	told := make(chan error, 100)
	s := open(t, t.TempDir(), func(c *Config) { c.Failed = func(err error) { told <- err } })
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	s.Put(ID{1, 1}, func([]byte) {})
	if err := <-told; err == nil {
		t.Error("no error")
	}
	if s.Room() != 0 || s.Has(ID{1, 1}) {
		t.Error("it goes on as if it had been written")
	}
}

// TestReadyBlocksAreBounded: what nobody takes keeps others from being read, until it is forgotten.
func TestReadyBlocksAreBounded(t *testing.T) {
	s := open(t, t.TempDir(), func(c *Config) { c.ReadyBytes = 3 * blockBytes })
	ids := fill(t, s, 0, 10)
	s.Fetch(ids)
	eventually(t, "three are ready", func() bool { return s.Stats().Read == 3 })
	time.Sleep(20 * time.Millisecond)
	if n := s.Stats().Read; n != 3 {
		t.Errorf("%d blocks were read into room for 3", n)
	}
	s.Forget(ids[:9])
	eventually(t, "the last is ready", func() bool { b, _ := s.Take(ids[9]); return b != nil })
}
