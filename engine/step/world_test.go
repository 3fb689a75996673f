package step

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// world is candidates over many steps: a prefill becomes a decode of some tokens.
type world struct {
	Composer
	cost       cost.Cost
	now        time.Duration
	step       uint64
	candidates []Candidate
	left       []int // tokens to decode, by index
	time       [Levels]float64
	last       composed
}

func (w *world) add(x Candidate, decode int) int {
	x.Index, x.Arrival, x.Since = len(w.left), uint64(len(w.left)+1), w.step
	w.candidates, w.left = append(w.candidates, x), append(w.left, decode)
	return x.Index
}

func (w *world) turn() {
	w.step++
	all := make([]Candidate, len(w.left)) // by index
	for _, x := range w.candidates {
		all[x.Index] = x
	}
	shares := w.Compose(nil, slices.Clone(w.candidates), &w.cost, w.now)
	w.last = composed{candidates: all, shares: shares, limits: w.Limits, cost: w.cost}
	took := w.cost.StepNS(w.Load())
	w.now += time.Duration(took)
	w.Ran(time.Duration(took))
	for level := range w.time {
		w.time[level] += w.cost.StepNS(w.last.part(func(x *Candidate) bool { return x.Level == level })) - w.cost.Base
	}
	for i := range w.candidates {
		x := &w.candidates[i]
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
	w.candidates = slices.DeleteFunc(w.candidates, func(x Candidate) bool { return x.Pending == 0 })
}

func TestTimeThatIsThereIsUsed(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 6))
		c, cost := Composer{Limits: randomLimits(r)}, randomCost(r)
		c.Limits.Budget, c.Limits.BackgroundBudget, c.Limits.Stretch, c.Limits.LongStretch = 1e15, 1e15, 1e9, 1e9
		c.Limits.RowsMax = 100
		candidates := randomCandidates(r)
		longs, pending, tokens := 0, 0, 0
		level0, rows := false, false
		for i := range candidates {
			level0 = level0 || candidates[i].Level == 0
			rows = rows || candidates[i].Level == 0 && candidates[i].Decode
			if !candidates[i].Decode && candidates[i].Long {
				if longs++; longs > 1 { // one of them is computed at a time
					candidates[i].Long = false
				}
			}
			pending += candidates[i].Pending
		}
		if level0 && !rows {
			continue // nothing is added to prefill that people wait for
		}
		for _, sh := range c.Compose(nil, candidates, &cost, 0) {
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
			for _, x := range randomCandidates(r) {
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
		for turns := 25; len(w.candidates) > 0; turns++ {
			if turns > total+25 { // a token in every step, at least
				t.Fatalf("seed %d: %d candidates are left after %d turns: %+v", seed, len(w.candidates), turns, w.candidates)
			}
			w.turn()
		}
	}
}

// served is a world like the engine's: steps in milliseconds.
func served(stretch, floor float64) *world {
	return &world{
		Composer: Composer{Limits: Limits{Room: cost.Room{Budget: 50e6, TokensMin: 16, TokensMax: 512}, RowsMax: 64, BackgroundBudget: 25e6,
			Stretch: stretch, Floor: floor, LongShare: 0.25, LongStretch: 1}},
		cost: cost.Cost{Base: 2e6, PrefillToken: 5e5, PrefillContext: 400, DecodeRow: 5e5, DecodeContext: 500},
	}
}

