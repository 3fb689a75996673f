package capture

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

const start = 5 * int64(time.Hour) // of CLOCK_MONOTONIC, when the request of the tests came

// at is an instant so many milliseconds after the request came.
func at(ms float64) int64 { return start + int64(ms*float64(time.Millisecond)) }

func took(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// streamed is a request that went through everything, and its steps: it waited,
// was cached in part, computed in five chunks, slowed by another's prompt, and
// written.
func streamed() (*telemetry.Record, []wire.StepRecord) {
	r := &telemetry.Record{
		ID: "req-1", ClientID: "order#7", Tenant: "acme", Class: "interactive", Route: "chat_completions", Model: "demo", Stream: true, Serial: 7,
		Trace: wire.TraceContext{TraceID: [16]byte{0x0a, 0xf7, 15: 0x9c}, SpanID: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, Flags: 1, State: "vendor=1"}, ParentSpan: [8]byte{0xb7, 7: 0x31},
		Outcome: telemetry.OK, Status: 200, BytesIn: 321, BytesOut: 4567, Broken: telemetry.FirstTokenGoal, Promised: took(20), FirstTokenGoal: took(20), TokenGoal: took(10),
		Arrived: at(0), Decoded: at(1), Identified: at(1.5), Prepared: at(4), Reserved: at(5), Accepted: at(5.2), Admitted: at(15), Dispatched: at(15.5),
		FirstToken: at(61), FirstWrite: at(61.5), LastToken: at(100.5), Taken: at(101), Finished: at(103), Render: took(0.5), Tokenize: took(1.5), Blocked: took(0.5),
		WaitReason: "sequences", WaitPredicted: int64(took(12)),
		Options: telemetry.Options{MaxTokens: 64, TopK: 40, Temperature: 0.7, TopP: 0.9, HasTemperature: true, HasTopP: true, StopTexts: 2},
		Prompts: 1, Choices: 1, PromptTokens: 120, CachedTokens: 32, CompletionTokens: 9,
	}
	r.Finishes[0] = wire.FinishStop
	r.Engine = wire.Timings{Received: at(16), Scheduled: at(20), FirstToken: at(60), Finished: at(100), Steps: 10, PrefillSteps: 5, DecodeSteps: 5, PrefillChunks: 5, PrefillTokens: 88, Preempted: 1}
	before, after := &r.Engine.BeforeFirst, &r.Engine.AfterFirst
	before[wire.PartPages], before[wire.PartOwn], before[wire.PartOthersPrefill], before[wire.PartGap] = took(4), took(30), took(8), took(2)
	after[wire.PartOwn], after[wire.PartOthersPrefill], after[wire.PartOthersDecode], after[wire.PartGap], after[wire.PartPreempted], after[wire.PartParked] = took(20), took(12), took(3), took(1), took(3), took(1)
	var steps []wire.StepRecord
	for i := range 10 {
		s := wire.StepRecord{Step: uint64(100 + i), Began: at(20 + 8*float64(i)), Ended: at(28 + 8*float64(i)), Gap: took(0.5), Idle: took(0.25), DecodeRows: 3, PrefillTokens: 524, PagesUsed: 12,
			Members: []wire.StepMember{{Serial: 3, Tokens: 480, Own: took(5)}, {Serial: 4, Tokens: 1, Own: took(1), Decode: true}, {Serial: 7, Tokens: 44, Own: took(2)}}}
		if i >= 5 {
			s.PrefillTokens, s.Members[2].Tokens, s.Members[2].Decode = 480, 1, true
		}
		for class := range wire.KernelClassCount {
			s.Kernels[class] = wire.KernelTime{Count: 4, Total: took(0.6), Max: took(0.2)}
		}
		s.Kernels[wire.KernelEmbed].Total = took(0.1) // less than a fiftieth
		steps = append(steps, s)
	}
	return r, steps
}

// keptOf is what a store keeps of r.
func keptOf(t testing.TB, r *telemetry.Record, steps []wire.StepRecord) *kept {
	s, err := New(Config{StepsKept: 1024}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() // now, since a test makes thousands
	told(s, r, steps)
	return s.build(r, reasonSlowFirstToken, false, at(90))
}

func treeOf(t testing.TB, r *telemetry.Record, names spans.Names) spans.Tree {
	return keptOf(t, r, nil).trees(names)[0]
}

// named are the spans of a tree by name; of several of one name, the first.
func named(t spans.Tree) map[string]*spans.Span {
	found := map[string]*spans.Span{}
	for i := range t.Spans {
		if s := &t.Spans[i]; found[s.Name] == nil {
			found[s.Name] = s
		}
	}
	return found
}

func value(s *spans.Span, key string) any {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value()
		}
	}
	return nil
}

