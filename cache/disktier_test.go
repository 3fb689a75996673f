package cache

import "testing"

// shelf is the cache on disk, as far as hits go: blocks in the order in which they were
// written, of which the oldest goes first.
type shelf struct {
	max   int
	order []uint64
	on    map[uint64]bool
}

func (s *shelf) put(block uint64) {
	if s.on[block] {
		return
	}
	s.on[block] = true
	if s.order = append(s.order, block); len(s.order) > s.max {
		delete(s.on, s.order[0])
		s.order = s.order[1:]
	}
}

// after counts the blocks from the first on that are on the shelf.
func (s *shelf) after(blocks []uint64) (n int) {
	for n < len(blocks) && s.on[blocks[n]] {
		n++
	}
	return n
}

// What the disk adds to memory, over a day of conversations: the pool is the real one, and
// what is read from the shelf is committed as what is computed is. Every block is written
// when its request has ended.
func TestWhatTheDiskAdds(t *testing.T) {
	prompts := conversation(t)
	for _, c := range []struct{ pages, disk int }{{1000, 10_000}, {1000, 100_000}, {5000, 50_000}, {5000, 200_000}, {20_000, 200_000}} {
		p := newPool(t, Config{Pages: c.pages, PageTokens: 4, Space: "trace"})
		s := &shelf{max: c.disk, on: map[uint64]bool{}}
		var all, memory, disk int
		for _, blocks := range prompts {
			found := conversed(t, p, blocks)
			all, memory, disk = all+len(blocks), memory+found, disk+s.after(blocks[found:])
			for _, b := range blocks {
				s.put(b)
			}
		}
		rate := func(n int) float64 { return 100 * float64(n) / float64(all) }
		t.Logf("%5d blocks in memory, %6d on disk: %5.2f %% are found in memory, %5.2f %% more on disk", c.pages, c.disk, rate(memory), rate(disk))
		if disk <= memory/10 || memory+disk > all {
			t.Errorf("%+v: %d of %d blocks in memory, %d on disk", c, memory, all, disk)
		}
	}
}
