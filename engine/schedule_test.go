package engine

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestComposeInvariants(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 3))
		var works []work
		for i := range 1 + r.IntN(12) {
			w := work{pending: 1 + r.IntN(300), key: int64(r.IntN(4)), arrival: uint64(r.IntN(1000)*16 + i), index: i}
			if r.IntN(2) == 0 {
				w.pending, w.decode = 1, true
			}
			works = append(works, w)
		}
		l := limits{batchTokensMax: 1 + r.IntN(200), tokensMin: 1 + r.IntN(20), budget: time.Duration(r.IntN(1000))}
		cost := stepCost{base: float64(r.IntN(500)), decodeRow: float64(r.IntN(50)), prefillToken: float64(r.IntN(50)), known: r.IntN(4) > 0}
		given := map[int]int{}
		total := 0
		for _, s := range compose(nil, append([]work(nil), works...), &cost, l) {
			if _, twice := given[s.index]; twice || s.tokens < 1 {
				t.Fatalf("seed %d: sequence %d has a share of %d, twice %v", seed, s.index, s.tokens, twice)
			}
			given[s.index] = s.tokens
			total += s.tokens
		}
		oldest := works[0]
		for _, w := range works {
			if w.arrival < oldest.arrival {
				oldest = w
			}
			if given[w.index] > w.pending {
				t.Fatalf("seed %d: %d of %d pending tokens", seed, given[w.index], w.pending)
			}
		}
		if given[oldest.index] == 0 || total > l.batchTokensMax {
			t.Fatalf("seed %d: the oldest has %d tokens, all have %d of at most %d", seed, given[oldest.index], total, l.batchTokensMax)
		}
	}
}

func TestComposeOrder(t *testing.T) {
	cost := stepCost{prefillToken: 10, decodeRow: 100, known: true}
	prefill := func(index, pending int, key int64) work {
		return work{pending: pending, key: key, arrival: uint64(index), index: index}
	}
	decode := func(index int) work { return work{pending: 1, decode: true, arrival: uint64(index), index: index} }
	for name, c := range map[string]struct {
		works []work
		l     limits
		want  []share
	}{
		"decodes first, then prefill by key": {
			[]work{prefill(0, 100, 9), prefill(1, 30, 1), decode(2)}, limits{512, 16, 1000},
			[]share{{2, 1}, {1, 30}, {0, 60}},
		},
		"the oldest keeps a least chunk": {
			[]work{prefill(0, 100, 9), prefill(1, 300, 1), decode(2)}, limits{512, 16, 1000},
			[]share{{2, 1}, {1, 74}, {0, 16}},
		},
		"a spent budget leaves the least chunk": {
			[]work{decode(0), decode(1), prefill(2, 100, 0), prefill(3, 100, 0)}, limits{512, 16, 150},
			[]share{{0, 1}, {1, 1}, {2, 16}},
		},
		"a full batch leaves the oldest decode": {
			[]work{decode(0), decode(1), prefill(2, 100, 0)}, limits{2, 16, 150},
			[]share{{0, 1}, {2, 1}},
		},
		"four budgets where nobody waits for a token": {
			[]work{prefill(0, 1000, 0)}, limits{512, 16, 1000},
			[]share{{0, 400}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := compose(nil, c.works, &cost, c.l)
			if len(got) != len(c.want) {
				t.Fatalf("got %v; want %v", got, c.want)
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Fatalf("got %v; want %v", got, c.want)
				}
			}
		})
	}
}

func TestStepCostLearns(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	truth := func(rows, tokens int) float64 { return 2e6 + 3e5*float64(rows) + 1e5*float64(tokens) }
	var c stepCost
	for range 3000 {
		rows, tokens := r.IntN(20), r.IntN(3)*r.IntN(200)
		c.observe(rows, tokens, time.Duration(truth(rows, tokens)*(0.9+0.2*r.Float64())))
	}
	for _, at := range [][2]int{{1, 0}, {16, 0}, {4, 100}, {0, 300}} {
		got, want := c.predict(at[0], at[1]), truth(at[0], at[1])
		if math.Abs(got-want) > 0.25*want {
			t.Errorf("%d rows and %d tokens: predicted %.0f; the truth is %.0f", at[0], at[1], got, want)
		}
	}
	before := c.predict(4, 100)
	c.observe(4, 100, time.Hour)
	if after := c.predict(4, 100); after > 2*before {
		t.Errorf("one stopped step moved the estimate from %.0f to %.0f", before, after)
	}
}
