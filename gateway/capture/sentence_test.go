package capture

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// told4s is a request of four seconds of which three went to one part of the
// engine's time before its first token.
func told4s(part wire.Part) *telemetry.Record {
	r, _ := slowRecord()
	r.Broken, r.TokenGoal = telemetry.FirstTokenGoal, 0
	r.Engine.BeforeFirst[part] += r.Engine.BeforeFirst[wire.PartOthersPrefill]
	r.Engine.BeforeFirst[wire.PartOthersPrefill] = 0
	if part == wire.PartOthersPrefill {
		r.Engine.BeforeFirst[part] = 2900 * time.Millisecond
	}
	return r
}

// queued4s waited for three seconds for why.
func queued4s(why string) *telemetry.Record {
	r := told4s(wire.PartOwn)
	r.WaitReason, r.Admitted, r.Dispatched = why, r.Arrived+3*second-3e6, r.Arrived+3*second-2e6
	r.Engine.Received, r.Engine.Scheduled, r.Engine.FirstToken = r.Dispatched, r.Dispatched, r.Arrived+3*second-1e6
	r.Engine.BeforeFirst = wire.Parts{wire.PartOwn: 1e6}
	return r
}

func refused(o telemetry.Outcome, reason string) *telemetry.Record {
	r := told4s(wire.PartOwn)
	r.Outcome, r.Refused, r.WaitReason = o, reason, reason
	r.Admitted, r.Dispatched, r.FirstToken, r.FirstWrite, r.Finished, r.Engine = 0, 0, 0, 0, r.Reserved+second, wire.Timings{}
	return r
}

func with(r *telemetry.Record, change func(*telemetry.Record)) *telemetry.Record {
	change(r)
	return r
}

