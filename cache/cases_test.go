package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/forebay-io/forebay/cache/hitmap"
)

func newPool(t testing.TB, c Config) *Pool {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// compute runs a prompt to its end and leaves the sequence open. It returns
// how many tokens were attached.
func compute(t testing.TB, p *Pool, salt string, tokens []int32) (*Seq, int) {
	t.Helper()
	s := p.Open(salt, tokens)
	attached := s.Len()
	if _, ok := p.Reserve(s, len(tokens)-s.Len(), nil); !ok {
		t.Fatalf("no room for %d tokens in %+v", len(tokens), p.Counts())
	}
	p.Commit(s, tokens[s.Len():])
	check(t, p)
	return s, attached
}

func check(t testing.TB, p *Pool) {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
}

func count(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	return tokens
}

// Case D04.
func TestSaltsShareNoPages(t *testing.T) {
	p := newPool(t, Config{Pages: 8, PageTokens: 4})
	for _, run := range []struct {
		salt string
		want int
	}{{"a", 0}, {"b", 0}, {"a", 8}, {"b", 8}, {"", 0}} {
		s, attached := compute(t, p, run.salt, count(9))
		if p.Close(s); attached != run.want {
			t.Errorf("salt %q: %d tokens attached, want %d", run.salt, attached, run.want)
		}
	}
}

// TestCollidingHashesAttachOnlyEqualTokens makes hashes collide: a hit must still
// be the same tokens after the same tokens, and equal blocks must still be a hit.
//
// Case D05.
func TestCollidingHashesAttachOnlyEqualTokens(t *testing.T) {
	x, err := newScript(Config{Pages: 64, PageTokens: 4, hashBits: 8})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 5))
	attached := 0
	for i := range 2000 {
		name := fmt.Sprint("s", i)
		x.log = x.log[:0]
		line := "open " + name + " t"
		for range 5 + r.IntN(12) {
			line += fmt.Sprint(" ", r.IntN(3))
		}
		// The script compares contents and the twin's hits after each line.
		if err := x.runAll(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s := x.seqs[name]
		attached += s.Len()
		n := len(s.tokens) - s.Len()
		if err := x.runAll(fmt.Sprintf("reserve %s %d", name, n), fmt.Sprintf("commit %s %d", name, n), "close "+name); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if attached == 0 {
		t.Fatal("nothing was ever attached: the cache is off")
	}
}

// Case D06.
func TestWholePagesAreComputedOnceAgainForTheirLastToken(t *testing.T) {
	for k := range 6 {
		p := newPool(t, Config{Pages: 16, PageTokens: 4})
		tokens := count(max(1, 4*k))
		s, _ := compute(t, p, "", tokens)
		p.Close(s)
		s, attached := compute(t, p, "", tokens)
		if want := max(0, 4*k-4); attached != want {
			t.Errorf("%d tokens again: %d attached, want %d", len(tokens), attached, want)
		}
		if s.Len() != len(tokens) {
			t.Errorf("%d tokens again: length %d", len(tokens), s.Len())
		}
	}
}

// Case D07.
func TestEveryLengthAroundPageBorders(t *testing.T) {
	const pageTokens = 4
	for length := 1; length <= 3*pageTokens; length++ {
		p := newPool(t, Config{Pages: 16, PageTokens: pageTokens})
		tokens := count(length + pageTokens + 1) // the output crosses a border
		s, _ := compute(t, p, "", tokens[:length])
		for i := length; i < len(tokens); i++ {
			if _, ok := p.Reserve(s, 1, nil); !ok {
				t.Fatal("no room")
			}
			p.Commit(s, tokens[i:i+1])
			check(t, p)
			if want := i/pageTokens + 1; len(s.Pages()) != want || s.Len() != i+1 {
				t.Fatalf("%d tokens: length %d, %d pages, want %d", i+1, s.Len(), len(s.Pages()), want)
			}
		}
		p.Close(s)
		whole := len(tokens) / pageTokens
		if want := (Counts{Total: 16, Cached: whole, Free: 16 - whole}); p.Counts() != want {
			t.Errorf("%d tokens: %+v after close, want %+v", len(tokens), p.Counts(), want)
		}
		if got, want := p.Match("", tokens), (len(tokens)-1)/pageTokens*pageTokens; got != want {
			t.Errorf("%d tokens: %d match, want %d", len(tokens), got, want)
		}
	}
}

// TestOnlyComputedBlocksAreFoundAfterClose closes a sequence after each number of
// computed tokens: only their whole blocks are found afterwards.
//
// Case D12.
func TestOnlyComputedBlocksAreFoundAfterClose(t *testing.T) {
	tokens := count(20)
	for computed := range 20 {
		p := newPool(t, Config{Pages: 8, PageTokens: 4})
		s := p.Open("", tokens)
		if !p.Claim(s, tokens) {
			t.Fatal("nobody else has a claim")
		}
		if _, ok := p.Reserve(s, 20, nil); !ok { // more room than is used
			t.Fatal("no room")
		}
		for i := range computed {
			p.Commit(s, tokens[i:i+1])
		}
		p.Close(s)
		check(t, p)
		if got, want := p.Match("", tokens), computed/4*4; got != want {
			t.Errorf("%d tokens computed: %d match, want %d", computed, got, want)
		}
		if c := p.Counts(); c.Used != 0 {
			t.Errorf("%d tokens computed: %d pages used after close", computed, c.Used)
		}
		s = p.Open("", tokens)
		if !p.Claim(s, tokens) {
			t.Errorf("%d tokens computed: the dead sequence's claim stands", computed)
		}
	}
}

// Case D14.
func TestReuseEndsAtTheFirstBlockThatDiffers(t *testing.T) {
	base := count(32)
	changed, inserted := slices.Clone(base), slices.Insert(slices.Clone(base), 10, 99)
	changed[18] = 99
	deleted := slices.Delete(slices.Clone(base), 5, 8)
	for _, tc := range []struct {
		name   string
		tokens []int32
		want   int
	}{
		{"same", base, 28},
		{"one token changed", changed, 16},
		{"tokens inserted", inserted, 8},
		{"tokens deleted", deleted, 4},
		{"another start", append([]int32{7}, base...), 0},
		{"longer", append(slices.Clone(base), 1, 2, 3), 32},
	} {
		p := newPool(t, Config{Pages: 32, PageTokens: 4})
		first, _ := compute(t, p, "", base)
		if _, got := compute(t, p, "", tc.tokens); got != tc.want {
			t.Errorf("%s: %d attached, want %d", tc.name, got, tc.want)
		}
		p.Close(first)
		check(t, p)
	}
}

// Case D16.
func TestPagesAreSharedInWholeBlocks(t *testing.T) {
	for _, tc := range []struct{ shared, want int }{{3, 0}, {4, 4}, {6, 4}, {8, 8}} {
		p := newPool(t, Config{Pages: 16, PageTokens: 4})
		prompt := func(end int32) []int32 { return append(count(tc.shared), end, end, end, end, end) }
		compute(t, p, "", prompt(91))
		if _, got := compute(t, p, "", prompt(92)); got != tc.want {
			t.Errorf("%d tokens shared: %d attached, want %d", tc.shared, got, tc.want)
		}
	}
}

// TestMatchBesideTheLoop is for the race detector.
func TestMatchBesideTheLoop(t *testing.T) {
	p := newPool(t, Config{Pages: 300, PageTokens: 2, hashBits: 6})
	tokens := count(401)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if n := p.Match("", tokens); n%2 != 0 || n > 400 {
					t.Errorf("%d tokens match", n)
				}
				p.hasher.Blocks("", tokens[:10])
			}
		})
	}
	for i := range 50 {
		s, _ := compute(t, p, "", tokens[:401-i])
		p.Close(s)
		other := count(300)
		other[0] = int32(1000 + i)
		s, _ = compute(t, p, "", other)
		p.Close(s)
	}
	close(stop)
	readers.Wait()
}

