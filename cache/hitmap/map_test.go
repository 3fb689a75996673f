package hitmap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

func ExampleMap() {
	m, _ := NewMap(1000)
	a, _ := m.Begin("a")
	b, _ := m.Begin("b")
	for _, hash := range []uint64{1, 2, 3} {
		m.Apply(a, Change{Hash: hash})
	}
	m.Apply(b, Change{Hash: 1})
	for _, h := range m.Match([]uint64{1, 2, 3, 4}, nil) {
		fmt.Println(m.Name(h.Slot), "holds", h.Blocks)
	}
	m.Begin("a") // its engine has started again
	for _, h := range m.Match([]uint64{1, 2, 3, 4}, nil) {
		fmt.Println(m.Name(h.Slot), "holds", h.Blocks)
	}
	// Output:
	// a holds 3
	// b holds 1
	// b holds 1
}

// twin is a Map without its tricks: a list in the order of use.
type twin struct {
	max    int
	blocks []twinBlock // the oldest first
	alive  []string
}

type twinBlock struct {
	hash uint64
	held map[string]bool
}

func (w *twin) find(hash uint64) int {
	return slices.IndexFunc(w.blocks, func(b twinBlock) bool { return b.hash == hash })
}

func (w *twin) touch(i int) {
	b := w.blocks[i]
	w.blocks = append(slices.Delete(w.blocks, i, i+1), b)
}

func (w *twin) end(replica string) {
	w.alive = slices.DeleteFunc(w.alive, func(s string) bool { return s == replica })
	for _, b := range w.blocks {
		delete(b.held, replica)
	}
}

func (w *twin) apply(replica string, c Change) {
	i := w.find(c.Hash)
	switch {
	case c.Evicted && i >= 0:
		if had := w.blocks[i].held[replica]; had {
			delete(w.blocks[i].held, replica)
			if len(w.blocks[i].held) == 0 {
				w.blocks = slices.Delete(w.blocks, i, i+1)
			}
		}
	case c.Evicted:
	case i >= 0:
		w.blocks[i].held[replica] = true
		w.touch(i)
	default:
		if len(w.blocks) == w.max {
			w.blocks = w.blocks[1:]
		}
		w.blocks = append(w.blocks, twinBlock{c.Hash, map[string]bool{replica: true}})
	}
}

func (w *twin) match(blocks []uint64) map[string]int {
	all := map[string]int{}
	for i, hash := range blocks {
		if at := w.find(hash); at >= 0 {
			for replica := range w.blocks[at].held {
				all[replica] = i + 1
			}
		}
	}
	return all
}

// TestMapAgainstTwin plays random changes, uses, starts and ends of replicas. A
// block that only ended replicas held stays in the twin's list, as in the Map, until
// a sweep: so the number of replicas is below that at which one comes, and the sweep
// has a test of its own.
func TestMapAgainstTwin(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		limit := 1 + r.IntN(40)
		m, err := NewMap(limit)
		if err != nil {
			t.Fatal(err)
		}
		w := &twin{max: limit}
		slots := map[string]Slot{}
		var script []string
		for range 600 {
			replica := fmt.Sprint("r", r.IntN(5))
			hash := uint64(r.IntN(60)) << 4 // as of one in sixteen
			switch action := r.IntN(20); {
			case action == 0:
				script = append(script, "begin "+replica)
				s, ok := m.Begin(replica)
				if !ok {
					t.Skip("no slot is free; the play is too long")
				}
				w.end(replica)
				slots[replica], w.alive = s, append(w.alive, replica)
			case action == 1:
				script = append(script, "end "+replica)
				m.End(replica)
				w.end(replica)
				delete(slots, replica)
			case action < 5:
				blocks := []uint64{hash, hash + 16, hash + 32}
				script = append(script, fmt.Sprint("use ", blocks))
				m.Use(blocks)
				for _, b := range slices.Backward(blocks) {
					if i := w.find(b); i >= 0 {
						w.touch(i)
					}
				}
			default:
				s, ok := slots[replica]
				if !ok {
					continue
				}
				c := Change{Hash: hash, Evicted: r.IntN(3) == 0}
				script = append(script, fmt.Sprint("apply ", replica, " ", c))
				m.Apply(s, c)
				w.apply(replica, c)
			}
			compare(t, m, w, slots)
			if t.Failed() {
				t.Fatalf("seed %d, limit %d:\n%v", seed, limit, script)
			}
		}
	}
}

func compare(t *testing.T, m *Map, w *twin, slots map[string]Slot) {
	t.Helper()
	if m.Len() != len(w.blocks) {
		t.Errorf("%d blocks, want %d", m.Len(), len(w.blocks))
	}
	for at := uint64(0); at < 60; at += 7 {
		blocks := []uint64{at << 4, (at + 3) << 4, (at + 5) << 4, (at + 1) << 4}
		want := w.match(blocks)
		last := len(blocks)
		for _, h := range m.Match(blocks, nil) {
			if want[m.Name(h.Slot)] != h.Blocks || h.Blocks > last {
				t.Errorf("%v: %s holds %d, want %v", blocks, m.Name(h.Slot), h.Blocks, want)
			}
			last = h.Blocks
			delete(want, m.Name(h.Slot))
		}
		if len(want) > 0 {
			t.Errorf("%v: nothing known of %v", blocks, want)
		}
	}
	for replica, s := range slots {
		var want []uint64
		for _, b := range slices.Backward(w.blocks) {
			if b.held[replica] {
				want = append(want, b.hash)
			}
		}
		if got := held(m, s); !slices.Equal(got, want) || m.Claims(s) != len(want) {
			t.Errorf("%s holds %v and claims %d, want %v", replica, got, m.Claims(s), want)
		}
	}
}

