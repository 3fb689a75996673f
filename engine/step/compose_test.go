package step

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// composed is one step with what it was made from.
type composed struct {
	candidates []Candidate
	shares     []Share
	limits     Limits
	cost       cost.Cost
	credit     [Levels]float64 // before it
	tenth      float64         // tokens that the long lane had coming
}

// part is what the candidates that ok chooses do in the step.
func (s *composed) part(ok func(w *Candidate) bool) (l cost.Load) {
	for _, sh := range s.shares {
		w := &s.candidates[sh.Index]
		switch {
		case !ok(w):
		case w.Decode:
			l.AddRow(w.Context)
		default:
			l.AddChunk(sh.Tokens, w.Context)
		}
	}
	return l
}

func (s *composed) given(index int) int {
	for _, sh := range s.shares {
		if sh.Index == index {
			return sh.Tokens
		}
	}
	return 0
}

func every(*Candidate) bool { return true }

// violation says which promise of the package a step breaks; "" is none. It
// looks at the result alone.
func (s *composed) violation() string {
	tokens, seen := 0, map[int]bool{}
	top, first := Levels, -1
	for i := range s.candidates {
		w := &s.candidates[i]
		if w.Level < top || w.Level == top && w.Arrival < s.candidates[first].Arrival {
			top, first = w.Level, i
		}
	}
	for _, sh := range s.shares {
		if seen[sh.Index] || sh.Tokens < 1 || sh.Tokens > s.candidates[sh.Index].Pending {
			return fmt.Sprintf("work %d has a share of %d, twice %v", sh.Index, sh.Tokens, seen[sh.Index])
		}
		seen[sh.Index] = true
		tokens += sh.Tokens
	}
	switch {
	case tokens > s.limits.TokensMax || len(s.shares) > s.limits.RowsMax:
		return fmt.Sprintf("%d tokens and %d rows", tokens, len(s.shares))
	case !seen[first]:
		return "the first has no share"
	}
	if n := len(s.candidates); top == 0 && s.limits.RowsMax >= 2*n && s.limits.TokensMax >= 2*(n+s.limits.TokensMin) {
		for i := range s.candidates {
			if s.candidates[i].Level == 0 && s.candidates[i].Decode && !seen[i] {
				return fmt.Sprintf("decode row %d is left out", i)
			}
		}
	}
	return s.overBudget(top)
}

// overBudget checks what the step takes; slack is for rounding.
func (s *composed) overBudget(top int) string {
	const slack = 1.000001
	lead := func(w *Candidate) bool { return w.Level == top }
	rows := func(w *Candidate) bool { return lead(w) && w.Decode }
	// What a chunk of TokensMin takes wherever it may be, what the long lane may
	// take, and the one token of the oldest long prompt.
	least, longLeast, longOldest := 0.0, 0.0, 0.0
	for i := range s.candidates {
		w := &s.candidates[i]
		if lead(w) && !w.Decode {
			least = max(least, s.cost.ChunkNS(s.limits.TokensMin, w.Context))
			longLeast = max(longLeast, s.cost.ChunkNS(max(1, int(s.tenth)), w.Context))
			longOldest = max(longOldest, s.cost.ChunkNS(1, w.Context))
		}
	}
	alone := s.cost.StepNS(s.part(rows))
	led := s.cost.StepNS(s.part(lead))
	urgent := top == 0 && s.part(rows).DecodeRows > 0
	budget := float64(s.limits.Budget)
	if !urgent {
		budget *= cost.PatientBudgets
	}
	if top > 0 {
		budget = max(budget, float64(s.limits.BackgroundBudget), aloneStretch*(s.cost.Base+s.cost.RowNS(1000))) // contexts are shorter
	}
	if led > slack*(max(budget, alone)+2*least+longLeast+longOldest) { // a chunk of each lane
		return fmt.Sprintf("the leading level takes %.0f of %.0f, its rows %.0f", led, budget, alone)
	}
	if urgent {
		long := s.cost.StepNS(s.part(func(w *Candidate) bool { return rows(w) || lead(w) && w.Long }))
		if long-alone > slack*(max(s.limits.LongStretch*alone, longLeast)+longOldest) {
			return fmt.Sprintf("long prefill adds %.0f to rows of %.0f", long-alone, alone)
		}
	}
	if top > 0 {
		return ""
	}
	beyond := s.limits.Stretch * led
	for level := 1; level < Levels; level++ {
		if s.credit[level] == 0 {
			continue
		}
		unit := 0.0 // one more than the credit has room for
		for i := range s.candidates {
			if w := &s.candidates[i]; w.Level == level {
				unit = max(unit, s.cost.RowNS(w.Context), s.cost.ChunkNS(1, w.Context))
			}
		}
		beyond += s.credit[level] + unit
	}
	if trailed := s.cost.StepNS(s.part(every)) - led; trailed > slack*beyond {
		return fmt.Sprintf("trailing levels add %.0f to %.0f", trailed, led)
	}
	return ""
}

