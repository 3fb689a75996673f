package grammar

import (
	"regexp"
	"strings"
	"testing"
)

func TestPatternsAsGo(t *testing.T) {
	patterns := []string{
		`abc`, `^abc`, `abc$`, `^abc$`, `^a|b$`, `(^a|b)c`, `a(b|c$)`, `^(a|b)*$`, `^a{2,3}$`, `a{2}`, `^a+?b*$`, `^[^a-c]+$`, `^\d{3}-\w+$`,
		`^$`, ``, `a|`, `^(?:ab)?c$`, `x*`, `^(?P<n>a)b$`, `[.]`, `a\.b`, `^[\w.-]+@[\w-]+\.\w{2,}$`, `^(^a)`, `(b$)$`, `^[a\]-]+$`, `\x41`, `^\p{Lu}\p{L}*$`,
	}
	texts := append(allTexts("abc", 4), "xabcx", "123-ab", "a.b", "me@example.org", "aab", "A", "Ärger", "äRger", "a-", "]", "aaa", "\n", "c", "b$")
	for _, p := range patterns {
		goSearch := regexp.MustCompile(p)
		goWhole := regexp.MustCompile("^(?:" + p + ")$")
		b := NewBuilder(DefaultLimits())
		search, err := b.Pattern(p, PatternOptions{Search: true})
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		whole, err := b.Pattern(p, PatternOptions{})
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		for _, s := range texts {
			if got := b.Match(search, s); got != goSearch.MatchString(s) {
				t.Errorf("search %s in %q: %v", p, s, got)
			}
			if got := b.Match(whole, s); got != goWhole.MatchString(s) {
				t.Errorf("whole %s of %q: %v", p, s, got)
			}
		}
	}
}

func TestPatternsOfECMA(t *testing.T) {
	for _, c := range []struct {
		pattern, yes, no string
	}{
		{`^(?=.*\d)(?=.*[a-z]).{4,6}$`, "ab12", "abcd"},
		{`^(?!admin$)[a-z]+$`, "admins", "admin"},
		{`^(?!.*foo).*$`, "bar", "xfoox"},
		{`^.$`, "é", "\n"},
		{`^\s$`, "\u2003", "x"},
		{`^\cJ$`, "\n", "J"},
		{`^\u{1F600}$`, "😀", "x"},
		{`^\uD83D\uDE00$`, "😀", "x"},
		{`^{a}$`, "{a}", "a"},
		{`^a{,2}$`, "a{,2}", "aa"},
		{`^[^]$`, "\n", ""},
		{`^\/\-$`, "/-", `\`},
		{`^\p{Script=Greek}+$`, "αβ", "ab"},
		{`^\P{L}$`, "1", "a"},
		{`^[\d-x]+$`, "1-x", "a"},
		{`^[\w-\.]+$`, "a-.", "!"},
	} {
		b := NewBuilder(DefaultLimits())
		r, err := b.Pattern(c.pattern, PatternOptions{Search: true})
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		if !b.Match(r, c.yes) || b.Match(r, c.no) {
			t.Errorf("%s: %q %v, %q %v", c.pattern, c.yes, b.Match(r, c.yes), c.no, b.Match(r, c.no))
		}
	}
}

func TestPatternsRefusedByName(t *testing.T) {
	for pattern, name := range map[string]string{
		`(a)\1`: "backreference", `(?<n>a)\k<n>`: "backreference", `(?<=a)b`: "lookbehind", `(?<!a)b`: "lookbehind", `\bx`: "word boundary",
		`(?i)x`: "inline flags", `(a(?=b))c`: "lookahead within a group", `(^a)+`: "anchor", `(`: "does not end", `)`: "did not begin", `[a`: "does not end",
		`a**`: "repetition", `*`: "repetition of nothing", `a{3,2}`: "wrong order", `a{9999999}`: "above", `[z-a]`: "wrong order", `\`: "backslash", `\p{Nonsense}`: "not known",
		`a++`: "possessive", strings.Repeat("(", 100): "nested", `\Aabc`: "use ^",
	} {
		_, err := NewBuilder(DefaultLimits()).Pattern(pattern, PatternOptions{Search: true})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %q", pattern, err, name)
		}
	}
}

// Work is counted, so that a bound on it does not depend on the machine. What
// takes more is refused by the name of the bound.
func TestHostilePatterns(t *testing.T) {
	for pattern, refused := range map[string]bool{
		`^(a|a)*{1000}$`: true, `^((a|a)*){1000}$`: false, `^(a?){1000}a{1000}$`: false, `^(([a-z])+.)+[A-Z]([a-z])+$`: false, `^(.*a){200}$`: false,
		`^(a{0,500}b{0,500}){0,500}$`: false, `^(?!.*a.{30}b).*(?!.*b.{30}a).*$`: true,
		strings.Repeat("(", 60) + "a*" + strings.Repeat(")*", 60): false, strings.Repeat("a?", 2000) + strings.Repeat("a", 2000): true,
		`[^<]|<[^|]`: false,
	} {
		b := NewBuilder(DefaultLimits())
		r, err := b.Pattern(pattern, PatternOptions{Search: true})
		if err == nil {
			err = walk(t, b, r, pattern)
		}
		if (err != nil) != refused {
			t.Errorf("%.40s: %v", pattern, err)
		}
	}
}

func walk(t *testing.T, b *Builder, r Regex, pattern string) error {
	g, err := b.Compile(b.Terminal("pattern", r))
	if err != nil {
		return err
	}
	a := g.NewAutomaton()
	s, err := a.Start()
	for i := 0; i < 300 && err == nil && s != Dead; i++ {
		s, err = a.Next(s, "aab"[i%3])
		if work := g.limits.StepWork - a.pool.work; work > 2000 && err == nil {
			t.Errorf("%.40s: byte %d took %d steps", pattern, i, work)
		}
	}
	return err
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{`^(a|b)*c{2,3}$`, `[^\d\w]\p{L}`, `(?=a)b`, `\uD83D\uDE00`, `(?:(?<x>a))`, `{`, `a{1,}?`} {
		f.Add(s, "aab")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		l := DefaultLimits()
		l.Nodes, l.Work, l.StepWork = 20_000, 100_000, 20_000
		b := NewBuilder(l)
		r, err := b.Pattern(pattern, PatternOptions{Search: true})
		if err != nil || b.Empty(r) || b.Err() != nil {
			return
		}
		g, err := b.Compile(b.Terminal("pattern", r))
		if err != nil {
			return
		}
		want := b.Match(r, text)
		if got, err := g.NewAutomaton().Accepts(text); err == nil && b.Err() == nil && got != want {
			t.Fatalf("%q on %q: %v and %v", pattern, text, got, want)
		}
	})
}
