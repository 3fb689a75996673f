package capture

import (
	"cmp"
	"strconv"

	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// builder makes the spans of one request. It refers to a span by its index; -1 is
// a span that the request did not reach, and nothing is added below it.
type builder struct {
	k      *kept
	r      *telemetry.Record
	life   life
	names  spans.Names
	failed bool
	steps  []step // at most spanStepsMax, in which the request was computed
	spans  []spans.Span
}

// trees are the spans of k: its own trace, then those of the steps that it shows.
// All are sent as sampled. There are none if another version kept k.
func (k *kept) trees(names spans.Names) []spans.Tree {
	r := k.record
	if r == nil || r.ID == "" {
		return nil
	}
	b := &builder{k: k, r: r, life: divide(r, k.end), names: names, failed: !k.view.Running && r.Outcome != telemetry.OK, steps: k.spanSteps()}
	b.life.lose(k.lost)
	b.root()
	b.gateway()
	b.engine(b.call())
	b.emit()
	own := spans.Tree{TraceID: r.Trace.TraceID, State: r.Trace.State, Flags: r.Trace.Flags | 1, Spans: b.spans}
	return append([]spans.Tree{own}, b.stepTrees()...)
}

// shift moves all instants of the trees by ns.
func shift(trees []spans.Tree, ns int64) {
	move := func(s *spans.Span) {
		s.Begin, s.End = s.Begin+ns, s.End+ns
		for i := range s.Events {
			s.Events[i].At += ns
		}
	}
	for i := range trees {
		for j := range trees[i].Spans {
			move(&trees[i].Spans[j])
		}
		if m := trees[i].Member; m != nil {
			move(m)
		}
	}
}

// add appends a span. Instants of two processes may differ a little, so begin and
// end are clamped to the parent. An end of 0 means that the request ended first.
func (b *builder) add(parent int, role uint64, kind spans.Kind, name string, begin, end int64, f facts) int {
	if parent < 0 || begin == 0 {
		return -1
	}
	p := &b.spans[parent]
	s := spans.Span{Name: name, Kind: kind, ID: childID(b.r.Trace.SpanID, role), Parent: p.ID, Attributes: f, Engine: p.Engine || role == roleEngine}
	if end == 0 {
		end = p.End
		if b.failed || b.k.view.Running {
			s.Attributes = append(s.Attributes, spans.Bool("forebay.unfinished", true))
		}
		s.Failed, s.StatusText = b.failed, b.r.ErrorKind
	}
	s.Begin = min(max(begin, p.Begin), p.End)
	s.End = min(max(end, s.Begin), p.End)
	b.spans = append(b.spans, s)
	return len(b.spans) - 1
}

// routes are the generation routes by their name in records: the path, the
// operation of the conventions, and what an answer's id begins with.
var routes = map[string]struct{ path, operation, idPrefix string }{
	"chat_completions":     {"/v1/chat/completions", "chat", "chatcmpl-"},
	"completions":          {"/v1/completions", "text_completion", "cmpl-"},
	"responses":            {"/v1/responses", "chat", "resp_"},
	"messages":             {"/v1/messages", "chat", "msg_"},
	"embeddings":           {"/v1/embeddings", "embeddings", ""},
	"rerank":               {"/v1/rerank", "embeddings", ""},
	telemetry.RouteSibling: {"/siblings/hop", "chat", "chatcmpl-"},
}

// root adds the request's own span.
func (b *builder) root() {
	r, v := b.r, b.k.view
	name := "request"
	f := facts{spans.String("forebay.outcome", v.Outcome)}
	if path := routes[r.Route].path; path != "" {
		name = "POST " + path
		f = f.text("http.request.method", "POST").text("http.route", path).text("url.path", path).text("url.scheme", "http")
	}
	f = f.int("http.response.status_code", v.Status).text("error.type", r.ErrorKind).text("forebay.gpu.failed_kernel", r.Kernel).
		text("forebay.request.id", r.ID).text("forebay.request.client_id", r.ClientID).text("forebay.tenant", r.Tenant).text("forebay.key", r.Key).
		text("forebay.class", r.Class).text("forebay.class.demoted_from", r.DemotedFrom).text("forebay.group", r.Group).text("forebay.served_by", r.ServedBy).text("forebay.placement", r.Placement).
		milliseconds("forebay.placement.here_ms", int64(r.FirstTokenHere)).milliseconds("forebay.placement.there_ms", int64(r.FirstTokenThere)).text("forebay.model", r.Model).
		milliseconds("forebay.slo.ttft_target_ms", int64(cmp.Or(r.Promised, r.FirstTokenGoal))).milliseconds("forebay.slo.ttft_predicted_ms", r.WaitPredicted).
		milliseconds("forebay.slo.token_target_ms", int64(r.TokenGoal)).text("forebay.slo.promise", v.Promise).
		texts("forebay.slo.breached", r.Broken.Names()).texts("forebay.capture.reason", v.Reasons).
		int64("http.request.body.size", r.BytesIn).int64("http.response.body.size", r.BytesOut).
		text("forebay.cause", v.Cause).text("forebay.sentence", v.Sentence).
		flag("forebay.capture.partial", r.ParentSpan != [8]byte{} && r.Trace.Flags&1 == 0) // the caller's spans are not exported
	b.spans = append(b.spans, spans.Span{
		Name: name, Kind: spans.Server, ID: r.Trace.SpanID, Parent: r.ParentSpan, Begin: r.Arrived, End: max(r.Arrived, b.k.end),
		Attributes: f, Failed: b.failed, StatusText: r.ErrorKind,
	})
}

// gateway adds the stages before the call of the engine.
func (b *builder) gateway() {
	r, l := b.r, &b.life
	prepared := l.over(phaseTokenize)
	prepare := b.add(0, rolePrepare, spans.Internal, "prepare", l.over(phaseRead), prepared, nil)
	if prepared != 0 && l.phase(phaseCompile) > 0 {
		b.add(prepare, roleCompile, spans.Internal, "compile", l.ends[phasePrepare], l.ends[phaseCompile], facts{}.text("forebay.request.grammar", r.Options.Grammar))
	}
	if prepared != 0 && l.phase(phaseRender) > 0 {
		b.add(prepare, roleRender, spans.Internal, "render", l.ends[phaseCompile], l.ends[phaseRender], nil)
	}
	if prepared != 0 && l.phase(phaseTokenize) > 0 {
		b.add(prepare, roleTokenize, spans.Internal, "tokenize", l.ends[phaseRender], prepared, facts{}.int("forebay.prompt_tokens", r.PromptTokens))
	}
	reserved := l.over(phaseReserve)
	b.add(0, roleReserve, spans.Internal, "reserve", prepared, reserved, nil)
	b.add(0, roleQueue, spans.Internal, "queue", reserved, l.over(phaseQueue), facts{}.text("forebay.queue.reason", r.WaitReason))
}

var finishNames = [...]string{wire.FinishStop: "stop", wire.FinishLength: "length", wire.FinishCalls: "tool_calls", wire.FinishFilter: "content_filter"}

// call adds the standard inference span. No other span has the usage, because
// sums over spans would count it twice.
func (b *builder) call() int {
	r, o, route := b.r, &b.r.Options, routes[b.r.Route]
	dispatched := b.life.over(phaseDispatch)
	if dispatched == 0 {
		return -1
	}
	operation := cmp.Or(route.operation, "chat")
	f := facts{
		spans.String("gen_ai.operation.name", operation), spans.String("gen_ai.provider.name", "forebay"),
		spans.Int("gen_ai.usage.input_tokens", r.PromptTokens), spans.Int("gen_ai.usage.output_tokens", r.CompletionTokens),
		spans.Bool("gen_ai.request.stream", r.Stream),
	}.text("gen_ai.request.model", r.Model).text("gen_ai.response.model", r.Model).
		int("gen_ai.usage.cache_read.input_tokens", r.CachedTokens).text("error.type", r.ErrorKind).int("gen_ai.request.max_tokens", o.MaxTokens)
	// Zero is a wish too, so these two are there whenever the client sent them.
	if o.HasTemperature {
		f = append(f, spans.Float("gen_ai.request.temperature", decimal(o.Temperature)))
	}
	if o.HasTopP {
		f = append(f, spans.Float("gen_ai.request.top_p", decimal(o.TopP)))
	}
	if o.TopK != 0 {
		f = append(f, b.names.TopK(o.TopK))
	}
	f = f.float("gen_ai.request.frequency_penalty", decimal(o.FrequencyPenalty)).float("gen_ai.request.presence_penalty", decimal(o.PresencePenalty)).
		int("forebay.request.stop_texts", o.StopTexts).int("forebay.reasoning_tokens", r.ReasoningTokens).int("forebay.tool_calls", r.ToolCalls).
		text("forebay.request.grammar", o.Grammar)
	if r.Choices > 1 {
		f = f.int("gen_ai.request.choice.count", r.Choices)
	}
	var finishes []string
	for _, finish := range r.Finishes {
		if finish != wire.FinishNone && int(finish) < len(finishNames) {
			finishes = append(finishes, finishNames[finish])
		}
	}
	f = f.texts("gen_ai.response.finish_reasons", finishes)
	if r.FirstWrite != 0 {
		f = f.text("gen_ai.response.id", route.idPrefix+r.ID)
		if r.Stream {
			f = f.seconds("gen_ai.response.time_to_first_chunk", r.FirstWrite-dispatched)
		}
	}
	i := b.add(0, roleCall, spans.Client, operation+" "+r.Model, dispatched, b.life.over(phaseDecode), f)
	b.spans[i].Failed, b.spans[i].StatusText = b.failed, r.ErrorKind
	return i
}

// emit adds the writing to the client, from the first content on.
func (b *builder) emit() {
	if delay := b.r.FirstTokenDelay(); delay > 0 {
		b.add(0, roleEmit, spans.Internal, "emit", b.r.Arrived+delay, b.k.end, facts{}.
			int64("forebay.emit.bytes", b.r.BytesOut).milliseconds("forebay.emit.blocked_ms", int64(b.r.Blocked)))
	}
}

// decimal is f with the digits that the client wrote: 0.7 and not 0.699999988.
func decimal(f float32) float64 {
	d, _ := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64) // it reads what it has written
	return d
}