// check holds what every tree promises: ids differ, parents exist, no span leaves
// its parent's time, and none ends before it begins.
func check(t *testing.T, tree spans.Tree) {
	t.Helper()
	by := map[[8]byte]*spans.Span{}
	for i := range tree.Spans {
		s := &tree.Spans[i]
		if by[s.ID] != nil || s.ID == [8]byte{} {
			t.Errorf("%s has the id %x, which is taken or zero", s.Name, s.ID)
		}
		by[s.ID] = s
		if s.Name == "" || s.Begin <= 0 || s.End < s.Begin {
			t.Errorf("%q lasts from %d to %d", s.Name, s.Begin, s.End)
		}
		if i == 0 {
			continue
		}
		if p := by[s.Parent]; p == nil {
			t.Errorf("%s has no parent among those before it", s.Name)
		} else if s.Begin < p.Begin || s.End > p.End {
			t.Errorf("%s [%d,%d] is not within %s [%d,%d]", s.Name, s.Begin, s.End, p.Name, p.Begin, p.End)
		}
	}
}

// TestSpansAreTheRecordToTheNanosecond: no boundary of a span is rounded.
func TestSpansAreTheRecordToTheNanosecond(t *testing.T) {
	random := rand.New(rand.NewPCG(14, 1))
	for range 200 {
		r, steps := streamed()
		e, last := &r.Engine, r.Arrived
		for _, instant := range []*int64{&r.Decoded, &r.Identified, &r.Prepared, &r.Reserved, &r.Admitted, &r.Dispatched, &e.Received, &e.Scheduled, &e.FirstToken, &r.FirstToken, &r.FirstWrite, &e.Finished, &r.Finished} {
			last += 5e6 + random.Int64N(5e6)
			*instant = last
		}
		r.Render, r.Tokenize = time.Duration(1+random.Int64N(1e6)), time.Duration(1+random.Int64N(1e6))
		e.BeforeFirst, e.AfterFirst = wire.Parts{}, wire.Parts{}
		e.BeforeFirst[wire.PartPages] = time.Duration(e.Scheduled - e.Received)
		split(random, &e.BeforeFirst, e.FirstToken-e.Scheduled)
		split(random, &e.AfterFirst, e.Finished-e.FirstToken)
		steps[0].Began, steps[0].Ended = e.Scheduled, e.FirstToken
		steps[9].Began, steps[9].Ended = e.FirstToken, e.Finished
		trees := keptOf(t, r, []wire.StepRecord{steps[0], steps[9]}).trees(spans.Names141)
		check(t, trees[0])
		rendered := r.Prepared - int64(r.Tokenize)
		got := named(trees[0])
		for name, want := range map[string][2]int64{
			"POST /v1/chat/completions": {r.Arrived, r.Finished}, "prepare": {r.Decoded, r.Prepared}, "render": {rendered - int64(r.Render), rendered}, "tokenize": {rendered, r.Prepared},
			"reserve": {r.Prepared, r.Reserved}, "queue": {r.Reserved, r.Admitted}, "chat demo": {r.Dispatched, e.Finished}, "engine demo": {e.Received, e.Finished},
			"engine queue": {e.Received, e.Scheduled}, "prefill": {e.Scheduled, e.FirstToken}, "decode": {e.FirstToken, e.Finished}, "emit": {r.FirstWrite, r.Finished}, "step": {steps[0].Began, steps[0].Ended},
		} {
			if s := got[name]; s == nil || s.Begin != want[0] || s.End != want[1] {
				t.Errorf("%s is %+v, want %v", name, s, want)
			}
		}
		for i, s := range []*wire.StepRecord{&steps[0], &steps[9]} {
			if span := trees[1+i].Spans[0]; span.Begin != s.Began || span.End != s.Ended {
				t.Errorf("step %d lasts from %d to %d, want %d to %d", s.Step, span.Begin, span.End, s.Began, s.Ended)
			}
			if kernel := trees[1+i].Spans[1]; kernel.End-kernel.Begin != int64(s.Kernels[wire.KernelEmbed+1].Total) {
				t.Errorf("the kernels %s take %d ns", kernel.Name, kernel.End-kernel.Begin)
			}
		}
		for _, phase := range []string{"prefill", "decode"} {
			sum := 0.0
			for _, a := range got[phase].Attributes {
				if strings.HasPrefix(a.Key, "forebay.stall.") {
					sum += a.Value().(float64)
				}
			}
			if whole := exactMS(got[phase].End - got[phase].Begin); math.Abs(sum-whole) > 1e-7 {
				t.Errorf("the stall table of %s sums to %v of %v ms", phase, sum, whole)
			}
		}
		if t.Failed() {
			t.Fatalf("of %+v", r)
		}
	}
}

