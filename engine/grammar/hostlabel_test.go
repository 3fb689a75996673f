package grammar

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// punycode is a label in its ASCII form, written as RFC 3492 says in its section 6.3.
func punycode(label []rune) string {
	var out strings.Builder
	out.WriteString("xn--")
	basic := int32(0)
	for _, c := range label {
		if c < 0x80 {
			out.WriteRune(c)
			basic++
		}
	}
	if basic > 0 {
		out.WriteByte('-')
	}
	n, delta, bias, done := int32(0x80), int32(0), int32(72), basic
	for done < int32(len(label)) {
		next := int32(1 << 30)
		for _, c := range label {
			if c >= n {
				next = min(next, c)
			}
		}
		delta += (next - n) * (done + 1)
		n = next
		for _, c := range label {
			if c < n {
				delta++
			}
			if c != n {
				continue
			}
			q := delta
			for k := int32(36); ; k += 36 {
				t := min(max(k-bias, 1), 26)
				if q < t {
					break
				}
				out.WriteByte("abcdefghijklmnopqrstuvwxyz0123456789"[t+(q-t)%(36-t)])
				q = (q - t) / (36 - t)
			}
			out.WriteByte("abcdefghijklmnopqrstuvwxyz0123456789"[q])
			bias = punycodeBias(delta, done+1, done == basic)
			delta, done = 0, done+1
		}
		delta, n = delta+1, n+1
	}
	return out.String()
}

func TestInternationalLabels(t *testing.T) {
	b := NewBuilder(DefaultLimits())
	label := b.InternationalLabel()
	for text, want := range map[string]bool{
		"münchen": true, "façade": true, "ñ": true, "e-xé": true, "2ü": true, "すし": true, "ж": true, "・ア": true, "paral·lel": true, "l·l": true, "αβ": true, "a-bü": true,
		"·l": false, "l·": false, "l·a": false, "a·l": false, "·": false, // a middle dot stands between two l
		"・": false, "a・": false, "・漢": false, // and Katakana's beside Kana
		"żółw": false, "ĳs": false, "µ": false, "ﬁx": false, "ſ": false, "É": false, "Mü": false, "ü-": false, "-ü": false, "ü--a": false, "ab--ü": false, "שב": false, "": false, "abc": false,
		"é-e": false, "e-é": false, "ell·l": false, // valid, and left out
		"eine-sehr-lange-straße-in-berlin": false,
	} {
		if ascii := punycode([]rune(text)); b.Match(label, ascii) != want {
			t.Errorf("%q as %s: %v", text, ascii, !want)
		}
	}
	for _, bad := range []string{"xn--", "xn--X", "xn--a", "xn--mnchen-3yA", "xn---ü", "xn--mnchen-3y", "xn--mnchen-", "mnchen-3ya", "xn--mnchen--3ya"} {
		if b.Match(label, bad) {
			t.Errorf("%s is taken", bad)
		}
	}
	if err := b.Err(); err != nil {
		t.Error(err)
	}
}

// TestLabelsWithoutAByte: where a vocabulary lacks a digit, letters beyond ASCII are left out,
// as that digit may be the only one that goes on.
func TestLabelsWithoutAByte(t *testing.T) {
	b := NewBuilder(DefaultLimits())
	b.Without([]byte("q"))
	g, err := b.Compile(b.Terminal("label", b.InternationalLabel()))
	if err != nil {
		t.Fatal(err)
	}
	a := g.NewAutomaton()
	for text, want := range map[string]bool{punycode([]rune("l·l")): true, punycode([]rune("münchen")): false} {
		if got, err := a.Accepts(text); got != want || err != nil {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
}

// TestEveryLetterOfALabel: all letters, alone and two by two, in every place.
func TestEveryLetterOfALabel(t *testing.T) {
	b := NewBuilder(DefaultLimits())
	label := b.InternationalLabel()
	var letters []rune
	for c := rune(0x80); c < 0x3200; c++ {
		if isLabelLetter(c, firstLetter) {
			letters = append(letters, c)
		}
		if got := b.Match(label, punycode([]rune{c})); got != isLabelLetter(c, firstLetter) {
			t.Errorf("%U alone: %v", c, got)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		text := []rune(strings.Repeat("a", r.IntN(12)))
		for range 1 + r.IntN(2) {
			at := r.IntN(len(text) + 1)
			text = append(text[:at:at], append([]rune{letters[r.IntN(len(letters))]}, text[at:]...)...)
		}
		if ascii := punycode(text); !b.Match(label, ascii) {
			t.Errorf("%q as %s is not taken", string(text), ascii)
		}
	}
}

// TestLabelsHaveNoDeadEnds: whatever bytes are chosen, the label comes to an end. With
// FOREBAY_LABELS set, the labels are written to that file, for another implementation to judge.
func TestLabelsHaveNoDeadEnds(t *testing.T) {
	b := NewBuilder(DefaultLimits())
	p := b.pool
	label := b.InternationalLabel()
	b.Empty(label)
	r := rand.New(rand.NewPCG(5, 6))
	var all []string
	for range 3000 {
		text, at := []byte(nil), label
		for !p.nullable(at) || r.IntN(3) > 0 {
			var next []byte
			for _, c := range p.example {
				if d := p.derive(at, p.class[c]); d != never && p.live(d) {
					next = append(next, c)
				}
			}
			if len(next) == 0 {
				break
			}
			c := next[r.IntN(len(next))]
			text, at = append(text, c), p.derive(at, p.class[c])
		}
		if !p.nullable(at) || len(text) > hostLabelBytes {
			t.Fatalf("%s is no label", text)
		}
		if p.work = p.limits.Work; p.over != "" {
			t.Fatal(p.over)
		}
		all = append(all, string(text))
	}
	if file := os.Getenv("FOREBAY_LABELS"); file != "" {
		if err := os.WriteFile(file, []byte(strings.Join(all, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
