package chat

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/jinja"
	"github.com/forebay-io/forebay/engine/tokenizer"
)

// guard puts a tokenizer.Guard into control strings.
type guard struct {
	// by first byte, then by length: a text at a place is looked up once for
	// each length, however many control strings there are.
	controls map[string]bool
	lengths  [256][]int
	prefixes map[string]bool // proper ones
}

func newGuard(controls []string) *guard {
	g := &guard{controls: map[string]bool{}, prefixes: map[string]bool{}}
	for _, c := range controls {
		if c == "" || g.controls[c] {
			continue
		}
		g.controls[c] = true
		if l := &g.lengths[c[0]]; !slices.Contains(*l, len(c)) {
			*l = append(*l, len(c))
		}
		for n := 1; n < len(c); n++ {
			g.prefixes[c[:n]] = true
		}
	}
	return g
}

// value guards all strings in v, the keys of objects too.
func (g *guard) value(v any) any {
	switch v := v.(type) {
	case string:
		return g.text(v)
	case *jinja.List:
		for i, item := range v.Items {
			v.Items[i] = g.value(item)
		}
	case *jinja.Dict:
		out := jinja.NewDict()
		for _, key := range v.Keys() {
			value, _ := v.Get(key)
			out.Set(g.value(key), g.value(value))
		}
		return out
	}
	return v
}

// text puts a Guard behind the first character of every control string in
// text, and of a beginning of one at its end.
func (g *guard) text(text string) string {
	var b strings.Builder
	done := 0
	for i := range len(text) {
		if g.lengths[text[i]] == nil || !g.begins(text[i:]) {
			continue
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		b.WriteString(text[done : i+size])
		b.WriteRune(tokenizer.Guard)
		done = i + size
	}
	if done == 0 {
		return text
	}
	return b.String() + text[done:]
}

func (g *guard) begins(text string) bool {
	if g.prefixes[text] {
		return true
	}
	for _, n := range g.lengths[text[0]] {
		if n <= len(text) && g.controls[text[:n]] {
			return true
		}
	}
	return false
}
