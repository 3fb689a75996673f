package spans

import "cmp"

// engine adds the engine's span under the call's. Its queue, prefill and decode
// follow each other without a gap, so they sum to it.
func (b *builder) engine(call int) {
	e := &b.r.Engine
	f := facts{}.text("forebay.model", b.r.Model).text("forebay.kernels", e.Kernels).int("forebay.preempted", len(e.Preempted))
	end := e.Finished
	if end == 0 && call >= 0 {
		end = b.spans[call].End // what is unfinished is found below
	}
	if e.Received != 0 {
		f = f.engineLatency(e, end)
	}
	engine := b.add(call, roleEngine, Server, "engine "+cmp.Or(b.r.Model, b.r.RequestModel), e.Received, e.Finished, f)
	b.add(engine, roleEngineQueue, Internal, "engine queue", e.Received, cmp.Or(e.Scheduled, e.Finished), facts{}.text("forebay.queue.reason", e.QueueReason))
	prefill := b.add(engine, rolePrefill, Internal, "prefill", e.Scheduled, cmp.Or(e.FirstToken, e.Finished), facts{}.
		int("forebay.prefill.chunks", e.Prefill.Chunks).int("forebay.prefill.steps", e.Prefill.Steps).
		int("forebay.prefill.tokens_computed", e.Prefill.Computed).int("forebay.prefill.tokens_from_cache", e.Prefill.Cached).
		stall(e.Prefill.Stall))
	decode := b.add(engine, roleDecode, Internal, "decode", e.FirstToken, e.Finished, facts{}.
		int("forebay.decode.steps", e.Decode.Steps).int("forebay.decode.tokens", e.Decode.Tokens).
		milliseconds("forebay.decode.itl_p50_ms", e.Decode.IntervalMedian).milliseconds("forebay.decode.itl_p99_ms", e.Decode.IntervalP99).
		milliseconds("forebay.decode.itl_max_ms", e.Decode.IntervalMax).stall(e.Decode.Stall))
	if decode >= 0 {
		b.spans[decode].Events = slowSteps(e.Decode.Slow)
	}
	for i, p := range e.Preempted[:min(len(e.Preempted), preemptedMax)] {
		b.add(engine, rolePreempted+uint64(i), Internal, "preempted", p.Begin, p.End, facts{}.int("forebay.preempted.tokens_recomputed", p.Recomputed))
	}
	for i := range b.r.steps() {
		parent := prefill
		if e.Steps[i].Phase == "decode" {
			parent = decode
		}
		if parent < 0 {
			parent = engine
		}
		b.step(parent, i)
	}
}

// engineLatency adds the keys under which engines in the field tell their
// latencies, in seconds, each where its end was reached.
func (f facts) engineLatency(e *Engine, end int64) facts {
	f = f.seconds("gen_ai.latency.time_in_queue", cmp.Or(e.Scheduled, end)-e.Received).seconds("gen_ai.latency.e2e", end-e.Received)
	if e.Scheduled != 0 {
		f = f.seconds("gen_ai.latency.time_in_model_inference", end-e.Scheduled).
			seconds("gen_ai.latency.time_in_model_prefill", cmp.Or(e.FirstToken, end)-e.Scheduled)
	}
	if e.FirstToken != 0 {
		f = f.seconds("gen_ai.latency.time_to_first_token", e.FirstToken-e.Received).
			seconds("gen_ai.latency.time_in_model_decode", end-e.FirstToken)
	}
	return f
}

// stall adds the table, with its zeros: a part that is absent would be unknown.
func (f facts) stall(table []Part) facts {
	for _, part := range table {
		f = append(f, Float("forebay.stall."+part.Name+"_ms", float64(part.Duration)/millisecondNS))
	}
	return f
}

func slowSteps(slow []SlowStep) (events []Event) {
	for _, s := range slow[:min(len(slow), slowStepsMax)] {
		events = append(events, Event{Name: "slow_step", At: s.At, Attributes: facts{Int("forebay.step.number", s.Step)}.
			milliseconds("forebay.step.duration_ms", s.Duration).int("forebay.step.rows", s.Rows).
			int("forebay.step.others_prefill_tokens", s.OthersPrefill).text("forebay.step.culprit", s.Culprit)})
	}
	return events
}

// steps are those that are shown one by one: none where there is no span of the
// engine to show them in.
func (r *Request) steps() []Step {
	if r.Dispatched == 0 || r.Engine.Received == 0 {
		return nil
	}
	return r.Engine.Steps[:min(len(r.Engine.Steps), stepsMax)]
}

// step adds the request's view of a step, with a link to the step itself.
func (b *builder) step(parent, i int) {
	s := &b.r.Engine.Steps[i]
	b.add(parent, roleStep+uint64(i), Internal, "step", max(1, s.Begin), max(1, s.Begin, s.End), facts{
		Int("forebay.step.number", s.Number), Float("forebay.step.wall_ms", float64(s.End-s.Begin)/millisecondNS),
		Float("forebay.step.share_ms", s.Share*float64(s.End-s.Begin)/millisecondNS),
	}.text("forebay.step.phase", s.Phase).int("forebay.step.rows", s.Rows).int("forebay.step.own_tokens", s.OwnTokens).
		int("forebay.step.others_prefill_tokens", s.OthersPrefill))
	b.spans[len(b.spans)-1].Links = []Link{stepLink(b.r.Engine.Run, s.Number)}
}