func TestTreeOfARequest(t *testing.T) {
	r, steps := streamed()
	k := keptOf(t, r, steps)
	trees := k.trees(spans.Names141)
	tree := trees[0]
	check(t, tree)
	s := named(tree)
	for name, parent := range map[string]string{
		"prepare": "POST /v1/chat/completions", "reserve": "POST /v1/chat/completions", "queue": "POST /v1/chat/completions", "emit": "POST /v1/chat/completions",
		"render": "prepare", "tokenize": "prepare", "chat demo": "POST /v1/chat/completions", "engine demo": "chat demo",
		"engine queue": "engine demo", "prefill": "engine demo", "decode": "engine demo", "step": "prefill",
	} {
		if s[name] == nil || s[name].Parent != s[parent].ID {
			t.Errorf("%s is not under %s", name, parent)
		}
	}
	if s["chat demo"].Kind != spans.Client || s["engine demo"].Kind != spans.Server || tree.Spans[0].Kind != spans.Server {
		t.Error("a kind is wrong")
	}
	if tree.TraceID != r.Trace.TraceID || tree.State != r.Trace.State || tree.Spans[0].ID != r.Trace.SpanID || tree.Spans[0].Parent != r.ParentSpan {
		t.Errorf("the root is %+v", tree.Spans[0])
	}
	if n := len(s["decode"].Events); n != 5 {
		t.Errorf("%d slow steps", n)
	}
	for _, span := range tree.Spans {
		if usage := value(&span, "gen_ai.usage.output_tokens"); (usage != nil) != (span.Name == "chat demo") {
			t.Errorf("%s has the usage %v", span.Name, usage)
		}
	}
	// What the engine did is a service of its own, down to the kernels of each step, of
	// which the request has the share that it has of the step.
	kernels := 0
	for i, span := range tree.Spans {
		below := slices.Contains([]string{"engine demo", "engine queue", "prefill", "decode", "step"}, span.Name) || value(&span, "forebay.kernel.class") != nil
		if span.Engine != below {
			t.Errorf("%s is of the engine: %v", span.Name, span.Engine)
		}
		if value(&span, "forebay.kernel.class") == nil {
			continue
		}
		kernels++
		step := tree.Spans[slices.IndexFunc(tree.Spans[:i], func(s spans.Span) bool { return s.ID == span.Parent })]
		if step.Name != "step" || span.Begin < step.Begin || span.End > step.End {
			t.Errorf("the kernel %s is under %s", span.Name, step.Name)
		}
		wall, own := value(&step, "forebay.step.wall_ms").(float64), value(&step, "forebay.step.share_ms").(float64)
		if got, want := value(&span, "forebay.kernel.share_ms").(float64), value(&span, "forebay.kernel.total_ms").(float64)*own/wall; math.Abs(got-want) > 1e-9 {
			t.Errorf("the share of %s is %v ms, want %v", span.Name, got, want)
		}
	}
	if kernels == 0 {
		t.Error("the trace ends at its steps")
	}
	// The phases are those of the page, but for its rounding; the way to the engine
	// is a part of the page's engine_queue and no part of the span.
	for _, p := range k.view.Parts {
		name := map[string]string{"queue": "queue", "prefill": "prefill", "decode": "decode", "reserve": "reserve", "render": "render", "tokenize": "tokenize"}[p.Name]
		if name != "" && math.Abs(exactMS(s[name].End-s[name].Begin)-p.MS) > 0.001 {
			t.Errorf("the span %s is %+v, the part %v ms", name, s[name], p.MS)
		}
	}
}

