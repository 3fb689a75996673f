package hitmap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func Example() {
	var journal Journal
	var reader Reader
	var set Set
	journal.Add(Change{Hash: 1})
	journal.Add(Change{Hash: 2})
	set.Follow(reader.Read(&journal))
	fmt.Println(set.Match([]uint64{1, 2, 3}), "blocks are held")
	journal.Add(Change{Hash: 2, Evicted: true})
	set.Follow(reader.Read(&journal))
	fmt.Println(set.Match([]uint64{1, 2, 3}), "block is held")
	// Output:
	// 2 blocks are held
	// 1 block is held
}

func TestJournalIsBounded(t *testing.T) {
	for _, limit := range []int{1, 2, 3, 7, 64, 0} {
		j := Journal{Max: limit}
		most := limit
		if limit == 0 {
			most = JournalMax
		}
		for i := range uint64(3 * most) {
			j.Add(Change{Hash: i})
			n := len(j.Changes)
			if n > most || n < most/2 && j.Before > 0 || j.End() != i+1 {
				t.Fatalf("limit %d: %d changes from %d after %d", limit, n, j.Before, i+1)
			}
			if j.Changes[n-1].Hash != i || j.Changes[0].Hash != j.Before {
				t.Fatalf("limit %d: changes %d to %d, numbered from %d", limit, j.Changes[0].Hash, j.Changes[n-1].Hash, j.Before)
			}
		}
	}
}

// TestCopiesOfAJournalStayAsTheyAre: readers of old step reports read memory
// that the journal has left behind or only appends to.
func TestCopiesOfAJournalStayAsTheyAre(t *testing.T) {
	j := Journal{Max: 8}
	var copies []Journal
	for i := range uint64(40) {
		j.Add(Change{Hash: i})
		copies = append(copies, j)
	}
	for i, c := range copies {
		if c.End() != uint64(i+1) || c.Changes[len(c.Changes)-1].Hash != uint64(i) || c.Changes[0].Hash != c.Before {
			t.Errorf("copy %d has become %+v", i, c)
		}
	}
}

func TestReaderHearsEachChangeOnce(t *testing.T) {
	j := Journal{Max: 100}
	var r Reader
	var heard []Change
	for i := range uint64(90) {
		j.Add(Change{Hash: i})
		if i%7 == 0 {
			news := r.Read(&j)
			if heard = append(heard, news.Changes...); news.Missed {
				t.Error("nothing was forgotten, and the reader missed some")
			}
		}
	}
	older := Journal{Changes: j.Changes[:10]}
	if news := r.Read(&older); news.Missed || len(news.Changes) > 0 {
		t.Errorf("an older copy has news: %+v", news)
	}
	if heard = append(heard, r.Read(&j).Changes...); !slices.Equal(heard, j.Changes) {
		t.Errorf("heard %v", heard)
	}
	if news := r.Read(&j); news.Missed || len(news.Changes) > 0 {
		t.Errorf("news twice: %+v", news)
	}
}

func TestExtendJoinsWhatIsAdjacent(t *testing.T) {
	changes := make([]Change, 12)
	for i := range changes {
		changes[i].Hash = uint64(i)
	}
	had := Journal{Before: 2, Changes: changes[2:5:5], Max: 8}
	for name, c := range map[string]struct {
		next         Journal
		before, size uint64
	}{
		"adjacent":            {Journal{Before: 5, Changes: changes[5:8]}, 2, 6},
		"adjacent, too many":  {Journal{Before: 5, Changes: changes[5:12]}, 6, 6},
		"nothing new":         {Journal{Before: 5}, 2, 3},
		"some between missed": {Journal{Before: 6, Changes: changes[6:8]}, 6, 2},
		"another engine":      {Journal{Changes: changes[:1]}, 0, 1},
	} {
		got := had.Extend(c.next)
		if got.Before != c.before || uint64(len(got.Changes)) != c.size || got.End() != c.next.End() {
			t.Errorf("%s: %d changes from %d, want %d from %d", name, len(got.Changes), got.Before, c.size, c.before)
		}
		for i, change := range got.Changes {
			if change.Hash != got.Before+uint64(i) {
				t.Errorf("%s: change %d is %d", name, i, change.Hash)
			}
		}
	}
}

