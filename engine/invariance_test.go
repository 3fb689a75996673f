package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// chaos changes a lab's step limits, cost estimates and pauses at random, at
// every turn, on the loop's goroutine.
type chaos struct {
	random *rand.Rand
	batch  int
	paused []*generation
	pauses int
}

func (c *chaos) turn(b *lab) {
	l, r := b.loop, c.random
	limits := &l.composer.Limits
	limits.TokensMax, limits.TokensMin, limits.RowsMax = 1+r.IntN(c.batch), 1+r.IntN(20), 1+r.IntN(20)
	limits.Stretch, limits.Floor, limits.LongShare = r.Float64(), 0.3*r.Float64(), 0.1+0.9*r.Float64()
	row := float64(limits.Budget) / float64(1+r.IntN(64))
	l.ledger.fit.Restore(cost.Cost{Base: row * r.Float64(), DecodeRow: row * r.Float64(), PrefillToken: row, PrefillContext: row * r.Float64() / 1000})
	if len(l.supply.running) > 0 && r.IntN(6) == 0 {
		g := l.supply.running[r.IntN(len(l.supply.running))].gen
		g.Pause()
		c.paused = append(c.paused, g)
		c.pauses++
	}
	if len(c.paused) > 0 && (r.IntN(4) == 0 || !l.supply.busy()) {
		i := r.IntN(len(c.paused))
		c.paused[i].Resume()
		c.paused = slices.Delete(c.paused, i, i+1)
	}
}

// chaosQuestions share prefixes, and use what a choice may depend on.
func chaosQuestions(count, output int) []question {
	var qs []question
	for i := range count {
		q := question{id: fmt.Sprint("q", i), tokens: prompt(uint64(i%3), 20+7*i), options: greedy(output + 3*(i%4)), key: int64(i * 31 % 7), level: i * 5 % 3, long: i%4 == 1}
		switch i % 6 {
		case 1:
			q.options.Temperature, q.options.Seed, q.options.TopP = 0.9, uint64(i), 0.95
		case 2:
			q.options.N, q.options.Temperature, q.options.Seed = 3, 1, uint64(i)
		case 3:
			q.options.Temperature, q.options.RepetitionPenalty, q.options.FrequencyPenalty = 0.7, 1.2, 0.3
			q.options.Logprobs, q.options.TopLogprobs = true, 2
		case 4:
			q.options.PromptLogprobs, q.options.Logprobs = true, true
		case 5:
			q.options.Temperature, q.options.Seed, q.options.RepetitionPenalty, q.options.RepeatLast = 1, uint64(i), 1.2, 8
			q.options.MirostatTau, q.options.MirostatEta, q.options.TopNSigma = 3, 0.1, 2
			q.options.DRY = wire.DRY{Multiplier: 0.8, Base: 1.75, Length: 1, Breakers: []string{"\n"}}
		}
		qs = append(qs, q)
	}
	return qs
}

