package cache

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestHoldings(t *testing.T) {
	p := pinPool(t)
	system := counting(0, 8) // two blocks that all have in common
	with := func(last int32) []int32 { return append(slices.Clone(system), last, last, last, last, last) }
	fill(p, "a", with(100))
	fill(p, "a", with(101))
	fill(p, "a", with(102))
	fill(p, "a", with(102))
	fill(p, "b", counting(0, 5))
	fill(p, "a", counting(0, 5))
	p.Pin("a", system, time.Hour, 100) // its last block is not attached: one block
	s := p.Open("b", counting(50, 6))
	p.Reserve(s, 6, nil)
	p.Commit(s, counting(50, 6))
	h := p.Holdings(10)
	at := p.Hasher().Blocks("a", with(102))
	want := []Prefix{
		{Salt: "a", Hash: at[1], Tokens: 8, Uses: 3},
		{Salt: "a", Hash: at[0], Tokens: 4, Uses: 4, Pinned: true},
		{Salt: "a", Hash: at[2], Tokens: 12, Uses: 1},
	}
	if !reflect.DeepEqual(h.Prefixes, want) {
		t.Errorf("prefixes\n%+v, want\n%+v", h.Prefixes, want)
	}
	if want := []SaltPages{{"a", 1, 4, 1}, {"b", 2, 1, 0}}; !slices.Equal(h.Salts, want) {
		t.Errorf("pages %+v, want %+v", h.Salts, want)
	}
	if h := p.Holdings(1); len(h.Prefixes) != 1 || len(h.Salts) != 1 || len(h.Pins) != 1 {
		t.Errorf("%+v is not the first of each", h)
	}
}

// All pages that are not free are some salt's.
func TestHoldingsCountAllPages(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 9))
		c := Config{Pages: 30, PageTokens: 1 + r.IntN(4), Pins: PinLimits{Pins: 2, Pages: 9}}
		if seed%2 == 1 {
			c.Windows = Windows{Tokens: 1 + r.IntN(8), Pages: 1, Step: 64}
		}
		p := newPool(t, c)
		var open []*Seq
		for range 60 {
			salt, tokens := string(rune('a'+r.IntN(3))), counting(r.IntN(4), 1+r.IntN(5*c.PageTokens))
			if s := p.Open(salt, tokens); r.IntN(3) == 0 {
				if _, ok := p.Reserve(s, len(tokens)-s.Len(), nil); ok && r.IntN(2) == 0 {
					p.Commit(s, tokens[s.Len():])
					open = append(open, p.Fork(s))
				}
				open = append(open, s)
			} else {
				p.Close(s)
			}
			fill(p, salt, tokens)
			p.Pin(salt, tokens, time.Hour, 20)
			for len(open) > 4 {
				p.Close(open[0])
				open = slices.Delete(open, 0, 1)
			}
			var sum Counts
			for _, s := range p.Holdings(10).Salts {
				sum.Used, sum.Cached = sum.Used+s.Used, sum.Cached+s.Cached
			}
			if c := p.Counts(); sum.Used != c.Used || sum.Cached != c.Cached {
				t.Fatalf("seed %d: %d pages used and %d cached by salts, %+v in all", seed, sum.Used, sum.Cached, c)
			}
		}
	}
}
