package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// windowScript plays the model for a pool with windows: memory holds for each token of each
// page what contents gives, of a table too.
type windowScript struct {
	pool   *Pool
	memory [][]uint64
	seqs   []*scriptSeq
}

func newWindowScript(t testing.TB, c Config) *windowScript {
	t.Helper()
	pool, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	x := &windowScript{pool: pool, memory: make([][]uint64, c.Pages)}
	for i := range x.memory {
		x.memory[i] = make([]uint64, c.PageTokens)
	}
	return x
}

func (x *windowScript) open(salt string, tokens []int32) *scriptSeq {
	want := x.pool.Match(salt, tokens)
	s := &scriptSeq{Seq: x.pool.Open(salt, tokens), tokens: tokens}
	if s.Len() != want {
		panic(fmt.Sprintf("match says %d tokens, open attaches %d", want, s.Len()))
	}
	x.seqs = append(x.seqs, s)
	return s
}

func (x *windowScript) close(s *scriptSeq) {
	x.pool.Close(s.Seq)
	x.seqs = slices.DeleteFunc(x.seqs, func(o *scriptSeq) bool { return o == s })
}

func (x *windowScript) at(table []int32, i int) *uint64 {
	return &x.memory[table[i/x.pool.pageTokens]][i%x.pool.pageTokens]
}

func (x *windowScript) reserve(s *scriptSeq, n int) bool {
	copies, ok := x.pool.Reserve(s.Seq, n, nil)
	for _, c := range copies {
		copy(x.memory[c.Dst], x.memory[c.Src])
	}
	return ok
}

// compute reserves, computes and commits the next n tokens, if there is room, and looks at
// all that they see.
func (x *windowScript) compute(s *scriptSeq, n int) (ok bool, err error) {
	if !x.reserve(s, n) {
		return false, nil
	}
	for i := s.Len(); i < s.Len()+n; i++ {
		*x.at(s.Pages(), i) = contents(s.salt, s.tokens[:i+1])
		for g, table := range s.WindowTables() {
			*x.at(table, i) = contents(s.salt, s.tokens[:i+1]) + uint64(g+1)
		}
	}
	first := x.pool.windows.from(s.Len())
	for i := range s.Len() + n {
		want := contents(s.salt, s.tokens[:i+1])
		if *x.at(s.Pages(), i) != want {
			return true, fmt.Errorf("wrong contents at token %d of %d", i, s.Len())
		}
		for g, table := range s.WindowTables() {
			if i >= first && *x.at(table, i) != want+uint64(g+1) {
				return true, fmt.Errorf("wrong contents at token %d of %d in table %d", i, s.Len(), g)
			}
		}
	}
	x.pool.Commit(s.Seq, s.tokens[s.Len():s.Len()+n])
	return true, nil
}

func (x *windowScript) mustCompute(t *testing.T, s *scriptSeq, n int) {
	t.Helper()
	if ok, err := x.compute(s, n); !ok || err != nil {
		t.Fatalf("computed %v: %v", ok, err)
	}
	if err := x.pool.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestWindowsFollowTheirSequences runs random operations: whatever is opened, forked,
// preempted or evicted, a sequence sees the keys and values of its own tokens.
func TestWindowsFollowTheirSequences(t *testing.T) {
	attached, full := 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 32))
		c := Config{PageTokens: 1 + r.IntN(5), hashBits: r.IntN(2) * 2}
		c.Windows = Windows{Tokens: 1 + r.IntN(20), Pages: 1 + r.IntN(3), Step: 12}
		if r.IntN(3) == 0 {
			c.Windows.Chunked, c.Windows.Tokens = true, c.PageTokens*(1+r.IntN(4))
		}
		c.Pages = (1 + c.Windows.Pages) * (4 + r.IntN(30))
		x := newWindowScript(t, c)
		prompts := [][]int32{randomPrompt(r, 40), randomPrompt(r, 40)}
		for op := range 200 {
			var err error
			switch k := r.IntN(10); {
			case k < 3 || len(x.seqs) == 0:
				prompt := prompts[r.IntN(2)][:1+r.IntN(40)]
				if s := x.open("", append(slices.Clone(prompt), randomPrompt(r, r.IntN(4))...)); s.Len() > 0 {
					attached++
				}
			case k < 7:
				s := x.seqs[r.IntN(len(x.seqs))]
				if s.Len() == len(s.tokens) {
					s.tokens = append(slices.Clip(s.tokens), r.Int32N(3))
				}
				if x.pool.Claim(s.Seq, s.tokens) {
					var ok bool
					if ok, err = x.compute(s, 1+r.IntN(min(c.Windows.Step, len(s.tokens)-s.Len()))); !ok {
						full++
					}
				}
			case k < 8:
				s := x.seqs[r.IntN(len(x.seqs))]
				if s.Len() > 0 {
					x.seqs = append(x.seqs, &scriptSeq{Seq: x.pool.Fork(s.Seq), tokens: slices.Clone(s.tokens)})
				}
			case k < 9:
				x.close(x.seqs[r.IntN(len(x.seqs))])
			default: // reserved, and not computed
				x.reserve(x.seqs[r.IntN(len(x.seqs))], 1+r.IntN(9))
			}
			if err == nil {
				err = x.pool.Check()
			}
			if err != nil {
				t.Fatalf("seed %d, operation %d, %+v: %v", seed, op, c, err)
			}
		}
	}
	if attached < 500 || full < 500 {
		t.Errorf("only %d sequences began with what others had computed, and %d times there was no room", attached, full)
	}
}