func TestMatchCountsLeadingBlocks(t *testing.T) {
	var s Set
	if s.Match([]uint64{1}) != 0 || s.Match(nil) != 0 {
		t.Error("an empty set matches")
	}
	s.Follow(News{Changes: []Change{{Hash: 1}, {Hash: 2}, {Hash: 4}, {Hash: 5}, {Hash: 5, Evicted: true}, {Hash: 9, Evicted: true}}})
	for _, c := range []struct {
		blocks []uint64
		want   int
	}{{[]uint64{1, 2, 3, 4}, 2}, {[]uint64{1, 2, 4}, 3}, {[]uint64{5, 1}, 0}, {[]uint64{3, 1}, 0}} {
		if got := s.Match(c.blocks); got != c.want {
			t.Errorf("%v: %d blocks match, want %d", c.blocks, got, c.want)
		}
	}
	if s.Follow(News{Missed: true, Changes: []Change{{Hash: 4}}}); s.Len() != 1 || !s.Holds(4) {
		t.Errorf("%d blocks after a fresh start", s.Len())
	}
}

// TestSetNeverStaysWrong plays random changes to a set of blocks and lets a
// reader follow now and then, through a second journal as a client's. What it
// holds is held at that moment, and it holds everything until it has missed a
// change. The control follows the same changes without starting afresh.
func TestSetNeverStaysWrong(t *testing.T) {
	missed, wrong := 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		truth := map[uint64]bool{}
		engine, client := Journal{Max: 1 + r.IntN(20)}, Journal{Max: 1 + r.IntN(20)}
		var sent, read Reader
		var set, control Set
		complete := true
		for range 300 {
			hash := uint64(r.IntN(10))
			engine.Add(Change{Hash: hash, Evicted: truth[hash]})
			truth[hash] = !truth[hash]
			if r.IntN(5) == 0 { // a step report reaches the client
				news := sent.Read(&engine)
				client = client.Extend(Journal{Before: engine.End() - uint64(len(news.Changes)), Changes: news.Changes, Max: client.Max})
			}
			if r.IntN(10) > 0 || client.End() != engine.End() {
				continue
			}
			news := read.Read(&client)
			if news.Missed {
				missed++
				complete = false
			}
			set.Follow(news)
			control.Follow(News{Changes: news.Changes})
			for hash := range uint64(10) {
				if set.Holds(hash) && !truth[hash] || complete && set.Holds(hash) != truth[hash] {
					t.Fatalf("seed %d: block %d is held: %v; the set says %v", seed, hash, truth[hash], set.Holds(hash))
				}
				if control.Holds(hash) && !truth[hash] {
					wrong++
				}
			}
		}
	}
	if missed == 0 || wrong == 0 {
		t.Errorf("changes were missed %d times, and the control was wrong %d times: the play proves nothing", missed, wrong)
	}
}

func TestFollowingAllocatesNothing(t *testing.T) {
	var j Journal
	var r Reader
	var s Set
	i := uint64(0)
	step := func() {
		for range 8 {
			j.Add(Change{Hash: i % 512, Evicted: i/512%2 == 1})
			i++
		}
		s.Follow(r.Read(&j))
	}
	for range 4 * JournalMax / 8 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	var s Set
	blocks := make([]uint64, 512)
	for i := range blocks {
		blocks[i] = rand.Uint64()
		s.Apply(Change{Hash: blocks[i]})
	}
	for b.Loop() {
		if s.Match(blocks) != len(blocks) {
			b.Fatal("not all match")
		}
	}
}