// TestSentences has one for each cause: who is to blame, and what to change.
func TestSentences(t *testing.T) {
	ended := func(o telemetry.Outcome) *telemetry.Record {
		return with(told4s(wire.PartHeldBack), func(r *telemetry.Record) { r.Outcome = o })
	}
	for _, c := range []struct {
		r     *telemetry.Record
		cause string
		want  []string
	}{
		{told4s(wire.PartOthersPrefill), "others_prefill", []string{"2.9 s of 3.0 s until its first token went to another request's prompt: acme's neighbour (\"big\") (512 tokens, 1 step) of the class offline", "engine.background_stretch"}},
		{told4s(wire.PartOwn), "own_prefill", []string{"computing its own prompt (20 tokens, 0 of them from the cache)", "shorter prompt"}},
		{told4s(wire.PartOthersDecode), "others_decode", []string{"other requests' answers", "admission.running_sequences_max"}},
		{told4s(wire.PartGap), "gap", []string{"gaps between the engine's steps", "cores of its own"}},
		{told4s(wire.PartGivenUp), "given_up", []string{"given up for more urgent requests", "engine.background_floor"}},
		{told4s(wire.PartPages), "pages", []string{"pages of keys and values", "most to acme's neighbour", "engine.kv_bytes"}},
		{told4s(wire.PartPlaces), "places", []string{"a place among the sequences", "engine.sequences_max"}},
		{told4s(wire.PartPrefix), "prefix", []string{"the beginning that both share"}},
		{told4s(wire.PartHeldBack), "held_back", []string{"steps went to others, most to acme's neighbour (\"big\") (512 tokens, 1 step)"}},
		{with(told4s(wire.PartPreempted), func(r *telemetry.Record) { r.Engine.Preempted = 2 }), "preempted", []string{"being preempted, 2 times", "engine.kv_bytes"}},
		{told4s(wire.PartPaused), "slow_reader", []string{"its own client to read"}},
		{told4s(wire.PartParked), "slow_reader", []string{"its own client to read", "its proxy or its network"}},
		{queued4s("sequences"), "queue", []string{"3.0 s of 3.0 s until its first token went to waiting for admission: every running place was taken", "running_sequences_max"}},
		{queued4s("memory"), "queue", []string{"not enough free memory", "engine.kv_bytes"}},
		{queued4s("share"), "queue", []string{"more than its share", "weight"}},
		{queued4s("class_cap"), "queue", []string{"its class held as much as it may", "cap of the class interactive"}},
		{queued4s("order"), "queue", []string{"others came first", "replica"}},
		{queued4s("paused"), "queue", []string{"the operator had paused its class", "forebay queue open interactive", "/debug/queue"}},
		{with(refused(telemetry.QueueTimeout, "timed_out"), func(r *telemetry.Record) { r.WaitReason = "paused" }), "refused", []string{"its class was paused by the operator", "forebay queue open interactive"}},
		{with(refused(telemetry.Revoked, "revoked"), func(r *telemetry.Record) { r.WaitReason = "paused" }), "refused", []string{"its class was paused by the operator"}},
		{queued4s("engine"), "queue", []string{"no engine", "/readyz"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) {
			*r = telemetry.Record{Class: "interactive", Outcome: telemetry.OK, Arrived: 1, Decoded: second, Identified: second, Prepared: 5 * second, Tokenize: 3 * time.Second, Broken: telemetry.FirstTokenGoal, Finished: 5*second + 1}
		}), "prepare", []string{"rendering and tokenizing", "engine.tokens_cache_bytes"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) {
			*r = telemetry.Record{Class: "interactive", Outcome: telemetry.OK, Arrived: 1, Decoded: second, Identified: second, Prepared: 5 * second, Tokenize: 120_000, Broken: telemetry.FirstTokenGoal, Finished: 5*second + 1}
		}), "to_engine", []string{"the way to the engine and back", "CPU limits of both"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) { r.Decoded = r.Arrived + 2900*1e6 }), "body", []string{"receiving its body", "body_limit"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) {
			r.Broken, r.Engine.AfterFirst[wire.PartOthersPrefill], r.Engine.AfterFirst[wire.PartOwn] = telemetry.TokenGoal, 900*time.Millisecond, 100*time.Millisecond
		}), "others_prefill", []string{"900 ms of 1.0 s from its first token on went to another request's prompt"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) { r.Broken = telemetry.TokenGoal }), "own_decode", []string{"computing its own answer (2 tokens)"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) { r.Finished += 30 * second; r.Blocked = 30 * time.Second; r.Broken = 0 }), "slow_reader", []string{"30.0 s of 34.0 s went to waiting for its own client"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) { r.Engine = wire.Timings{}; r.Serial = 0 }), "unexplained", []string{"gave no details", "step_records_off"}},
		{refused(telemetry.RateLimited, "budget_input_tokens"), "refused", []string{"It was refused after 1.0 s, 1.0 s of them waiting: its tenant's budget of prompt tokens", "limits.input_tokens_per_minute"}},
		{refused(telemetry.QueueTimeout, "timed_out"), "refused", []string{"waited as long as its class allows", "replica"}},
		{refused(telemetry.Late, "late"), "refused", []string{"missed its goal", "first_token_goal"}},
		{with(refused(telemetry.Revoked, "revoked"), func(r *telemetry.Record) { r.Accepted, r.Promised, r.WaitPredicted = r.Reserved, 2*time.Second, 800e6 }), "refused", []string{"It was admitted, and refused after 1.0 s because the engine became slower: its first token was predicted after 800 ms, then later than its goal of 2.0 s. Look for what slowed the engine"}},
		{with(refused(telemetry.Revoked, "revoked"), func(r *telemetry.Record) { r.Accepted, r.Promised = r.Reserved, 2*time.Second }), "refused", []string{"its first token was predicted in time, then later"}},
		{refused(telemetry.QueueFull, "queue_full"), "refused", []string{"no place to wait"}},
		{refused(telemetry.IssuerUnavailable, ""), "refused", []string{"its token's issuer", "identity.issuers"}},
		{refused(telemetry.LimiterUnavailable, ""), "refused", []string{"store of budgets does not answer"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) { r.Broken, r.Unread, r.Stalled = 0, 380_000, 800*time.Millisecond }), "slow_reader", []string{"client has not got all of it", "window was full for 800 ms of the answer, and 380,000 bytes of it", "its proxy or its network"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) { r.Unread, r.Stalled = 380_000, 800*time.Millisecond }), "own_prefill", []string{"computing its own prompt", "Its client reads slowly"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) { r.Broken, r.Unread = 0, 1000 }), "own_prefill", []string{"It missed no goal; 3.0 s"}}, // on its way, and nothing more
		{ended(telemetry.EngineUnavailable), "engine_lost", []string{"The engine was lost", "with 2 tokens of its answer; until then 2.9 s of 3.0 s until its first token went to", "/readyz"}},
		{with(refused(telemetry.EngineUnavailable, ""), func(r *telemetry.Record) { r.ErrorKind = "model_loading" }), "loading", []string{"still being downloaded", "forebay model pull"}},
		{ended(telemetry.NonFinite), "engine_failed", []string{"The engine failed it after 4.0 s", "log"}},
		{ended(telemetry.ClientGone), "client_left", []string{"Its client left after 4.0 s", "most to acme's neighbour"}},
		{ended(telemetry.DeadlineExceeded), "deadline", []string{"own deadline was over"}},
		{ended(telemetry.Draining), "draining", []string{"stopped", "drain_limit"}},
		{ended(telemetry.WriteStall), "slow_reader", []string{"did not read for longer than gateway.timeouts.write_stall_limit"}},
		{ended(telemetry.Internal), "internal", []string{"The gateway failed it"}},
		{with(ended(telemetry.Invalid), func(r *telemetry.Record) { r.ErrorKind = "invalid_value" }), "invalid", []string{"(invalid_value)"}},
		{with(told4s(wire.PartOwn), func(r *telemetry.Record) { r.Broken = 0 }), "own_prefill", []string{"It missed no goal; 3.0 s of 4.0 s"}},
	} {
		s := newStore(t, Config{StepsKept: 1024})
		_, steps := slowRecord()
		for i := range steps {
			shift := c.r.Arrived - (steps[0].Began - 10e6)
			if i > 0 {
				shift = c.r.Arrived - (steps[1].Began - 3*second + 1e6)
			}
			steps[i].Began, steps[i].Ended = steps[i].Began+shift, steps[i].Ended+shift
		}
		told(s, c.r, steps)
		var why reasons
		if c.r.Broken != 0 {
			why = reasonSlowFirstToken
		}
		if strings.HasPrefix(c.want[0], "30.0 s") {
			why = reasonUnusual
		}
		v := s.build(c.r, why, false, wire.Monotonic()).view
		checkSums(t, v)
		for _, part := range c.want {
			if !strings.Contains(v.Sentence, part) {
				t.Errorf("%s: %q lacks %q", c.cause, v.Sentence, part)
			}
		}
		if v.Cause != c.cause || strings.Contains(v.Sentence, "%!") || !strings.HasSuffix(v.Sentence, ".") {
			t.Errorf("the cause is %s, not %s: %q", v.Cause, c.cause, v.Sentence)
		}
		s.Close()
	}
}