// TestNamesAreTheConventions compares our keys with the SDK's constants.
func TestNamesAreTheConventions(t *testing.T) {
	r, _ := streamed()
	r.Options.FrequencyPenalty, r.Options.PresencePenalty, r.Choices, r.Finishes[1] = 0.5, -0.5, 2, wire.FinishLength
	tree := treeOf(t, r, spans.Names141)
	call := named(tree)["chat demo"]
	known := []string{
		string(semconv.GenAIOperationNameKey), string(semconv.GenAIProviderNameKey), string(semconv.GenAIRequestModelKey), string(semconv.GenAIResponseModelKey),
		string(semconv.GenAIResponseIDKey), string(semconv.GenAIUsageInputTokensKey), string(semconv.GenAIUsageOutputTokensKey), string(semconv.GenAIUsageCacheReadInputTokensKey),
		string(semconv.GenAIRequestTemperatureKey), string(semconv.GenAIRequestTopPKey), string(semconv.GenAIRequestTopKKey), string(semconv.GenAIRequestMaxTokensKey),
		string(semconv.GenAIRequestFrequencyPenaltyKey), string(semconv.GenAIRequestPresencePenaltyKey), string(semconv.GenAIRequestChoiceCountKey),
		string(semconv.GenAIRequestStreamKey), string(semconv.GenAIResponseFinishReasonsKey), string(semconv.GenAIResponseTimeToFirstChunkKey),
	}
	for _, a := range call.Attributes {
		if i := slices.Index(known, a.Key); i >= 0 {
			known = slices.Delete(known, i, i+1)
		} else if strings.HasPrefix(a.Key, "gen_ai.") {
			t.Errorf("%s is not in the conventions", a.Key)
		}
	}
	if len(known) > 0 {
		t.Errorf("the call lacks %v", known)
	}
	if v := value(call, "gen_ai.request.top_k"); v != 40.0 {
		t.Errorf("top_k is %v (%T)", v, v)
	}
	if value(call, "gen_ai.request.temperature") != 0.7 || !slices.Equal(value(call, "gen_ai.response.finish_reasons").([]string), []string{"stop", "length"}) {
		t.Errorf("the call is %+v", call.Attributes)
	}
	if v := value(named(treeOf(t, r, spans.NamesGenAI))["chat demo"], "gen_ai.request.top_k"); v != int64(40) {
		t.Errorf("by the later names top_k is %v (%T)", v, v)
	}
	for _, key := range []string{string(semconv.HTTPRequestMethodKey), string(semconv.HTTPRouteKey), string(semconv.URLPathKey), string(semconv.URLSchemeKey), string(semconv.HTTPResponseStatusCodeKey)} {
		if value(&tree.Spans[0], key) == nil {
			t.Errorf("the request's span lacks %s", key)
		}
	}
}

