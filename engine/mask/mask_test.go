package mask

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/grammar"
)

// words is a vocabulary of texts. Those in angle brackets are control tokens,
// and <end> is an end.
type words [][]byte

func (w words) Size() int               { return len(w) }
func (w words) Bytes(id int32) []byte   { return w[id] }
func (w words) IsControl(id int32) bool { return bytes.HasPrefix(w[id], []byte("<")) && len(w[id]) > 1 }
func (w words) IsEnd(id int32) bool     { return string(w[id]) == "<end>" }

// vocabulary has every byte, many short texts, doubles, and control tokens.
func vocabulary(r *rand.Rand) words {
	w := words{[]byte("<end>"), []byte("<call>"), []byte("<other>")}
	for c := range 256 {
		w = append(w, []byte{byte(c)})
	}
	pieces := []string{"a", "b", "ab", "\"", "\\", ",", ":", "{", "}", "[", "]", "1", "23", " ", "é", "漢", "\xe6\xbc", "\"x\":", "\n", "true", "xyz", "ü", "\u2028", "\xe2\x80"}
	for range 1500 {
		s := ""
		for range 1 + r.IntN(4) {
			s += pieces[r.IntN(len(pieces))]
		}
		w = append(w, []byte(s))
	}
	for _, s := range []string{strings.Repeat("a", 70), strings.Repeat("é", 64), strings.Repeat("b", 300), "ab", "ab", ""} {
		w = append(w, []byte(s))
	}
	return w
}

