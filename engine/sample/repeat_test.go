package sample

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// letters spells token i as a letter; token 0 ends a line, in two letters of which the
// second may be a token of its own.
func letters(id int32) []byte { return spellings[id] }

var spellings = [...][]byte{[]byte(".\n"), []byte("."), []byte("\n"), []byte("d"), []byte("e"), []byte("f"), []byte("g"), []byte("h"), []byte("i"), []byte("j"), []byte("k")}

// TestDRYAsDefined compares with the definition, read off the tokens: of each earlier place
// with the same token as the last, how far both go back equally, and what came next.
func TestDRYAsDefined(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	penalized := 0
	for range 3000 {
		vocab := 4 + r.IntN(5)
		tokens := make([]int32, 1+r.IntN(60))
		for i := range tokens {
			tokens[i] = int32(r.IntN(vocab))
		}
		o := wire.Options{DRY: wire.DRY{Multiplier: 0.8, Base: 1.75, Length: r.IntN(4), Last: r.IntN(2) * (1 + r.IntN(50)), Breakers: []string{".\n", "\n"}[:r.IntN(3)]}}
		s := New(kernels.Best(), &o, 0, vocab)
		s.Spell(letters)
		half := r.IntN(len(tokens))
		s.Prompt(tokens[:half])
		for _, id := range tokens[half:] {
			s.Accept(id)
		}
		got, want := make([]float32, vocab), make([]float32, vocab)
		s.adjust(got)
		for id, length := range repeats(tokens, &o.DRY) {
			want[id] = -float32(0.8 * math.Pow(1.75, float64(length-o.DRY.Length)))
			penalized++
		}
		for id := range want {
			if math.Abs(float64(got[id]-want[id])) > 1e-3*(1-float64(want[id])) {
				t.Fatalf("%v, %+v: token %d has %g, want %g", tokens, o.DRY, id, got[id], want[id])
			}
		}
	}
	if penalized < 3000 {
		t.Errorf("only %d tokens were penalized", penalized)
	}
}

// repeats is the longest repetition that each token would go on with, by the definition.
func repeats(tokens []int32, o *wire.DRY) map[int32]int {
	start := 0
	if o.Last > 0 {
		start = max(0, len(tokens)-o.Last)
	}
	limit := len(tokens)
	var text []byte
	for i, id := range tokens {
		before := len(text)
		text = append(text, letters(id)...)
		for _, b := range o.Breakers {
			for at := range len(text) {
				if bytes.HasPrefix(text[at:], []byte(b)) && at+len(b) > before {
					limit = len(tokens) - 1 - i
				}
			}
		}
	}
	longest := map[int32]int{}
	for end := start; end < len(tokens)-1; end++ {
		length := 0
		for end-length >= start && length < limit && tokens[end-length] == tokens[len(tokens)-1-length] {
			length++
		}
		if length >= max(1, o.Length) {
			longest[tokens[end+1]] = max(longest[tokens[end+1]], length)
		}
	}
	return longest
}

// TestDRYStaysFinite: a long loop masks nothing and makes no infinity.
func TestDRYStaysFinite(t *testing.T) {
	o := wire.Options{Temperature: 1, DRY: wire.DRY{Multiplier: 100, Base: 100, Length: 1}}
	s := New(kernels.Best(), &o, 0, 2)
	for range 5000 {
		s.Accept(1)
	}
	row := []float32{-3, 5}
	if id, ok := s.Sample(slices.Clone(row)); !ok || id != 0 {
		t.Errorf("token %d, %v; want the one that does not repeat", id, ok)
	}
	if id, ok := s.Sample([]float32{float32(math.Inf(-1)), 5}); !ok || id != 1 {
		t.Errorf("token %d, %v; want the only one that is allowed", id, ok)
	}
}

// TestPenaltiesOfTheLastTokens: with a window the history is that of the last tokens alone.
func TestPenaltiesOfTheLastTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		last, vocab := 1+r.IntN(9), 6
		o := wire.Options{RepetitionPenalty: 2, PresencePenalty: 0.5, FrequencyPenalty: 0.25, RepeatLast: last}
		s := New(kernels.Best(), &o, 0, vocab)
		tokens := make([]int32, r.IntN(30))
		for i := range tokens {
			tokens[i] = int32(r.IntN(vocab))
		}
		half := r.IntN(len(tokens) + 1)
		s.Prompt(tokens[:half])
		for _, id := range tokens[half:] {
			s.Accept(id)
		}
		plain := o
		plain.RepeatLast = 0
		want := New(kernels.Best(), &plain, 0, vocab)
		from := max(0, len(tokens)-last)
		want.Prompt(tokens[min(from, half):half])
		for _, id := range tokens[max(from, half):] {
			want.Accept(id)
		}
		a, b := []float32{1, -1, 2, -2, 3, -3}, []float32{1, -1, 2, -2, 3, -3}
		s.adjust(a)
		want.adjust(b)
		if !slices.Equal(a, b) {
			t.Fatalf("%v, the last %d: %v, want %v", tokens, last, a, b)
		}
	}
}

// TestRepetitionAllocatesNothing: in the steady state, with all that keeps tokens.
func TestRepetitionAllocatesNothing(t *testing.T) {
	o := wire.Options{
		Temperature: 1, RepetitionPenalty: 1.1, RepeatLast: 16, MirostatTau: 3, MirostatEta: 0.1, TopNSigma: 3,
		DRY: wire.DRY{Multiplier: 0.8, Base: 1.75, Length: 2, Breakers: []string{"\n", ".\n"}},
	}
	s := New(kernels.Best(), &o, 0, 300)
	s.Spell(letters)
	row, mine, n := make([]float32, 300), make([]float32, 300), 0
	step := func() {
		n++
		copy(mine, row)
		s.Sample(mine)
		s.Accept(int32(n * n % 11))
	}
	for range 5000 {
		step()
	}
	if got := testing.AllocsPerRun(500, step); got > 0.05 { // the list of tokens grows
		t.Errorf("%v allocations a token", got)
	}
}