// held are the blocks that a live replica holds, the newest first.
func held(m *Map, s Slot) (blocks []uint64) {
	for id := m.entries[none].older; id != none; id = m.entries[id].older {
		if e := &m.entries[id]; e.held.has(s) {
			blocks = append(blocks, e.hash)
		}
	}
	return blocks
}

// TestRetiredSlotsComeBack: one replica restarts far more often than there are slots,
// beside one whose claims stay.
func TestRetiredSlotsComeBack(t *testing.T) {
	m, err := NewMap(100)
	if err != nil {
		t.Fatal(err)
	}
	stays, _ := m.Begin("stays")
	m.Apply(stays, Change{Hash: 1})
	m.Apply(stays, Change{Hash: 2})
	for i := range 3 * ReplicasMax {
		s, ok := m.Begin("restarts")
		if !ok {
			t.Fatalf("no slot at start %d", i)
		}
		if got := m.Match([]uint64{1, 2, 3}, nil); len(got) != 1 || got[0] != (Hold{stays, 2}) {
			t.Fatalf("start %d: %v", i, got)
		}
		m.Apply(s, Change{Hash: 1})
		m.Apply(s, Change{Hash: 3})
		if got := m.Match([]uint64{1, 2, 3}, nil); len(got) != 2 || got[0] != (Hold{s, 3}) || m.Claims(s) != 2 {
			t.Fatalf("start %d: %v, %d claims", i, got, m.Claims(s))
		}
	}
	for i := range ReplicasMax {
		_, ok := m.Begin(fmt.Sprint(i))
		if want := i < ReplicasMax-2; ok != want {
			t.Fatalf("replica %d beside two: %v", i, ok)
		}
	}
	if m.Claims(stays) != 2 {
		t.Errorf("%d claims are left", m.Claims(stays))
	}
}

func TestMapLimits(t *testing.T) {
	for _, n := range []int{0, -1, BlocksMost + 1} {
		if _, err := NewMap(n); err == nil {
			t.Errorf("a map of %d blocks", n)
		}
	}
	for _, n := range []int{1, 1000, 1 << 20, 1<<20 + 1} {
		m, err := NewMap(n)
		if err != nil {
			t.Fatal(err)
		}
		size := len(m.entries)*int(unsafe.Sizeof(entry{})) + 4*len(m.buckets)
		if each := float64(size) / float64(n+1); each > 64 {
			t.Errorf("%d blocks take %.1f bytes each", n, each)
		}
	}
	m, _ := NewMap(1)
	a, _ := m.Begin("a")
	m.Apply(a, Change{Hash: 1})
	m.Apply(a, Change{Hash: 2})
	if m.Len() != 1 || m.Evicted() != 1 || m.Claims(a) != 1 {
		t.Errorf("%d blocks, %d evicted, %d claims", m.Len(), m.Evicted(), m.Claims(a))
	}
}

func TestMapAllocatesNothing(t *testing.T) {
	m, _ := NewMap(1 << 12)
	a, _ := m.Begin("a")
	b, _ := m.Begin("b")
	into := make([]Hold, 0, 2)
	prompt := make([]uint64, 64)
	next := uint64(0)
	step := func() {
		for i := range prompt {
			next++
			prompt[i] = next
			m.Apply(a, Change{Hash: next})
			m.Apply(b, Change{Hash: next - 40})
			m.Apply(b, Change{Hash: next - 90, Evicted: true})
		}
		m.Use(prompt)
		into = m.Match(prompt, into[:0])
	}
	for range 200 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// BenchmarkMapMatch looks up a prompt of 32,768 tokens in pages of 16, in a full map
// of a million blocks: held by one of eight replicas, and by none.
func BenchmarkMapMatch(b *testing.B) {
	m, err := NewMap(1 << 20)
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var slots []Slot
	for i := range 8 {
		s, _ := m.Begin(fmt.Sprint(i))
		slots = append(slots, s)
	}
	const blocks = 2048
	var prompts [][]uint64
	for m.Len() < 1<<20 {
		prompt := make([]uint64, blocks)
		for i := range prompt {
			prompt[i] = r.Uint64()
			m.Apply(slots[len(prompts)%8], Change{Hash: prompt[i]})
		}
		prompts = append(prompts, prompt)
	}
	for _, c := range []struct {
		name string
		salt uint64
		want int
	}{{"held", 0, blocks}, {"unknown", 1, 0}} {
		b.Run(c.name, func(b *testing.B) {
			into := make([]Hold, 0, 8)
			prompt := make([]uint64, blocks)
			n := 0
			for b.Loop() {
				for i, hash := range prompts[n%len(prompts)] {
					prompt[i] = hash + c.salt
				}
				n += 101
				into = m.Match(prompt, into[:0])
				if c.want > 0 && (len(into) != 1 || into[0].Blocks != c.want) || c.want == 0 && len(into) > 0 {
					b.Fatal(into)
				}
			}
		})
	}
}
