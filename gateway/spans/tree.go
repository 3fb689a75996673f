package spans

import (
	"cmp"
	"time"
)

// Bounds on what a request's tree shows one by one.
const (
	stepsMax      = 64
	slowStepsMax  = 8
	preemptedMax  = 8
	kernelsMax    = 16
	millisecondNS = float64(time.Millisecond)
)

// RequestTree is the trace of r: the request's span and what lay below it. Of
// what r did not reach there is no span; what had begun ends with the request.
func RequestTree(r *Request, names Names) Tree {
	b := &builder{r: r, names: names}
	b.root()
	b.gateway()
	b.engine(b.call())
	b.emit()
	return Tree{TraceID: r.TraceID, State: r.State, Flags: r.Flags, Spans: b.spans}
}

// spansMax is the most spans that r can have with the steps that it shows.
func (r *Request) spansMax() int {
	n := int(roleEmit) + 1 + min(len(r.Engine.Preempted), preemptedMax)
	for i := range r.steps() {
		n += 2 + min(len(r.Engine.Steps[i].Kernels), kernelsMax)
	}
	return n
}

// builder makes the spans of one request. It names them by index, of which -1
// is one that was not reached: nothing is under it.
type builder struct {
	r     *Request
	names Names
	spans []Span
}

// add appends a span within its parent. Instants of two processes may differ a
// little, so both are brought into the parent's time.
func (b *builder) add(parent int, role uint64, kind Kind, name string, begin, end int64, f facts) int {
	if parent < 0 || begin == 0 {
		return -1
	}
	p := &b.spans[parent]
	s := Span{Name: name, Kind: kind, ID: childID(b.r.SpanID, role), Parent: p.ID, Attributes: f}
	if end == 0 {
		end = p.End
		if b.r.Failed || b.r.Finished == 0 {
			s.Attributes = append(s.Attributes, Bool("forebay.unfinished", true))
		}
		s.Failed, s.StatusText = b.r.Failed, b.r.Error
	}
	s.Begin = min(max(begin, p.Begin), p.End)
	s.End = min(max(end, s.Begin), p.End)
	b.spans = append(b.spans, s)
	return len(b.spans) - 1
}

func (b *builder) root() {
	r, h := b.r, &b.r.HTTP
	f := facts{String("forebay.outcome", r.Outcome)}.
		text("http.request.method", h.Method).text("http.route", h.Route).text("url.path", h.Path).text("url.scheme", h.Scheme).
		int("http.response.status_code", h.Status).text("server.address", h.Address).int("server.port", h.Port).
		text("error.type", r.Error).
		text("forebay.request.id", r.ID).text("forebay.request.client_id", r.ClientID).text("forebay.tenant", r.Tenant).
		text("forebay.class", r.Class).text("forebay.class.demoted_from", r.DemotedFrom).text("forebay.model", r.Model).
		text("forebay.policy.version", r.PolicyVersion).
		milliseconds("forebay.slo.ttft_target_ms", r.FirstTokenTarget).milliseconds("forebay.slo.token_target_ms", r.TokenTarget).
		texts("forebay.slo.breached", r.GoalsBroken).texts("forebay.capture.reason", r.CaptureReasons).
		int64("http.request.body.size", h.BytesIn).int64("http.response.body.size", h.BytesOut)
	name := cmp.Or(h.Method+" "+cmp.Or(h.Route, h.Path), "request")
	if name == " " {
		name = "request"
	}
	b.spans = append(b.spans, Span{
		Name: name, Kind: Server, ID: r.SpanID, Parent: r.Parent, Begin: r.Arrived, End: max(r.Arrived, r.last()),
		Attributes: append(f, r.Extra...), Events: r.Events, Failed: r.Failed, StatusText: r.Error,
	})
}

// last is when the request ended, or the last that is known of one that runs.
func (r *Request) last() int64 {
	if r.Finished != 0 {
		return r.Finished
	}
	return max(r.Now, r.Decoded, r.Prepared, r.Reserved, r.Admitted, r.Dispatched, r.FirstChunk, r.CallEnd, r.Engine.Finished, r.Emit.End)
}

