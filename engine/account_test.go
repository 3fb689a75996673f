package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// checkTimings says what is wrong with where a generation's time went.
func checkTimings(t *wire.Timings) string {
	for phase, parts := range map[string]*wire.Parts{"before": &t.BeforeFirst, "after": &t.AfterFirst} {
		for p, d := range parts {
			if d < 0 {
				return fmt.Sprintf("%v of %v %s the first token", d, wire.Part(p), phase)
			}
		}
	}
	switch {
	case t.Arrived == 0 || t.Received < t.Arrived:
		return "it was received before it arrived"
	case int64(t.BeforeFirst.Sum()) != t.FirstToken-t.Received:
		return "the parts before the first token do not sum to that time"
	case int64(t.AfterFirst.Sum()) != t.Finished-t.FirstToken:
		return "the parts after the first token do not sum to that time"
	case t.Steps > t.PrefillSteps+t.DecodeSteps || t.PrefillChunks < t.PrefillSteps || t.PrefillTokens < t.PrefillChunks:
		return "its steps do not add up"
	}
	for i, s := range t.Slow[1:] {
		if s.Step > 0 && t.Slow[i].Step == 0 {
			return "a slow step after none"
		}
	}
	return ""
}

// heard collects an engine's records as they come; the loop calls hear.
type heard struct {
	next    uint64
	records []*wire.StepRecord
}

func (h *heard) hear(s *wire.State) {
	h.next = s.Steps.After(h.next, func(r *wire.StepRecord) bool {
		h.records = append(h.records, r.Clone())
		return true
	})
}

// restless is a lab whose turns pause and resume generations at random.
func restless(t *testing.T, seed uint64, h *heard, cfg Config) *lab {
	r := rand.New(rand.NewPCG(seed, 9))
	var paused []*sequence
	return newLab(t, labSetup{pages: 40, cfg: cfg, onTurn: func(b *lab) {
		h.hear(b.loop.published.Load())
		for _, s := range b.loop.supply.running {
			if r.IntN(40) == 0 {
				s.gen.Pause()
				paused = append(paused, s)
			}
		}
		if len(paused) > 0 && (r.IntN(6) == 0 || !b.loop.supply.busy()) {
			paused[0].gen.Resume()
			paused = paused[1:]
		}
	}})
}

func randomQuestions(r *rand.Rand) []question {
	qs := make([]question, 4+r.IntN(20))
	for i := range qs {
		o := greedy(1 + r.IntN(40))
		o.N = 1 + r.IntN(6)/4
		if i%5 == 4 {
			o.IgnoreEOS, o.Grammar = false, &wire.Grammar{Kind: wire.GrammarObject, Param: "response_format"}
		}
		qs[i] = question{id: fmt.Sprint(i), serial: uint64(i + 1), tokens: prompt(uint64(r.IntN(6)), 1+r.IntN(250)), options: o, level: r.IntN(3), long: r.IntN(3) == 0}
	}
	return qs
}

// TestTimeIsDividedExactly: whatever happens to a generation, the parts of its
// time are the whole, to the nanosecond; and the records say the same.
func TestTimeIsDividedExactly(t *testing.T) {
	var all wire.Parts
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 5))
		var h heard
		b := restless(t, seed, &h, Config{BatchTokensMax: 48, SequencesMax: 6, StreamEventsMax: 6})
		qs := randomQuestions(r)
		answers := b.askAllAfter(qs, func() { time.Sleep(2 * time.Millisecond) })
		b.mustIdle()
		b.Close() // the loop hears too
		h.hear(b.State())
		checkRecords(t, h.records)
		for i, a := range answers {
			mustEnd(t, qs[i], a)
			timings := a.end.Timings
			if wrong := checkTimings(&timings); wrong != "" {
				t.Fatalf("seed %d, question %d: %s: %+v", seed, i, wrong, timings)
			}
			checkAgainst(t, h.records, qs[i].serial, &timings)
			for p := range all {
				all[p] += timings.BeforeFirst[p] + timings.AfterFirst[p]
			}
			timings.AfterFirst[wire.PartGap]++ // the control
			if checkTimings(&timings) == "" {
				t.Error("a nanosecond too much is not seen")
			}
		}
	}
	for p := range wire.PartCount {
		if all[p] == 0 && p != wire.PartGivenUp {
			t.Errorf("no time at all went to %v: the test does not reach it", p)
		}
	}
}