// TestOptionsThatWereNotSent: the span has what the client asked for, a zero too,
// and no defaults.
func TestOptionsThatWereNotSent(t *testing.T) {
	r, _ := streamed()
	r.Options = telemetry.Options{Temperature: 1, TopP: 1}
	call := named(treeOf(t, r, spans.Names141))["chat demo"]
	for _, key := range []string{"temperature", "top_p", "top_k", "max_tokens", "frequency_penalty", "presence_penalty", "choice.count"} {
		if v := value(call, "gen_ai.request."+key); v != nil {
			t.Errorf("%s is %v and was not sent", key, v)
		}
	}
	r.Options = telemetry.Options{HasTemperature: true}
	if v := value(named(treeOf(t, r, spans.Names141))["chat demo"], "gen_ai.request.temperature"); v != 0.0 {
		t.Errorf("the temperature 0 is %v", v)
	}
}

// ends are requests that ended at each stage, and which spans they have then,
// with an asterisk those that were open at the end.
var ends = []struct{ stage, spans string }{
	{"body read", "POST /v1/chat/completions"},
	{"identify", "POST /v1/chat/completions, prepare*"},
	{"prepare", "POST /v1/chat/completions, prepare*"},
	{"budget", "POST /v1/chat/completions, prepare, render, tokenize, reserve*"},
	{"queue", "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue*"},
	{"between", "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue"},
	{"engine queue", "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue, chat demo*, engine demo*, engine queue*"},
	{"prefill", "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue, chat demo*, engine demo*, engine queue, prefill*"},
	{"mid-stream", "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue, chat demo*, engine demo*, engine queue, prefill, decode*, emit"},
	{"panic in the write", "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue, chat demo, engine demo, engine queue, prefill, decode, emit"},
}

// upTo leaves r with its first n stages.
func upTo(r *telemetry.Record, n int) {
	r.Outcome, r.ErrorKind = telemetry.ClientGone, "client_gone"
	for i, instant := range []*int64{&r.Decoded, &r.Identified, &r.Prepared, &r.Reserved, &r.Admitted, &r.Dispatched, &r.Engine.Scheduled, &r.Engine.FirstToken, &r.Engine.Finished} {
		if i >= n {
			*instant = 0
		}
	}
	if n < 8 {
		r.FirstToken, r.FirstWrite = 0, 0
	}
}

// Case H07.
func TestEverySpanEndsWhereverTheRequestDid(t *testing.T) {
	for n, c := range ends {
		r, _ := streamed()
		upTo(r, n)
		tree := keptEngine(t, r).trees(spans.Names141)[0]
		check(t, tree)
		var got []string
		for i := range tree.Spans {
			s := &tree.Spans[i]
			open := value(s, "forebay.unfinished") != nil
			if open && (!s.Failed || s.StatusText != "client_gone") {
				t.Errorf("%s: %s was open and has no error", c.stage, s.Name)
			}
			got = append(got, s.Name+map[bool]string{true: "*"}[open])
		}
		if text := strings.Join(got, ", "); text != c.spans {
			t.Errorf("%s:\n got %s\nwant %s", c.stage, text, c.spans)
		}
		if root := tree.Spans[0]; root.End != r.Finished || value(&root, "forebay.outcome") != "client_gone" || !root.Failed {
			t.Errorf("%s: the request's span is %+v", c.stage, root)
		}
		if call := named(tree)["chat demo"]; call != nil && value(call, "gen_ai.usage.output_tokens") != int64(9) {
			t.Errorf("%s: the call lacks the tokens so far", c.stage)
		}
	}
}

// keptEngine is r as it is kept with the engine's instants that it has.
func keptEngine(t *testing.T, r *telemetry.Record) *kept {
	k := keptOf(t, &telemetry.Record{ID: r.ID, Outcome: r.Outcome, Arrived: r.Arrived, Finished: r.Finished}, nil)
	k.record = r
	return k
}

