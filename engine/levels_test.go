package engine

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/step"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
)

// smallCost is what a small model takes on a CPU. Tests set it before every
// turn, so that steps are composed by it whatever the test's machine does.
var smallCost = cost.Cost{Base: 2e6, PrefillToken: 5e5, PrefillContext: 100, DecodeRow: 5e5, DecodeContext: 500}

// tally is what each step computed, by level, as the sequences show it.
type tally struct {
	computed map[string]int
	step     uint64
	loads    [step.Levels]cost.Load // of the last step
	time     float64                // predicted, of all steps
}

// turn looks at the last step. It reports false where there was none, or one
// whose rows cannot all be seen any more.
func (k *tally) turn(l *loop) (whole bool) {
	l.ledger.fit.Restore(smallCost)
	stepped := l.ledger.total.Step != k.step
	k.step, k.loads = l.ledger.total.Step, [step.Levels]cost.Load{}
	if stepped {
		k.time += float64(smallCost.Step(l.ledger.step.load))
	}
	tokens, now := 0, map[string]int{}
	for _, s := range l.supply.running {
		id := fmt.Sprint(s.gen.id, "/", s.choice)
		now[id] = s.computed()
		before, seen := k.computed[id]
		n := s.computed() - before
		switch {
		case !seen || n < 1:
		case n == 1 && s.generated > 1:
			k.loads[s.gen.level].AddRow(before)
			tokens++
		default:
			k.loads[s.gen.level].AddChunk(n, before)
			tokens += n
		}
	}
	k.computed = now
	return stepped && tokens == l.ledger.step.load.DecodeRows+l.ledger.step.load.PrefillTokens
}

// A long prompt beside streams that are answered, and then a short one.
//
// Case C17.
func TestShortPromptPassesALongOneBesideStreams(t *testing.T) {
	const streams, answer, long = 3, 30, 1500 // the answers end before the prompt does, as with 8k tokens
	run := func(streams int) (took, longest float64, shortSteps uint64) {
		var k tally
		var began float64
		var posted, answered uint64
		var asked bool
		var b *lab
		ready, late := make(chan struct{}), make(chan struct{})
		b = newLab(t, labSetup{onTurn: func(b *lab) {
			<-ready
			k.turn(b.loop)
			load := b.loop.ledger.step.load
			rows := cost.Load{DecodeRows: load.DecodeRows, DecodeContext: load.DecodeContext}
			for _, s := range b.loop.supply.running {
				switch {
				case s.gen.id == "long" && began == 0:
					began = k.time
				case s.gen.id == "long" && s.computed() > 40 && !asked:
					asked = true
					close(late)
				case s.gen.id == "short" && posted == 0:
					posted = k.step
				case s.gen.id == "short" && answered == 0 && s.generated > 0:
					answered = k.step
				}
			}
			if load.DecodeRows == streams && streams > 0 && (posted == 0 || answered > 0) {
				longest = max(longest, float64(smallCost.Step(load))/float64(smallCost.Step(rows)))
			}
			if took == 0 && began > 0 && k.computed["long/0"] >= long {
				took = k.time - began
			}
		}})
		var qs []question
		for i := range streams {
			qs = append(qs, question{id: fmt.Sprint(i), tokens: prompt(uint64(i), 20), options: greedy(answer)})
		}
		qs = append(qs, question{id: "long", tokens: prompt(50, long), options: greedy(3), long: true})
		go func() {
			<-late
			b.ask(question{id: "short", tokens: prompt(60, 20), options: greedy(3)})
		}()
		for i, a := range b.askAllAfter(qs, func() { close(ready) }) {
			mustEnd(t, qs[i], a)
		}
		b.mustIdle()
		return took, longest, answered - posted
	}
	alone, _, _ := run(0)
	took, longest, shortSteps := run(streams)
	if longest > 2.51 { // 1 + the default of engine.long_stretch
		t.Errorf("beside the long prompt a step takes %.2f of what the streams take alone; want at most 2.5", longest)
	}
	if took > 1.3*alone {
		t.Errorf("the long prompt takes %.0f ms; alone %.0f", took/1e6, alone/1e6)
	}
	if shortSteps > 8 {
		t.Errorf("the short request has its first token %d steps after it came", shortSteps)
	}
}

