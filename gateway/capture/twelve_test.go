package capture

import (
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// TestTwelveCauses has the causes that an engineer on call meets, from recorded facts:
// the sentence names each, and advises what mends it. All are planted in a whole
// Forebay too, in package cli, where a slow chat template stands for tokenizing.
func TestTwelveCauses(t *testing.T) {
	lost := func(c wire.LostCause) *wire.LostTime {
		l := &wire.LostTime{}
		l.By[c] = 2500 * time.Millisecond
		return l
	}
	early := func(change func(*telemetry.Record)) *telemetry.Record {
		r := told4s(wire.PartOwn)
		*r = telemetry.Record{Class: "interactive", Outcome: telemetry.OK, Arrived: r.Arrived, Decoded: r.Arrived + 1e6, Identified: r.Arrived + 1e6, Broken: telemetry.FirstTokenGoal}
		change(r)
		return r
	}
	for name, c := range map[string]struct {
		r      *telemetry.Record
		lost   *wire.LostTime
		cause  string
		words  string
		advice string
	}{
		"frozen engine":       {told4s(wire.PartOwn), lost(wire.LostFrozen), "frozen", "process was frozen", "kill -CONT"},
		"CPU taken":           {told4s(wire.PartOwn), lost(wire.LostTaken), "taken", "other programs had", "processors of its own"},
		"throttled cgroup":    {told4s(wire.PartOwn), lost(wire.LostThrottled), "throttled", "CPU limit was used up", "cpu.max"},
		"long own prompt":     {told4s(wire.PartOwn), nil, "own_prefill", "its own prompt", "shorter prompt"},
		"neighbour's prefill": {told4s(wire.PartOthersPrefill), nil, "others_prefill", "another request's prompt", "engine.background_stretch"},
		"batch queue":         {queued4s("order"), nil, "queue", "others came first", "add a replica"},
		"operator's pause":    {queued4s("paused"), nil, "queue", "the operator had paused its class", "forebay queue open interactive"},
		"memory":              {queued4s("memory"), nil, "queue", "not enough free memory", "engine.kv_bytes"},
		"preemption":          {with(told4s(wire.PartPreempted), func(r *telemetry.Record) { r.Engine.Preempted = 3 }), nil, "preempted", "preempted, 3 times", "engine.kv_bytes"},
		"Redis slow": {early(func(r *telemetry.Record) {
			r.Prepared, r.Reserved, r.Finished = r.Arrived+2e6, r.Arrived+3e9, r.Arrived+3e9+1e6
		}), nil, "reserve", "asking the store of budgets", "budget.decision_limit"},
		"slow reader": {told4s(wire.PartParked), nil, "slow_reader", "its own client to read", "its proxy or its network"},
		"tokenizing": {early(func(r *telemetry.Record) {
			r.Prepared, r.Tokenize, r.Finished = r.Arrived+3e9, 2900*time.Millisecond, r.Arrived+3e9+1e6
		}), nil, "prepare", "rendering and tokenizing", "engine.tokens_cache_bytes"},
	} {
		s := newStore(t, Config{StepsKept: 1024})
		_, steps := slowRecord()
		told(s, c.r, steps)
		if c.lost != nil {
			c.lost.Begin, c.lost.End = c.r.Arrived+100e6, c.r.Arrived+2900e6
			log := wire.NewStepLog(4)
			log.Add(&wire.StepRecord{Step: 1, Began: c.r.Finished, Ended: c.r.Finished + 1, Lost: []wire.LostTime{*c.lost}})
			s.steps.heard = 0
			s.Heard(&wire.State{Steps: log, At: c.r.Finished})
		}
		v := s.build(c.r, reasonSlowFirstToken, false, wire.Monotonic()).view
		if v.Cause != c.cause || !strings.Contains(v.Sentence, c.words) || !strings.Contains(v.Sentence, c.advice) {
			t.Errorf("%s: %s, %q", name, v.Cause, v.Sentence)
		}
	}
}
