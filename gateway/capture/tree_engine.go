package capture

import (
	"time"

	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/internal/wire"
)

// Bounds of what a request's spans show one by one.
const (
	spanStepsMax = 64
	slowStepsMax = 8
)

// engine adds the engine's span below the call. Its queue, prefill and decode
// follow each other without a gap, so they sum to it.
func (b *builder) engine(call int) {
	r, l := b.r, &b.life
	if call < 0 || l.last < phaseEngineQueue {
		b.steps = nil // there is no span to show them in
		return
	}
	received := l.ends[phaseDispatch] + int64(l.handover)
	scheduled, first, finished := l.over(phaseEngineQueue), l.over(phasePrefill), l.over(phaseDecode)
	end := finished
	if end == 0 {
		end = b.spans[call].End // the latencies of a request that did not finish end here
	}
	f := facts{}.text("forebay.model", r.Model).int("forebay.preempted", r.Engine.Preempted)
	engine := b.add(call, roleEngine, spans.Server, "engine "+r.Model, received, finished, f.latencies(received, scheduled, first, end))
	if engine < 0 { // an instant that was read from disk is none
		b.steps = nil
		return
	}
	b.add(engine, roleEngineQueue, spans.Internal, "engine queue", received, scheduled, nil)
	before, after := l.spanStall(received)
	prefill := b.add(engine, rolePrefill, spans.Internal, "prefill", scheduled, first, facts{}.
		int("forebay.prefill.chunks", r.Engine.PrefillChunks).int("forebay.prefill.steps", r.Engine.PrefillSteps).
		int("forebay.prefill.tokens_computed", r.Engine.PrefillTokens).int("forebay.prefill.tokens_from_cache", r.CachedTokens).stall(before))
	decode := b.add(engine, roleDecode, spans.Internal, "decode", first, finished, facts{}.
		int("forebay.decode.steps", max(0, r.Engine.Steps-r.Engine.PrefillSteps)).int("forebay.decode.tokens", r.CompletionTokens).stall(after))
	if decode >= 0 {
		b.spans[decode].Events = b.slowSteps()
	}
	for i := range b.steps {
		parent := prefill
		if b.steps[i].Decode {
			parent = decode
		}
		if parent < 0 {
			parent = engine
		}
		b.step(parent, i)
	}
}

// latencies adds the keys under which engines in the field report their latencies,
// in seconds, each if the request reached its end. 0 is an instant not reached.
func (f facts) latencies(received, scheduled, first, end int64) facts {
	queued, filled := scheduled, first
	if queued == 0 {
		queued = end
	}
	if filled == 0 {
		filled = end
	}
	f = f.seconds("gen_ai.latency.time_in_queue", queued-received).seconds("gen_ai.latency.e2e", end-received)
	if scheduled != 0 {
		f = f.seconds("gen_ai.latency.time_in_model_inference", end-scheduled).seconds("gen_ai.latency.time_in_model_prefill", filled-scheduled)
	}
	if first != 0 {
		f = f.seconds("gen_ai.latency.time_to_first_token", first-received).seconds("gen_ai.latency.time_in_model_decode", end-first)
	}
	return f
}

// stallPart is a part of the time in a phase.
type stallPart struct {
	name string
	time time.Duration
}

// spanStall divides prefill and decode by cause. The waits before the first step
// belong to the span of the engine's queue and are cut.
func (l *life) spanStall(received int64) (prefill, decode []stallPart) {
	queued := time.Duration(max(0, l.ends[phaseEngineQueue]-received))
	row := func(name string, wait bool, before, after time.Duration) {
		if wait {
			cut := min(before, queued)
			queued, before = queued-cut, before-cut
		}
		if before > 0 {
			prefill = append(prefill, stallPart{name, before})
		}
		if after > 0 {
			decode = append(decode, stallPart{name, after})
		}
	}
	for p := range wire.PartCount {
		computing := p == wire.PartOwn || p == wire.PartOthersPrefill || p == wire.PartOthersDecode
		row(p.String(), !computing, l.before[p], l.after[p])
	}
	for c := range wire.LostCauseCount {
		row(c.String(), true, l.lostBefore[c], l.lostAfter[c])
	}
	row(l.unknown(), true, l.beforeUnknown, l.afterUnknown)
	return prefill, decode
}

func (f facts) stall(table []stallPart) facts {
	for _, part := range table {
		f = append(f, spans.Float("forebay.stall."+part.name+"_ms", exactMS(int64(part.time))))
	}
	return f
}

// slowSteps are events for decode steps that other requests' prompts made slow.
func (b *builder) slowSteps() (events []spans.Event) {
	for i := range b.steps {
		s := &b.steps[i]
		if !s.Decode || s.OthersPrefill == 0 || len(events) == slowStepsMax {
			continue
		}
		events = append(events, spans.Event{Name: "slow_step", At: s.Began, Attributes: facts{spans.Int("forebay.step.number", s.Number)}.
			milliseconds("forebay.step.duration_ms", s.Ended-s.Began).int("forebay.step.rows", s.Members).
			int("forebay.step.others_prefill_tokens", s.OthersPrefill).text("forebay.step.culprit", s.Largest)})
	}
	return events
}