// A request that can never fit, then small ones, then a merely large one.
//
// Case C19.
func TestRequestThatCanNeverFitBlocksNobody(t *testing.T) {
	ready := make(chan struct{})
	b := newLab(t, labSetup{pages: 64, onTurn: func(*lab) { <-ready }})
	_, err := b.Prepare(t.Context(), &wire.Request{Tokens: prompt(1, 80*16)})
	if e := wire.AsError(err); err == nil || e.Kind != wire.TooLarge || !strings.Contains(e.Message, "1280") || !strings.Contains(e.Message, "1024") {
		t.Errorf("80 pages of 64 were refused with %v", err)
	}
	qs := []question{{id: "running", tokens: prompt(2, 100), options: greedy(100)}, {id: "large", tokens: prompt(3, 60*16), options: greedy(20), long: true, key: -1}}
	for i := range 10 {
		qs = append(qs, question{id: fmt.Sprint("small", i), tokens: prompt(uint64(10+i), 30), options: greedy(20)})
	}
	answers := b.askAllAfter(qs, func() { close(ready) })
	for i, a := range answers {
		mustEnd(t, qs[i], a)
	}
	for i, a := range answers[2:] {
		if a.end.Timings.FirstToken > answers[1].end.Timings.Finished {
			t.Errorf("small one %d waited for the large one", i)
		}
	}
	b.mustIdle()
}

func TestInteractiveKeepsItsPaceBesideOffline(t *testing.T) {
	var k tally
	ready := make(chan struct{})
	checked, credited, beside := 0, 0, 0
	longest := time.Duration(0) // of all steps: on a slow machine the floor is owed more
	b := newLab(t, labSetup{pages: 512, onTurn: func(b *lab) {
		<-ready
		credit := b.loop.composer
		longest = max(longest, b.loop.ledger.total.StepDuration)
		if !k.turn(b.loop) || k.loads[0].DecodeRows < 2 || k.loads[0].PrefillTokens > 0 {
			return
		}
		checked++
		led, all := smallCost.Step(k.loads[0]), smallCost.Step(b.loop.ledger.step.load)
		limits := credit.Limits
		added := float64(all - led)
		if k.loads[2].DecodeRows+k.loads[2].PrefillTokens > 0 {
			beside++
		}
		if unit := smallCost.Step(cost.Load{DecodeRows: 1, DecodeContext: 200}) - time.Duration(smallCost.Base); added > limits.Stretch*float64(led)+1 {
			credited++
			if owed := limits.Floor * float64(longest); added > limits.Stretch*float64(led)+owed+float64(unit) {
				t.Errorf("offline work adds %.2f ms to %v", added/1e6, led)
			}
		}
	}})
	qs := []question{
		{id: "a", tokens: prompt(1, 20), options: greedy(150)},
		{id: "b", tokens: prompt(2, 20), options: greedy(150)},
	}
	for i := range 12 {
		qs = append(qs, question{id: fmt.Sprint("offline", i), tokens: prompt(uint64(10+i), 60), options: greedy(60), level: 2})
	}
	answers := b.askAllAfter(qs, func() { close(ready) })
	for i, a := range answers {
		mustEnd(t, qs[i], a)
	}
	b.mustIdle()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if checked < 100 || beside < checked/4 || credited > checked/5 {
		t.Errorf("of %d steps of interactive rows %d had offline work, %d of them beyond the stretch", checked, beside, credited)
	}
	for i, a := range answers[2:] {
		if a.end.Timings.Finished < answers[0].end.Timings.FirstToken {
			t.Errorf("offline %d ended before the interactive ones began", i)
		}
	}
}

