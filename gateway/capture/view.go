package capture

import "time"

// View is a kept request, or one that runs, in the form that programs and pages read. All times
// are milliseconds; Begin counts from the request's arrival.
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
	Class       string    `json:"class"`
	DemotedFrom string    `json:"demoted_from,omitempty"`
	Route       string    `json:"route"`
	Model       string    `json:"model"`
	Stream      bool      `json:"stream"`
	Outcome     string    `json:"outcome"`
	Status      int       `json:"status"`
	Error       string    `json:"error,omitempty"`
	// Reasons are why it was kept; Broken are the goals it missed.
	Reasons []string `json:"reasons"`
	Broken  []string `json:"broken,omitempty"`

	WallMS       float64 `json:"wall_ms"`
	FirstTokenMS float64 `json:"first_token_ms"`
	TokenMS      float64 `json:"token_ms"` // mean between tokens of a choice
	QueueMS      float64 `json:"queue_ms"`
	BlockedMS    float64 `json:"blocked_ms"`   // in writes to the client, whatever else went on
	PredictedMS  float64 `json:"predicted_ms"` // wait until the first token, as foretold
	WaitReason   string  `json:"wait_reason,omitempty"`

	FirstTokenGoalMS float64 `json:"first_token_goal_ms,omitempty"`
	TokenGoalMS      float64 `json:"token_goal_ms,omitempty"`

	Prompts          int   `json:"prompts"`
	Choices          int   `json:"choices"`
	PromptTokens     int   `json:"prompt_tokens"`
	CachedTokens     int   `json:"cached_tokens"`
	CompletionTokens int   `json:"completion_tokens"`
	BytesIn          int64 `json:"bytes_in"`
	BytesOut         int64 `json:"bytes_out"`
	// What the engine told: steps that worked for it, of those the ones that
	// computed its prompt, the rows of these, and how often it was preempted.
	EngineSteps   int `json:"engine_steps"`
	PrefillSteps  int `json:"prefill_steps"`
	PrefillChunks int `json:"prefill_chunks"`
	PrefillTokens int `json:"prefill_tokens"`
	Preempted     int `json:"preempted"`

	// Parts follow each other and sum to WallMS. Stall says where the time in the
	// engine went; its parts sum to the parts engine_queue, prefill and decode.
	Parts []PartView  `json:"parts"`
	Stall []StallView `json:"stall"`
	// Steps are those of its life in the engine, thinned to a bounded number;
	// StepsMore counts those left out.
	Steps     []StepView   `json:"steps"`
	StepsMore int          `json:"steps_more"`
	Kernels   []KernelView `json:"kernels"`
	// Neighbours have the costliest first; NeighboursMore counts those left out.
	Neighbours     []NeighbourView `json:"neighbours"`
	NeighboursMore int             `json:"neighbours_more"`
	// Brief says that the steps, kernels and neighbours were not kept, since more
	// was kept of its class or tenant than its part.
	Brief bool `json:"brief,omitempty"`
	// Cause is what the sentence is about, of a closed list.
	Cause string `json:"cause"`

	slowest Requester // in the step that was waited longest for, of a brief view
	// Sentence says why it took as long as it did, for a person.
	Sentence string `json:"sentence"`
}

// PartView is a stretch of a request's time.
type PartView struct {
	Name    string  `json:"name"`
	BeginMS float64 `json:"begin_ms"`
	MS      float64 `json:"ms"`
}

// StallView is a part of the time in the engine, before and after the first token.
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
	IdleMS        float64 `json:"idle_ms"` // of the gap, with nothing to do
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

// KernelView is what one kernel class took of the request's steps: Wall is what
// it waited for, Share its own part, by its part of each step.
type KernelView struct {
	Class   string  `json:"class"`
	Count   uint64  `json:"count"`
	WallMS  float64 `json:"wall_ms"`
	ShareMS float64 `json:"share_ms"`
	MaxMS   float64 `json:"max_ms"`
}

// NeighbourView is another request that was in steps for which this one waited,
// be it in them or left out.
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