// forever is a decode row that does not end.
func forever(level, context int) Candidate {
	return Candidate{Pending: 1, Decode: true, Level: level, Context: context}
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
			w.add(Candidate{Pending: 300, Level: 2, Key: int64(i)}, 1<<30)
		}
		over, steps := 0, 0
		for range 3000 {
			w.turn()
			led := w.cost.StepNS(w.last.part(func(x *Candidate) bool { return x.Level == 0 }))
			unit := w.cost.RowNS(3000)
			steps++
			if w.cost.StepNS(w.Load()) > 1.2*led+unit {
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

// TestBatchStretchesByItsShare: batch prompts beside interactive rows add no more to a
// step than BatchStretch of its interactive part, but for what the floor owes them, and
// use most of that. The control is a larger stretch, which breaks the bound.
func TestBatchStretchesByItsShare(t *testing.T) {
	for _, stretch := range []float64{0.3, 1} {
		for _, bound := range []float64{0.3, 1} {
			w := served(0.2, 0.05)
			w.Composer.Limits.BatchStretch = stretch
			for range 4 {
				w.add(forever(0, 200), 1<<30)
			}
			for i := range 16 {
				w.add(Candidate{Pending: 300, Level: 1, Key: int64(i)}, 1<<30)
			}
			over, most := 0, 0.
			for range 3000 {
				w.turn()
				led := w.cost.StepNS(w.last.part(func(x *Candidate) bool { return x.Level == 0 }))
				added := w.cost.StepNS(w.Load())/led - 1
				most = max(most, added)
				if added > bound+w.cost.RowNS(3000)/led {
					over++
				}
			}
			if within := over == 0; within != (stretch <= bound) {
				t.Errorf("stretch %v: %d steps of 3000 have more than %v and a row added, %.2f at most", stretch, over, bound, most)
			}
			if used := w.time[1] / w.time[0]; used < 0.8*stretch {
				t.Errorf("stretch %v: batch work has %.2f of the time of interactive work; want most of the stretch", stretch, used)
			}
		}
	}
}

// Case C17.
func TestLongPromptBesideStreams(t *testing.T) {
	w := served(0.2, 0.05)
	for range 4 {
		w.add(forever(0, 200), 1<<30)
	}
	long := w.add(Candidate{Pending: 7900, Long: true}, 0)
	for steps := 0; len(w.candidates) > 4; steps++ {
		w.turn()
		undisturbed := w.cost.StepNS(w.last.part(func(x *Candidate) bool { return x.Decode }))
		if gap := w.cost.StepNS(w.Load()); gap > 2.0001*undisturbed {
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
		long := w.add(Candidate{Pending: 1 << 20, Long: true, Key: -1}, 0)
		other := w.add(Candidate{Pending: 1 << 20, Long: true, Key: 5}, 0)
		w.add(Candidate{Pending: 1 << 20}, 0)
		short, slow := 0, 0
		for range 500 {
			w.turn()
			for _, sh := range w.last.shares {
				switch x := &w.last.candidates[sh.Index]; {
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
			for i := range w.candidates { // all tokens cost the same
				w.candidates[i].Context = 0
			}
		}
		if share := float64(slow) / float64(slow+short); share < 0.099 || share > 0.26 {
			t.Errorf("%s: the long lane has %.3f of the prefill; want 0.1 to 0.25", name, share)
		}
	}
}

func TestBackgroundStepsAreShortWhileOthersMayCome(t *testing.T) {
	w := served(0.2, 0.05)
	w.add(Candidate{Pending: 1 << 20, Level: 2}, 0)
	w.turn()
	patient := w.cost.StepNS(w.Load())
	urgent := w.add(Candidate{Pending: 10}, 0)
	w.turn()
	if w.last.given(urgent) != 10 {
		t.Fatal("the interactive prompt did not run")
	}
	for w.now < 9*time.Second {
		w.candidates[0].Context = 0
		w.turn()
		if took := w.cost.StepNS(w.Load()); took > 25e6 {
			t.Fatalf("a background step takes %.1f ms at %v", took/1e6, w.now)
		}
	}
	w.now += 2 * time.Second
	w.candidates[0].Context = 0
	w.turn()
	if took := w.cost.StepNS(w.Load()); took < 0.9*patient || patient < 190e6 {
		t.Errorf("steps of %.1f ms at first and %.1f ms later; want four budgets", patient/1e6, took/1e6)
	}
}

func TestComposeAllocatesNothing(t *testing.T) {
	w := served(0.2, 0.05)
	r := rand.New(rand.NewPCG(5, 5))
	candidates := randomCandidates(r)
	scratch, dst := slices.Clone(candidates), make([]Share, 0, len(candidates))
	if n := testing.AllocsPerRun(100, func() {
		copy(scratch, candidates)
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
			w.add(Candidate{Pending: 100 + i, Level: i % 3, Long: i%8 == 0}, 0)
		} else {
			w.add(forever(i%3, 10*i), 0)
		}
	}
	scratch, dst := make([]Candidate, 64), make([]Share, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		copy(scratch, w.candidates)
		dst = w.Compose(dst[:0], scratch, &w.cost, w.now)
		w.Ran(time.Millisecond)
	}
}