func TestInteractiveTakesOfflinePagesAndPlaces(t *testing.T) {
	for name, set := range map[string]labSetup{
		"pages":  {pages: 24},
		"places": {pages: 256, cfg: Config{SequencesMax: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			came := false
			var b *lab
			ready, arrive := make(chan struct{}), make(chan struct{})
			set.onTurn = func(b *lab) {
				<-ready // the offline ones arrive in one turn: none is far ahead
				if !came && len(b.loop.supply.running) >= 3 && b.loop.ledger.total.Step > 10 {
					came = true
					close(arrive)
					for !b.inbox.urgent.Load() { // on a busy machine the others might end before it is there
						runtime.Gosched()
					}
				}
			}
			b = newLab(t, set)
			interactive := question{id: "interactive", tokens: prompt(1, 100), options: greedy(10)}
			done := make(chan answer)
			go func() {
				<-arrive
				done <- b.ask(interactive)
			}()
			var qs []question
			for i := range 6 {
				qs = append(qs, question{id: fmt.Sprint(i), tokens: prompt(uint64(10+i), 70), options: greedy(200), level: 1 + i%2})
			}
			answers := b.askAllAfter(qs, func() { close(ready) })
			a := <-done
			mustEnd(t, interactive, a)
			for i := range answers {
				mustEnd(t, qs[i], answers[i])
				if answers[i].end.Timings.Finished < a.end.Timings.FirstToken {
					t.Errorf("it waited for offline %d to end", i)
				}
				if alone := newLab(t, labSetup{}).ask(qs[i]); alone.texts[0] != answers[i].texts[0] {
					t.Errorf("offline %d differs from its run alone", i)
				}
			}
			if a.end.Timings.Preempted > 0 || name == "pages" && b.State().Preempted == 0 {
				t.Errorf("preempted: the interactive one %d times, all %d times", a.end.Timings.Preempted, b.State().Preempted)
			}
			b.mustIdle()
		})
	}
}

func TestVictimLosesLeast(t *testing.T) {
	b := newLab(t, labSetup{})
	b.inbox.shut(errClosed(), true)
	<-b.done
	l := b.loop
	running := func(id string, level, tokens int) *sequence {
		g := &generation{id: id, level: level, inbox: b.inbox}
		s := &sequence{gen: g, tokens: prompt(uint64(len(l.supply.running)), tokens), rank: uint64(len(l.supply.running) + 1)}
		g.choices = []*sequence{s}
		s.kv = l.supply.pool.Open("", s.tokens)
		if _, ok := l.supply.pool.Reserve(s.kv, tokens, nil); !ok {
			t.Fatal("no pages")
		}
		l.supply.pool.Commit(s.kv, s.tokens)
		l.supply.admit(s)
		return s
	}
	for _, s := range []struct {
		id            string
		level, tokens int
	}{{"people", 0, 20}, {"batch", 1, 20}, {"large", 2, 200}, {"small", 2, 50}, {"middle", 2, 100}} {
		running(s.id, s.level, s.tokens)
	}
	first := l.supply.running[0]
	for _, want := range []string{"small", "middle", "large", "batch"} {
		if !l.supply.preemptFor(first, true) || l.supply.victim.gen.id != want {
			t.Fatalf("the victim is %v; want %s", l.supply.victim.gen.id, want)
		}
	}
	if l.supply.preemptFor(first, true) {
		t.Error("the first was preempted for itself")
	}
	// One that was taken last is spared while there is another of its level.
	again := l.supply.waiting[slices.IndexFunc(l.supply.waiting, func(s *sequence) bool { return s.gen.id == "small" })]
	l.supply.victim = again
	again.kv = l.supply.pool.Open("", nil)
	l.supply.waiting = slices.DeleteFunc(l.supply.waiting, func(s *sequence) bool { return s == again })
	l.supply.admit(again)
	running("other", 2, 300)
	if !l.supply.preemptFor(first, true) || l.supply.victim.gen.id != "other" {
		t.Errorf("the victim is %s twice in a row", l.supply.victim.gen.id)
	}
}

