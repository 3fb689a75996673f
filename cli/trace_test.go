package cli

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/gateway/spans/spanstest"
)

// TestOneTraceFromRouterToKernel has a whole forebay serve send a streamed
// request's trace to a collector's own receiver: one trace id through gateway,
// socket and engine, parents that contain their children, parts of the engine's
// time that sum to it, and the kernels of its steps.
func TestOneTraceFromRouterToKernel(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			collector := spanstest.New(t)
			endpoint := map[string]string{"grpc": collector.GRPC, "http": collector.HTTP}[protocol]
			p := serve(t, "--spans.endpoint", endpoint)
			const traceID, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/chat/completions",
				strings.NewReader(`{"model":"forebay-demo","stream":true,"max_tokens":30,"temperature":0.7,"ignore_eos":true,"messages":[{"role":"user","content":"CANARY-7f3a tell me a story"}]}`))
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Traceparent", "00-"+traceID+"-"+caller+"-01")
			request.Header.Set("X-Forebay-Capture", "1")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			a := readEvents(response.Body, func() {})
			response.Body.Close()
			if !a.done {
				t.Fatalf("the stream did not end: %s", a.raw)
			}
			var own []spanstest.Span
			byID, byName := map[string]*spanstest.Span{}, map[string]*spanstest.Span{}
			eventually(t, "the trace has arrived", func() bool {
				own = own[:0]
				for _, s := range collector.Spans() {
					if s.TraceID == traceID {
						own = append(own, s)
					}
				}
				return len(own) > 0 && len(collector.Spans()) > len(own)
			})
			for i := range own {
				s := &own[i]
				byID[s.ID] = s
				byName[s.Name] = s
			}
			for i := range own {
				s := &own[i]
				parent := byID[s.Parent]
				switch {
				case s.Parent == caller:
					if s.Kind != "Server" {
						t.Errorf("the caller's child is %s, %s", s.Name, s.Kind)
					}
				case parent == nil:
					t.Errorf("%s has a parent that did not come", s.Name)
				case s.Begin < parent.Begin || s.End > parent.End:
					t.Errorf("%s is not within %s", s.Name, parent.Name)
				}
			}
			for _, chain := range [][2]string{
				{"chat forebay-demo", "POST /v1/chat/completions"}, {"engine forebay-demo", "chat forebay-demo"},
				{"engine queue", "engine forebay-demo"}, {"prefill", "engine forebay-demo"}, {"decode", "engine forebay-demo"},
			} {
				child, parent := byName[chain[0]], byName[chain[1]]
				if child == nil || parent == nil || child.Parent != parent.ID {
					t.Fatalf("%s is not the child of %s among %d spans", chain[0], chain[1], len(own))
				}
			}
			sum := byName["engine queue"].Duration() + byName["prefill"].Duration() + byName["decode"].Duration()
			if whole := byName["engine forebay-demo"].Duration(); sum < whole*98/100-1e6 || sum > whole*101/100+1e6 {
				t.Errorf("the engine's parts sum to %d of %d ns", sum, whole)
			}
			checkCall(t, byName["chat forebay-demo"])
			checkSteps(t, collector.Spans(), traceID)
		})
	}
}

// checkCall looks for what the client asked for and got, under the names of the
// conventions.
func checkCall(t *testing.T, call *spanstest.Span) {
	t.Helper()
	for key, want := range map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "forebay-demo", "gen_ai.request.max_tokens": int64(30), "gen_ai.request.temperature": 0.7,
		"gen_ai.response.finish_reasons": []any{"length"}, "gen_ai.usage.output_tokens": int64(30),
	} {
		if !reflect.DeepEqual(call.Attributes[key], want) {
			t.Errorf("%s is %v, want %v", key, call.Attributes[key], want)
		}
	}
	if n, _ := call.Attributes["gen_ai.usage.input_tokens"].(int64); n < 5 || call.Attributes["gen_ai.request.top_p"] != nil {
		t.Errorf("the call is %v", call.Attributes)
	}
}

// checkSteps looks for steps in traces of their own, with kernels in them, that
// are linked with the request both ways.
func checkSteps(t *testing.T, all []spanstest.Span, traceID string) {
	t.Helper()
	kernels, linked := 0, 0
	steps := map[string]bool{}
	for _, s := range all {
		if s.TraceID == traceID {
			for _, l := range s.Links {
				if l.TraceID != traceID {
					steps[l.TraceID] = true
				}
			}
		}
	}
	for _, s := range all {
		if !steps[s.TraceID] {
			continue
		}
		if s.Parent != "" {
			kernels++
		}
		for _, l := range s.Links {
			if l.TraceID == traceID {
				linked++
			}
		}
	}
	if len(steps) < 5 || kernels < len(steps) || linked < len(steps) {
		t.Errorf("%d steps are linked from the request, with %d spans of kernels; %d links lead back", len(steps), kernels, linked)
	}
	for _, s := range all {
		for key, value := range s.Attributes {
			if text, ok := value.(string); ok && strings.Contains(text, "CANARY") {
				t.Errorf("%s has the prompt in %s", s.Name, key)
			}
		}
	}
}
