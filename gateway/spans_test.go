package gateway

import (
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/spans/spanstest"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// TestExportedSpansAreTheRecord: what a collector receives has the record's
// instants to the nanosecond, and what the client asked for and got.
func TestExportedSpansAreTheRecord(t *testing.T) {
	collector := spanstest.New(t)
	exporter, err := spans.New(spans.Config{Endpoint: collector.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	script := wiretest.Script{Pieces: []string{"a", "b", "c"}, Delay: time.Millisecond, Finish: wire.FinishLength}
	r := newRig(t, rigConfig{fake: scripted(script), capture: &capture.Config{}, exporter: exporter})
	r.do("POST", "/v1/chat/completions", chatBody(`"stream":true,"temperature":0.7,"top_p":0.9,"max_tokens":3,"n":2`), "X-Forebay-Capture", "1", "X-Request-Id", "one")
	r.settled()
	rec := r.recorder.Last(1)[0]
	r.kept.Find("one") // waits until it was kept
	exporter.Close()
	found := map[string]spanstest.Span{}
	for _, s := range collector.Spans() {
		found[s.Name] = s
	}
	root := found["POST /v1/chat/completions"]
	for name, want := range map[string][2]int64{
		"POST /v1/chat/completions": {rec.Arrived, rec.Finished}, "prepare": {rec.Decoded, rec.Prepared}, "reserve": {rec.Prepared, rec.Reserved},
		"queue": {rec.Reserved, rec.Admitted}, "chat fake": {rec.Dispatched, rec.Engine.Finished}, "emit": {rec.FirstWrite, rec.Finished},
		"engine fake": {rec.Engine.Received, rec.Engine.Finished},
	} {
		s := found[name]
		if begin, end := s.Begin-root.Begin+rec.Arrived, s.End-root.Begin+rec.Arrived; begin != want[0] || end != want[1] {
			t.Errorf("%s lasts from %d to %d, the record says %d to %d", name, begin, end, want[0], want[1])
		}
	}
	call := found["chat fake"].Attributes
	for key, want := range map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "fake", "gen_ai.response.model": "fake", "gen_ai.request.temperature": 0.7, "gen_ai.request.top_p": 0.9,
		"gen_ai.request.max_tokens": int64(3), "gen_ai.request.choice.count": int64(2), "gen_ai.response.id": "chatcmpl-" + rec.ID,
		"gen_ai.usage.input_tokens": int64(rec.PromptTokens), "gen_ai.usage.output_tokens": int64(rec.CompletionTokens),
	} {
		if call[key] != want {
			t.Errorf("%s is %v, want %v", key, call[key], want)
		}
	}
	if reasons, _ := call["gen_ai.response.finish_reasons"].([]any); !slices.Equal(reasons, []any{"length", "length"}) {
		t.Errorf("the finish reasons are %v", call["gen_ai.response.finish_reasons"])
	}
}
