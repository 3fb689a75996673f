package capture

import (
	"encoding/hex"
	"time"

	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// spanSteps bounds the steps that are sent of a request.
const spanSteps = 64

// Spans is the view as what gateway/spans makes a tree of. Its instants are on
// today's CLOCK_MONOTONIC, so that a request of before a restart keeps its time.
func (v *View) Spans() *spans.Request {
	return v.spans(wire.Monotonic() - int64(time.Since(v.Arrived)))
}

// spans is Spans of a request that arrived at the instant.
func (v *View) spans(arrived int64) *spans.Request {
	at := func(ms float64) int64 { return arrived + nanoseconds(ms) }
	r := &spans.Request{
		State: v.TraceState, Flags: v.TraceFlags | 1, ID: v.ID, ClientID: v.ClientID, Tenant: v.Tenant, Class: v.Class, DemotedFrom: v.DemotedFrom,
		Model: v.Model, RequestModel: v.Model, Stream: v.Stream,
		HTTP:    spans.HTTP{Method: "POST", Route: paths[v.Route], Path: paths[v.Route], Scheme: "http", Status: v.Status, BytesIn: v.BytesIn, BytesOut: v.BytesOut},
		Outcome: v.Outcome, Failed: v.Outcome != telemetry.OK.String() && !v.Running, Error: v.Error,
		CaptureReasons: v.Reasons, GoalsBroken: v.Broken, FirstTokenTarget: nanoseconds(v.FirstTokenGoalMS), TokenTarget: nanoseconds(v.TokenGoalMS),
		Arrived: arrived, Now: at(v.WallMS),
		Queue:   spans.Queue{Reason: v.WaitReason, Predicted: nanoseconds(v.PredictedMS)},
		Options: spans.Options{Choices: v.Choices, Operation: operations[v.Route]},
		Usage:   spans.Usage{Prompt: v.PromptTokens, Cached: v.CachedTokens, Completion: v.CompletionTokens},
		Extra:   []spans.Attribute{spans.String("forebay.cause", v.Cause), spans.String("forebay.sentence", v.Sentence)},
	}
	if v.ParentID != "" && v.TraceFlags&1 == 0 { // its caller's spans are nowhere
		r.Extra = append(r.Extra, spans.Bool("forebay.capture.partial", true))
	}
	// A broken view has ids that are none, and then a tree that is none.
	_, _ = hex.Decode(r.TraceID[:], []byte(clipTo(v.TraceID, 32)))
	_, _ = hex.Decode(r.SpanID[:], []byte(clipTo(v.SpanID, 16)))
	_, _ = hex.Decode(r.Parent[:], []byte(clipTo(v.ParentID, 16)))
	if !v.Running {
		r.Finished = r.Now
	}
	v.spanPhases(r, at)
	v.spanEngine(&r.Engine, at)
	return r
}

func clipTo(text string, bytes int) string { return text[:min(len(text), bytes)] }

func nanoseconds(ms float64) int64 { return int64(ms*1000+0.5) * 1000 }

// paths and operations are by the record's route.
var (
	paths      = map[string]string{"chat_completions": "/v1/chat/completions", "completions": "/v1/completions"}
	operations = map[string]string{"chat_completions": "chat", "completions": "text_completion"}
)

// spanPhases sets the instants from the parts. The last part is not over in one
// that still runs, or was cut there.
func (v *View) spanPhases(r *spans.Request, at func(float64) int64) {
	e := &r.Engine
	for i, p := range v.Parts {
		begin, end := at(p.BeginMS), at(p.BeginMS+p.MS)
		last := i == len(v.Parts)-1
		over := func(instant *int64) {
			if !last {
				*instant = end
			}
		}
		switch p.Name {
		case phaseRead.String():
			over(&r.Decoded)
		case phaseRender.String():
			r.Render = spans.Interval{Begin: begin, End: end}
		case phasePrepare.String():
			over(&r.Prepared)
		case phaseTokenize.String():
			r.Tokenize = spans.Interval{Begin: begin, End: end}
			r.Prepared = end
		case phaseReserve.String():
			over(&r.Reserved)
		case phaseQueue.String():
			over(&r.Admitted)
		case phaseDispatch.String():
			over(&r.Dispatched)
		case phaseEngineQueue.String():
			e.Received = begin
			over(&e.Scheduled)
		case phasePrefill.String():
			over(&e.FirstToken)
		case phaseDecode.String():
			over(&e.Finished)
		case phaseEmit.String():
			r.CallEnd = begin
		}
	}
	if v.FirstTokenMS > 0 {
		r.FirstChunk = at(v.FirstTokenMS)
		r.Emit = spans.Emit{Interval: spans.Interval{Begin: r.FirstChunk, End: r.Now}, Bytes: v.BytesOut, Blocked: nanoseconds(v.BlockedMS)}
	}
}

func (v *View) spanEngine(e *spans.Engine, at func(float64) int64) {
	e.Prefill = spans.Prefill{Chunks: v.PrefillChunks, Steps: v.PrefillSteps, Computed: v.PrefillTokens, Cached: v.CachedTokens}
	e.Decode = spans.Decode{Steps: max(0, v.EngineSteps-v.PrefillSteps), Tokens: v.CompletionTokens}
	e.Prefill.Stall, e.Decode.Stall = v.spanStall()
	for _, s := range longest(v.Steps, spanSteps) {
		e.Run = s.Run
		step := spans.Step{
			Number: s.Step, Begin: at(s.BeginMS), End: at(s.BeginMS + s.MS), Phase: "prefill", Rows: s.Members, PrefillTokens: s.PrefillTokens, DecodeTokens: s.DecodeRows,
			OthersPrefill: s.OthersPrefill, OwnTokens: s.OwnTokens, HostTime: nanoseconds(s.GapMS - s.IdleMS),
		}
		if s.Decode {
			step.Phase = "decode"
		}
		if s.MS > 0 {
			step.Share = s.OwnMS / s.MS
		}
		for _, k := range s.Kernels {
			step.Kernels = append(step.Kernels, spans.Kernel{Class: k.Class, Count: k.Count, Total: nanoseconds(k.MS), Max: nanoseconds(k.MaxMS)})
		}
		e.Steps = append(e.Steps, step)
		if s.Decode && s.OthersPrefill > 0 {
			e.Decode.Slow = append(e.Decode.Slow, spans.SlowStep{At: step.Begin, Duration: step.End - step.Begin, Step: s.Step, Rows: s.Members, OthersPrefill: s.OthersPrefill, Culprit: s.Largest})
		}
	}
}

// spanStall divides the table at the first step: what came before that is the
// span of the engine's queue.
func (v *View) spanStall() (prefill, decode []spans.Part) {
	queued := 0.0
	for _, p := range v.Parts {
		if p.Name == phaseEngineQueue.String() {
			queued = p.MS
		}
	}
	waits := func(name string) bool {
		return name != wire.PartOwn.String() && name != wire.PartOthersPrefill.String() && name != wire.PartOthersDecode.String()
	}
	for _, s := range v.Stall {
		before := s.BeforeFirstMS
		if waits(s.Name) {
			cut := min(before, queued)
			queued, before = queued-cut, before-cut
		}
		if before = round(before); before > 0 {
			prefill = append(prefill, spans.Part{Name: s.Name, Duration: nanoseconds(before)})
		}
		if s.AfterFirstMS > 0 {
			decode = append(decode, spans.Part{Name: s.Name, Duration: nanoseconds(s.AfterFirstMS)})
		}
	}
	return prefill, decode
}

// longest are most of the steps that the request was in, with the longest among
// them, in order.
func longest(steps []StepView, most int) []StepView {
	seen := make([]seenStep, 0, len(steps))
	for i := range steps {
		if steps[i].Member {
			seen = append(seen, seenStep{view: steps[i], waited: nanoseconds(steps[i].MS)})
		}
	}
	kept, _ := thin(seen, most)
	out := make([]StepView, len(kept))
	for i := range kept {
		out[i] = kept[i].view
	}
	return out
}
