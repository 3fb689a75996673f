package spans

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// named are the spans of a tree by name; of several of one name, the first.
func named(t Tree) map[string]*Span {
	found := map[string]*Span{}
	for i := range t.Spans {
		if s := &t.Spans[i]; found[s.Name] == nil {
			found[s.Name] = s
		}
	}
	return found
}

func value(s *Span, key string) any {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value()
		}
	}
	return nil
}

// check holds what every tree promises: ids apart, parents there, no time outside
// of the parent's, no end before its begin.
func check(t *testing.T, tree Tree) {
	t.Helper()
	by := map[[8]byte]*Span{}
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

func TestRequestTreeSums(t *testing.T) {
	r := streamed()
	tree := RequestTree(r, Names141)
	check(t, tree)
	s := named(tree)
	length := func(name string) int64 { return s[name].End - s[name].Begin }
	if sum := length("engine queue") + length("prefill") + length("decode"); sum != length("engine demo") {
		t.Errorf("queue, prefill and decode are %d of %d ns", sum, length("engine demo"))
	}
	for name, parent := range map[string]string{
		"prepare": "POST /v1/chat/completions", "reserve": "POST /v1/chat/completions", "queue": "POST /v1/chat/completions", "emit": "POST /v1/chat/completions",
		"render": "prepare", "tokenize": "prepare", "chat demo": "POST /v1/chat/completions", "engine demo": "chat demo",
		"engine queue": "engine demo", "prefill": "engine demo", "decode": "engine demo", "preempted": "engine demo", "step": "prefill",
	} {
		if s[name] == nil || s[name].Parent != s[parent].ID {
			t.Errorf("%s is not under %s", name, parent)
		}
	}
	if call := s["chat demo"]; call.ID != CallID(r.SpanID) || call.Kind != Client || s["engine demo"].Kind != Server || tree.Spans[0].Kind != Server {
		t.Errorf("kinds or the id of the call are wrong: %+v", call)
	}
	for phase, stall := range map[string][]Part{"prefill": r.Engine.Prefill.Stall, "decode": r.Engine.Decode.Stall} {
		sum := 0.0
		for _, a := range s[phase].Attributes {
			if strings.HasPrefix(a.Key, "forebay.stall.") {
				sum += a.Value().(float64)
			}
		}
		if want := float64(length(phase)) / millisecondNS; math.Abs(sum-want) > 1e-6 {
			t.Errorf("%s: the stall table %+v sums to %v of %v ms", phase, stall, sum, want)
		}
	}
	all := 0
	for _, one := range Trees(r, Names141) {
		all += len(one.Spans)
	}
	if most := r.spansMax(); all > most || most > all+3 {
		t.Errorf("%d spans, and at most %d", all, most)
	}
	if n := len(s["decode"].Events); n != slowStepsMax {
		t.Errorf("%d slow steps", n)
	}
	for _, span := range tree.Spans {
		if usage := value(&span, "gen_ai.usage.output_tokens"); (usage != nil) != (span.Name == "chat demo") {
			t.Errorf("%s has the usage %v", span.Name, usage)
		}
	}
}

// TestNamesAreTheConventions compares our keys with the SDK's constants.
func TestNamesAreTheConventions(t *testing.T) {
	call := named(RequestTree(streamed(), Names141))["chat demo"]
	known := []string{
		string(semconv.GenAIOperationNameKey), string(semconv.GenAIProviderNameKey), string(semconv.GenAIRequestModelKey), string(semconv.GenAIResponseModelKey),
		string(semconv.GenAIResponseIDKey), string(semconv.GenAIUsageInputTokensKey), string(semconv.GenAIUsageOutputTokensKey), string(semconv.GenAIUsageCacheReadInputTokensKey),
		string(semconv.GenAIUsageCacheCreationInputTokensKey), string(semconv.GenAIRequestTemperatureKey), string(semconv.GenAIRequestTopPKey), string(semconv.GenAIRequestTopKKey),
		string(semconv.GenAIRequestMaxTokensKey), string(semconv.GenAIRequestStreamKey), string(semconv.GenAIResponseFinishReasonsKey), string(semconv.GenAIResponseTimeToFirstChunkKey),
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
	later := named(RequestTree(streamed(), NamesGenAI))["chat demo"]
	if value(later, "gen_ai.request.top_k") != int64(40) || value(later, "gen_ai.usage.cache_write.input_tokens") != int64(80) || value(later, "gen_ai.usage.cache_creation.input_tokens") != nil {
		t.Errorf("the later names are %+v", later.Attributes)
	}
	root := RequestTree(streamed(), Names141).Spans[0]
	for _, key := range []string{string(semconv.HTTPRequestMethodKey), string(semconv.HTTPRouteKey), string(semconv.URLPathKey), string(semconv.URLSchemeKey), string(semconv.HTTPResponseStatusCodeKey), string(semconv.ServerAddressKey), string(semconv.ServerPortKey)} {
		if value(&root, key) == nil {
			t.Errorf("the request's span lacks %s", key)
		}
	}
}

// ends are requests that ended at each stage, and which spans they have then,
// those that were open at the end marked with an asterisk.
var ends = map[string]struct {
	cut   func(r *Request)
	spans string
}{
	"body read":          {func(r *Request) { r.Decoded = 0; upTo(r, 0) }, "POST /v1/chat/completions"},
	"prepare":            {func(r *Request) { upTo(r, 1); r.Tokenize.End = 0 }, "POST /v1/chat/completions, prepare*, render, tokenize*"},
	"budget":             {func(r *Request) { upTo(r, 2) }, "POST /v1/chat/completions, prepare, render, tokenize, reserve*"},
	"queue":              {func(r *Request) { upTo(r, 3) }, "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue*"},
	"between":            {func(r *Request) { upTo(r, 4) }, "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue"},
	"socket":             {func(r *Request) { upTo(r, 5) }, "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue, chat demo*"},
	"engine queue":       {func(r *Request) { upTo(r, 6) }, "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue, chat demo*, engine demo*, engine queue*"},
	"prefill":            {func(r *Request) { upTo(r, 7) }, "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue, chat demo*, engine demo*, engine queue, prefill*"},
	"mid-stream":         {func(r *Request) { upTo(r, 8) }, "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue, chat demo*, engine demo*, engine queue, prefill, decode*, emit*"},
	"panic in the write": {func(r *Request) { upTo(r, 9) }, "POST /v1/chat/completions, prepare, render, tokenize, reserve, queue, chat demo, engine demo, engine queue, prefill, decode, emit*"},
}

// upTo leaves r with its first n stages.
func upTo(r *Request, n int) {
	r.Failed, r.Outcome, r.Error = true, "client_gone", "client_gone"
	r.Engine.Steps, r.Engine.Preempted, r.Emit.End = nil, nil, 0
	for i, instant := range []*int64{&r.Decoded, &r.Prepared, &r.Reserved, &r.Admitted, &r.Dispatched, &r.Engine.Received, &r.Engine.Scheduled, &r.Engine.FirstToken, &r.Engine.Finished} {
		if i >= n {
			*instant = 0
		}
	}
	if n < 9 {
		r.CallEnd = 0
	}
	if n < 8 {
		r.Emit = Emit{}
	}
}

func TestEverySpanEndsWhereverTheRequestDid(t *testing.T) {
	for name, c := range ends {
		r := streamed()
		c.cut(r)
		tree := RequestTree(r, Names141)
		check(t, tree)
		var got []string
		for i := range tree.Spans {
			s := &tree.Spans[i]
			open := value(s, "forebay.unfinished") != nil
			if open && (!s.Failed || s.StatusText != "client_gone") {
				t.Errorf("%s: %s was open and has no error", name, s.Name)
			}
			got = append(got, s.Name+map[bool]string{true: "*"}[open])
		}
		if text := strings.Join(got, ", "); text != c.spans {
			t.Errorf("%s:\n got %s\nwant %s", name, text, c.spans)
		}
		if root := tree.Spans[0]; root.End != r.Finished || value(&root, "forebay.outcome") != "client_gone" || !root.Failed {
			t.Errorf("%s: the request's span is %+v", name, root)
		}
		if call := named(tree)["chat demo"]; call != nil && value(call, "gen_ai.usage.output_tokens") != int64(9) {
			t.Errorf("%s: the call lacks the tokens so far", name)
		}
	}
}

// TestTreeOfAnyInstants: clocks that disagree, stages out of order and requests
// that still run give trees that keep their promises too.
func TestTreeOfAnyInstants(t *testing.T) {
	instants := func(r *Request) []*int64 {
		return []*int64{&r.Decoded, &r.Prepared, &r.Reserved, &r.Admitted, &r.Dispatched, &r.FirstChunk, &r.CallEnd, &r.Finished, &r.Now,
			&r.Engine.Received, &r.Engine.Scheduled, &r.Engine.FirstToken, &r.Engine.Finished, &r.Emit.Begin, &r.Emit.End, &r.Render.Begin, &r.Render.End, &r.Tokenize.Begin}
	}
	seed := uint64(1)
	for range 2000 {
		r := streamed()
		for _, p := range instants(r) {
			if seed = mix(seed); seed%3 == 0 {
				*p = []int64{0, at(float64(seed>>8%200) - 50), start}[seed>>32%3]
			}
		}
		check(t, RequestTree(r, Names141))
		for i := range r.steps() {
			check(t, stepTree(r, i))
		}
		if t.Failed() {
			t.Fatalf("of %+v", r)
		}
	}
	r := streamed()
	upTo(r, 8)
	r.Failed, r.Finished, r.Now = false, 0, at(90)
	if s := named(RequestTree(r, Names141)); s["decode"].End != at(90) || s["decode"].Failed || value(s["decode"], "forebay.unfinished") != true {
		t.Errorf("decode of a running request: %+v", s["decode"])
	}
}

// TestHopToASibling: the sidecar that the call went to has the span of the call
// as its parent, which follows from the caller's span alone.
func TestHopToASibling(t *testing.T) {
	here, there := streamed(), streamed()
	there.SpanID, there.Parent = [8]byte{9}, CallID(here.SpanID)
	call, root := named(RequestTree(here, Names141))["chat demo"], RequestTree(there, Names141).Spans[0]
	if root.Parent != call.ID {
		t.Errorf("the sibling's span is under %x, not under %x", root.Parent, call.ID)
	}
}

func TestStepsAreSharedAndLinksResolve(t *testing.T) {
	var sent stepsSent
	first, second := streamed(), streamed()
	second.TraceID[3], second.SpanID[3], second.ID = 9, 9, "req-2"
	second.Engine.Steps = second.Engine.Steps[5:]
	second.Engine.Steps = append(second.Engine.Steps, Step{Number: 200, Begin: at(98), End: at(100), Phase: "decode"})
	trees := append(sent.trees(first), RequestTree(first, Names141))
	trees = append(trees, sent.trees(second)...)
	trees = append(trees, RequestTree(second, Names141))
	there, kernels, names := map[place]bool{}, 0, map[string]int{}
	for _, tree := range trees {
		for _, s := range tree.Spans {
			if id := (place{tree.TraceID, s.ID}); there[id] {
				t.Errorf("%s was sent twice", s.Name)
			} else {
				there[id] = true
			}
			names[s.Name]++
			if value(&s, "forebay.kernel.class") != nil {
				kernels++
			}
		}
	}
	for _, tree := range trees {
		for _, s := range tree.Spans {
			for _, l := range s.Links {
				if !there[place{l.TraceID, l.SpanID}] {
					t.Errorf("%s links to a span that was not sent", s.Name)
				}
			}
		}
	}
	if names["engine.step"] != 11 || names["member"] != 5 || names["step"] != 16 || kernels != 80 {
		t.Errorf("%d kernels in %v", kernels, slices.Sorted(maps.Keys(names)))
	}
	sent.forget()
	if n := len(sent.trees(first)[0].Spans); n != 9 {
		t.Errorf("after a loss a step was sent with %d spans", n)
	}
	long := streamed()
	for len(long.Engine.Steps) < 100 {
		long.Engine.Steps = append(long.Engine.Steps, Step{Number: uint64(1000 + len(long.Engine.Steps)), Begin: at(90), End: at(91)})
	}
	if n := len(sent.trees(long)); n != stepsMax {
		t.Errorf("%d steps are shown", n)
	}
}

// place is one span among all traces.
type place struct {
	trace [16]byte
	span  [8]byte
}
