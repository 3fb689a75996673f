package step

import (
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// example is a step at 10 ns a prompt token and 100 ns a row.
type example struct {
	candidates []Candidate
	l          Limits
	want       []Share
}

func examples() map[string]example {
	limits := Limits{Room: cost.Room{Budget: 1000, TokensMin: 16, TokensMax: 512}, RowsMax: 64, BackgroundBudget: 500, Stretch: 0.2, LongShare: 0.25, LongStretch: 1}
	prefill := func(index, pending int, key int64) Candidate {
		return Candidate{Pending: pending, Key: key, Arrival: uint64(index), Index: index}
	}
	long := func(w Candidate) Candidate { w.Long = true; return w }
	at := func(level int, w Candidate) Candidate { w.Level = level; return w }
	decode := func(index int) Candidate {
		return Candidate{Pending: 1, Decode: true, Arrival: uint64(index), Index: index}
	}
	goal := func(w Candidate, d time.Duration) Candidate { w.Goal = d; return w }
	tight := limits
	tight.Budget = 150
	narrow := tight
	narrow.TokensMax = 2
	return map[string]example{
		"decodes first, then prefill by key": {
			[]Candidate{prefill(0, 100, 9), prefill(1, 30, 1), decode(2)}, limits,
			[]Share{{2, 1}, {1, 30}, {0, 60}},
		},
		"the oldest keeps a least chunk": {
			[]Candidate{prefill(0, 100, 9), prefill(1, 300, 1), decode(2)}, limits,
			[]Share{{2, 1}, {1, 74}, {0, 16}},
		},
		"a spent budget leaves the least chunk": {
			[]Candidate{decode(0), decode(1), prefill(2, 100, 0), prefill(3, 100, 0)}, tight,
			[]Share{{0, 1}, {1, 1}, {2, 16}},
		},
		"a full batch leaves the oldest decode": {
			[]Candidate{decode(0), decode(1), prefill(2, 100, 0)}, narrow,
			[]Share{{0, 1}, {2, 1}},
		},
		"four budgets where nobody waits for a token": {
			[]Candidate{prefill(0, 1000, 0)}, limits,
			[]Share{{0, 400}},
		},
		"a row's goal is the budget": {
			[]Candidate{goal(decode(0), 400), prefill(1, 1000, 0)}, limits,
			[]Share{{0, 1}, {1, 30}},
		},
		"a long prompt takes a quarter beside short ones that wait": {
			[]Candidate{prefill(0, 1000, 0), long(prefill(1, 1000, 0))}, limits,
			[]Share{{0, 300}, {1, 100}},
		},
		"a long prompt takes what short ones leave": {
			[]Candidate{prefill(0, 50, 0), long(prefill(1, 1000, 0))}, limits,
			[]Share{{0, 50}, {1, 350}},
		},
		"a long prompt doubles what rows take": {
			[]Candidate{decode(0), decode(1), long(prefill(2, 1000, 0))}, limits,
			[]Share{{0, 1}, {1, 1}, {2, 20}},
		},
		"the long prompt with the least key is the one, and the oldest goes on": {
			[]Candidate{long(prefill(0, 1000, 5)), long(prefill(1, 1000, 0)), prefill(2, 20, 0)}, limits,
			[]Share{{0, 1}, {2, 20}, {1, 379}},
		},
		"a long prompt gives way although it is half done": {
			[]Candidate{prefill(0, 20, 0), long(prefill(1, 1000, 0)), long(Candidate{Pending: 400, Context: 400, Key: 3, Arrival: 2, Index: 2})}, limits,
			[]Share{{0, 20}, {1, 380}},
		},
		"background rows fill a fifth": {
			[]Candidate{decode(0), decode(1), decode(2), decode(3), decode(4), at(1, decode(5)), at(1, decode(6)), at(2, decode(7))}, limits,
			[]Share{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}},
		},
		"a background prompt takes what fits": {
			[]Candidate{decode(0), at(2, prefill(1, 100, 0))}, limits,
			[]Share{{0, 1}, {1, 2}},
		},
		"background alone has four budgets, each level what is left": {
			[]Candidate{at(1, decode(0)), at(2, prefill(1, 1000, 0))}, limits,
			[]Share{{0, 1}, {1, 390}},
		},
	}
}

func TestComposeExamples(t *testing.T) {
	cost := cost.Cost{PrefillToken: 10, DecodeRow: 100}
	for name, c := range examples() {
		t.Run(name, func(t *testing.T) {
			composer := Composer{Limits: c.l}
			if got := composer.Compose(nil, c.candidates, &cost, 0); !slices.Equal(got, c.want) {
				t.Fatalf("got %v; want %v", got, c.want)
			}
		})
	}
}

// TestEveryTrailingLevelHasItsFloor: where the tokens of a step are what is short, and
// not its time, batch work does not take the place that is kept for offline work.
func TestEveryTrailingLevelHasItsFloor(t *testing.T) {
	const floor, steps = 0.05, 400
	price := cost.Cost{Base: 1000, PrefillToken: 10, DecodeRow: 100}
	c := Composer{Limits: Limits{
		Room: cost.Room{Budget: 100_000, TokensMin: 16, TokensMax: 512}, RowsMax: 64,
		BackgroundBudget: 50_000, Stretch: 0.2, BatchStretch: 1, Floor: floor, LongShare: 0.25, LongStretch: 1,
	}}
	var all float64
	var tokens [3]int
	for range steps {
		work := []Candidate{{Pending: 1, Decode: true, Context: 10, Arrival: 9, Index: 9}}
		for level := range 3 {
			work = append(work, Candidate{Pending: 100_000, Level: level, Arrival: uint64(level), Index: level})
		}
		for _, s := range c.Compose(nil, work, &price, 0) {
			if s.Index < 3 {
				tokens[s.Index] += s.Tokens
			}
		}
		load := c.Load()
		took := price.StepNS(load)
		c.Ran(time.Duration(took))
		all += took
	}
	for level := 1; level < 3; level++ {
		if got := float64(tokens[level]) * price.PrefillToken / all; got < 0.9*floor || got > 1.3*floor {
			t.Errorf("level %d has %.3f of the time beside interactive prefill that fills every step; its floor is %v", level, got, floor)
		}
	}
}