func randomCandidates(r *rand.Rand) (candidates []Candidate) {
	for i := range 1 + r.IntN(14) {
		w := Candidate{Pending: 1 + r.IntN(400), Context: r.IntN(3) * r.IntN(1000) / 2, Level: max(0, r.IntN(5)-2), Long: r.IntN(3) == 0, Key: int64(r.IntN(4)),
			Arrival: uint64(r.IntN(1000)*16 + i), Since: uint64(r.IntN(10)), Index: i}
		if r.IntN(2) == 0 {
			w.Pending, w.Decode = 1, true
		}
		candidates = append(candidates, w)
	}
	return candidates
}

func randomLimits(r *rand.Rand) Limits {
	return Limits{
		Room:             cost.Room{TokensMax: 1 + r.IntN(300), TokensMin: 1 + r.IntN(20), Budget: time.Duration(1 + r.IntN(100_000))},
		RowsMax:          1 + r.IntN(20),
		BackgroundBudget: time.Duration(1 + r.IntN(50_000)), Stretch: r.Float64(), Floor: 0.3 * r.Float64(), LongShare: 0.1 + 0.9*r.Float64(), LongStretch: 2 * r.Float64()}
}

func randomCost(r *rand.Rand) cost.Cost {
	return cost.Cost{Base: float64(1 + r.IntN(20_000)), PrefillToken: float64(r.IntN(500)), PrefillContext: r.Float64() / 2, DecodeRow: float64(r.IntN(3000)), DecodeContext: r.Float64()}
}

// greedy fills a step in order of arrival, as many engines do.
func greedy(candidates []Candidate, l Limits) (shares []Share) {
	candidates = slices.Clone(candidates)
	slices.SortFunc(candidates, func(a, b Candidate) int { return int(a.Arrival) - int(b.Arrival) })
	for i := range candidates {
		if n := min(candidates[i].Pending, l.TokensMax); n > 0 && len(shares) < l.RowsMax {
			shares = append(shares, Share{candidates[i].Index, n})
			l.TokensMax -= n
		}
	}
	return shares
}

func TestStepsKeepTheirPromises(t *testing.T) {
	caught := map[string]int{}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		c := Composer{Limits: randomLimits(r)}
		cost := randomCost(r)
		now := time.Duration(0)
		for range 5 { // with the credits that the steps before leave
			s := composed{candidates: randomCandidates(r), limits: c.Limits, cost: cost, credit: c.credit, tenth: c.longCredit}
			s.shares = c.Compose(nil, slices.Clone(s.candidates), &cost, now)
			if v := s.violation(); v != "" {
				t.Fatalf("seed %d: %s\ncandidates %+v\nshares %v\nlimits %+v\ncost %+v", seed, v, s.candidates, s.shares, s.limits, cost)
			}
			if c.Load() != s.part(every) {
				t.Fatalf("seed %d: the load is %+v; want %+v", seed, c.Load(), s.part(every))
			}
			took := time.Duration(cost.StepNS(c.Load()))
			now += took
			c.Ran(took)
			s.shares = greedy(s.candidates, s.limits)
			if v := s.violation(); v != "" {
				caught[v[:8]]++
			}
		}
	}
	for _, v := range []string{"the firs", "the lead", "trailing", "long pre"} {
		if caught[v] < 100 {
			t.Errorf("the control, steps in order of arrival, broke %q %d times; want it often: %v", v, caught[v], caught)
		}
	}
}