func TestStateSaysWhatWaitsByLane(t *testing.T) {
	gates := map[uint64]chan struct{}{1: make(chan struct{}), 2: make(chan struct{})}
	b := newLab(t, labSetup{cfg: Config{BatchTokensMax: 8}, onTurn: func(b *lab) {
		if gate := gates[b.loop.ledger.total.Step]; gate != nil {
			<-gate
		}
	}})
	begin := func(q question) *wire.Stream { s, _ := b.begin(q); return s }
	streams := []*wire.Stream{begin(question{id: "first", tokens: prompt(1, 30), options: greedy(5)})}
	waitFor(t, func() bool { return b.State().Step == 1 })
	streams = append(streams, begin(question{id: "short", tokens: prompt(2, 40), options: greedy(5)}),
		begin(question{id: "long", tokens: prompt(3, 400), options: greedy(5), long: true}))
	if s := b.State(); s.ShortPrefill != 22 || s.LongPrefill != 0 || s.Sequences != 1 || s.Room.TokensMax != 8 {
		t.Errorf("after 8 of 30 tokens: %+v", *s)
	}
	close(gates[1])
	waitFor(t, func() bool { return b.State().Step == 2 })
	if s := b.State(); s.ShortPrefill+s.LongPrefill != 30+40+400-2*8 || s.LongPrefill < 400-8 || s.Sequences != 3 {
		t.Errorf("after two steps of 8: %+v", *s)
	}
	close(gates[2])
	for _, s := range streams {
		s.Close()
	}
	b.mustIdle()
	if s := b.State(); s.ShortPrefill != 0 || s.LongPrefill != 0 || s.Sequences != 0 {
		t.Errorf("an idle engine says %+v", *s)
	}
	if s := b.State(); s.StepPredicted <= 0 || s.RatioHigh < s.RatioMedian || !s.Cost.Known() {
		t.Errorf("the cost is not told: %+v", *s)
	}
}

// TestUrgentArrivalsEndABackgroundStep: a step without anything that people wait
// for is given up when something of that kind arrives during it, and computed
// again to the same tokens.
func TestUrgentArrivalsEndABackgroundStep(t *testing.T) {
	batch := question{id: "batch", tokens: prompt(1, 300), options: wire.Options{N: 1, MaxTokens: 20, Temperature: 1, Seed: 3, IgnoreEOS: true}, level: 2}
	urgent := question{id: "urgent", tokens: prompt(2, 20), options: wire.Options{N: 1, MaxTokens: 5, Temperature: 1, Seed: 4, IgnoreEOS: true}}
	want := newLab(t, labSetup{}).ask(batch)

	arriving := &arrivingModel{pagedModel: newPagedModel(1901, 16, 256)}
	b := newLab(t, labSetup{model: arriving, cfg: Config{BatchTokensMax: 64}})
	var urgents []*wire.Stream
	arriving.during = func(calls int) {
		if calls == 2 || calls == 9 {
			s, _ := b.begin(urgent)
			urgents = append(urgents, s)
		}
	}
	got := b.ask(batch)
	if len(urgents) != 2 || len(got.texts[0]) == 0 || got.texts[0] != want.texts[0] {
		t.Errorf("%d arrived, text %q; want %q", len(urgents), got.texts, want.texts)
	}
	if arriving.calls != int(b.State().Step)+2 {
		t.Errorf("%d forwards for %d steps; two should have been given up", arriving.calls, b.State().Step)
	}
	for _, s := range urgents {
		s.Close()
	}
	b.mustIdle()
}

// arrivingModel has something happen while it computes.
type arrivingModel struct {
	*pagedModel
	calls  int
	during func(calls int)
}

func (m *arrivingModel) Forward(chunks []model.Chunk) []float32 {
	m.calls++
	m.during(m.calls)
	return m.pagedModel.Forward(chunks)
}
