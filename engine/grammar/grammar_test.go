package grammar

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

func mustCompile(t *testing.T, b *Builder, start Expr) *Automaton {
	t.Helper()
	g, err := b.Compile(start)
	if err != nil {
		t.Fatal(err)
	}
	return g.NewAutomaton()
}

func check(t *testing.T, a *Automaton, text string, want bool) {
	t.Helper()
	got, err := a.Accepts(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if got != want {
		t.Errorf("%q: accepted %v, want %v", text, got, want)
	}
}

func TestNestedLists(t *testing.T) {
	b := NewBuilder(DefaultLimits())
	num := b.Terminal("number", b.Times(b.Bytes('0', '9'), 1, Unlimited))
	lit := func(s string) Expr { return b.Terminal(s, b.Literal(s)) }
	value := b.Rule("value")
	list := b.Seq(lit("["), b.Optional(b.Seq(value, b.Repeat(b.Seq(lit(","), value), 0, Unlimited))), lit("]"))
	b.Define(value, b.Choice(num, list))
	a := mustCompile(t, b, value)
	for text, want := range map[string]bool{"1": true, "[]": true, "[1,[22,[]],3]": true, "[1,]": false, "[": false, "[1": false, "": false, "[]]": false} {
		check(t, a, text, want)
	}
	rows := len(a.rows)
	check(t, a, "["+strings.Repeat("1,", 5000)+"1]", true)
	if len(a.rows) > rows+8 {
		t.Errorf("a long list made %d rows", len(a.rows)-rows)
	}
}

func TestRepeatCounts(t *testing.T) {
	b := NewBuilder(DefaultLimits())
	x := b.Seq(b.Terminal("x", b.Literal("x")), b.Optional(b.Terminal("y", b.Literal("y"))))
	a := mustCompile(t, b, b.Seq(b.Repeat(x, 3, 5), b.Terminal("end", b.Literal("."))))
	for n := range 8 {
		check(t, a, strings.Repeat("xy", n)+".", n >= 3 && n <= 5)
		check(t, a, strings.Repeat("x", n)+".", n >= 3 && n <= 5)
	}
	b = NewBuilder(DefaultLimits())
	a = mustCompile(t, b, b.Repeat(b.Terminal("x", b.Literal("x")), 2, 10_000))
	check(t, a, strings.Repeat("x", 10_000), true)
	check(t, a, strings.Repeat("x", 10_001), false)
	check(t, a, "x", false)
}

func TestNoDeadEnds(t *testing.T) {
	b := NewBuilder(DefaultLimits())
	loop := b.Rule("loop")
	b.Define(loop, b.Seq(b.Terminal("a", b.Literal("a")), loop))
	odd := b.And(b.Times(b.Literal("ab"), 0, Unlimited), b.Times(b.Literal("aba"), 1, Unlimited), b.Not(b.Literal("z")))
	start := b.Choice(b.Seq(b.Terminal("a", b.Literal("a")), loop), b.Terminal("odd", odd), b.Terminal("ok", b.Literal("cd")))
	a := mustCompile(t, b, start)
	s, _ := a.Start()
	if n, _ := a.Next(s, 'a'); n != Dead {
		t.Error("a byte that nothing completes was allowed")
	}
	check(t, a, "cd", true)
	if _, err := b.Compile(loop); !errors.As(err, new(*EmptyError)) {
		t.Errorf("a rule that ends nowhere: %v", err)
	}
}

// expression makes a random regular expression in Go's syntax and here.
func expression(r *rand.Rand, b *Builder, depth int) (string, Regex) {
	if depth == 0 || r.IntN(5) == 0 {
		switch r.IntN(3) {
		case 0:
			c := string(rune('a' + r.IntN(3)))
			return c, b.Literal(c)
		case 1:
			return "[ab]", b.Bytes('a', 'b')
		}
		return "abc", b.Literal("abc")
	}
	x, rx := expression(r, b, depth-1)
	switch r.IntN(4) {
	case 0:
		y, ry := expression(r, b, depth-1)
		return "(?:" + x + "|" + y + ")", b.Or(rx, ry)
	case 1:
		lo := r.IntN(3)
		hi := lo + r.IntN(3)
		return fmt.Sprintf("(?:%s){%d,%d}", x, lo, hi), b.Times(rx, lo, hi)
	case 2:
		return "(?:" + x + ")*", b.Times(rx, 0, Unlimited)
	}
	y, ry := expression(r, b, depth-1)
	return x + y, b.Cat(rx, ry)
}

// allTexts is every string of the letters up to a length.
func allTexts(letters string, length int) (list []string) {
	list = []string{""}
	for from, n := 0, 0; n < length; n++ {
		to := len(list)
		for _, s := range list[from:to] {
			for _, c := range letters {
				list = append(list, s+string(c))
			}
		}
		from = to
	}
	return list
}

func TestRegexAgainstGo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	words := allTexts("abc", 6)
	for range 150 {
		b := NewBuilder(DefaultLimits())
		x, rx := expression(r, b, 4)
		y, ry := expression(r, b, 3)
		goX, goY := regexp.MustCompile("^(?:"+x+")$"), regexp.MustCompile("^(?:"+y+")$")
		both, minus := b.And(rx, ry), b.And(rx, b.Not(ry))
		a := mustCompile(t, b, b.Terminal("x", b.Cat(rx, b.Literal("!"))))
		some := false
		for _, w := range words {
			inX, inY := goX.MatchString(w), goY.MatchString(w)
			if b.Match(rx, w) != inX || b.Match(both, w) != (inX && inY) || b.Match(minus, w) != (inX && !inY) {
				t.Fatalf("%s and %s differ on %q", x, y, w)
			}
			check(t, a, w+"!", inX)
			some = some || inX && inY
		}
		if some && b.Empty(both) {
			t.Fatalf("%s and %s: said to be empty", x, y)
		}
	}
}

