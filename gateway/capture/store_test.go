package capture

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

func newStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const second = int64(time.Second)

// slowRecord is a request that took four seconds, of which three went to
// another one's prompt, and its steps.
func slowRecord() (*telemetry.Record, []wire.StepRecord) {
	at := wire.Monotonic() - 10*second
	r := &telemetry.Record{
		ID: "victim", ClientID: "order#7", Trace: wire.TraceContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}}, Tenant: "blue", Class: "interactive",
		Route: "chat_completions", Model: "demo", Stream: true, Serial: 7, Prompts: 1, Choices: 1, PromptTokens: 20, CompletionTokens: 2, Status: 200, Outcome: telemetry.OK,
		Arrived: at, Decoded: at + 1e6, Identified: at + 2e6, Prepared: at + 5e6, Reserved: at + 6e6, Admitted: at + 7e6, Dispatched: at + 8e6,
		Render: 1e6, Tokenize: 500_000, FirstToken: at + 3*second, FirstWrite: at + 3*second, LastToken: at + 4*second, Taken: at + 4*second, Finished: at + 4*second + 1e6,
		FirstTokenGoal: 2 * time.Second, TokenGoal: 100 * time.Millisecond,
	}
	e := &r.Engine
	e.Received, e.Scheduled, e.FirstToken, e.Finished = at+9e6, at+10e6, at+3*second-1e6, at+4*second-1e6
	e.BeforeFirst[wire.PartGap] = 1e6
	e.BeforeFirst[wire.PartOthersPrefill] = 2900 * time.Millisecond
	e.BeforeFirst[wire.PartOwn] = time.Duration(e.FirstToken-e.Received) - e.BeforeFirst.Sum()
	e.AfterFirst[wire.PartOwn] = time.Duration(e.Finished - e.FirstToken)
	e.Steps, e.PrefillSteps, e.DecodeSteps = 2, 1, 1
	e.Slow[0] = wire.SlowStep{Step: 1, Duration: 3 * time.Second, OthersPrefill: 512, Largest: 3}
	first := wire.StepRecord{Step: 1, Began: at + 10e6, Ended: e.FirstToken, Gap: time.Millisecond, PrefillTokens: 532, Members: []wire.StepMember{
		{Serial: 3, Tokens: 512, Own: 2900 * time.Millisecond}, {Serial: 7, Tokens: 20, Own: time.Duration(e.FirstToken-at-10e6) - 2900*time.Millisecond},
	}}
	first.Kernels[wire.KernelMLP] = wire.KernelTime{Count: 4, Total: time.Second, Max: 300 * time.Millisecond}
	second := wire.StepRecord{Step: 2, Began: e.FirstToken, Ended: e.Finished, DecodeRows: 1, Members: []wire.StepMember{{Serial: 7, Tokens: 1, Own: time.Duration(e.Finished - e.FirstToken), Decode: true}}}
	return r, []wire.StepRecord{first, second}
}

// told gives the store a request's steps and a name for its neighbour.
func told(s *Store, r *telemetry.Record, steps []wire.StepRecord) {
	s.Started(&telemetry.Record{ID: "neighbour", ClientID: "big", Tenant: "acme", Class: "offline", Serial: 3})
	s.Started(r)
	for i := range steps {
		s.steps.add(&steps[i])
	}
}

// checkSums holds a view to what its parts must sum to.
func checkSums(t *testing.T, v *View) {
	t.Helper()
	sum, engine := 0.0, 0.0
	for _, p := range v.Parts {
		if p.MS < 0 || math.Abs(p.BeginMS-sum) > 1e-6 {
			t.Errorf("part %+v after %v ms", p, sum)
		}
		sum += p.MS
		if p.Name == "engine_queue" || p.Name == "prefill" || p.Name == "decode" {
			engine += p.MS
		}
	}
	if math.Abs(sum-v.WallMS) > 1e-6 {
		t.Errorf("%s: the parts sum to %v of %v: %+v", v.ID, sum, v.WallMS, v.Parts)
	}
	stall := 0.0
	for _, s := range v.Stall {
		if s.BeforeFirstMS < 0 || s.AfterFirstMS < 0 {
			t.Errorf("stall %+v", s)
		}
		stall += s.BeforeFirstMS + s.AfterFirstMS
	}
	if math.Abs(stall-engine) > 0.002 {
		t.Errorf("%s: the stall table sums to %v of %v: %+v %+v", v.ID, stall, engine, v.Stall, v.Parts)
	}
}

func TestASlowRequestIsKeptAndExplained(t *testing.T) {
	s := newStore(t, Config{})
	r, steps := slowRecord()
	told(s, r, steps)
	r.Broken = r.Missed(r.Finished)
	if !s.Offer(r) {
		t.Fatal("it was not kept")
	}
	for _, name := range []string{"victim", "order#7", "01000000000000000000000000000000"} {
		v := s.Find(name)
		if v == nil {
			t.Fatalf("%s is not found", name)
		}
		checkSums(t, v)
		want := "2.9 s of 4.0 s went to another request's prompt: acme's neighbour (\"big\") (512 tokens, 1 step) of the class offline. Give interactive a shorter token_goal, or the class offline a smaller engine.background_stretch or engine.batch_stretch; a prompt_tokens_max there refuses such prompts."
		if v.Sentence != want {
			t.Errorf("the sentence is %q\nwant %q", v.Sentence, want)
		}
		if v.Cause != "others_prefill" || len(v.Steps) != 2 || len(v.Neighbours) != 1 || v.Steps[0].Largest != "neighbour" || len(v.Kernels) != 1 || v.Kernels[0].WallMS != 1000 {
			t.Errorf("%+v", v)
		}
	}
	if list := s.List(); len(list) != 1 || list[0].ID != "victim" || len(list[0].Steps) != 0 {
		t.Errorf("the list has %d", len(list))
	}
	if !json.Valid(s.Find("victim").Trace()) {
		t.Error("the trace is no JSON")
	}
}
