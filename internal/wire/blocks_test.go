package wire

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// journalingEngine is a changingEngine with blocks. Block i is evicted when block
// i + life is added.
type journalingEngine struct {
	*changingEngine
	total State
	life  uint64
	next  uint64
	held  map[uint64]bool
}

func (e *journalingEngine) step(blocks int) {
	for range blocks {
		e.total.Blocks.Add(hitmap.Change{Hash: e.next})
		e.held[e.next] = true
		if e.next >= e.life {
			e.total.Blocks.Add(hitmap.Change{Hash: e.next - e.life, Evicted: true})
			delete(e.held, e.next-e.life)
		}
		e.next++
	}
	e.total.Step++
	s := e.total
	e.state.Store(&s)
}

// strangers counts the blocks of set that the engine does not hold.
func (e *journalingEngine) strangers(set *hitmap.Set) int {
	n := set.Len()
	for hash := range e.held {
		if set.Holds(hash) {
			n--
		}
	}
	return n
}

// TestBlockChangesAreHeardOnce: changes of steps that send nothing come with
// the next frame, and a reader of all states hears each change once.
func TestBlockChangesAreHeardOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, changing *changingEngine, _ *Generation) {
		e := &journalingEngine{changingEngine: changing, life: 1 << 20, held: map[uint64]bool{}}
		var reader hitmap.Reader
		heard := uint64(0)
		for round, blocks := range []int{0, 1, 50, 3, 0, 7} {
			for range 4 {
				e.step(blocks)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			news := reader.Read(&c.State().Blocks)
			for _, change := range news.Changes {
				if change.Hash != heard || change.Evicted {
					t.Fatalf("round %d: change %d is %+v", round, heard, change)
				}
				heard++
			}
			if heard != e.next || news.Missed {
				t.Errorf("round %d: heard of %d changes of %d, missed %v", round, heard, e.next, news.Missed)
			}
		}
	})
}

// TestMirrorBehindASocketStartsAfresh: changes that the engine's journal has
// forgotten, or that no frame had room for, make the reader of the client's
// states start afresh, so that its set holds no block that the engine does not.
// The control ignores that it has missed changes, and must go wrong.
func TestMirrorBehindASocketStartsAfresh(t *testing.T) {
	for name, c := range map[string]struct{ journalMax, blocks int }{
		"the engine's journal is short": {64, 100},
		"a frame is short":              {0, frameBytesLeast / 8 / blockChangeBytes},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, client *Client, changing *changingEngine, _ *Generation) {
				e := &journalingEngine{changingEngine: changing, life: 20, held: map[uint64]bool{}}
				e.total.Blocks.Max = c.journalMax
				var reader hitmap.Reader
				var mirror, careless hitmap.Set
				follow := func() (missed bool) {
					time.Sleep(time.Second)
					synctest.Wait()
					news := reader.Read(&client.State().Blocks)
					mirror.Follow(news)
					careless.Follow(hitmap.News{Changes: news.Changes})
					return news.Missed
				}
				if e.step(20); follow() || mirror.Len() != 20 {
					t.Fatalf("%d of 20 blocks are known at first", mirror.Len())
				}
				if e.step(c.blocks); !follow() {
					t.Error("the reader is not told that it missed changes")
				}
				if mirror.Len() == 0 || e.strangers(&mirror) > 0 {
					t.Errorf("the mirror holds %d blocks, %d of them are not the engine's", mirror.Len(), e.strangers(&mirror))
				}
				if e.strangers(&careless) == 0 {
					t.Error("the control: a set that ignores what it missed is right nevertheless")
				}
				for range 2 {
					if e.step(10); follow() {
						t.Error("the reader missed changes that were there")
					}
				}
				if mirror.Len() != 20 || e.strangers(&mirror) > 0 {
					t.Errorf("once all blocks have changed, the mirror holds %d of 20 and %d strangers", mirror.Len(), e.strangers(&mirror))
				}
			})
		})
	}
}