// gateway adds what came before the call. A stage whose end is unknown though a
// later one was reached is left out, since it never was.
func (b *builder) gateway() {
	r := b.r
	prepare := b.add(0, rolePrepare, Internal, "prepare", r.Decoded, cmp.Or(r.Prepared, r.Reserved, r.Admitted, r.Dispatched), nil)
	b.add(prepare, roleRender, Internal, "render", r.Render.Begin, r.Render.End, nil)
	b.add(prepare, roleTokenize, Internal, "tokenize", r.Tokenize.Begin, r.Tokenize.End, facts{}.int("forebay.prompt_tokens", r.Usage.Prompt))
	admitted := cmp.Or(r.Admitted, r.Dispatched)
	if r.Reserved != 0 || admitted == 0 {
		budget := &r.Budget
		b.add(0, roleReserve, Internal, "reserve", r.Prepared, r.Reserved, facts{}.
			text("forebay.admission.decision", budget.Decision).text("forebay.admission.limiter", budget.Limiter).
			flag("forebay.admission.degraded", budget.Degraded).int64("forebay.admission.tokens_estimated", budget.Estimated).
			int64("forebay.admission.tokens_reserved", budget.Reserved).int64("forebay.admission.tokens_refunded", budget.Refunded))
	}
	begin := r.Reserved
	if begin == 0 && admitted != 0 {
		begin = r.Prepared
	}
	b.add(0, roleQueue, Internal, "queue", begin, admitted, facts{}.
		text("forebay.queue.reason", r.Queue.Reason).int("forebay.queue.ahead_count", r.Queue.AheadCount).
		int64("forebay.queue.ahead_tokens", r.Queue.AheadTokens).milliseconds("forebay.queue.predicted_ms", r.Queue.Predicted).
		int("forebay.queue.preempted_for", r.Queue.PreemptedFor))
}

// call adds the standard inference span, the only one with the usage: sums over
// spans would count it twice.
func (b *builder) call() int {
	r, o := b.r, &b.r.Options
	if r.Dispatched == 0 {
		return -1
	}
	model := cmp.Or(r.RequestModel, r.Model)
	operation := cmp.Or(o.Operation, "chat")
	f := facts{
		String("gen_ai.operation.name", operation), String("gen_ai.provider.name", "forebay"),
		Int("gen_ai.usage.input_tokens", r.Usage.Prompt), Int("gen_ai.usage.output_tokens", r.Usage.Completion),
		Float("gen_ai.request.temperature", o.Temperature), Bool("gen_ai.request.stream", r.Stream),
	}.text("gen_ai.request.model", model).text("gen_ai.response.model", r.Model).text("gen_ai.response.id", r.ResponseID).
		int("gen_ai.usage.cache_read.input_tokens", r.Usage.Cached).int(b.names.cacheWrite(), r.Usage.CacheWritten).
		texts("gen_ai.response.finish_reasons", r.FinishReasons).text("error.type", r.Error).
		int("gen_ai.request.max_tokens", o.MaxTokens).float("gen_ai.request.top_p", o.TopP).
		float("gen_ai.request.frequency_penalty", o.FrequencyPenalty).float("gen_ai.request.presence_penalty", o.PresencePenalty).
		int("forebay.request.stop_texts", o.StopTexts).text("gen_ai.output.type", o.ResponseFormat).text("forebay.adapter", o.Adapter)
	if o.Choices > 1 {
		f = f.int("gen_ai.request.choice.count", o.Choices)
	}
	if o.TopK != 0 {
		f = append(f, b.names.topK(o.TopK))
	}
	if r.Stream && r.FirstChunk != 0 {
		f = f.seconds("gen_ai.response.time_to_first_chunk", r.FirstChunk-r.Dispatched)
	}
	if r.Engine.Address != "" {
		f = f.text("server.address", r.Engine.Address).text("network.transport", "unix")
	}
	i := b.add(0, roleCall, Client, operation+" "+model, r.Dispatched, cmp.Or(r.CallEnd, r.Engine.Finished), f)
	b.spans[i].Failed, b.spans[i].StatusText = r.Failed, r.Error
	return i
}

func (b *builder) emit() {
	e := &b.r.Emit
	b.add(0, roleEmit, Internal, "emit", e.Begin, e.End, facts{}.
		int64("forebay.emit.bytes", e.Bytes).int("forebay.emit.flushes", e.Flushes).milliseconds("forebay.emit.blocked_ms", e.Blocked))
}

// facts are attributes, of which the empty ones are left out.
type facts []Attribute

func (f facts) text(key, v string) facts {
	if v == "" {
		return f
	}
	return append(f, String(key, v))
}

func (f facts) texts(key string, v []string) facts {
	if len(v) == 0 {
		return f
	}
	return append(f, Strings(key, v))
}

func (f facts) int(key string, v int) facts { return f.int64(key, int64(v)) }

func (f facts) int64(key string, v int64) facts {
	if v == 0 {
		return f
	}
	return append(f, Int(key, v))
}

func (f facts) float(key string, v float64) facts {
	if v == 0 {
		return f
	}
	return append(f, Float(key, v))
}

func (f facts) flag(key string, v bool) facts {
	if !v {
		return f
	}
	return append(f, Bool(key, v))
}

func (f facts) milliseconds(key string, ns int64) facts {
	return f.float(key, float64(ns)/millisecondNS)
}

// seconds keeps a zero: the keys with this unit are of conventions that ask for them.
func (f facts) seconds(key string, ns int64) facts {
	return append(f, Float(key, time.Duration(max(0, ns)).Seconds()))
}
