package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/forebay-io/forebay/internal/wire"
)

func TestThousandCancelsLeaveNothing(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	r := rand.New(rand.NewPCG(1, 2))
	b := newLab(t, labSetup{pages: 48, cfg: Config{WaitingMax: 200, BatchTokensMax: 40, SequencesMax: 12, StreamEventsMax: 8}})
	const requests = 1000
	var wg sync.WaitGroup
	turnstile := make(chan struct{}, 100)
	ended := map[string]int{}
	var sum wire.Totals
	var mu sync.Mutex
	for i := range requests {
		turnstile <- struct{}{}
		o := greedy(1 + r.IntN(40))
		o.N = 1 + r.IntN(3)
		s, notify := b.begin(question{id: fmt.Sprint(i), tokens: prompt(uint64(i%7), 1+r.IntN(200)), options: o})
		events, pause := r.IntN(30), r.IntN(5) == 0
		wg.Go(func() {
			how, end := cancelAfter(s, notify, events, pause)
			mu.Lock()
			ended[how]++
			sum.PrefillTokens += uint64(end.Timings.PrefillTokens)
			sum.CachedTokens += uint64(end.Usage.Cached)
			sum.DecodeTokens += uint64(end.Usage.Completion)
			mu.Unlock()
			<-turnstile
		})
	}
	wg.Wait()
	b.mustIdle()
	if ended["cancelled"] < requests/4 || ended["cancelled"]+ended["finished"] != requests {
		t.Errorf("ends: %v", ended)
	}
	if total := b.State().Totals; total.PrefillTokens != sum.PrefillTokens || total.CachedTokens != sum.CachedTokens || total.DecodeTokens != sum.DecodeTokens {
		t.Errorf("the engine counted %+v, the ends sum to %+v", total, sum)
	}
	again := b.ask(question{id: "after", tokens: prompt(1, 100), options: greedy(20)})
	if again.end.Err != nil {
		t.Error(again.end.Err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.pool.Check(); err != nil {
		t.Error(err)
	}
	mustGoroutines(t, goroutines)
}

// cancelAfter reads some events and then leaves, possibly while paused, and returns
// the end.
func cancelAfter(s *wire.Stream, notify chan struct{}, events int, pause bool) (how string, _ *wire.End) {
	defer s.Close()
	for seen := 0; ; {
		for _, e := range s.Take(nil) {
			seen++
			switch {
			case e.End != nil && e.End.Err == nil:
				return "finished", e.End
			case e.End != nil && e.End.Err.Kind == wire.Canceled:
				return "cancelled", e.End
			case e.End != nil:
				return e.End.Err.Error(), e.End
			}
		}
		if seen >= events {
			if pause {
				s.Pause()
			}
			s.Cancel()
			events = math.MaxInt
		}
		<-notify
	}
}

// TestACancelInPrefillSaysHowFarItCame: a prompt of 331 tokens, of which 320 are cached,
// or none, is cancelled in the midst of its prefill.
func TestACancelInPrefillSaysHowFarItCame(t *testing.T) {
	for name, c := range map[string]struct {
		before int // tokens that are cached
		steps  int
		want   wire.Usage
	}{
		"nothing cached":    {steps: 3, want: wire.Usage{Prompt: 331, Computed: 24}},
		"most of it cached": {before: 330, steps: 1, want: wire.Usage{Prompt: 331, Cached: 320, Computed: 8}},
	} {
		var victim *wire.Stream
		ready := make(chan struct{})
		b := newLab(t, labSetup{cfg: Config{BatchTokensMax: 8}, onTurn: func(b *lab) {
			for _, s := range b.loop.supply.running {
				if s.gen.id == "victim" && s.gen.account.timings.Steps == c.steps {
					<-ready
					victim.Cancel()
				}
			}
		}})
		tokens := prompt(1, 331)
		if c.before > 0 {
			b.ask(question{id: "before", tokens: tokens[:c.before], options: greedy(1)})
		}
		total := b.State().Totals
		s, notify := b.begin(question{id: "victim", tokens: tokens, options: greedy(5)})
		victim = s
		close(ready)
		how, end := cancelAfter(s, notify, math.MaxInt, false)
		b.mustIdle()
		now := b.State().Totals
		if how != "cancelled" || end.Usage != c.want || int(now.PrefillTokens-total.PrefillTokens) != c.want.Computed || int(now.CachedTokens-total.CachedTokens) != c.want.Cached {
			t.Errorf("%s: %s with %+v, want %+v; the engine counted %+v, before %+v", name, how, end.Usage, c.want, now, total)
		}
	}
}

func TestNothingIsKeptOfAnEndedGeneration(t *testing.T) {
	var sequences []weak.Pointer[sequence]
	var tokens []weak.Pointer[int32]
	b := newLab(t, labSetup{onLogits: func(s *sequence, _ []float32) {
		if s.generated == 0 {
			sequences = append(sequences, weak.Make(s))
			tokens = append(tokens, weak.Make(&s.tokens[0]))
		}
	}})
	q := question{id: "q", tokens: prompt(1, 100), options: greedy(30)}
	q.options.N = 4
	mustEnd(t, q, b.ask(q))
	b.mustIdle()
	runtime.GC()
	for i := range sequences {
		if sequences[i].Value() != nil || tokens[i].Value() != nil {
			t.Errorf("sequence %d is kept: %v, its tokens: %v", i, sequences[i].Value() != nil, tokens[i].Value() != nil)
		}
	}
	if len(sequences) != 4 {
		t.Errorf("%d sequences seen; want 4", len(sequences))
	}
}

func mustGoroutines(t *testing.T, want int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > want {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines; want %d", runtime.NumGoroutine(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestPagesAreFreeTwoStepsAfterClose(t *testing.T) {
	var victim *wire.Stream
	var closedAt, freedAt uint64
	ready := make(chan struct{})
	b := newLab(t, labSetup{onTurn: func(b *lab) {
		<-ready
		step := b.loop.ledger.total.Step
		holds := slices.ContainsFunc(b.loop.supply.running, func(s *sequence) bool { return s.gen.id == "victim" })
		switch {
		case closedAt == 0 && holds && step >= 10:
			victim.Close()
			closedAt = step
		case closedAt > 0 && freedAt == 0 && !holds:
			freedAt = step
		}
	}})
	s, _ := b.begin(question{id: "victim", tokens: prompt(1, 50), options: greedy(200)})
	victim = s
	close(ready)
	other := b.ask(question{id: "other", tokens: prompt(2, 50), options: greedy(100)})
	if other.end.Err != nil {
		t.Fatal(other.end.Err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if closedAt == 0 || freedAt == 0 || freedAt > closedAt+2 {
		t.Errorf("closed before step %d, free before step %d", closedAt, freedAt)
	}
}

func TestRoomForAnAnswerGrowsWithIt(t *testing.T) {
	const context = 1 << 20
	b := newLab(t, labSetup{pages: context / 16, cfg: Config{ContextTokens: context}, onTurn: func(b *lab) {
		for _, s := range b.loop.supply.running {
			if cap(s.tokens) > 16<<10 {
				b.t.Errorf("room for %d tokens", cap(s.tokens))
			}
		}
	}})
	s, _ := b.begin(question{id: "q", tokens: prompt(1, 10), options: wire.Options{IgnoreEOS: true}})
	waitFor(t, func() bool { return s.Waiting() > 2 })
	s.Close()
	b.mustIdle()
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

func TestIdenticalPrefixesAreComputedOnce(t *testing.T) {
	gate := make(chan struct{})
	b := newLab(t, labSetup{cfg: Config{BatchTokensMax: 64}, onTurn: func(*lab) { <-gate }})
	var streams []*wire.Stream
	var notifies []chan struct{}
	for i := range 8 {
		s, n := b.begin(question{id: fmt.Sprint(i), tokens: append(prompt(1, 320), int32(300+i)), options: greedy(3)})
		streams, notifies = append(streams, s), append(notifies, n)
	}
	close(gate)
	cached := 0
	for i := range streams {
		a := b.read(streams[i], notifies[i], 1)
		mustEnd(t, question{}, a)
		cached += a.end.Usage.Cached
	}
	if cached != 7*320 {
		t.Errorf("%d tokens cached; want seven times 320", cached)
	}
	if s := b.State(); s.PrefillTokens != 320+8 {
		t.Errorf("%d tokens computed in prefill; want 328", s.PrefillTokens)
	}
}

func TestChoicesShareThePrompt(t *testing.T) {
	b := newLab(t, labSetup{})
	q := question{id: "q", tokens: prompt(1, 100), options: greedy(30)}
	q.options.N, q.options.Temperature, q.options.Seed = 4, 1, 5
	a := b.ask(q)
	mustEnd(t, q, a)
	if s := b.State(); s.PrefillTokens != 100 {
		t.Errorf("%d tokens computed in prefill; want the prompt once", s.PrefillTokens)
	}
	if a.end.Usage != (wire.Usage{Prompt: 100, Computed: 100, Completion: 120}) {
		t.Errorf("usage %+v", a.end.Usage)
	}
	if a.texts[0] == a.texts[1] || a.texts[1] == a.texts[2] {
		t.Error("choices have the same text: each must have its own random stream")
	}
	for c := range 4 {
		if b.logitsBits("q", c)[0] != b.logitsBits("q", 0)[0] {
			t.Errorf("choice %d chose its first token from other logits than choice 0", c)
		}
	}
	b.mustIdle()
}

func TestWaitingListIsBounded(t *testing.T) {
	gate := make(chan struct{})
	b := newLab(t, labSetup{cfg: Config{WaitingMax: 3}, onTurn: func(*lab) { <-gate }})
	var refused int
	var streams []*wire.Stream
	for i := range 10 {
		s, _ := b.begin(question{id: fmt.Sprint(i), tokens: prompt(1, 10), options: greedy(2)})
		if e := s.Take(nil); len(e) == 1 && e[0].End != nil {
			if err := e[0].End.Err; err.Kind != wire.Overloaded || err.RetryAfter <= 0 || !strings.Contains(err.Message, "3; try again, or raise engine.waiting_max") {
				t.Errorf("refused with %+v", err)
			}
			refused++
		}
		streams = append(streams, s)
	}
	close(gate)
	if refused != 7 {
		t.Errorf("%d refused; want 7", refused)
	}
	for _, s := range streams {
		s.Close()
	}
	b.mustIdle()
}

func TestGenerationsAreBounded(t *testing.T) {
	b := newLab(t, labSetup{cfg: Config{GenerationsMax: 2}})
	held := func(id string) *wire.Stream { // started, so it no longer waits
		s, _ := b.begin(question{id: id, tokens: prompt(1, 10), options: greedy(1900)})
		s.Pause()
		return s
	}
	first, second := held("1"), held("2")
	a := b.ask(question{id: "3", tokens: prompt(1, 10), options: greedy(2)})
	if err := a.end.Err; err == nil || err.Kind != wire.Overloaded || !strings.Contains(err.Message, "2; try again, or raise engine.generations_max") {
		t.Errorf("the third of two ended with %v", err)
	}
	first.Close()
	waitFor(t, func() bool { return b.ask(question{id: "4", tokens: prompt(1, 10), options: greedy(2)}).end.Err == nil })
	second.Close()
	b.mustIdle()
}

func TestCloseEndsEveryStream(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	b := newLab(t, labSetup{cfg: Config{SequencesMax: 4}})
	var streams []*wire.Stream
	for i := range 10 { // some run, some wait, one is paused
		s, _ := b.begin(question{id: fmt.Sprint(i), tokens: prompt(1, 10), options: greedy(1900)})
		streams = append(streams, s)
	}
	streams[0].Pause()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for i, s := range streams {
		events := s.Take(nil)
		if len(events) == 0 || events[len(events)-1].End == nil || events[len(events)-1].End.Err.Kind != wire.Unavailable {
			t.Errorf("stream %d has no end with Unavailable", i)
		}
	}
	if err := b.State().Err; err == nil || err.Kind != wire.Unavailable || b.State().PagesUsed != 0 {
		t.Errorf("the state after Close says %v with %d pages used", err, b.State().PagesUsed)
	}
	if a := b.ask(question{id: "late", tokens: prompt(1, 10), options: greedy(1)}); a.end.Err == nil || a.end.Err.Kind != wire.Unavailable {
		t.Errorf("a late request ended with %v", a.end.Err)
	}
	mustGoroutines(t, goroutines)
}

func TestDrain(t *testing.T) {
	b := newLab(t, labSetup{})
	q := question{id: "q", tokens: prompt(1, 10), options: greedy(300)}
	s, notify := b.begin(q)
	endless, _ := b.begin(question{id: "endless", tokens: prompt(1, 10), options: greedy(2000)})
	endless.Pause()
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("draining beside a paused generation gave %v", err)
	}
	late := b.ask(question{id: "late", tokens: prompt(1, 10), options: greedy(1)})
	if late.end.Err == nil || late.end.Err.Kind != wire.Draining {
		t.Errorf("a late request ended with %v", late.end.Err)
	}
	if a := b.read(s, notify, 1); a.counts[0] != 300 {
		t.Errorf("a running request got %d tokens while draining; want 300", a.counts[0])
	}
	endless.Close()
	if err := b.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.State().Err; err == nil || err.Kind != wire.Draining {
		t.Errorf("the state says %v; want draining", err)
	}
}

func TestDrainOfAnIdleEngineIsShort(t *testing.T) {
	b := newLab(t, labSetup{})
	limited, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.Drain(limited); err != nil {
		t.Error(err)
	}
}

func TestIdleLoopShowsThatItLives(t *testing.T) {
	b := newLab(t, labSetup{})
	at, step := b.State().At, b.State().Step
	waitFor(t, func() bool { return b.State().At > at && b.State().Step == step })
}

func TestStepDurationCoversSampling(t *testing.T) {
	const slow = 5 * time.Millisecond
	b := newLab(t, labSetup{onLogits: func(*sequence, []float32) { time.Sleep(slow) }})
	b.ask(question{id: "q", tokens: prompt(1, 10), options: greedy(2)})
	if took := b.State().StepDuration; took < slow {
		t.Errorf("a step took %v; want the %v of its sampling in it", took, slow)
	}
}

func TestStateReportsBlocks(t *testing.T) {
	b := newLab(t, labSetup{cfg: Config{BatchTokensMax: 512}})
	q := question{id: "q", tokens: prompt(1, 64), options: greedy(1)}
	b.ask(q)
	var got []uint64
	for _, c := range b.State().Blocks.Changes {
		if !c.Evicted {
			got = append(got, c.Hash)
		}
	}
	p, err := b.Prepare(t.Context(), &wire.Request{Tokens: q.tokens})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, p.BlockHashes) || len(got) != 4 {
		t.Errorf("the step reported blocks %x; Prepare says %x", got, p.BlockHashes)
	}
	if p.CachedTokens != 48 {
		t.Errorf("Prepare says %d tokens are cached; want 48", p.CachedTokens)
	}
}