func TestDecodeAllocatesNothing(t *testing.T) {
	p := newPool(t, Config{Pages: 64, PageTokens: 16})
	prompt := count(40)
	copies := make([]Copy, 0, 8)
	var reader hitmap.Reader
	var changes int
	token := make([]int32, 1)
	generate := func() {
		s := p.Open("t", prompt)
		p.Claim(s, prompt)
		copies, _ = p.Reserve(s, len(prompt)-s.Len(), copies[:0])
		p.Commit(s, prompt[s.Len():])
		f := p.Fork(s)
		for range 100 {
			token[0]++ // never the same text, so that blocks are evicted
			for _, q := range []*Seq{s, f} {
				var ok bool
				if copies, ok = p.Reserve(q, 1, copies[:0]); !ok {
					t.Fatal("no room")
				}
				p.Commit(q, token)
			}
			journal := p.Journal()
			changes += len(reader.Read(&journal).Changes)
		}
		p.Close(s)
		p.Close(f)
	}
	for range 20 {
		generate()
	}
	if n := testing.AllocsPerRun(20, generate); n != 0 {
		t.Errorf("%v allocations a generation of 100 steps", n)
	}
	if changes < 200 {
		t.Errorf("only %d changes were heard", changes)
	}
	check(t, p)
}

func TestFits(t *testing.T) {
	p := newPool(t, Config{Pages: 3, PageTokens: 4})
	compute(t, p, "", count(11)) // what others use does not matter
	if !p.Fits(12) || p.Fits(13) {
		t.Errorf("12 tokens fit: %v, 13: %v; want true, false", p.Fits(12), p.Fits(13))
	}
}

