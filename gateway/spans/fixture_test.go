package spans

import (
	"fmt"
	"time"
)

const start = int64(5 * time.Hour) // of CLOCK_MONOTONIC, when the request of the tests came

// at is an instant ms after the request came.
func at(ms float64) int64 { return start + int64(ms*float64(time.Millisecond)) }

// streamed is a request that waited, was computed in two steps, slowed by another
// request's prompt, and written: its own trace, then those of ten steps with eight
// kernel classes each. run tells the runs of the engine apart.
func streamed(run byte) []Tree {
	own := Tree{TraceID: [16]byte{0x0a, 0xf7, 15: 0x9c}, State: "vendor=1", Flags: 1}
	id := func(n int) [8]byte { return [8]byte{1, 2, 3, 4, 5, 6, byte(n)} }
	add := func(name string, kind Kind, parent int, begin, end float64, attributes ...Attribute) {
		s := Span{Name: name, Kind: kind, ID: id(len(own.Spans)), Begin: at(begin), End: at(end), Attributes: attributes, Engine: engineSpans[name]}
		if parent >= 0 {
			s.Parent = id(parent)
		}
		own.Spans = append(own.Spans, s)
	}
	add("POST /v1/chat/completions", Server, -1, 0, 103, String("forebay.outcome", "ok"), String("forebay.request.id", "req-1"), String("forebay.request.client_id", "order#7"),
		String("forebay.tenant", "acme"), String("forebay.model", "demo"), Int("http.response.status_code", 200), Strings("forebay.slo.breached", []string{"token"}))
	own.Spans[0].Parent = [8]byte{0xb7, 7: 0x31}
	add("prepare", Internal, 0, 1, 4)
	add("queue", Internal, 0, 5, 15)
	add("chat demo", Client, 0, 15.5, 101, String("gen_ai.request.model", "demo"), Int("gen_ai.usage.input_tokens", 120), Int("gen_ai.usage.output_tokens", 9))
	add("engine demo", Server, 3, 16, 100)
	add("engine queue", Internal, 4, 16, 20)
	add("prefill", Internal, 4, 20, 60)
	add("decode", Internal, 4, 60, 100)
	for i := range 8 {
		own.Spans[7].Events = append(own.Spans[7].Events, Event{Name: "slow_step", At: at(61 + float64(i)), Attributes: []Attribute{String("forebay.step.culprit", "req-0")}})
	}
	add("emit", Internal, 0, 61.5, 102.5)
	trees := make([]Tree, 11)
	for i := range 10 {
		begin := 20 + 8*float64(i)
		parent := 6
		if i >= 5 {
			parent = 7
		}
		add("step", Internal, parent, begin, begin+8)
		step := &own.Spans[len(own.Spans)-1]
		shared := Tree{TraceID: [16]byte{0xe7, run, byte(i)}, Flags: 1}
		step.Links = []Link{{TraceID: shared.TraceID, SpanID: [8]byte{byte(i), 1}}}
		back := []Link{{TraceID: own.TraceID, SpanID: step.ID, Attributes: []Attribute{Float("forebay.step.share", 0.25)}}}
		shared.Spans = []Span{{Name: "engine.step", ID: [8]byte{byte(i), 1}, Begin: step.Begin, End: step.End, Links: back, Engine: true}}
		for k, class := range []string{"embed", "attention", "qkv", "out", "mlp", "norm", "head", "sample"} {
			from := begin + float64(k)
			shared.Spans = append(shared.Spans, Span{Name: class, ID: [8]byte{byte(i), 2, byte(k)}, Parent: [8]byte{byte(i), 1}, Begin: at(from), End: at(from + 0.9), Engine: true,
				Attributes: []Attribute{String("forebay.kernel.class", class), Int("forebay.kernel.count", 4)}})
		}
		shared.Member = &Span{Name: "member", ID: [8]byte{byte(i), 3, run}, Parent: [8]byte{byte(i), 1}, Begin: step.Begin, End: step.End, Links: back, Engine: true}
		trees[i+1] = shared
	}
	trees[0] = own
	return trees
}

// engineSpans are the spans of streamed that the engine did, beside kernels.
var engineSpans = map[string]bool{"engine demo": true, "engine queue": true, "prefill": true, "decode": true, "step": true, "engine.step": true, "member": true}

// countSpans are all spans of the trees.
func countSpans(trees []Tree) (n int) {
	for i := range trees {
		n += len(trees[i].Spans)
	}
	return n
}

// messages are what a client could make of a request's attributes.
func messages(n int) (list []Attribute) {
	for i := range n {
		list = append(list, String(fmt.Sprintf("forebay.message.%d.role", i), "user"), Int(fmt.Sprintf("forebay.message.%d.tokens", i), i))
	}
	return list
}