// TestLostTimeIsTheCause: where the engine did not run, that is the cause, in whatever
// phase the request was.
func TestLostTimeIsTheCause(t *testing.T) {
	by := func(c wire.LostCause, d time.Duration) (l wire.LostTime) {
		l.By[c] = d
		return l
	}
	prepared := func(r *telemetry.Record) { // the engine was away while it was asked for the prompt
		shift := int64(3 * time.Second)
		for _, at := range []*int64{&r.Prepared, &r.Reserved, &r.Admitted, &r.Dispatched, &r.FirstToken, &r.FirstWrite, &r.LastToken, &r.Taken, &r.Finished,
			&r.Engine.Arrived, &r.Engine.Received, &r.Engine.Scheduled, &r.Engine.FirstToken, &r.Engine.Finished} {
			if *at != 0 {
				*at += shift
			}
		}
		r.Render, r.Tokenize = 100_000, 20_000
	}
	for name, c := range map[string]struct {
		change func(*telemetry.Record)
		lost   wire.LostTime
		after  int64 // of the begin of the loss, since the arrival
		took   time.Duration
		usual  bool
		cause  string
		want   []string
	}{
		"frozen in a step": {nil, by(wire.LostFrozen, 2800*time.Millisecond), 100e6, 2850 * time.Millisecond, false,
			"frozen", []string{"2.8 s of 3.0 s until its first token went to the engine, whose process was frozen", "SIGSTOP", "kill -CONT"}},
		"frozen before prepare": {prepared, by(wire.LostFrozen, 2950*time.Millisecond), 10e6, 3 * time.Second, false,
			"frozen", []string{"process was frozen", "freezer"}},
		"taken, and no goal missed": {func(r *telemetry.Record) { r.Broken = 0 }, by(wire.LostTaken, 2600*time.Millisecond), 50e6, 3900 * time.Millisecond, true,
			"taken", []string{"processors, which others had: yes (4 processes, 1.3 processors)", "processors of its own"}},
		"throttled": {nil, by(wire.LostThrottled, 2*time.Second), 50e6, 2900 * time.Millisecond, false,
			"throttled", []string{"CPU limit was used up", "cpu.max"}},
		"stolen":         {nil, by(wire.LostStolen, 2*time.Second), 50e6, 2900 * time.Millisecond, false, "stolen", []string{"hypervisor", "dedicated"}},
		"paging":         {nil, by(wire.LostPaging, 2*time.Second), 50e6, 2900 * time.Millisecond, false, "paging", []string{"a disk had to bring", "Memory is short"}},
		"a little of it": {nil, by(wire.LostTaken, 400*time.Millisecond), 50e6, 2900 * time.Millisecond, false, "own_prefill", []string{"its own prompt"}},
		"before it came": {nil, by(wire.LostFrozen, 3*time.Second), -4e9, 3 * time.Second, false, "own_prefill", []string{"its own prompt"}},
	} {
		s := newStore(t, Config{StepsKept: 1024})
		r := told4s(wire.PartOwn)
		if c.change != nil {
			c.change(r)
		}
		c.lost.Begin = r.Arrived + c.after
		c.lost.End = c.lost.Begin + int64(c.took)
		log := wire.NewStepLog(4)
		log.Add(&wire.StepRecord{Step: 1, Began: r.Finished, Ended: r.Finished + 1, Lost: []wire.LostTime{c.lost}})
		s.Heard(&wire.State{Steps: log, At: r.Finished, Busiest: "yes (4 processes, 1.3 processors)"})
		why := reasonSlowFirstToken
		if c.usual {
			why = reasonForced
		}
		k := s.build(r, why, false, wire.Monotonic())
		v := k.view
		checkSums(t, v)
		for _, part := range c.want {
			if !strings.Contains(v.Sentence, part) {
				t.Errorf("%s: %q lacks %q", name, v.Sentence, part)
			}
		}
		if v.Cause != c.cause {
			t.Errorf("%s: the cause is %s, not %s: %q", name, v.Cause, c.cause, v.Sentence)
		}
		back, err := roundTrip(k)
		if err != nil || len(back.lost) != len(k.lost) {
			t.Errorf("%s: from disk come %v, %v", name, back, err)
		}
	}
}

