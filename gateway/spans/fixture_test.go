package spans

import (
	"fmt"
	"time"
)

const start = int64(5 * time.Hour) // of CLOCK_MONOTONIC, when the request of the tests came

// at is an instant ms after the request came.
func at(ms float64) int64 { return start + int64(ms*millisecondNS) }

func span(ms float64) int64 { return int64(ms * millisecondNS) }

// streamed is a request that went through everything: it waited, was cached in
// part, computed in two chunks, slowed by another's prefill, and written.
func streamed() *Request {
	r := &Request{
		TraceID: [16]byte{0x0a, 0xf7, 15: 0x9c}, SpanID: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, Parent: [8]byte{0xb7, 7: 0x31}, Flags: 1, State: "vendor=1",
		ID: "req-1", ResponseID: "chatcmpl-1", ClientID: "order#7", Tenant: "acme", Class: "interactive", PolicyVersion: "3", Model: "demo", RequestModel: "demo", Stream: true,
		HTTP:    HTTP{Method: "POST", Route: "/v1/chat/completions", Path: "/v1/chat/completions", Scheme: "http", Address: "127.0.0.1", Port: 8080, Status: 200, BytesIn: 321, BytesOut: 4567},
		Outcome: "ok", CaptureReasons: []string{"slo"}, GoalsBroken: []string{"ttft"}, FirstTokenTarget: span(20), TokenTarget: span(10),
		Arrived: at(0), Decoded: at(1), Prepared: at(4), Reserved: at(5), Admitted: at(15), Dispatched: at(15.5), FirstChunk: at(61), CallEnd: at(101), Finished: at(103),
		Render: Interval{at(1.5), at(2)}, Tokenize: Interval{at(2), at(3.5)},
		Budget:  Budget{Limiter: "local", Decision: "admit", Estimated: 200, Reserved: 150, Refunded: 30},
		Queue:   Queue{Reason: "slots", AheadCount: 3, AheadTokens: 900, Predicted: span(12)},
		Options: Options{Operation: "chat", MaxTokens: 64, Choices: 1, TopK: 40, Temperature: 0.7, TopP: 0.9},
		Usage:   Usage{Prompt: 120, Cached: 32, Completion: 9, CacheWritten: 80}, FinishReasons: []string{"stop"},
		Emit: Emit{Interval: Interval{at(61.5), at(102.5)}, Bytes: 4567, Flushes: 9, Blocked: span(0.5)},
		Engine: Engine{
			Run: 77, Address: "/run/forebay/engine.sock", Kernels: "avx2",
			Received: at(16), Scheduled: at(20), FirstToken: at(60), Finished: at(100), QueueReason: "kv_blocks",
			Prefill: Prefill{Chunks: 2, Steps: 2, Computed: 88, Cached: 32, Stall: stall(30, 8, 0, 0, 2, 0, 0)},
			Decode: Decode{Steps: 8, Tokens: 9, IntervalMedian: span(4), IntervalP99: span(12), IntervalMax: span(12),
				Stall: stall(20, 12, 3, 1, 2, 1, 1)},
			Preempted: []Preemption{{Interval{at(70), at(73)}, 100}},
		},
	}
	for i := range 12 {
		r.Engine.Decode.Slow = append(r.Engine.Decode.Slow, SlowStep{At: at(61 + float64(i)), Duration: span(12), Step: uint64(100 + i), Rows: 4, OthersPrefill: 480, Culprit: "req-0"})
	}
	for i := range 10 {
		s := Step{Number: uint64(100 + i), Begin: at(20 + 8*float64(i)), End: at(28 + 8*float64(i)), Phase: "decode", Rows: 4, PrefillTokens: 480, DecodeTokens: 3, OthersPrefill: 480, OwnTokens: 1, Share: 0.25, KVUsed: 1 << 20, HostTime: span(0.5)}
		if i < 5 {
			s.Phase, s.OwnTokens = "prefill", 44
		}
		for k, class := range []string{"attn.prefill", "attn.decode", "gemm.qkv", "gemm.o", "mlp", "norm_rope", "sample", "kv_copy"} {
			s.Kernels = append(s.Kernels, Kernel{Class: class, Device: "cpu", Count: 4, Total: span(0.9), Max: span(0.3), Bytes: int64(1000 * (k + 1)), FLOPs: 1e6})
		}
		r.Engine.Steps = append(r.Engine.Steps, s)
	}
	return r
}

func stall(ms ...float64) (table []Part) {
	for i, name := range []string{"own_compute", "others_prefill", "preempted", "kv_wait", "host_gap", "emit_blocked", "unexplained"} {
		table = append(table, Part{name, span(ms[i])})
	}
	return table
}

// messages are what a client could make of a request's attributes.
func messages(n int) (list []Attribute) {
	for i := range n {
		list = append(list, String(fmt.Sprintf("forebay.message.%d.role", i), "user"), Int(fmt.Sprintf("forebay.message.%d.tokens", i), i))
	}
	return list
}