// char is one character of a JSON string.
func char(b *grammar.Builder) grammar.Regex {
	plain := b.Class(grammar.Complement([]grammar.Range{{Lo: 0, Hi: 31}, {Lo: '"', Hi: '"'}, {Lo: '\\', Hi: '\\'}})...)
	return b.Or(plain, b.Cat(b.Literal(`\`), b.Class(grammar.Range{Lo: '"', Hi: '"'}, grammar.Range{Lo: '\\', Hi: '\\'}, grammar.Range{Lo: 'n', Hi: 'n'})))
}

// grammars have strings with and without bounds, numbers, nesting, ambiguity and a control token.
func grammars(t *testing.T) map[string]*grammar.Grammar {
	t.Helper()
	made := map[string]*grammar.Grammar{}
	add := func(name string, build func(b *grammar.Builder) grammar.Expr) {
		b := grammar.NewBuilder(grammar.DefaultLimits())
		g, err := b.Compile(build(b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		made[name] = g
	}
	quoted := func(b *grammar.Builder, inner grammar.Regex) grammar.Expr {
		return b.Terminal("string", b.Cat(b.Literal(`"`), inner, b.Literal(`"`)))
	}
	lit := func(b *grammar.Builder, s string) grammar.Expr { return b.Terminal(s, b.Literal(s)) }
	for _, max := range []int{0, 3, 40, 100, grammar.Unlimited} {
		add(fmt.Sprint("string to ", max), func(b *grammar.Builder) grammar.Expr {
			return b.Seq(quoted(b, b.Times(char(b), 0, max)), b.Optional(lit(b, ",")))
		})
	}
	add("pattern", func(b *grammar.Builder) grammar.Expr {
		re, err := b.Pattern(`^[a-b1-3]+(é|ab)*$`, grammar.PatternOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return quoted(b, re)
	})
	add("other names", func(b *grammar.Builder) grammar.Expr {
		names := b.Literals([]string{"a", "ab", "aé", "xyz", "\u2028b"})
		others := b.And(b.Times(char(b), 0, grammar.Unlimited), b.Not(names))
		short := b.And(b.Times(char(b), 0, 2), b.Not(names))
		return b.Choice(quoted(b, others), quoted(b, b.Cat(b.Literal("xyz"), short)), quoted(b, b.Cat(names, b.Literal(":"))))
	})
	add("search", func(b *grammar.Builder) grammar.Expr {
		re, err := b.Pattern(`ab[1-3]+b`, grammar.PatternOptions{Search: true})
		if err != nil {
			t.Fatal(err)
		}
		return quoted(b, b.And(re, b.Not(b.Cat(b.Text(), b.Literal("xyz"), b.Text()))))
	})
	add("dot", func(b *grammar.Builder) grammar.Expr {
		re, err := b.Pattern(`^a.+:.*$`, grammar.PatternOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return b.Terminal("dot", re)
	})
	add("text without a word", func(b *grammar.Builder) grammar.Expr {
		any := b.Text()
		return b.Seq(b.Terminal("text", b.And(any, b.Not(b.Cat(any, b.Literal("xyz"), any)))), b.Optional(lit(b, "xyz")))
	})
	add("json", func(b *grammar.Builder) grammar.Expr {
		value := b.Rule("value")
		str := quoted(b, b.Times(char(b), 0, grammar.Unlimited))
		number := b.Terminal("number", b.Cat(b.Times(b.Literal("-"), 0, 1), b.Times(b.Bytes('0', '9'), 1, 5)))
		list := func(open string, e grammar.Expr, end string) grammar.Expr {
			return b.Seq(lit(b, open), b.Optional(b.Seq(e, b.Repeat(b.Seq(lit(b, ","), e), 0, 7))), lit(b, end))
		}
		b.Define(value, b.Choice(str, number, lit(b, "true"), list("[", value, "]"), list("{", b.Seq(str, lit(b, ":"), value), "}")))
		return value
	})
	add("call", func(b *grammar.Builder) grammar.Expr {
		return b.Seq(b.Terminal("text", b.Text()), b.Optional(b.Seq(b.Terminal("call", b.Token(1)), lit(b, "ab"))))
	})
	add("ambiguous", func(b *grammar.Builder) grammar.Expr {
		s := b.Rule("s")
		b.Define(s, b.Choice(lit(b, "a"), lit(b, "ab"), lit(b, "b"), b.Seq(lit(b, "a"), s, s)))
		return s
	})
	return made
}

// naive is the mask by trying every token byte by byte.
func naive(t *testing.T, a *grammar.Automaton, s grammar.State, v words) []uint64 {
	t.Helper()
	bits := make([]uint64, (len(v)+63)/64)
	for id := range int32(len(v)) {
		text := v[id]
		if v.IsControl(id) {
			b := grammar.TokenBytes(id)
			text = b[:]
		} else if len(text) == 0 || len(text) > 255 || slices.Contains(text, 0xFF) {
			continue
		}
		at := s
		for _, c := range text {
			var err error
			if at != grammar.Dead {
				if at, err = a.Next(at, c); err != nil {
					t.Fatal(err)
				}
			}
		}
		if at != grammar.Dead || v.IsEnd(id) && a.Accepting(s) {
			bits[id>>6] |= 1 << (id & 63)
		}
	}
	return bits
}

func allowed(bits []uint64) (ids []int32) {
	for i, w := range bits {
		for b := range 64 {
			if w>>b&1 != 0 {
				ids = append(ids, int32(64*i+b))
			}
		}
	}
	return ids
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMasksAreThoseOfEveryTokenTried walks at random, with rollbacks, and
// compares three masks: remembered, computed afresh, and by trying every token.
func TestMasksAreThoseOfEveryTokenTried(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	v := vocabulary(r)
	trie := NewTrie(v)
	for name, g := range grammars(t) {
		c, err := Compile(g, trie)
		must(t, err)
		ended := 0
		for range 12 {
			m, fresh := c.NewMatcher(), c.NewMatcher()
			fresh.Remember(false)
			slow := g.NewAutomaton()
			s, err := slow.Start()
			must(t, err)
			states := []grammar.State{s}
			memo, plain := make([]uint64, trie.Words()), make([]uint64, trie.Words())
			for range 40 {
				must(t, m.Mask(memo))
				must(t, fresh.Mask(plain))
				want := naive(t, slow, s, v)
				if !slices.Equal(memo, want) || !slices.Equal(plain, want) {
					t.Fatalf("%s: remembered %d, afresh %d, want %d tokens", name, len(allowed(memo)), len(allowed(plain)), len(allowed(want)))
				}
				ids := allowed(memo)
				if len(ids) == 0 {
					t.Fatalf("%s: a dead end", name)
				}
				id := ids[r.IntN(len(ids))]
				for _, x := range []*Matcher{m, fresh} {
					if ok, err := x.Accept(id); !ok || err != nil {
						t.Fatalf("%s: %q was allowed and is not accepted: %v", name, v[id], err)
					}
				}
				if bad := int32(r.IntN(len(v))); !slices.Contains(ids, bad) {
					probe := c.NewMatcher()
					probe.states, probe.tokens, probe.oldest = m.states, m.tokens, m.oldest
					must(t, probe.Rollback(1))
					if ok, _ := probe.Accept(bad); ok {
						t.Fatalf("%s: %q was not allowed and is accepted", name, v[bad])
					}
				}
				if v.IsEnd(id) {
					if !m.Done() {
						t.Fatalf("%s: not done after the end", name)
					}
					ended++
					break
				}
				text := v[id]
				if v.IsControl(id) {
					b := grammar.TokenBytes(id)
					text = b[:]
				}
				for _, c := range text {
					s, err = slow.Next(s, c)
					must(t, err)
				}
				states = append(states, s)
				if n := r.IntN(3); n > 0 && n < len(states) && r.IntN(4) == 0 {
					must(t, m.Rollback(n))
					must(t, fresh.Rollback(n))
					states = states[:len(states)-n]
					s = states[len(states)-1]
				}
			}
		}
		t.Logf("%s: %d ended, %d bytes", name, ended, c.Size())
	}
}

func TestRollbackIsBounded(t *testing.T) {
	trie := NewTrie(vocabulary(rand.New(rand.NewPCG(1, 1))))
	c, err := Compile(grammars(t)["text without a word"], trie)
	must(t, err)
	m := c.NewMatcher()
	for range 200 {
		if ok, err := m.Accept('a' + 3); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	must(t, m.Rollback(RollbackMax))
	if m.Rollback(1) == nil {
		t.Error("a token was taken back that is not kept")
	}
}

func TestForced(t *testing.T) {
	trie := NewTrie(vocabulary(rand.New(rand.NewPCG(1, 1))))
	b := grammar.NewBuilder(grammar.DefaultLimits())
	g, err := b.Compile(b.Terminal("key", b.Or(b.Literal(`{"order":1}`), b.Literal(`{"orders":1}`))))
	must(t, err)
	c, err := Compile(g, trie)
	must(t, err)
	m := c.NewMatcher()
	if f, err := m.Forced(); string(f) != `{"order` || err != nil {
		t.Errorf("forced %q, %v", f, err)
	}
	for _, c := range []byte(`{"order"`) {
		if ok, err := m.Accept(int32(c) + 3); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if f, err := m.Forced(); string(f) != `:1}` || err != nil {
		t.Errorf("forced %q, %v", f, err)
	}
}

// TestAFullAutomatonIsReplaced holds masks and rollback across replacements.
func TestAFullAutomatonIsReplaced(t *testing.T) {
	v := vocabulary(rand.New(rand.NewPCG(1, 1)))
	trie := NewTrie(v)
	l := grammar.DefaultLimits()
	l.Memory = 1 << 20
	b := grammar.NewBuilder(l)
	any := b.Times(char(b), 0, grammar.Unlimited)
	x := b.Terminal("x", b.Cat(b.Literal(`"`), b.And(b.Times(char(b), 0, 5000), b.Not(b.Cat(any, b.Literal("ba"), any))), b.Literal(`"`)))
	g, err := b.Compile(b.Seq(b.Repeat(b.Seq(x, b.Terminal(",", b.Literal(","))), 1, 900), x))
	must(t, err)
	c, err := Compile(g, trie)
	must(t, err)
	m, other := c.NewMatcher(), c.NewMatcher()
	first := c.shared
	dst := make([]uint64, trie.Words())
	r := rand.New(rand.NewPCG(7, 8))
	must(t, other.Mask(dst))
	renewals, most := 0, 0
	for n := range 1500 {
		must(t, m.Mask(dst))
		ids := slices.DeleteFunc(allowed(dst), func(id int32) bool { return v.IsEnd(id) })
		if len(ids) == 0 {
			break
		}
		ok, err := m.Accept(ids[r.IntN(len(ids))])
		if !ok || err != nil {
			t.Fatal(n, ok, err)
		}
		if n%10 == 0 {
			must(t, m.Rollback(min(n, 3)))
		}
		if c.shared != first {
			renewals++
			first = c.shared
		}
		most = max(most, c.Size())
		if n%200 == 0 {
			s := m.states[m.here()]
			must(t, m.Mask(dst))
			if want := naive(t, m.shared.auto, s, v); !slices.Equal(dst, want) {
				t.Fatalf("after %d tokens the masks differ", n)
			}
		}
	}
	t.Logf("replaced %d times, %d bytes at most", renewals, most)
	if renewals < 3 {
		t.Errorf("the automaton was replaced %d times", renewals)
	}
	if ok, err := other.Accept('"' + 3); !ok || err != nil {
		t.Error("a matcher that was left behind:", ok, err)
	}
	if most > 8<<20 {
		t.Errorf("the grammar held %d bytes", most)
	}
}

func TestAStepAllocatesNothing(t *testing.T) {
	trie := NewTrie(vocabulary(rand.New(rand.NewPCG(1, 1))))
	c, err := Compile(grammars(t)["json"], trie)
	must(t, err)
	m := c.NewMatcher()
	dst := make([]uint64, trie.Words())
	text := `{"ab":[1,"b"]}`
	round := func() {
		for _, c := range []byte(text) {
			if m.Mask(dst) != nil {
				t.Fatal("no mask")
			}
			if ok, _ := m.Accept(int32(c) + 3); !ok {
				t.Fatalf("%q was not accepted", c)
			}
			if _, err := m.Forced(); err != nil {
				t.Fatal(err)
			}
		}
		if m.Rollback(len(text)) != nil {
			t.Fatal("no rollback")
		}
	}
	for _, remember := range []bool{true, false} {
		m.Remember(remember)
		round()
		if n := testing.AllocsPerRun(10, round); n > 0 {
			t.Errorf("a step allocates %v times (remembered: %v)", n, remember)
		}
	}
}

// TestAVocabularyWithoutSomeBytes: a grammar that is built without them has no dead
// end, and its masks are those of every token tried.
func TestAVocabularyWithoutSomeBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	v := slices.DeleteFunc(vocabulary(r), func(b []byte) bool { return len(b) == 1 && (b[0] == 'x' || b[0] == 0xC3 || b[0] == 0xF1) })
	trie := NewTrie(v)
	if !bytes.Equal(trie.Missing(), []byte{'x', 0xC3, 0xF1}) {
		t.Fatalf("missing % x", trie.Missing())
	}
	for name, build := range map[string]func(b *grammar.Builder) grammar.Expr{
		"string": func(b *grammar.Builder) grammar.Expr {
			return b.Terminal("s", b.Cat(b.Literal(`"`), b.Times(char(b), 0, grammar.Unlimited), b.Literal(`"`)))
		},
		"words": func(b *grammar.Builder) grammar.Expr {
			return b.Repeat(b.Terminal("w", b.Literals([]string{"ax", "ab", "aé", "bb"})), 1, 9)
		},
		"no xyz": func(b *grammar.Builder) grammar.Expr {
			any := b.Text()
			return b.Terminal("t", b.And(any, b.Not(b.Cat(any, b.Literal("yz"), any))))
		},
	} {
		b := grammar.NewBuilder(grammar.DefaultLimits())
		b.Without(trie.Missing())
		g, err := b.Compile(build(b))
		must(t, err)
		c, err := Compile(g, trie)
		must(t, err)
		for range 20 {
			m, slow, bits := c.NewMatcher(), g.NewAutomaton(), make([]uint64, trie.Words())
			s, err := slow.Start()
			must(t, err)
			for range 30 {
				must(t, m.Mask(bits))
				if want := naive(t, slow, s, v); !slices.Equal(bits, want) {
					t.Fatalf("%s: %d tokens, want %d", name, len(allowed(bits)), len(allowed(want)))
				}
				ids := allowed(bits)
				if len(ids) == 0 {
					t.Fatalf("%s: a dead end", name)
				}
				id := ids[r.IntN(len(ids))]
				if ok, err := m.Accept(id); !ok || err != nil {
					t.Fatal(ok, err)
				}
				if v.IsEnd(id) {
					break
				}
				for _, c := range v[id] {
					s, err = slow.Next(s, c)
					must(t, err)
				}
			}
		}
	}
	other := grammar.NewBuilder(grammar.DefaultLimits())
	other.Without([]byte("y"))
	g, err := other.Compile(other.Terminal("y", other.Text()))
	must(t, err)
	if _, err := Compile(g, trie); err == nil {
		t.Error("a grammar without a byte that the vocabulary has")
	}
}