// roundTrip is k written to disk and read.
func roundTrip(k *kept) (back *kept, err error) {
	text, err := json.Marshal(lineOf(k))
	if err != nil {
		return nil, err
	}
	_, err = readSegment(bytes.NewReader(append(text, '\n')), func(read *kept) { back = read })
	return back, err
}

// TestALossIsNotPaintedAsAKernel: the class that was launched when the process was
// stopped did not compute meanwhile.
func TestALossIsNotPaintedAsAKernel(t *testing.T) {
	v := seenStep{step: step{Began: 0, Ended: 3 * second}}
	v.kernels[wire.KernelSampling] = wire.KernelTime{Count: 2, Total: 2990 * time.Millisecond, Max: 2985 * time.Millisecond}
	v.kernels[wire.KernelMLP] = wire.KernelTime{Count: 9, Total: 8 * time.Millisecond, Max: 2 * time.Millisecond}
	v.lose(losses{wire.LostFrozen: 2980 * time.Millisecond})
	if k := v.kernels[wire.KernelSampling]; k.Total != 10*time.Millisecond || v.Lost != int64(2980*time.Millisecond) || v.LostTo != "frozen" {
		t.Errorf("sampling took %v, and %v was lost to %s", k.Total, time.Duration(v.Lost), v.LostTo)
	}
}

// TestLossesShrinkTimes: what is lost is taken out of the times once, and never more
// than there is.
func TestLossesShrinkTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(16, 1))
	for range 5000 {
		r := randomRecord(random)
		l := divide(r, r.Finished)
		whole := l.before.Sum() + l.handover + l.beforeUnknown
		var all []wire.LostTime
		for at := r.Arrived; at < r.Finished && random.IntN(5) > 0; {
			begin := at + random.Int64N(20e6)
			end := begin + 1 + random.Int64N(90e6)
			l := wire.LostTime{Begin: begin, End: end}
			l.By[random.IntN(len(l.By))] = time.Duration(random.Int64N(end - begin))
			all = append(all, l)
			at = end
		}
		l.lose(all)
		if sum := l.before.Sum() + l.handover + l.beforeUnknown + l.lostBefore.sum(); sum != whole {
			t.Fatalf("%v became %v", whole, sum)
		}
		v := &View{ID: r.ID, WallMS: ms(r.Finished - r.Arrived), Parts: l.parts(), Stall: l.stall()}
		checkSums(t, v)
		c, sum := l.causes(r.Blocked, scopeAll), time.Duration(0)
		for i, d := range c {
			if sum += d; d < 0 {
				t.Fatalf("%v took %v", cause(i), d)
			}
		}
		if sum != l.wall() {
			t.Fatalf("the causes sum to %v of %v", sum, l.wall())
		}
	}
}

// TestEveryRefusalIsExplained: what is refused has words of its own, by its outcome
// at least.
func TestEveryRefusalIsExplained(t *testing.T) {
	for o, ending := range endings {
		if name := telemetry.Outcome(o).String(); ending.cause == causeRefused && refusals[name] == "" {
			t.Errorf("a request that ends as %s is not explained", name)
		}
	}
}

func TestNumbersInSentences(t *testing.T) {
	for d, want := range map[time.Duration]string{48 * time.Microsecond: "48 µs", 1234 * time.Microsecond: "1.2 ms", 310 * time.Millisecond: "310 ms", 3149 * time.Millisecond: "3.1 s", 200 * time.Second: "200 s"} {
		if got := short(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0 tokens", 1: "1 token", 999: "999 tokens", 7912: "7,912 tokens", 1234567: "1,234,567 tokens"} {
		if got := tokens(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
