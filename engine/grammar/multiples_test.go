package grammar

import (
	"math/big"
	"testing"
)

func TestMultiples(t *testing.T) {
	b := NewBuilder(DefaultLimits())
	texts := []string{"0", "00", "7", "12", "13", "35", "0.5", "0.75", "0.750", "1.", "1.5", "4.50", "3.0", "3.00", "3.01", "0.0075", "0.00751", "12391239123"}
	for _, m := range []struct {
		of        int
		scale     int
		step, per int64
	}{{1, 0, 1, 1}, {2, 0, 2, 1}, {7, 0, 7, 1}, {15, 1, 3, 2}, {75, 2, 3, 4}, {1, 4, 1, 10000}, {1000, 0, 1000, 1}} {
		r := b.Multiples(m.of, m.scale)
		for _, text := range texts {
			x, ok := new(big.Rat).SetString(text)
			want := ok && text[len(text)-1] != '.' && new(big.Rat).Quo(x, big.NewRat(m.step, m.per)).IsInt()
			if got := b.Match(r, text); got != want {
				t.Errorf("multiple of %d/%d: %q: %v", m.step, m.per, text, got)
			}
		}
	}
	if err := b.Err(); err != nil {
		t.Error(err)
	}
}