// bruteGrammar is random rules of terminals (strings) and other rules.
type bruteGrammar struct{ rules [][][]any }

func randomGrammar(r *rand.Rand) bruteGrammar {
	n := 1 + r.IntN(4)
	g := bruteGrammar{make([][][]any, n)}
	words := []string{"a", "b", "ab", "", "c", "ba"}
	for i := range g.rules {
		for range 1 + r.IntN(3) {
			var alt []any
			for range r.IntN(4) {
				if r.IntN(2) == 0 {
					alt = append(alt, words[r.IntN(len(words))])
				} else {
					alt = append(alt, r.IntN(n))
				}
			}
			g.rules[i] = append(g.rules[i], alt)
		}
	}
	return g
}

// derives is the words of up to length letters that a rule matches, as the least fixpoint.
func (g bruteGrammar) derives(length int) map[string]bool {
	sets := make([]map[string]bool, len(g.rules))
	for i := range sets {
		sets[i] = map[string]bool{}
	}
	for changed := true; changed; {
		changed = false
		for i, alts := range g.rules {
			for _, alt := range alts {
				words := map[string]bool{"": true}
				for _, s := range alt {
					next := map[string]bool{}
					add := func(w string) {
						for prefix := range words {
							if len(prefix)+len(w) <= length {
								next[prefix+w] = true
							}
						}
					}
					if w, ok := s.(string); ok {
						add(w)
					} else {
						for w := range sets[s.(int)] {
							add(w)
						}
					}
					words = next
				}
				for w := range words {
					if !sets[i][w] {
						sets[i][w], changed = true, true
					}
				}
			}
		}
	}
	return sets[0]
}

func TestRulesAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	words := allTexts("abc", 5)
	compared := 0
	for range 400 {
		g := randomGrammar(r)
		in := g.derives(5)
		b := NewBuilder(DefaultLimits())
		rules := make([]Expr, len(g.rules))
		for i := range rules {
			rules[i] = b.Rule(fmt.Sprint("r", i))
		}
		for i, alts := range g.rules {
			var choices []Expr
			for _, alt := range alts {
				var seq []Expr
				for _, s := range alt {
					if w, ok := s.(string); ok {
						seq = append(seq, b.Terminal(w, b.Literal(w)))
					} else {
						seq = append(seq, rules[s.(int)])
					}
				}
				choices = append(choices, b.Seq(seq...))
			}
			b.Define(rules[i], b.Choice(choices...))
		}
		compiled, err := b.Compile(rules[0])
		if err != nil {
			if len(in) > 0 {
				t.Fatalf("%v: %v", g, err)
			}
			continue
		}
		a := compiled.NewAutomaton()
		for _, w := range words {
			got, err := a.Accepts(w)
			if err != nil {
				t.Fatal(err)
			}
			if got != in[w] {
				t.Fatalf("%v: %q accepted %v, want %v", g, w, got, in[w])
			}
		}
		compared++
	}
	if compared < 100 {
		t.Fatalf("only %d grammars were compared", compared)
	}
}