// checkRecords holds the records of a whole life to what they promise.
func checkRecords(t *testing.T, all []*wire.StepRecord) {
	t.Helper()
	for i, r := range all {
		var own, others time.Duration
		for _, m := range r.Members {
			own += m.Own
		}
		for _, k := range r.Kernels {
			others += k.Total
		}
		switch took := time.Duration(r.Ended - r.Began); {
		case r.Step != uint64(i+1):
			t.Fatalf("record %d is of step %d", i, r.Step)
		case own != took || others > took || len(r.Members) == 0:
			t.Fatalf("%d members' parts sum to %v, kernels to %v, of %v", len(r.Members), own, others, took)
		case i > 0 && r.Began-all[i-1].Ended != int64(r.Gap+r.GivenUp+r.Idle):
			t.Fatalf("step %d began %d ns after the one before ended; gap %v, given up %v, idle %v", r.Step, r.Began-all[i-1].Ended, r.Gap, r.GivenUp, r.Idle)
		}
		for _, o := range r.LeftOut {
			if o.Why < wire.PartPages || o.Serial == 0 {
				t.Fatalf("generation %d was left out for %v", o.Serial, o.Why)
			}
		}
	}
}

// checkAgainst compares a generation's timings with what the records say of it.
func checkAgainst(t *testing.T, all []*wire.StepRecord, serial uint64, timings *wire.Timings) {
	t.Helper()
	steps, chunks, tokens, preempted := 0, 0, 0, 0
	var own, last time.Duration
	for _, r := range all {
		in := 0
		for _, m := range r.Members {
			if m.Serial != serial {
				continue
			}
			in = 1
			own += m.Own
			last = time.Duration(r.Ended - r.Began)
			if !m.Decode {
				chunks++
				tokens += m.Tokens
			}
		}
		for _, s := range r.Preempted {
			if s == serial {
				preempted++
			}
		}
		steps += in
	}
	if steps != timings.Steps || chunks != timings.PrefillChunks || tokens != timings.PrefillTokens || preempted != timings.Preempted {
		t.Fatalf("generation %d: %d steps, %d chunks, %d tokens, %d preemptions by the records; timings %+v", serial, steps, chunks, tokens, preempted, *timings)
	}
	// It ended before its last step did.
	mine := timings.BeforeFirst[wire.PartOwn] + timings.AfterFirst[wire.PartOwn] + timings.BeforeFirst[wire.PartMask] + timings.AfterFirst[wire.PartMask]
	if slack := last + time.Microsecond; mine > own+slack || mine < own-slack {
		t.Fatalf("generation %d computed %v by the records, %v by its timings", serial, own, mine)
	}
}

