package cache

import (
	"testing"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// TestMirrorOfAForgetfulPoolStartsAfresh: where the pool has forgotten changes
// that a reader has not heard, the reader is told so, and its set holds no
// block that the pool has evicted. The control follows the same changes and ignores
// that it has missed some: its set must go wrong.
func TestMirrorOfAForgetfulPoolStartsAfresh(t *testing.T) {
	p := newPool(t, Config{Pages: 8, PageTokens: 1, ChangesMax: 6})
	var reader hitmap.Reader
	var mirror, careless hitmap.Set
	follow := func() (missed bool) {
		journal := p.Journal()
		news := reader.Read(&journal)
		mirror.Follow(news)
		careless.Follow(hitmap.News{Changes: news.Changes})
		return news.Missed
	}
	run := func(first int32) []uint64 {
		tokens := count(5)
		tokens[0] = first
		s, _ := compute(t, p, "", tokens)
		p.Close(s)
		return p.hasher.Blocks("", tokens)
	}
	old := run(100)
	if follow() || mirror.Match(old) != 5 {
		t.Fatalf("%d of 5 blocks are known at first", mirror.Match(old))
	}
	for i := range int32(4) {
		run(i) // evicts the blocks of earlier runs
	}
	if !follow() {
		t.Error("the reader is not told that it missed changes")
	}
	if held := blocks(p); mirror.Len() == 0 || !within(&mirror, held) {
		t.Errorf("the mirror holds %d blocks that the pool has not, or none", mirror.Len())
	} else if within(&careless, held) {
		t.Error("the control: a set that ignores what it missed is right nevertheless")
	}
}

// blocks are the hashes of all blocks in the pool.
func blocks(p *Pool) map[uint64]bool {
	held := map[uint64]bool{}
	for i := range p.pages {
		if b := &p.pages[i].block; b.whole {
			held[b.hash] = true
		}
	}
	return held
}

// within reports whether set holds nothing but held.
func within(set *hitmap.Set, held map[uint64]bool) bool {
	n := 0
	for hash := range held {
		if set.Holds(hash) {
			n++
		}
	}
	return n == set.Len()
}