// step adds the request's view of a step, with a link to the step itself.
func (b *builder) step(parent, i int) {
	s := &b.steps[i]
	at := b.add(parent, roleStep+uint64(i), spans.Internal, "step", max(1, s.Began), max(1, s.Began, s.Ended), facts{
		spans.Int("forebay.step.number", s.Number), spans.Float("forebay.step.wall_ms", exactMS(s.Ended-s.Began)), spans.Float("forebay.step.share_ms", exactMS(s.Own)),
	}.text("forebay.step.phase", s.phase()).int("forebay.step.rows", s.Members).int("forebay.step.own_tokens", s.OwnTokens).
		int("forebay.step.others_prefill_tokens", s.OthersPrefill))
	b.spans[at].Links = []spans.Link{stepLink(s.Run, s.Number)}
	b.spans = append(b.spans, kernelSpans(s, &b.spans[at], true)...)
}

// spanSteps are the steps in which k was computed, at most spanStepsMax of them
// and the longest among these, in order.
func (k *kept) spanSteps() []step {
	var members []step
	for _, s := range k.steps {
		if s.Member {
			members = append(members, s)
		}
	}
	shown, _ := thin(members, spanStepsMax, func(s *step) int64 { return s.Ended - s.Began })
	return shown
}

// stepTrees are the traces of the steps. The first kept request of a step sends
// the step with its kernel classes, each later one its own span in it.
func (b *builder) stepTrees() []spans.Tree {
	trees := make([]spans.Tree, len(b.steps))
	for i := range b.steps {
		s := &b.steps[i]
		self := stepLink(s.Run, s.Number)
		end := max(s.Began, s.Ended)
		back := []spans.Link{b.backLink(i)}
		root := spans.Span{Name: "engine.step", ID: self.SpanID, Begin: s.Began, End: end, Links: back, Engine: true,
			Attributes: facts{spans.Int("forebay.step.number", s.Number)}.text("forebay.model", b.r.Model).
				int("forebay.batch.rows", s.Members).int("forebay.batch.decode", s.DecodeRows).int("forebay.batch.prefill_tokens", s.PrefillTokens).
				int("forebay.kv.pages_used", s.PagesUsed).milliseconds("forebay.step.host_ms", s.Gap-s.Idle)}
		trees[i] = spans.Tree{
			TraceID: self.TraceID, Flags: b.r.Trace.Flags | 1, Spans: append([]spans.Span{root}, kernelSpans(s, &root, false)...),
			Member: &spans.Span{Name: "member", ID: childID(b.r.Trace.SpanID, roleMember+uint64(i)), Parent: self.SpanID, Begin: s.Began, End: end,
				Links: back, Engine: true, Attributes: facts{}.text("forebay.request.id", b.r.ID)},
		}
	}
	return trees
}

// kernelSpans are the kernel classes of a step, below the step itself or a request's
// view of it. Only their totals are known, so they lie end to end: their lengths are
// true, their places are not. A request's view has its share of each too, as the step
// has: only shares may be summed over requests.
func kernelSpans(s *step, below *spans.Span, view bool) (list []spans.Span) {
	at := below.Begin
	for n, k := range s.Kernels {
		end := min(at+max(0, k.Total), below.End)
		f := facts{spans.String("forebay.kernel.class", k.Class), spans.Int("forebay.kernel.count", k.Count),
			spans.Float("forebay.kernel.total_ms", exactMS(k.Total)), spans.Float("forebay.kernel.max_ms", exactMS(k.Max))}
		if view {
			f = append(f, spans.Float("forebay.kernel.share_ms", exactMS(k.Total)*s.share()))
		}
		list = append(list, spans.Span{Name: k.Class, ID: childID(below.ID, roleKernel+uint64(n)), Parent: below.ID, Begin: at, End: end, Attributes: f, Engine: true})
		at = end
	}
	return list
}

// share is the part of the step that the request itself had, from 0 to 1.
func (s *step) share() float64 {
	if took := s.Ended - s.Began; took > 0 {
		return float64(s.Own) / float64(took)
	}
	return 0
}

// backLink points from a step to the request's view of it. Shares of all requests
// in a step sum to 1; the whole time of a step must never be summed over requests.
func (b *builder) backLink(i int) spans.Link {
	s := &b.steps[i]
	return spans.Link{TraceID: b.r.Trace.TraceID, SpanID: childID(b.r.Trace.SpanID, roleStep+uint64(i)), Attributes: facts{spans.Float("forebay.step.share", s.share())}.
		text("forebay.request.id", b.r.ID).text("forebay.class", b.r.Class).int("forebay.step.own_tokens", s.OwnTokens)}
}
