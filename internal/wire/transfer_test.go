package wire

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTransfer(t *testing.T) {
	g := &Generation{
		ID: "a", Salt: "tenant", Class: "batch", Level: 1, Key: -7, Long: true, TokenGoal: time.Second,
		Options: Options{MaxTokens: 5, N: 2, Temperature: 0.5, Seed: 9, Stop: []string{"x", ""}, LogitBias: []LogitBias{{3, -1}}, Logprobs: true, TopLogprobs: 2},
		Prompt:  &Prompt{Tokens: []int32{1, 2, 3}, Text: "abc", Room: 10, CachedTokens: 2, BlockHashes: []uint64{7, 8}},
		Trace:   TraceContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1, State: "k=v"},
	}
	text := AppendGeneration(nil, g)
	got, err := ReadGeneration(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(g, got); diff != "" {
		t.Error(diff)
	}
	events := []Event{
		{Choice: 1, Text: "héllo", TokenCount: 3, Cached: 16, Logprobs: []TokenLogprob{{ID: 1, Bytes: []byte("h"), Logprob: -1, Top: []TopLogprob{{ID: 2, Bytes: []byte{0xff}, Logprob: -2}}}}},
		{Finish: FinishStop, StopText: "END", TokenCount: 4},
		{End: &End{Usage: Usage{Prompt: 3, Cached: 1, Completion: 4}, Timings: Timings{Arrived: 5}}},
		{End: &End{Err: Errorf(Canceled, "gone")}},
	}
	for _, e := range events {
		b := AppendEvent(nil, &e)
		got, err := ReadEvent(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Error(diff)
		}
		for n := range b {
			if _, err := ReadEvent(b[:n]); err == nil {
				t.Errorf("%d of %d bytes of an event were taken for one", n, len(b))
			}
		}
	}
	for n := range text {
		if _, err := ReadGeneration(text[:n]); err == nil {
			t.Errorf("%d of %d bytes of a generation were taken for one", n, len(text))
		}
	}
}
