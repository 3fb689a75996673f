package step

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// composed is one step with what it was made from.
type composed struct {
	works  []Work
	shares []Share
	limits Limits
	cost   Cost
	credit [Levels]float64 // before it
	tenth  float64         // tokens that the long lane had coming
}

// part is what the works that ok chooses do in the step.
func (s *composed) part(ok func(w *Work) bool) (l Load) {
	for _, sh := range s.shares {
		w := &s.works[sh.Index]
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

func every(*Work) bool { return true }

// violation says which promise of the package a step breaks; "" is none. It
// looks at the result alone.
func (s *composed) violation() string {
	tokens, seen := 0, map[int]bool{}
	top, first := Levels, -1
	for i := range s.works {
		w := &s.works[i]
		if w.Level < top || w.Level == top && w.Arrival < s.works[first].Arrival {
			top, first = w.Level, i
		}
	}
	for _, sh := range s.shares {
		if seen[sh.Index] || sh.Tokens < 1 || sh.Tokens > s.works[sh.Index].Pending {
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
	if n := len(s.works); top == 0 && s.limits.RowsMax >= 2*n && s.limits.TokensMax >= 2*(n+s.limits.TokensMin) {
		for i := range s.works {
			if s.works[i].Level == 0 && s.works[i].Decode && !seen[i] {
				return fmt.Sprintf("decode row %d is left out", i)
			}
		}
	}
	return s.overBudget(top)
}

// overBudget checks what the step takes; slack is for rounding.
func (s *composed) overBudget(top int) string {
	const slack = 1.000001
	lead := func(w *Work) bool { return w.Level == top }
	rows := func(w *Work) bool { return lead(w) && w.Decode }
	// What a chunk of TokensMin takes wherever it may be, what the long lane may
	// take, and the one token of the oldest long prompt.
	least, longLeast, longOldest := 0.0, 0.0, 0.0
	for i := range s.works {
		w := &s.works[i]
		if lead(w) && !w.Decode {
			least = max(least, s.cost.chunk(s.limits.TokensMin, w.Context))
			longLeast = max(longLeast, s.cost.chunk(max(1, int(s.tenth)), w.Context))
			longOldest = max(longOldest, s.cost.chunk(1, w.Context))
		}
	}
	alone := s.cost.step(s.part(rows))
	led := s.cost.step(s.part(lead))
	urgent := top == 0 && s.part(rows).DecodeRows > 0
	budget := float64(s.limits.Budget)
	if !urgent {
		budget *= patientBudgets
	}
	if top > 0 {
		budget = max(budget, float64(s.limits.BackgroundBudget), aloneStretch*(s.cost.Base+s.cost.row(1000))) // contexts are shorter
	}
	if led > slack*(max(budget, alone)+2*least+longLeast+longOldest) { // a chunk of each lane
		return fmt.Sprintf("the leading level takes %.0f of %.0f, its rows %.0f", led, budget, alone)
	}
	if urgent {
		long := s.cost.step(s.part(func(w *Work) bool { return rows(w) || lead(w) && w.Long }))
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
		for i := range s.works {
			if w := &s.works[i]; w.Level == level {
				unit = max(unit, s.cost.row(w.Context), s.cost.chunk(1, w.Context))
			}
		}
		beyond += s.credit[level] + unit
	}
	if trailed := s.cost.step(s.part(every)) - led; trailed > slack*beyond {
		return fmt.Sprintf("trailing levels add %.0f to %.0f", trailed, led)
	}
	return ""
}

func randomWorks(r *rand.Rand) (works []Work) {
	for i := range 1 + r.IntN(14) {
		w := Work{Pending: 1 + r.IntN(400), Context: r.IntN(3) * r.IntN(1000) / 2, Level: max(0, r.IntN(5)-2), Long: r.IntN(3) == 0, Key: int64(r.IntN(4)),
			Arrival: uint64(r.IntN(1000)*16 + i), Since: uint64(r.IntN(10)), Index: i}
		if r.IntN(2) == 0 {
			w.Pending, w.Decode = 1, true
		}
		works = append(works, w)
	}
	return works
}

func randomLimits(r *rand.Rand) Limits {
	return Limits{TokensMax: 1 + r.IntN(300), RowsMax: 1 + r.IntN(20), TokensMin: 1 + r.IntN(20), Budget: time.Duration(1 + r.IntN(100_000)),
		BackgroundBudget: time.Duration(1 + r.IntN(50_000)), Stretch: r.Float64(), Floor: 0.3 * r.Float64(), LongShare: 0.1 + 0.9*r.Float64(), LongStretch: 2 * r.Float64()}
}

func randomCost(r *rand.Rand) Cost {
	return Cost{Base: float64(1 + r.IntN(20_000)), PrefillToken: float64(r.IntN(500)), PrefillContext: r.Float64() / 2, DecodeRow: float64(r.IntN(3000)), DecodeContext: r.Float64()}
}

// greedy fills a step in order of arrival, as many engines do.
func greedy(works []Work, l Limits) (shares []Share) {
	works = slices.Clone(works)
	slices.SortFunc(works, func(a, b Work) int { return int(a.Arrival) - int(b.Arrival) })
	for i := range works {
		if n := min(works[i].Pending, l.TokensMax); n > 0 && len(shares) < l.RowsMax {
			shares = append(shares, Share{works[i].Index, n})
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
			s := composed{works: randomWorks(r), limits: c.Limits, cost: cost, credit: c.credit, tenth: c.longCredit}
			s.shares = c.Compose(nil, slices.Clone(s.works), &cost, now)
			if v := s.violation(); v != "" {
				t.Fatalf("seed %d: %s\nworks %+v\nshares %v\nlimits %+v\ncost %+v", seed, v, s.works, s.shares, s.limits, cost)
			}
			if c.Load() != s.part(every) {
				t.Fatalf("seed %d: the load is %+v; want %+v", seed, c.Load(), s.part(every))
			}
			took := time.Duration(cost.step(c.Load()))
			now += took
			c.Ran(took)
			s.shares = greedy(s.works, s.limits)
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

// world is works that go on: a prefill becomes a decode of so many tokens.
type world struct {
	Composer
	cost  Cost
	now   time.Duration
	step  uint64
	works []Work
	left  []int // tokens to decode, by index
	time  [Levels]float64
	last  composed
}

func (w *world) add(x Work, decode int) int {
	x.Index, x.Arrival, x.Since = len(w.left), uint64(len(w.left)+1), w.step
	w.works, w.left = append(w.works, x), append(w.left, decode)
	return x.Index
}

func (w *world) turn() {
	w.step++
	all := make([]Work, len(w.left)) // by index
	for _, x := range w.works {
		all[x.Index] = x
	}
	shares := w.Compose(nil, slices.Clone(w.works), &w.cost, w.now)
	w.last = composed{works: all, shares: shares, limits: w.Limits, cost: w.cost}
	took := w.cost.step(w.Load())
	w.now += time.Duration(took)
	w.Ran(time.Duration(took))
	for level := range w.time {
		w.time[level] += w.cost.step(w.last.part(func(x *Work) bool { return x.Level == level })) - w.cost.Base
	}
	for i := range w.works {
		x := &w.works[i]
		n := w.last.given(x.Index)
		if n == 0 {
			continue
		}
		x.Since, x.Pending, x.Context = w.step, x.Pending-n, x.Context+n
		if x.Pending == 0 && w.left[x.Index] > 0 {
			w.left[x.Index]--
			x.Pending, x.Decode = 1, true
		}
	}
	w.works = slices.DeleteFunc(w.works, func(x Work) bool { return x.Pending == 0 })
}

func TestTimeThatIsThereIsUsed(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 6))
		c, cost := Composer{Limits: randomLimits(r)}, randomCost(r)
		c.Limits.Budget, c.Limits.BackgroundBudget, c.Limits.Stretch, c.Limits.LongStretch = 1e15, 1e15, 1e9, 1e9
		c.Limits.RowsMax = 100
		works := randomWorks(r)
		longs, pending, tokens := 0, 0, 0
		for i := range works {
			if !works[i].Decode && works[i].Long {
				if longs++; longs > 1 { // one of them is computed at a time
					works[i].Long = false
				}
			}
			pending += works[i].Pending
		}
		for _, sh := range c.Compose(nil, works, &cost, 0) {
			tokens += sh.Tokens
		}
		if tokens != min(pending, c.Limits.TokensMax) {
			t.Fatalf("seed %d: %d of %d pending tokens with room for %d", seed, tokens, pending, c.Limits.TokensMax)
		}
	}
}

func TestEveryoneEnds(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 4))
		w := world{Composer: Composer{Limits: randomLimits(r)}, cost: randomCost(r)}
		total := 0
		for range 25 {
			for _, x := range randomWorks(r) {
				if x.Decode {
					x.Pending, x.Decode = 5, false
				}
				total += x.Pending
				out := r.IntN(20)
				total += out
				w.add(x, out)
			}
			w.turn()
		}
		for turns := 25; len(w.works) > 0; turns++ {
			if turns > total+25 { // a token in every step, at least
				t.Fatalf("seed %d: %d works are left after %d turns: %+v", seed, len(w.works), turns, w.works)
			}
			w.turn()
		}
	}
}

// served is a world like the engine's: steps in milliseconds.
func served(stretch, floor float64) *world {
	return &world{
		Composer: Composer{Limits: Limits{TokensMax: 512, RowsMax: 64, TokensMin: 16, Budget: 50e6, BackgroundBudget: 25e6,
			Stretch: stretch, Floor: floor, LongShare: 0.25, LongStretch: 1}},
		cost: Cost{Base: 2e6, PrefillToken: 5e5, PrefillContext: 400, DecodeRow: 5e5, DecodeContext: 500},
	}
}

// forever is a decode row that does not end.
func forever(level, context int) Work {
	return Work{Pending: 1, Decode: true, Level: level, Context: context}
}

func TestLevelsHaveTheirFloor(t *testing.T) {
	// Rows that the stretch has no room for, of two levels, beside one of level 0.
	share := func(floor float64) (least float64, gaps int) {
		w := served(0.01, floor)
		w.add(forever(0, 100), 1<<30)
		waited := map[int]int{}
		for i := range 12 {
			waited[w.add(forever(1+i%2, 500*i), 1<<30)] = 0
		}
		for range 4000 {
			w.turn()
			for i := range waited {
				waited[i]++
				if w.last.given(i) > 0 {
					waited[i] = 0
				}
				gaps = max(gaps, waited[i])
			}
		}
		total := float64(w.now)
		return min(w.time[1], w.time[2]) / total, gaps
	}
	if least, gaps := share(0.05); least < 0.049 || gaps > 500 {
		t.Errorf("a level has %.4f of the time and someone waited %d steps; want 0.05 and a bound", least, gaps)
	}
	if least, gaps := share(0); least > 0 || gaps < 4000 {
		t.Errorf("the control, without a floor, has %.4f and waits of %d steps", least, gaps)
	}
}

func TestBackgroundStretchesByItsShare(t *testing.T) {
	for _, stretch := range []float64{0.2, 5} {
		w := served(stretch, 0.05)
		for range 4 {
			w.add(forever(0, 200), 1<<30)
		}
		for i := range 16 {
			w.add(Work{Pending: 300, Level: 2, Key: int64(i)}, 1<<30)
		}
		over, steps := 0, 0
		for range 3000 {
			w.turn()
			led := w.cost.step(w.last.part(func(x *Work) bool { return x.Level == 0 }))
			unit := w.cost.row(3000)
			steps++
			if w.cost.step(w.Load()) > 1.2*led+unit {
				over++
			}
		}
		if within := over == 0; within != (stretch == 0.2) {
			t.Errorf("stretch %v: %d of %d steps are longer than a fifth and a row more", stretch, over, steps)
		}
		if used := w.time[2] / (w.time[0] + w.time[2]); stretch == 0.2 && used < 0.15 {
			t.Errorf("background work has %.3f of the time; want most of a sixth", used)
		}
	}
}

func TestLongPromptBesideStreams(t *testing.T) {
	w := served(0.2, 0.05)
	for range 4 {
		w.add(forever(0, 200), 1<<30)
	}
	long := w.add(Work{Pending: 7900, Long: true}, 0)
	for steps := 0; len(w.works) > 4; steps++ {
		w.turn()
		undisturbed := w.cost.step(w.last.part(func(x *Work) bool { return x.Decode }))
		if gap := w.cost.step(w.Load()); gap > 2.0001*undisturbed {
			t.Fatalf("step %d takes %.1f of undisturbed %.1f ms", steps, gap/1e6, undisturbed/1e6)
		}
		if w.last.given(long) == 0 {
			t.Fatalf("the long prompt stands still in step %d", steps)
		}
	}
}

func TestLanesShareAStep(t *testing.T) {
	for name, budget := range map[string]time.Duration{"wide": 50e6, "spent": 1} {
		w := served(0.2, 0.05)
		w.Limits.Budget = budget
		w.add(forever(0, 200), 1<<30)
		long := w.add(Work{Pending: 1 << 20, Long: true, Key: -1}, 0)
		other := w.add(Work{Pending: 1 << 20, Long: true, Key: 5}, 0)
		w.add(Work{Pending: 1 << 20}, 0)
		short, slow := 0, 0
		for range 500 {
			w.turn()
			for _, sh := range w.last.shares {
				switch x := &w.last.works[sh.Index]; {
				case x.Decode:
				case x.Long:
					slow += sh.Tokens
				default:
					short += sh.Tokens
				}
			}
			if w.last.given(long) > 0 && w.last.given(other) > 0 {
				t.Fatalf("%s: two long prompts in one step", name)
			}
			for i := range w.works { // all tokens cost the same
				w.works[i].Context = 0
			}
		}
		if share := float64(slow) / float64(slow+short); share < 0.099 || share > 0.26 {
			t.Errorf("%s: the long lane has %.3f of the prefill; want 0.1 to 0.25", name, share)
		}
	}
}

func TestComposeExamples(t *testing.T) {
	cost := Cost{PrefillToken: 10, DecodeRow: 100}
	limits := Limits{TokensMax: 512, RowsMax: 64, TokensMin: 16, Budget: 1000, BackgroundBudget: 500, Stretch: 0.2, LongShare: 0.25, LongStretch: 1}
	prefill := func(index, pending int, key int64) Work {
		return Work{Pending: pending, Key: key, Arrival: uint64(index), Index: index}
	}
	long := func(w Work) Work { w.Long = true; return w }
	at := func(level int, w Work) Work { w.Level = level; return w }
	decode := func(index int) Work { return Work{Pending: 1, Decode: true, Arrival: uint64(index), Index: index} }
	goal := func(w Work, d time.Duration) Work { w.Goal = d; return w }
	tight := limits
	tight.Budget = 150
	narrow := tight
	narrow.TokensMax = 2
	for name, c := range map[string]struct {
		works []Work
		l     Limits
		want  []Share
	}{
		"decodes first, then prefill by key": {
			[]Work{prefill(0, 100, 9), prefill(1, 30, 1), decode(2)}, limits,
			[]Share{{2, 1}, {1, 30}, {0, 60}},
		},
		"the oldest keeps a least chunk": {
			[]Work{prefill(0, 100, 9), prefill(1, 300, 1), decode(2)}, limits,
			[]Share{{2, 1}, {1, 74}, {0, 16}},
		},
		"a spent budget leaves the least chunk": {
			[]Work{decode(0), decode(1), prefill(2, 100, 0), prefill(3, 100, 0)}, tight,
			[]Share{{0, 1}, {1, 1}, {2, 16}},
		},
		"a full batch leaves the oldest decode": {
			[]Work{decode(0), decode(1), prefill(2, 100, 0)}, narrow,
			[]Share{{0, 1}, {2, 1}},
		},
		"four budgets where nobody waits for a token": {
			[]Work{prefill(0, 1000, 0)}, limits,
			[]Share{{0, 400}},
		},
		"a row's goal is the budget": {
			[]Work{goal(decode(0), 400), prefill(1, 1000, 0)}, limits,
			[]Share{{0, 1}, {1, 30}},
		},
		"a long prompt takes a quarter beside short ones that wait": {
			[]Work{prefill(0, 1000, 0), long(prefill(1, 1000, 0))}, limits,
			[]Share{{0, 300}, {1, 100}},
		},
		"a long prompt takes what short ones leave": {
			[]Work{prefill(0, 50, 0), long(prefill(1, 1000, 0))}, limits,
			[]Share{{0, 50}, {1, 350}},
		},
		"a long prompt doubles what rows take": {
			[]Work{decode(0), decode(1), long(prefill(2, 1000, 0))}, limits,
			[]Share{{0, 1}, {1, 1}, {2, 20}},
		},
		"the long prompt with the least key is the one, and the oldest goes on": {
			[]Work{long(prefill(0, 1000, 5)), long(prefill(1, 1000, 0)), prefill(2, 20, 0)}, limits,
			[]Share{{0, 1}, {2, 20}, {1, 379}},
		},
		"a long prompt gives way although it is half done": {
			[]Work{prefill(0, 20, 0), long(prefill(1, 1000, 0)), long(Work{Pending: 400, Context: 400, Key: 3, Arrival: 2, Index: 2})}, limits,
			[]Share{{0, 20}, {1, 380}},
		},
		"background rows fill a fifth": {
			[]Work{decode(0), decode(1), decode(2), decode(3), decode(4), at(1, decode(5)), at(1, decode(6)), at(2, decode(7))}, limits,
			[]Share{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}},
		},
		"a background prompt takes what fits": {
			[]Work{decode(0), at(2, prefill(1, 100, 0))}, limits,
			[]Share{{0, 1}, {1, 2}},
		},
		"background alone has four budgets, each level what is left": {
			[]Work{at(1, decode(0)), at(2, prefill(1, 1000, 0))}, limits,
			[]Share{{0, 1}, {1, 390}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			composer := Composer{Limits: c.l}
			if got := composer.Compose(nil, c.works, &cost, 0); !slices.Equal(got, c.want) {
				t.Fatalf("got %v; want %v", got, c.want)
			}
		})
	}
}

