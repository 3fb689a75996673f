package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/mask"
	"github.com/forebay-io/forebay/internal/wire"
)

// manualLoop is a lab's loop turned by the test itself: the engine is closed
// at once, and nothing else touches it afterwards.
func manualLoop(t testing.TB, model string, sequences int) *loop {
	b := newDemo(t, Config{Model: model, SequencesMax: 64, StreamEventsMax: 1 << 20})
	e := b.Engine
	l := b.loop
	e.inbox.shut(errClosed(), true)
	<-e.done
	e.inbox = newInbox(&e.cfg)
	l.inbox = e.inbox
	for i := range sequences {
		o := greedy(2000)
		g, err := e.newGeneration(&wire.Generation{
			ID: fmt.Sprint(i), Prompt: &wire.Prompt{Tokens: prompt(uint64(i), 32)}, Options: o, Notify: make(chan struct{}, 1),
		})
		if err == nil {
			err = e.inbox.post(g)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// hold holds the answers of a manual loop, which have not begun, to a schema.
func hold(t testing.TB, l *loop, form string, remember bool) {
	t.Helper()
	var cfg Config
	if err := cfg.fill(); err != nil {
		t.Fatal(err)
	}
	c, err := newGrammars(cfg.Grammar, l.tokenizer, &speech{}).get(context.Background(), schemaOf(form), noLead)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range l.inbox.arrivals {
		g.options.Grammar = schemaOf(form)
		g.follow(c, remember)
	}
}

// turnTaking is a turn after which the readers take everything.
func (l *loop) turnTaking(taken []wire.Event) []wire.Event {
	l.turn()
	for _, s := range l.supply.running {
		taken = s.gen.stream.Take(taken[:0])
	}
	return taken
}

func TestDecodeStepAllocatesOnlyTextAndState(t *testing.T) {
	const sequences = 4
	for _, form := range []string{"", `{"type":"array","items":{"type":"string"},"minItems":100000}`} {
		decodeAllocations(t, sequences, form)
	}
}

func decodeAllocations(t *testing.T, sequences int, form string) {
	l := manualLoop(t, "", sequences)
	if form != "" {
		hold(t, l, form, true)
	}
	var taken []wire.Event
	for range 50 {
		taken = l.turnTaking(taken)
	}
	// For each sequence the event's text; one State and, every sixteenth step
	// of a sequence, the list of its new block.
	limit := float64(sequences + 2)
	if got := testing.AllocsPerRun(200, func() { taken = l.turnTaking(taken) }); got > limit {
		t.Errorf("a decode step of %d sequences allocates %v times; want at most %v", sequences, got, limit)
	}
	with := testing.AllocsPerRun(200, func() { taken = l.turnTaking(taken) })
	l.ledger.recorder.log = nil
	if without := testing.AllocsPerRun(200, func() { taken = l.turnTaking(taken) }); with > without+1 { // a block's list here and there
		t.Errorf("a step allocates %v times with its record, %v without", with, without)
	}
	if len(l.supply.running) != sequences {
		t.Errorf("%d sequences run; want %d", len(l.supply.running), sequences)
	}
}

func BenchmarkDecodeStep(b *testing.B) {
	for _, sequences := range []int{1, 32} {
		b.Run(fmt.Sprintf("sequences=%d", sequences), func(b *testing.B) {
			var l *loop
			var taken []wire.Event
			renew := func() {
				l = manualLoop(b, "", sequences)
				for l.ledger.total.StepDecodeTokens < sequences {
					taken = l.turnTaking(taken)
				}
			}
			renew()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%256 == 255 { // the same context for every b.N
					b.StopTimer()
					renew()
					b.StartTimer()
				}
				taken = l.turnTaking(taken)
			}
			b.ReportMetric(float64(sequences*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkOwnWork is what the engine does in a decode step beside the model:
// arrivals, the composition, pages and reports; sampling is told apart.
func BenchmarkOwnWork(b *testing.B) {
	const sequences = 64
	l := manualLoop(b, "", sequences)
	var own, sampling time.Duration
	steps := 0
	for b.Loop() {
		if l.ledger.total.StepDecodeTokens < sequences || steps%256 == 255 { // before they end
			l = manualLoop(b, "", sequences)
			for l.ledger.total.StepDecodeTokens < sequences {
				l.turnTaking(nil)
			}
		}
		began := time.Now()
		l.takeArrivals()
		rows := l.compose()
		composed := time.Now()
		logits, _ := l.forward(rows)
		computed := time.Now()
		l.sample(rows, logits)
		sampled := time.Now()
		l.report(rows)
		own, sampling = own+composed.Sub(began)+time.Since(sampled), sampling+sampled.Sub(computed)
		for _, s := range l.supply.running {
			s.gen.stream.Take(nil)
		}
		steps++
	}
	b.ReportMetric(float64(own.Microseconds())/float64(steps), "own-µs/step")
	b.ReportMetric(float64(sampling.Microseconds())/float64(steps), "sampling-µs/step")
}

// BenchmarkSchema measures what a schema costs a decode step: steps of the same answers
// with a schema and without come in random order, and the medians are told. The schema
// goes on for as long as the answers do, through all kinds of values.
func BenchmarkSchema(b *testing.B) {
	const form = `{"type":"array","minItems":1000,"items":{"type":"object","additionalProperties":false,"required":["name","age","mail","tags"],
		"properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":150},
		"mail":{"type":"string","pattern":"^[a-z]{1,9}@[a-z]{1,9}[.]com$"},"tags":{"type":"array","maxItems":3,"items":{"enum":["red","green","blue"]}}}}}`
	for name, path := range map[string]string{"demo": "", "smollm2": "../../shared/models/SmolLM2-135M-Instruct.Q4_1.gguf"} {
		for _, sequences := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/sequences=%d", name, sequences), func(b *testing.B) {
				if _, err := os.Stat(path); path != "" && err != nil {
					b.Skipf("the model is not there: %v", err)
				}
				l := manualLoop(b, path, sequences)
				hold(b, l, form, true)
				benchHeld(b, l, sequences)
				l.ahead.end()
			})
		}
	}
}

// benchHeld tells the medians of steps of a loop whose answers are held to a grammar, and
// of those for which it is set aside. Both are of one loop: where two models lie in memory
// differs by more than a grammar costs.
func benchHeld(b *testing.B, l *loop, sequences int) {
	var taken []wire.Event
	for l.ledger.total.StepDecodeTokens < sequences {
		taken = l.turnTaking(taken)
	}
	var matchers []*mask.Matcher
	running := slices.Clone(l.supply.running)
	for _, s := range running {
		matchers = append(matchers, s.matcher)
	}
	var took [2][]float64
	r := rand.New(rand.NewPCG(1, 1))
	b.ResetTimer()
	for range min(2*b.N, 1900) { // the answers are 2000 tokens long
		i := r.IntN(2)
		for k, s := range running {
			if s.matcher = nil; i == 1 {
				s.matcher = matchers[k]
			}
		}
		began := wire.Monotonic()
		taken = l.turnTaking(taken)
		took[i] = append(took[i], float64(wire.Monotonic()-began))
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	free, held := median(took[0]), median(took[1])
	b.ReportMetric(free, "free-ns")
	b.ReportMetric(held, "schema-ns")
	b.ReportMetric(100*free/held, "%rate")
}

func BenchmarkPrefill(b *testing.B) {
	const tokens = 512
	e := newDemo(b, Config{})
	b.ReportAllocs()
	for i := range b.N {
		if a := e.ask(question{id: "q", tokens: prompt(uint64(i), tokens), options: greedy(1)}); a.end.Err != nil {
			b.Fatal(a.end.Err)
		}
	}
	b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkRecords measures what records and kernel times cost a decode step:
// steps with and without them come in random order, and the medians are told.
func BenchmarkRecords(b *testing.B) {
	for name, path := range map[string]string{"demo": "", "smollm2": "../../shared/models/SmolLM2-135M-Instruct.Q4_1.gguf"} {
		for _, sequences := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/sequences=%d", name, sequences), func(b *testing.B) {
				if _, err := os.Stat(path); path != "" && err != nil {
					b.Skipf("the model is not there: %v", err)
				}
				benchRecords(b, manualLoop(b, path, sequences), sequences)
			})
		}
	}
}

func benchRecords(b *testing.B, l *loop, sequences int) {
	log := l.ledger.recorder.log
	var taken []wire.Event
	for l.ledger.total.StepDecodeTokens < sequences {
		taken = l.turnTaking(taken)
	}
	var took [2][]float64
	b.ResetTimer()
	r := rand.New(rand.NewPCG(1, 1))
	for range min(2*b.N, 1900) { // the answers are 2000 tokens long
		l.ledger.recorder.log = nil
		i := r.IntN(2) // not by turns: odd contexts do not cost what even ones do
		if i == 1 {
			l.ledger.recorder.log = log
		}
		began := wire.Monotonic()
		taken = l.turnTaking(taken)
		took[i] = append(took[i], float64(wire.Monotonic()-began))
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	off, on := median(took[0]), median(took[1])
	b.ReportMetric(off, "off-ns")
	b.ReportMetric(on, "on-ns")
	b.ReportMetric(100*(on-off)/off, "%cost")
}
