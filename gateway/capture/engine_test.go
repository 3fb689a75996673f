package capture

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// generated runs one prompt through the engine and gives its record.
func generated(e *engine.Engine, s *Store, serial uint64, prompt string, most, choices int, pause time.Duration) telemetry.Record {
	r := telemetry.Record{ID: "r" + string(rune('a'+serial%26)), Tenant: "t", Class: "interactive", Serial: serial, Prompts: 1, Choices: choices, Arrived: wire.Monotonic(), FirstTokenGoal: 1}
	r.Decoded, r.Identified = wire.Monotonic(), wire.Monotonic()
	options := wire.Options{N: choices, MaxTokens: most, IgnoreEOS: true, Temperature: 1, Seed: serial}
	p, err := e.Prepare(context.Background(), &wire.Request{Text: &prompt})
	if err != nil {
		panic(err)
	}
	r.Prepared, r.PromptTokens = wire.Monotonic(), len(p.Tokens)
	r.Reserved, r.Admitted, r.Dispatched = wire.Monotonic(), wire.Monotonic(), wire.Monotonic()
	s.Started(&r)
	notify := make(chan struct{}, 1)
	stream := e.Generate(&wire.Generation{Serial: serial, Prompt: p, Options: options, Notify: notify, TokenGoal: time.Second})
	defer stream.Close()
	for range notify {
		time.Sleep(pause)
		for _, event := range stream.Take(nil) {
			r.Taken = wire.Monotonic()
			if event.Text != "" && r.FirstToken == 0 {
				r.FirstToken, r.FirstWrite = r.Taken, r.Taken
			}
			if event.End != nil {
				r.Engine, r.Outcome, r.CompletionTokens = event.End.Timings, telemetry.OK, event.End.Usage.Completion
				r.Finished = wire.Monotonic()
				r.LastToken = r.Taken
				return r
			}
		}
	}
	panic("no end")
}

// TestEngineTimesSum runs a random schedule through the real engine: each view
// must sum, and what the steps say must be what the engine said.
func TestEngineTimesSum(t *testing.T) {
	e, err := engine.New(engine.Config{KVBytes: 1 << 20, SequencesMax: 6, SelfBenchmarkOff: true, CostFile: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := newStore(t, Config{KeptMax: 64})
	stop, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		for {
			s.Heard(e.State())
			select {
			case <-stop:
				s.Heard(e.State())
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	random := rand.New(rand.NewPCG(6, 3))
	const requests = 40
	records := make(chan telemetry.Record, requests)
	for serial := range uint64(requests) {
		prompt := strings.Repeat("Once upon a time ", 1+random.IntN(30)) + string(rune('a'+serial))
		most, choices := 1+random.IntN(40), 1+random.IntN(2)
		pause := time.Duration(random.IntN(2)) * time.Millisecond
		go func() { records <- generated(e, s, serial+1, prompt, most, choices, pause) }()
		time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
	}
	all := make([]telemetry.Record, requests)
	for i := range all {
		all[i] = <-records
	}
	close(stop)
	<-heard
	withOthers := 0
	for i := range all {
		r := &all[i]
		v := s.build(r, reasonSlowFirstToken, false, wire.Monotonic()).view
		checkSums(t, v)
		if len(v.Neighbours) > 0 {
			withOthers++
		}
		for _, row := range v.Stall {
			if row.Name == unexplainedName && row.BeforeFirstMS+row.AfterFirstMS > 1 {
				t.Errorf("%+v of %v ms", row, v.WallMS)
			}
		}
		w := s.steps.witnessed(r, r.Finished)
		if members := countMembers(w); members != r.Engine.Steps {
			t.Errorf("in %d steps, the engine says %d", members, r.Engine.Steps)
		}
		told := r.Engine.BeforeFirst[wire.PartOwn] + r.Engine.AfterFirst[wire.PartOwn]
		seen := w.times.BeforeFirst[wire.PartOwn] + w.times.AfterFirst[wire.PartOwn]
		if d := (told - seen).Abs(); d > time.Millisecond && d > told/50 {
			t.Errorf("its own computing took %v by its steps, %v by the engine", seen, told)
		}
	}
	if withOthers < requests/2 {
		t.Errorf("only %d of %d had neighbours", withOthers, requests)
	}
}

func countMembers(w *witness) (n int) {
	for i := range w.steps {
		if w.steps[i].Member {
			n++
		}
	}
	return n
}