func TestBackgroundStepsAreShortWhileOthersMayCome(t *testing.T) {
	w := served(0.2, 0.05)
	w.add(Work{Pending: 1 << 20, Level: 2}, 0)
	w.turn()
	patient := w.cost.step(w.Load())
	urgent := w.add(Work{Pending: 10}, 0)
	w.turn()
	if w.last.given(urgent) != 10 {
		t.Fatal("the interactive prompt did not run")
	}
	for w.now < 9*time.Second {
		w.works[0].Context = 0
		w.turn()
		if took := w.cost.step(w.Load()); took > 25e6 {
			t.Fatalf("a background step takes %.1f ms at %v", took/1e6, w.now)
		}
	}
	w.now += 2 * time.Second
	w.works[0].Context = 0
	w.turn()
	if took := w.cost.step(w.Load()); took < 0.9*patient || patient < 190e6 {
		t.Errorf("steps of %.1f ms at first and %.1f ms later; want four budgets", patient/1e6, took/1e6)
	}
}

func TestComposeAllocatesNothing(t *testing.T) {
	w := served(0.2, 0.05)
	r := rand.New(rand.NewPCG(5, 5))
	works := randomWorks(r)
	scratch, dst := slices.Clone(works), make([]Share, 0, len(works))
	if n := testing.AllocsPerRun(100, func() {
		copy(scratch, works)
		dst = w.Compose(dst[:0], scratch, &w.cost, w.now)
		w.Ran(time.Millisecond)
	}); n > 0 {
		t.Errorf("composing allocates %v times", n)
	}
}

func BenchmarkCompose(b *testing.B) {
	w := served(0.2, 0.05)
	for i := range 64 {
		if i%4 == 0 {
			w.add(Work{Pending: 100 + i, Level: i % 3, Long: i%8 == 0}, 0)
		} else {
			w.add(forever(i%3, 10*i), 0)
		}
	}
	scratch, dst := make([]Work, 64), make([]Share, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		copy(scratch, w.works)
		dst = w.Compose(dst[:0], scratch, &w.cost, w.now)
		w.Ran(time.Millisecond)
	}
}
