package chat

import (
	"slices"
	"strings"
	"unicode"

	"github.com/forebay-io/forebay/engine/jinja"
	"github.com/forebay-io/forebay/engine/tokenizer"
)

// guard puts tokenizer.Guards before control strings, and before text that the
// template's text could complete to one.
type guard struct {
	// By first byte, then by length: each place in a text costs one lookup for
	// each length, independent of the number of control strings.
	controls map[string]bool
	lengths  [256][]int
	prefixes map[string]bool // proper ones
	suffixes map[string]bool // proper ones, without plain words
	all      string          // the control strings, one after another
	longest  int
}

func newGuard(controls []string) *guard {
	g := &guard{controls: map[string]bool{}, prefixes: map[string]bool{}, suffixes: map[string]bool{}}
	for _, c := range controls {
		if c == "" || g.controls[c] {
			continue
		}
		g.controls[c] = true
		g.longest = max(g.longest, len(c))
		if l := &g.lengths[c[0]]; !slices.Contains(*l, len(c)) {
			*l = append(*l, len(c))
		}
		for n := 1; n < len(c); n++ {
			g.prefixes[c[:n]] = true
			if !isWord(c[n:]) {
				g.suffixes[c[n:]] = true
			}
		}
	}
	g.all = strings.Join(controls, "\x00")
	return g
}

// isWord reports whether text has only letters, digits and underscores. The
// middle of a control string may be such a word, because templates put roles
// between <| and |>.
func isWord(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) < 0
}

// value guards all strings in v, including the keys of objects.
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

// json parses JSON in a guarded text, and guards its strings after unescaping.
func (g *guard) json(text string) (any, error) {
	v, err := jinja.ParseJSON([]byte(tokenizer.Unguard(text)))
	return g.value(v), err
}

// text escapes text and puts a Guard before every control string in it, and
// before the end, the middle or the beginning of one whose rest could be template
// text. It ignores white space at both ends, because templates trim it.
func (g *guard) text(text string) string {
	text = tokenizer.Escape(text)
	head := len(text) - len(strings.TrimLeftFunc(text, unicode.IsSpace))
	end := len(strings.TrimRightFunc(text, unicode.IsSpace))
	var b strings.Builder
	done := 0
	for i := range len(text) {
		if !g.begins(text[i:], max(end-i, 0)) && !(i == head && g.continues(text[i:max(end, i)])) {
			continue
		}
		b.WriteString(text[done:i])
		b.WriteRune(tokenizer.Guard)
		done = i
	}
	if b.Len() == 0 {
		return text
	}
	return b.String() + text[done:]
}

// begins reports whether a control string begins text, or whether all of it,
// with or without the white space after its first end bytes, begins one.
func (g *guard) begins(text string, end int) bool {
	lengths := g.lengths[text[0]]
	if lengths == nil {
		return false
	}
	if len(text) < g.longest && g.prefixes[text] || end < g.longest && g.prefixes[text[:end]] {
		return true
	}
	for _, n := range lengths {
		if n <= len(text) && g.controls[text[:n]] {
			return true
		}
	}
	return false
}

// continues reports whether text begins with the end of a control string, or
// is the middle of one.
func (g *guard) continues(text string) bool {
	for n := 1; n <= min(len(text), g.longest); n++ {
		if g.suffixes[text[:n]] {
			return true
		}
	}
	return text != "" && len(text) < g.longest && !isWord(text) && strings.Contains(g.all, text)
}
