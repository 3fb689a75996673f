package schema

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/engine/grammar"
)

// The regular expression of a set of numbers matches exactly the texts of its
// numbers, as long as they have no exponent.
func TestNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	text := func() string {
		s := fmt.Sprint(r.IntN([]int{2, 12, 130, 2000}[r.IntN(4)]))
		if r.IntN(2) == 0 {
			s += "." + fmt.Sprintf("%0*d", 1+r.IntN(3), r.IntN(10))
		}
		if r.IntN(3) == 0 {
			s = "-" + s
		}
		return s
	}
	for n := range 400 {
		var x numbers
		if r.IntN(3) > 0 {
			x.low, x.lowOpen = rational(text()), r.IntN(2) == 0
		}
		if r.IntN(3) > 0 {
			x.high, x.highOpen = rational(text()), r.IntN(2) == 0
		}
		switch r.IntN(8) {
		case 0, 1:
			x.integer = true
		case 2:
			x.fraction = true
		case 3:
			x.multiples = []*big.Rat{big.NewRat(int64(1+r.IntN(9)), []int64{1, 2, 4, 10}[r.IntN(4)])}
		case 4:
			x.notMultiples = []*big.Rat{big.NewRat(int64(1+r.IntN(9)), 2)}
		case 5:
			x.except = []*big.Rat{rational(text()), rational(text())}
		}
		if x.low == nil && x.high == nil && n%2 == 0 {
			continue
		}
		b := grammar.NewBuilder(grammar.DefaultLimits())
		numberer := newNumberer(b)
		re := numberer.regex(&x)
		for range 60 {
			s := text()
			if x.low != nil && r.IntN(6) == 0 {
				s = decimal(x.low)
			} else if x.high != nil && r.IntN(6) == 0 {
				s = decimal(x.high)
			}
			v := rational(s)
			if x.integer && !isPlain(s) || v.Sign() == 0 && s[0] == '-' {
				continue // another spelling of an integer, or of 0
			}
			if got, want := b.Match(re, s), x.holds(v); got != want {
				t.Fatalf("%+v: %s: %v, want %v", x, s, got, want)
			}
		}
		if err := b.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] == '.' {
			return false
		}
	}
	return true
}
