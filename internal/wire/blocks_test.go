package wire

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestBlockChangesAreHeardOnce: changes of steps that send nothing come with
// the next frame; a reader of all states hears each change once, and knows
// where there were too many.
func TestBlockChangesAreHeardOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, e *changingEngine, _ *Generation) {
		total := *e.state.Load()
		var n, heard uint64
		step := func(changes int) *State {
			for range changes {
				heard++
				total.AddBlock(BlockChange{Hash: heard})
			}
			total.Step++
			s := total
			e.state.Store(&s)
			return &s
		}
		for round, changes := range []int{0, 1, 50, 3, 0, 7} {
			for range 4 {
				step(changes)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			_, _, missed := c.State().BlocksAfter(n)
			if got := c.State().BlocksBefore + uint64(len(c.State().Blocks)); got != heard || missed {
				t.Errorf("round %d: heard of %d changes of %d, missed %v", round, got, heard, missed)
			}
			n = heard
		}
		step(frameBytesLeast)
		time.Sleep(time.Second)
		if _, got, missed := c.State().BlocksAfter(n); got != heard || !missed {
			t.Errorf("too many: heard of %d of %d, missed %v", got, heard, missed)
		}
	})
}

func TestAddBlockIsBounded(t *testing.T) {
	var s State
	for i := range 10 * blocksKept {
		s.AddBlock(BlockChange{Hash: uint64(i)})
		if last := s.Blocks[len(s.Blocks)-1].Hash; len(s.Blocks) > 2*blocksKept || last != s.BlocksBefore+uint64(len(s.Blocks))-1 {
			t.Fatalf("after %d: %d kept from %d, the last is %d", i, len(s.Blocks), s.BlocksBefore, last)
		}
	}
	news, heard, missed := s.BlocksAfter(10*blocksKept - 2)
	if len(news) != 2 || heard != 10*blocksKept || missed {
		t.Errorf("%d new, %d heard, missed %v", len(news), heard, missed)
	}
}