// TestTimeNamesItsPart: what keeps a generation off is what its time is put
// under, and so it stands in the records.
func TestTimeNamesItsPart(t *testing.T) {
	for name, c := range map[string]struct {
		part   wire.Part
		cfg    Config
		pages  int
		others []question
	}{
		"others' prefill": {wire.PartOthersPrefill, Config{BatchTokensMax: 64}, 256, []question{{tokens: prompt(9, 1500), options: greedy(1)}}},
		"others' decode":  {wire.PartOthersDecode, Config{}, 256, []question{{tokens: prompt(9, 10), options: greedy(90)}}},
		"pages":           {wire.PartPages, Config{}, 8, []question{{tokens: prompt(9, 16), options: greedy(100)}}},
		"places":          {wire.PartPlaces, Config{SequencesMax: 1}, 64, []question{{tokens: prompt(9, 16), options: greedy(60)}}},
		"prefix":          {wire.PartPrefix, Config{BatchTokensMax: 4}, 64, []question{{tokens: prompt(1, 60), options: greedy(1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{}) // all arrive in one turn
			b := newLab(t, labSetup{pages: c.pages, cfg: c.cfg, onTurn: func(*lab) { <-begun }})
			qs := append(slices.Clone(c.others), question{tokens: prompt(1, 60), options: greedy(60), long: true})
			for i := range qs {
				qs[i].id, qs[i].serial = fmt.Sprint(i), uint64(i+1)
			}
			other, otherNotify := b.begin(qs[0])
			s, notify := b.begin(qs[1])
			close(begun)
			a := b.read(s, notify, 1)
			mustEnd(t, qs[1], a)
			mustEnd(t, qs[0], b.read(other, otherNotify, 1))
			timings := &a.end.Timings
			if got := timings.BeforeFirst[c.part] + timings.AfterFirst[c.part]; got == 0 {
				t.Errorf("nothing went to %v: %+v", c.part, *timings)
			}
			if wrong := checkTimings(timings); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// TestSlowStepsNameTheNeighbour: the on-call sentence of a decode that another
// one's prompt held up.
func TestSlowStepsNameTheNeighbour(t *testing.T) {
	b := newDemo(t, Config{SelfBenchmarkOff: true, BatchTokensMax: 512, StepBudget: time.Second})
	victim := question{id: "victim", serial: 7, tokens: prompt(1, 20), options: greedy(300)}
	s, notify := b.begin(victim)
	waitFor(t, func() bool { return s.Waiting() > 5 })
	neighbour := question{id: "neighbour", serial: 8, tokens: prompt(2, 1000), options: greedy(1)}
	mustEnd(t, neighbour, b.ask(neighbour))
	a := b.read(s, notify, 1)
	mustEnd(t, victim, a)
	slow := a.end.Timings.Slow
	named := func(s wire.SlowStep) bool { return s.Largest == 8 && s.OthersPrefill > 0 && s.Duration > 0 }
	if !slices.ContainsFunc(slow[:], named) {
		t.Errorf("none of the slowest steps, %+v, has the neighbour's prompt in it", slow)
	}
	if a.end.Timings.AfterFirst[wire.PartOthersPrefill] == 0 {
		t.Errorf("nothing went to the neighbour's prompt: %+v", a.end.Timings)
	}
}

func TestPartNames(t *testing.T) {
	parts, kernels := map[string]bool{}, map[string]bool{}
	for p := range wire.PartCount + 1 {
		parts[p.String()] = true
	}
	for k := range wire.KernelClassCount + 1 {
		kernels[k.String()] = true
	}
	if len(parts) != int(wire.PartCount)+1 || len(kernels) != int(wire.KernelClassCount)+1 || parts[""] || kernels[""] {
		t.Errorf("names: %s; %s", strings.Join(fields(parts), " "), strings.Join(fields(kernels), " "))
	}
}

func fields(m map[string]bool) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

func TestTimeOfStepsThatAreGivenUp(t *testing.T) {
	arriving := &arrivingModel{pagedModel: newPagedModel(1901, 16, 256)}
	var h heard
	b := newLab(t, labSetup{model: arriving, cfg: Config{BatchTokensMax: 64}, onTurn: func(b *lab) { h.hear(b.loop.published.Load()) }})
	batch := question{id: "batch", serial: 1, tokens: prompt(1, 300), options: greedy(20), level: 2}
	urgent := question{id: "urgent", serial: 2, tokens: prompt(2, 20), options: greedy(5)}
	arriving.during = func(calls int) {
		if calls == 2 || calls == 9 {
			b.begin(urgent)
		}
	}
	a := b.ask(batch)
	mustEnd(t, batch, a)
	b.mustIdle()
	b.Close() // the loop hears too
	h.hear(b.State())
	checkRecords(t, h.records)
	timings := &a.end.Timings
	if wrong := checkTimings(timings); wrong != "" || timings.BeforeFirst[wire.PartGivenUp] == 0 {
		t.Errorf("%s; timings %+v", wrong, *timings)
	}
	givenUp := 0
	for _, r := range h.records {
		if r.GivenUp > 0 {
			givenUp++
		}
	}
	if givenUp != 2 {
		t.Errorf("%d records tell of steps that were given up before them; want 2", givenUp)
	}
}
