package capture

import (
	"cmp"
	"encoding/hex"
	"math"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// View is a kept or running request in the form that programs and pages read.
// All times are milliseconds, rounded; BeginMS counts from the request's arrival.
type View struct {
	ID          string    `json:"id"`
	ClientID    string    `json:"client_id,omitempty"`
	TraceID     string    `json:"trace_id"`
	SpanID      string    `json:"span_id"`
	ParentID    string    `json:"parent_span_id,omitempty"` // the caller's span
	TraceFlags  byte      `json:"trace_flags"`
	TraceState  string    `json:"trace_state,omitempty"`
	Arrived     time.Time `json:"arrived"`
	Running     bool      `json:"running"` // it has not ended yet
	Tenant      string    `json:"tenant"`
	Key         string    `json:"key,omitempty"` // the name of its key
	Class       string    `json:"class"`
	DemotedFrom string    `json:"demoted_from,omitempty"`
	Group       string    `json:"group,omitempty"`
	ServedBy    string    `json:"served_by,omitempty"` // the replica that computed it
	Placement   string    `json:"placement,omitempty"` // why it was that one
	Route       string    `json:"route"`
	Model       string    `json:"model"`
	Stream      bool      `json:"stream"`
	Outcome     string    `json:"outcome"`
	Failed      bool      `json:"failed"` // it has no complete answer, and was not itself wrong
	Status      int       `json:"status"`
	Error       string    `json:"error,omitempty"`
	Kernel      string    `json:"failed_kernel,omitempty"` // of the GPU
	// Reasons are why it was kept; Broken are the goals it missed.
	Reasons []string `json:"reasons"`
	Broken  []string `json:"broken,omitempty"`

	WallMS       float64 `json:"wall_ms"`
	FirstTokenMS float64 `json:"first_token_ms"`
	TokenMS      float64 `json:"token_ms"` // mean between tokens of a choice
	QueueMS      float64 `json:"queue_ms"`
	BlockedMS    float64 `json:"blocked_ms"` // in writes to the client, while the engine may go on
	WaitReason   string  `json:"wait_reason,omitempty"`
	// PredictedMS is the time to the first token as it was predicted on arrival, and
	// PredictionRatio the actual time over it; 0 where they are not known.
	PredictedMS     float64 `json:"predicted_ms"`
	PredictionRatio float64 `json:"prediction_ratio,omitempty"`
	// Promise is what became of the goal for the first token: kept, broken, revoked
	// or open; "" where it was not promised. A promise keeps its goal.
	Promise          string  `json:"promise,omitempty"`
	FirstTokenGoalMS float64 `json:"first_token_goal_ms,omitempty"`
	TokenGoalMS      float64 `json:"token_goal_ms,omitempty"`

	Prompts          int   `json:"prompts"`
	Choices          int   `json:"choices"`
	PromptTokens     int   `json:"prompt_tokens"`
	CachedTokens     int   `json:"cached_tokens"`
	ComputedTokens   int   `json:"computed_tokens"` // of the prompts
	ReasoningTokens  int   `json:"reasoning_tokens"`
	ToolCalls        int   `json:"tool_calls"`
	CompletionTokens int   `json:"completion_tokens"`
	BytesIn          int64 `json:"bytes_in"`
	BytesOut         int64 `json:"bytes_out"`
	// From the engine: the steps that worked for the request; how many of these
	// computed its prompt, in how many rows, of how many tokens; and how often it
	// was preempted.
	EngineSteps   int `json:"engine_steps"`
	PrefillSteps  int `json:"prefill_steps"`
	PrefillChunks int `json:"prefill_chunks"`
	PrefillTokens int `json:"prefill_tokens"`
	Preempted     int `json:"preempted"`

	// Parts follow each other and sum to WallMS. Stall divides the time in the
	// engine by cause; it sums to the parts engine_queue, prefill and decode.
	Parts []PartView  `json:"parts"`
	Stall []StallView `json:"stall"`
	// Steps are at most 96 steps of its life in the engine; StepsMore counts the
	// others. A View in a list has no Steps.
	Steps     []StepView   `json:"steps"`
	StepsMore int          `json:"steps_more"`
	Kernels   []KernelView `json:"kernels"`
	// Neighbours have the costliest first; NeighboursMore counts the others.
	Neighbours     []NeighbourView `json:"neighbours"`
	NeighboursMore int             `json:"neighbours_more"`
	// Brief says that the quota of its class or tenant was used up, so that its
	// steps, kernels and neighbours were not kept.
	Brief bool `json:"brief,omitempty"`
	// Usual is what other requests of its class and size take; nil for unknown.
	Usual *UsualView `json:"usual,omitempty"`
	// Unkept says that it was not kept: this is what its record has, and its steps as
	// far as they are still in memory.
	Unkept bool `json:"unkept,omitempty"`
	// Cause is what the sentence is about, of a closed list.
	Cause string `json:"cause"`

	// Sentence says why it took as long as it did, for a person.
	Sentence string `json:"sentence"`
}

// UsualView is what requests of one class and about one size took lately: equal powers
// of four of the prompt tokens that were not cached, and of the answer's tokens.
type UsualView struct {
	Requests     int     `json:"requests"`
	WallMS       float64 `json:"wall_ms"`        // the median
	WallMostMS   float64 `json:"wall_most_ms"`   // 95 % take no longer
	FirstTokenMS float64 `json:"first_token_ms"` // the median
	Ratio        float64 `json:"ratio"`          // of the request's own time to the median
}

// PartView is a stretch of a request's time.
type PartView struct {
	Name    string  `json:"name"`
	BeginMS float64 `json:"begin_ms"`
	MS      float64 `json:"ms"`
}

// StallView is the time that one cause took in the engine, before the first
// token and after it.
type StallView struct {
	Name          string  `json:"name"`
	BeforeFirstMS float64 `json:"before_first_ms"`
	AfterFirstMS  float64 `json:"after_first_ms"`
}

// StepView is a step of the engine during the request's life.
type StepView struct {
	Step          uint64  `json:"step"`
	BeginMS       float64 `json:"begin_ms"`
	MS            float64 `json:"ms"`
	GapMS         float64 `json:"gap_ms"`  // since the step before
	IdleMS        float64 `json:"idle_ms"` // the part of the gap with nothing to do
	Member        bool    `json:"member"`  // the request was computed in it
	LeftOut       string  `json:"left_out,omitempty"`
	OwnMS         float64 `json:"own_ms"` // its part of the step
	OwnTokens     int     `json:"own_tokens"`
	DecodeRows    int     `json:"decode_rows"`
	PrefillTokens int     `json:"prefill_tokens"`
	OthersPrefill int     `json:"others_prefill"` // tokens
	Members       int     `json:"members"`
	Decode        bool    `json:"decode"` // a next token of the request was computed
	PagesUsed     int     `json:"pages_used"`
	Run           uint64  `json:"run"` // of the engine, since this gateway began
	// PredictedMS is what the step takes where the engine has its processors, 0 for
	// unknown. For LostMS of it the engine did not run, most of that for LostTo.
	PredictedMS float64 `json:"predicted_ms,omitempty"`
	LostMS      float64 `json:"lost_ms,omitempty"`
	LostTo      string  `json:"lost_to,omitempty"`
	// Largest is the id of the other request that took most of the step.
	Largest string `json:"largest,omitempty"`
	// Kernels are the classes that took a fiftieth of the step or more.
	Kernels []StepKernel `json:"kernels,omitempty"`
}

// StepKernel is what one kernel class took of a step.
type StepKernel struct {
	Class string  `json:"class"`
	MS    float64 `json:"ms"`
	Count int     `json:"count"`
	MaxMS float64 `json:"max_ms"` // of one launch
}

// KernelView is what one kernel class took in the request's steps. WallMS is the
// whole time, which the request waited for; ShareMS is the request's own part, by
// its part of each step.
type KernelView struct {
	Class   string  `json:"class"`
	Count   uint64  `json:"count"`
	WallMS  float64 `json:"wall_ms"`
	ShareMS float64 `json:"share_ms"`
	MaxMS   float64 `json:"max_ms"`
}

// NeighbourView is another request in the steps that this one waited for: it was
// in them too, or it was left out.
type NeighbourView struct {
	ID            string  `json:"id"`
	ClientID      string  `json:"client_id,omitempty"`
	Tenant        string  `json:"tenant"`
	Class         string  `json:"class"`
	Steps         int     `json:"steps"`
	PrefillTokens int     `json:"prefill_tokens"`
	DecodeTokens  int     `json:"decode_tokens"`
	MS            float64 `json:"ms"` // its part of the steps that both were in
}

// viewOf is what the record alone says.
func viewOf(r *telemetry.Record, why reasons) *View {
	v := &View{
		ID: r.ID, ClientID: r.ClientID, TraceID: hex.EncodeToString(r.Trace.TraceID[:]), SpanID: hex.EncodeToString(r.Trace.SpanID[:]),
		TraceFlags: r.Trace.Flags, TraceState: r.Trace.State,
		Arrived: time.Now().Add(time.Duration(r.Arrived - wire.Monotonic())).Round(time.Microsecond),
		Tenant:  r.Tenant, Key: r.Key, Class: r.Class, DemotedFrom: r.DemotedFrom, Group: r.Group, ServedBy: r.ServedBy, Placement: r.Placement, Route: r.Route, Model: r.Model, Stream: r.Stream,
		Outcome: r.Outcome.String(), Failed: r.Outcome.Failed(), Status: r.Status, Error: r.ErrorKind, Kernel: r.Kernel,
		Reasons: why.names(), Broken: r.Broken.Names(),
		FirstTokenMS: ms(r.FirstTokenDelay()), TokenMS: round(r.TokenTime() / 1e6), BlockedMS: ms(int64(r.Blocked)),
		WaitReason: r.WaitReason, PredictedMS: ms(r.WaitPredicted), PredictionRatio: round(r.PredictionRatio()),
		FirstTokenGoalMS: ms(int64(cmp.Or(r.Promised, r.FirstTokenGoal))), TokenGoalMS: ms(int64(r.TokenGoal)),
		Prompts: r.Prompts, Choices: r.Choices,
		PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens, ComputedTokens: r.ComputedTokens, ReasoningTokens: r.ReasoningTokens, ToolCalls: r.ToolCalls, CompletionTokens: r.CompletionTokens, BytesIn: r.BytesIn, BytesOut: r.BytesOut,
		EngineSteps: r.Engine.Steps, PrefillSteps: r.Engine.PrefillSteps, PrefillChunks: r.Engine.PrefillChunks, PrefillTokens: r.Engine.PrefillTokens, Preempted: r.Engine.Preempted,
		Steps: []StepView{}, Kernels: []KernelView{}, Neighbours: []NeighbourView{},
	}
	if r.ParentSpan != [8]byte{} {
		v.ParentID = hex.EncodeToString(r.ParentSpan[:])
	}
	if r.Admitted != 0 {
		v.QueueMS = ms(r.Admitted - r.Prepared)
	}
	return v
}

// view is the step of a request that arrived at the instant.
func (s *step) view(arrived int64) StepView {
	v := StepView{
		Step: s.Number, Run: s.Run, BeginMS: ms(s.Began - arrived), MS: ms(s.Ended - s.Began), GapMS: ms(s.Gap), IdleMS: ms(s.Idle),
		Member: s.Member, Decode: s.Decode, LeftOut: s.LeftOut, OwnMS: ms(s.Own), OwnTokens: s.OwnTokens,
		DecodeRows: s.DecodeRows, PrefillTokens: s.PrefillTokens, OthersPrefill: s.OthersPrefill, Members: s.Members, PagesUsed: s.PagesUsed, Largest: s.Largest,
		PredictedMS: ms(s.Predicted), LostMS: ms(s.Lost), LostTo: s.LostTo,
	}
	for _, k := range s.Kernels {
		v.Kernels = append(v.Kernels, StepKernel{k.Class, ms(k.Total), k.Count, ms(k.Max)})
	}
	return v
}

// ms is ns in milliseconds, cut to the microsecond.
func ms(ns int64) float64 { return float64(ns/int64(time.Microsecond)) / 1000 }

// round removes what the subtraction of floating-point numbers leaves below a
// microsecond.
func round(ms float64) float64 { return math.Round(ms*1000) / 1000 }