// A long bound beside a word that may not come: that nothing completes the
// word is found without counting to the bound.
func TestEmptinessBesideALongBound(t *testing.T) {
	l := DefaultLimits()
	l.StepWork, l.Work = 20_000, 20_000
	b := NewBuilder(l)
	any := b.Class(Range{0, 0x10FFFF})
	text := b.Times(any, 0, Unlimited)
	a := mustCompile(t, b, b.Terminal("x", b.Cat(b.And(b.Times(any, 0, 100_000), b.Not(b.Cat(text, b.Literal("ba"), text))), b.Literal("."))))
	check(t, a, "aaab.", true)
	s, _ := a.Start()
	for i, c := range []byte("baa") {
		n, err := a.Next(s, c)
		if err != nil {
			t.Fatal(err)
		}
		if (n == Dead) != (i == 1) {
			t.Fatalf("byte %d: dead %v", i, n == Dead)
		}
		if n == Dead {
			break
		}
		s = n
	}
}

// TestWithout compares a grammar without some bytes with the texts of the whole one
// that have none of them: and no beginning of a text is a dead end.
func TestWithout(t *testing.T) {
	words := allTexts("abcd", 5)
	for name, build := range map[string]func(b *Builder) Expr{
		"choice": func(b *Builder) Expr {
			return b.Terminal("x", b.Or(b.Literal("abc"), b.Literal("abd"), b.Literal("b")))
		},
		"class": func(b *Builder) Expr { return b.Terminal("x", b.Times(b.Bytes('a', 'd'), 1, 4)) },
		"not":   func(b *Builder) Expr { return b.Terminal("x", b.And(b.Text(), b.Not(b.Literal("a")))) },
		"and": func(b *Builder) Expr {
			return b.Terminal("x", b.And(b.Times(b.Bytes('b', 'd'), 2, 3), b.Not(b.Cat(b.Literal("b"), b.Everything()))))
		},
		"repetition": func(b *Builder) Expr { return b.Repeat(b.Terminal("x", b.Or(b.Literal("ac"), b.Literal("bd"))), 0, 2) },
		"rules": func(b *Builder) Expr {
			r := b.Rule("r")
			b.Define(r, b.Choice(b.Terminal("a", b.Literal("a")), b.Seq(b.Terminal("b", b.Literal("b")), r, b.Terminal("c", b.Literal("c"))), b.Seq(b.Terminal("d", b.Literal("d")), r)))
			return r
		},
	} {
		whole := NewBuilder(DefaultLimits())
		all := mustCompile(t, whole, build(whole))
		b := NewBuilder(DefaultLimits())
		b.Without([]byte("c"))
		e := build(b)
		b.Empty(b.And(b.Everything(), b.Not(b.Literal("c")))) // what is known of the whole language must not stay
		cut := mustCompile(t, b, e)
		begun := map[string]bool{}
		for _, w := range words {
			want, err := all.Accepts(w)
			if err != nil {
				t.Fatal(err)
			}
			want = want && !strings.Contains(w, "c")
			got, err := cut.Accepts(w)
			if err != nil || got != want {
				t.Fatalf("%s: %q accepted %v, want %v (%v)", name, w, got, want, err)
			}
			for i := range len(w) + 1 {
				begun[w[:i]] = begun[w[:i]] || want
			}
		}
		for w, completes := range begun {
			s, err := cut.Start()
			for i := 0; i < len(w) && s != Dead && err == nil; i++ {
				s, err = cut.Next(s, w[i])
			}
			if err != nil || s != Dead && !completes && len(w) < 3 {
				t.Errorf("%s: %q is a dead end (%v)", name, w, err)
			}
		}
	}
	b := NewBuilder(DefaultLimits())
	b.Without([]byte("c"))
	if _, err := b.Compile(b.Terminal("x", b.Literal("ac"))); err == nil {
		t.Error("a grammar that needs the byte is compiled")
	}
	b = NewBuilder(DefaultLimits())
	b.Without([]byte{7})
	id := mustCompile(t, b, b.Terminal("x", b.Token(7)))
	bytes := TokenBytes(7)
	check(t, id, string(bytes[:]), true)
}