// TestWindowsArePassed: a long sequence holds its pages and a few windows, and never more
// than PagesFor says; one that has all the room fits to its last token.
func TestWindowsArePassed(t *testing.T) {
	for _, w := range []Windows{{Tokens: 10, Pages: 2, Step: 7}, {Tokens: 8, Chunked: true, Pages: 3, Step: 5}, {Tokens: 1, Pages: 1, Step: 1}} {
		const length = 200
		pages := w.PagesFor(length, 4)
		x := newWindowScript(t, Config{Pages: pages, PageTokens: 4, Windows: w})
		if !x.pool.Fits(length) || x.pool.Fits(length+1) || w.TokensIn(pages, 4) != length {
			t.Errorf("%+v: %d pages are room for %d tokens, not %d", w, pages, w.TokensIn(pages, 4), length)
		}
		s := x.open("", upTo(length))
		for s.Len() < length {
			if lacking := x.pool.Lacking(s.Seq, length); x.pool.Counts().Used+lacking > pages {
				t.Fatalf("%+v: at %d tokens %d pages are lacking beside %d", w, s.Len(), lacking, x.pool.Counts().Used)
			}
			x.mustCompute(t, s, min(w.Step, length-s.Len()))
			if used, want := x.pool.Counts().Used, w.PagesFor(s.Len(), 4); used > want {
				t.Fatalf("%+v: at %d tokens %d pages are held, want at most %d", w, s.Len(), used, want)
			}
		}
	}
}

// TestTokensInIsTheInverse of PagesFor.
func TestTokensInIsTheInverse(t *testing.T) {
	for _, w := range []Windows{{}, {Tokens: 1024, Pages: 6, Step: 512}, {Tokens: 5, Pages: 1, Step: 3}} {
		for pages := range 2000 {
			n := w.TokensIn(pages, 16)
			if w.PagesFor(n, 16) > pages || w.PagesFor(n+1, 16) <= pages {
				t.Fatalf("%+v: %d tokens in %d pages", w, n, pages)
			}
		}
	}
}

// TestPrefixesGoOnWhereWindowsAre: the same prompt, the next turn of a chat, and a third
// prompt that parts where a second did go on; one that parts elsewhere computes again what
// it must see.
func TestPrefixesGoOnWhereWindowsAre(t *testing.T) {
	w := Windows{Tokens: 8, Pages: 2, Step: 16}
	x := newWindowScript(t, Config{Pages: 70, PageTokens: 4, Windows: w})
	run := func(tokens []int32, prompt int) {
		t.Helper()
		s := x.open("", tokens[:prompt])
		for s.tokens = tokens; s.Len() < len(tokens); {
			x.mustCompute(t, s, min(max(1, prompt-s.Len()), w.Step))
		}
		x.close(s)
	}
	want := func(what string, tokens []int32, want int) {
		t.Helper()
		if got := x.pool.Match("", tokens); got != want {
			t.Errorf("%s finds %d tokens, want %d", what, got, want)
		}
	}
	crowd := func() { // takes what was passed
		for x.pool.windows.passed.oldest != none {
			x.pool.evictNext()
		}
	}
	run(upTo(54), 47)
	want("a prompt that parts at 30", append(upTo(30), 9, 9, 9, 9, 9), 28)
	crowd()
	want("the same prompt", upTo(47), 44)
	want("the next turn", append(upTo(54), 7, 7, 7), 52)
	other := append(upTo(30), 9, 9, 9, 9, 9)
	want("a prompt that parts at 30, under pressure", other, 0)
	run(append(other, upTo(30)...), len(other)+30) // has seen that 28 tokens are known
	crowd()
	want("the third that parts at 30", append(upTo(30), 8, 8, 8, 8, 8), 28)
	if c := x.pool.Counts(); c.Used != 0 || c.Cached == 0 {
		t.Errorf("%+v", c)
	}
}

// TestWindowsAndBlocksGoByAge: what was used first goes first, whatever it is.
func TestWindowsAndBlocksGoByAge(t *testing.T) {
	w := Windows{Tokens: 100, Pages: 1, Step: 16}
	x := newWindowScript(t, Config{Pages: 16, PageTokens: 4, Windows: w})
	for salt := range 2 {
		s := x.open(fmt.Sprint(salt), upTo(16))
		x.mustCompute(t, s, 16)
		x.close(s)
	}
	s := x.open("2", upTo(8)) // needs two blocks of the first
	x.mustCompute(t, s, 8)
	if a, b := x.pool.Match("0", upTo(17)), x.pool.Match("1", upTo(17)); a != 8 || b != 16 {
		t.Errorf("%d and %d tokens are left, want 8 and 16", a, b)
	}
}