// TestTreeOfAnyInstants: clocks that disagree, stages out of order and requests
// that still run give trees that keep their promises too.
func TestTreeOfAnyInstants(t *testing.T) {
	random := rand.New(rand.NewPCG(14, 2))
	for range 2000 {
		r, steps := streamed()
		e := &r.Engine
		for _, p := range []*int64{&r.Decoded, &r.Prepared, &r.Reserved, &r.Admitted, &r.Dispatched, &r.FirstToken, &r.FirstWrite, &r.Finished,
			&e.Received, &e.Scheduled, &e.FirstToken, &e.Finished, &steps[3].Began, &steps[3].Ended, &steps[7].Ended} {
			if random.IntN(3) == 0 {
				*p = []int64{0, at(float64(random.IntN(200)) - 50), start}[random.IntN(3)]
			}
		}
		for _, tree := range keptOf(t, r, steps).trees(spans.Names141) {
			if s := tree.Spans[0]; tree.Member == nil || s.Begin != 0 {
				check(t, tree)
			}
		}
		if t.Failed() {
			t.Fatalf("of %+v", r)
		}
	}
	r, _ := streamed()
	upTo(r, 8)
	r.Outcome, r.ErrorKind, r.Finished = 0, "", 0
	k := keptEngine(t, r)
	k.view.Running, k.end = true, at(90)
	if s := named(k.trees(spans.Names141)[0]); s["decode"].End != at(90) || s["decode"].Failed || value(s["decode"], "forebay.unfinished") != true {
		t.Errorf("decode of a running request: %+v", s["decode"])
	}
}

// TestLinksResolve: two requests that were in the same steps link to them, and the
// steps link back to both.
func TestLinksResolve(t *testing.T) {
	type place struct {
		trace [16]byte
		span  [8]byte
	}
	first, steps := streamed()
	second, _ := streamed()
	second.Trace.TraceID[3], second.Trace.SpanID[3], second.ID, second.Serial = 9, 9, "req-2", 4
	there, counts := map[place]bool{}, map[string]int{}
	var sent []spans.Span
	send := func(trace [16]byte, list ...spans.Span) {
		for _, s := range list {
			if id := (place{trace, s.ID}); there[id] {
				t.Errorf("%s was sent twice", s.Name)
			}
			there[place{trace, s.ID}] = true
			counts[s.Name]++
			sent = append(sent, s)
		}
	}
	for _, tree := range keptOf(t, first, steps).trees(spans.Names141) {
		send(tree.TraceID, tree.Spans...)
	}
	for _, tree := range keptOf(t, second, steps).trees(spans.Names141) {
		if tree.Member != nil {
			send(tree.TraceID, *tree.Member)
		} else {
			send(tree.TraceID, tree.Spans...)
		}
	}
	for _, s := range sent {
		for _, l := range s.Links {
			if !there[place{l.TraceID, l.SpanID}] {
				t.Errorf("%s links to a span that was not sent", s.Name)
			}
		}
	}
	if counts["engine.step"] != 10 || counts["member"] != 10 || counts["step"] != 20 || counts[wire.KernelMLP.String()] != 30 || counts[wire.KernelEmbed.String()] != 0 {
		t.Errorf("sent were %v", counts)
	}
	long, _ := streamed()
	var many []wire.StepRecord
	for i := range 200 {
		s := steps[0]
		s.Step, s.Began, s.Ended = uint64(1000+i), at(20+float64(i)/3), at(20+float64(i+1)/3)
		many = append(many, s)
	}
	trees, all := keptOf(t, long, many).trees(spans.Names141), 0
	for i := range trees {
		all += len(trees[i].Spans)
	}
	if len(trees) != 1+spanStepsMax {
		t.Errorf("%d steps are shown", len(trees)-1)
	}
	if all > 2048 {
		t.Errorf("the %d spans of one request do not fit into the smallest spans.queue_max", all)
	}
}