func TestConfigIsRefused(t *testing.T) {
	for _, c := range []Config{
		{PageTokens: 4},
		{Pages: 4},
		{Pages: 4, PageTokens: 257},
		{Pages: 4, PageTokens: 4, hashBits: 65},
		{Pages: 4, PageTokens: 4, ChangesMax: -1},
	} {
		if p, err := New(c); err == nil || p != nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// TestCheckSeesDamage breaks each invariant by hand: a check that cannot fail
// proves nothing.
func TestCheckSeesDamage(t *testing.T) {
	for name, damage := range map[string]func(p *Pool, s *Seq){
		"1 lost page":       func(p *Pool, s *Seq) { p.free = p.free[1:] },
		"1 used page freed": func(p *Pool, s *Seq) { p.free = append(p.free, s.pages[0]) },
		"2 references":      func(p *Pool, s *Seq) { p.pages[s.pages[0]].refs++ },
		"2 page twice":      func(p *Pool, s *Seq) { s.pages[1] = s.pages[0] },
		"3 length":          func(p *Pool, s *Seq) { s.len = 100 },
		"3 partial":         func(p *Pool, s *Seq) { s.len -= 3 },
		"3 parent":          func(p *Pool, s *Seq) { p.pages[s.pages[1]].parent = none },
		"4 tokens":          func(p *Pool, s *Seq) { p.pageArea(s.pages[0])[0]++ },
		"4 unindexed":       func(p *Pool, s *Seq) { p.buckets[p.bucket(p.pages[s.pages[0]].hash)] = none },
		"5 order":           func(p *Pool, s *Seq) { p.Close(s); o := p.oldest; p.unlink(o); p.linkNewest(o) },
		"6 shared length":   func(p *Pool, s *Seq) { p.Fork(s); s.len++ },
		"7 claim":           func(p *Pool, s *Seq) { s.claimBlock[0]++ },
		"7 claim lost":      func(p *Pool, s *Seq) { p.claims = p.claims[:0] },
		"8 journal":         func(p *Pool, s *Seq) { p.journal.Max = 1 },
	} {
		p := newPool(t, Config{Pages: 8, PageTokens: 4})
		s, _ := compute(t, p, "", count(10))
		if !p.Claim(s, count(12)) {
			t.Fatal("nobody else has a claim")
		}
		check(t, p)
		damage(p, s)
		err := p.Check()
		if err == nil {
			t.Errorf("%s: not seen", name)
		} else if want := "cache: invariant " + name[:1]; err.Error()[:len(want)] != want {
			t.Errorf("%s: seen as %v", name, err)
		}
	}
}
