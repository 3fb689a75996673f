package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// naiveFind tries every special token at every place.
func naiveFind(v *vocabulary, text string, control bool) (at, length int, id int32) {
	for at := range len(text) {
		for i, special := range v.texts {
			ok := v.kinds[i] == kindUser || v.kinds[i] == kindControl && control && !strings.HasSuffix(text[:at], guardText)
			if ok && len(special) > length && strings.HasPrefix(text[at:], special) && !(v.flags[int32(i)].singleWord && insideWord(text, at, at+len(special))) {
				length, id = len(special), int32(i)
			}
		}
		if length > 0 {
			return at, length, id
		}
	}
	return len(text), 0, none
}

// TestSpecialsEqualNaive: specials that begin and end in each other, and texts full of
// what is nearly one.
func TestSpecialsEqualNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	text := func(n int, letters ...string) string {
		var b strings.Builder
		for range n {
			b.WriteString(letters[rng.IntN(len(letters))])
		}
		return b.String()
	}
	found, missed := 0, 0
	for range 300 {
		v := &vocabulary{flags: map[int32]tokenFlags{}}
		for i := range 1 + rng.IntN(12) {
			special := text(1+rng.IntN(5), "<", "a", "|", "é")
			if slices.Contains(v.texts, special) {
				special = fmt.Sprint("other", i)
			}
			v.texts = append(v.texts, special)
			v.kinds = append(v.kinds, []kind{kindControl, kindUser, kindNormal}[rng.IntN(3)])
			if rng.IntN(3) == 0 {
				v.flags[int32(i)] = tokenFlags{singleWord: true}
			}
		}
		s, err := newSpecials(v)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			in, control := text(rng.IntN(12), "<", "a", "|", "é", " ", guardText), rng.IntN(2) == 0
			at, n, token := s.find(in, control)
			wantAt, wantN, want := naiveFind(v, in, control)
			if at != wantAt || n != wantN || token.id != want {
				t.Fatalf("%q in %q (control %v): got %d+%d token %d, want %d+%d token %d", v.texts, in, control, at, n, token.id, wantAt, wantN, want)
			}
			if n > 0 {
				found++
			} else {
				missed++
			}
		}
	}
	if found < 1000 || missed < 1000 {
		t.Errorf("%d texts with a special token, %d without", found, missed)
	}
}

// TestNearSpecials: the longest special there may be, and a text that is nearly
// nothing but it. The trie is no deeper than that, which bounds the work per byte.
func TestNearSpecials(t *testing.T) {
	long := strings.Repeat("<", specialBytesMax)
	v := &vocabulary{texts: []string{long, "<<a"}, kinds: []kind{kindControl, kindControl}}
	s, err := newSpecials(v)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.nodes) != specialBytesMax+2 || s.longest != specialBytesMax {
		t.Errorf("%d nodes, longest %d", len(s.nodes), s.longest)
	}
	text := strings.Repeat(long[1:]+".", 10)
	if at, n, _ := s.find(text+"<<a", true); at != len(text) || n != 3 {
		t.Errorf("found %d bytes at %d, want 3 at %d", n, at, len(text))
	}
	if at, n, token := s.find(text+long+"<", true); at != len(text) || n != len(long) || token.id != 0 {
		t.Errorf("found %d bytes at %d, want %d at %d", n, at, len(long), len(text))
	}
}