// reference answers each question alone, in an engine of its own.
func reference(t *testing.T, setup labSetup, qs []question) (answers []answer, bits map[string][]uint64) {
	bits = map[string][]uint64{}
	for _, q := range qs {
		b := newLab(t, setup)
		a := b.ask(q)
		mustEnd(t, q, a)
		answers = append(answers, a)
		for c := range q.options.N {
			bits[fmt.Sprintf("%s/%d", q.id, c)] = b.logitsBits(q.id, c)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return answers, bits
}

// invariance runs qs together in many random schedules and wants the answers
// and the logits of the runs alone. It fails when a schedule was too tame.
func invariance(t *testing.T, setup labSetup, qs []question, schedules int) {
	want, wantBits := reference(t, setup, qs)
	var pauses int
	var preempted, cached uint64
	var parked atomic.Int64
	for seed := range uint64(schedules) {
		r := rand.New(rand.NewPCG(seed, 11))
		c := &chaos{random: r, batch: 1 + r.IntN(100)}
		chaotic := setup
		chaotic.cfg.StreamEventsMax = 1 + int(seed)%6
		chaotic.cfg.SequencesMax = 3 + r.IntN(20)
		chaotic.pages = (11 + r.IntN(20)) * (1 + setup.windows.Pages) // the longest question takes 11
		chaotic.cfg.StateBytes *= 1 + int64(seed%2)
		if setup.states > 0 {
			chaotic.states = 3 + r.IntN(12)
			chaotic.cfg.StateTokens = 16 + r.IntN(64)
		}
		chaotic.onTurn = func(b *lab) {
			c.turn(b)
			for _, s := range b.loop.supply.running {
				if s.gen.parked.Load() {
					parked.Add(1)
				}
			}
		}
		order := r.Perm(len(qs)) // before the loop uses r
		b := newLab(t, chaotic)
		mixed := make([]question, len(qs))
		for i, j := range order {
			mixed[i] = qs[j]
		}
		slow := func() { // in the first schedule, one reader lets its generation park
			for deadline := time.Now().Add(patience); parked.Load() == 0 && time.Now().Before(deadline); {
				time.Sleep(100 * time.Microsecond)
			}
		}
		for i, a := range b.askAllAfter(mixed, slow) {
			mustEnd(t, mixed[i], a)
			sameAnswer(t, mixed[i], a, want[order[i]])
			for choice := range mixed[i].options.N {
				key := fmt.Sprintf("%s/%d", mixed[i].id, choice)
				if got := b.logitsBits(mixed[i].id, choice); !slices.Equal(got, wantBits[key]) {
					t.Errorf("schedule %d, %s: the logits differ from the run alone", seed, key)
				}
			}
		}
		b.mustIdle()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		preempted += b.State().Preempted
		cached += b.State().CachedTokens
		pauses += c.pauses
		if t.Failed() {
			return
		}
	}
	if preempted == 0 || cached == 0 || pauses == 0 || parked.Load() == 0 {
		t.Errorf("too tame: %d preempted, %d tokens cached, %d pauses, %d parked", preempted, cached, pauses, parked.Load())
	}
	t.Logf("%d schedules: %d preempted, %d tokens cached, %d pauses, %d parked", schedules, preempted, cached, pauses, parked.Load())
}

func sameAnswer(t *testing.T, q question, got, want answer) {
	t.Helper()
	if !slices.Equal(got.texts, want.texts) || !slices.Equal(got.counts, want.counts) || !slices.Equal(got.finishes, want.finishes) {
		t.Errorf("%s: the answer differs from the run alone:\n%q\n%q", q.id, got.texts, want.texts)
	}
	same := func(a, b wire.TokenLogprob) bool {
		return a.ID == b.ID && (a.Logprob == b.Logprob || a.Logprob != a.Logprob && b.Logprob != b.Logprob)
	}
	for c := range got.logprobs {
		if !slices.EqualFunc(got.logprobs[c], want.logprobs[c], same) {
			t.Errorf("%s: the log-probabilities differ from the run alone", q.id)
		}
	}
	if !slices.EqualFunc(got.prompt, want.prompt, same) || q.options.PromptLogprobs && len(got.prompt) != len(q.tokens) {
		t.Errorf("%s: the prompt's log-probabilities differ from the run alone", q.id)
	}
}

func TestInvarianceOfSchedules(t *testing.T) {
	schedules := 60
	if testing.Short() || underRace {
		schedules = 10
	}
	invariance(t, labSetup{}, chaosQuestions(14, 25), schedules)
}

func TestInvarianceOfBits(t *testing.T) {
	for _, set := range kernels.Sets() {
		if underRace && set != kernels.Best() { // other numbers, from the same loop
			continue
		}
		t.Run(set.Name, func(t *testing.T) {
			cfg := Config{Kernels: set.Name, KVBytes: 32 * 16384, Threads: 2}
			qs, schedules := chaosQuestions(8, 12), 8
			if testing.Short() || underRace || !set.InAssembly(kernels.Q8_0) {
				cfg.KVBytes = 10 * 16384
				qs, schedules = chaosQuestions(5, 2), 3
			}
			invariance(t, labSetup{real: true, cfg: cfg}, qs, schedules)
		})
	}
}
