package grammar

import "testing"

// TestCharsSeesEndlessText: after each prefix any safe text may come, which the form of
// the expression shows. A mask of such a place needs no walk along all tokens.
func TestCharsSeesEndlessText(t *testing.T) {
	build := map[string]func(b *Builder, char Regex) Regex{
		"other names": func(b *Builder, char Regex) Regex {
			return b.And(b.Times(char, 0, Unlimited), b.Not(b.Literals([]string{"name", "nest", "ñ"})))
		},
		"search": func(b *Builder, char Regex) Regex {
			any := b.Times(char, 0, Unlimited)
			return b.Cat(any, b.Literal("name"), b.Times(b.Bytes('0', '9'), 2, 3), any)
		},
		"dot": func(b *Builder, char Regex) Regex {
			dot := b.Class(Complement([]Range{{'\n', '\n'}, {'\r', '\r'}, {'"', '"'}, {'\\', '\\'}, {0x2028, 0x2029}})...)
			return b.Times(dot, 3, Unlimited)
		},
		"letters": func(b *Builder, char Regex) Regex { return b.Times(b.Bytes('a', 'z'), 0, Unlimited) },
		"short": func(b *Builder, char Regex) Regex {
			return b.And(b.Times(char, 0, 40), b.Not(b.Literals([]string{"name", "nest"})))
		},
	}
	for name, want := range map[string]int{"other names": CharsMax, "search": CharsMax, "dot": CharsMax, "letters": 0, "short": 40} {
		b := NewBuilder(DefaultLimits())
		char := b.Class(Complement([]Range{{0, 31}, {'"', '"'}, {'\\', '\\'}})...)
		quote := b.Literal(`"`)
		r := build[name](b, char)
		a := mustCompile(t, b, b.Terminal(name, b.Cat(quote, r, quote)))
		for _, prefix := range []string{``, `n`, `nam`, `ne`, `name`, `name1`, `x`} {
			s, err := a.Start()
			for _, c := range []byte(`"` + prefix) {
				if s != Dead && err == nil {
					s, err = a.Next(s, c)
				}
			}
			if s == Dead && name == "letters" {
				continue
			}
			least, exact, err2 := a.Chars(s)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if name == "short" {
				if most := want - len(prefix); least > most || exact && least < most {
					t.Errorf("%s after %q: %d characters, exact: %v; at most %d may come", name, prefix, least, exact, most)
				}
			} else if least != want || !exact && want > 0 {
				t.Errorf("%s after %q: %d characters, exact: %v", name, prefix, least, exact)
			}
		}
	}
}
