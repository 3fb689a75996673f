package spans

// Request is what is known of one request when it has ended, or when somebody
// looks at it while it runs. Instants are in nanoseconds of CLOCK_MONOTONIC, 0
// for what was not reached; durations in nanoseconds. Empty texts and zero
// numbers are left out of the spans, usage and status excepted.
type Request struct {
	TraceID [16]byte
	SpanID  [8]byte // of the request's own span, as it was propagated
	Parent  [8]byte // the caller's span, zero for none
	Flags   byte
	State   string

	ID, ClientID  string
	ResponseID    string // in the answer's body
	Tenant, Class string
	DemotedFrom   string // the class that it came from
	PolicyVersion string
	Model         string // the engine's name for it
	RequestModel  string // the client's, where it is a configured one
	Stream        bool
	HTTP          HTTP
	Outcome       string // of a closed list
	Failed        bool
	Error         string // its kind, of a closed list, "" for none

	CaptureReasons   []string
	GoalsBroken      []string // which of the class's goals
	FirstTokenTarget int64
	TokenTarget      int64

	Arrived    int64
	Decoded    int64 // the body was read and understood
	Prepared   int64
	Reserved   int64 // the budget said yes
	Admitted   int64
	Dispatched int64
	FirstChunk int64 // first content taken from the engine
	CallEnd    int64 // last event taken from the engine
	Finished   int64 // 0 while it runs: then Now ends what is open
	Now        int64

	Render, Tokenize Interval // of the engine's part of preparing
	Budget           Budget
	Queue            Queue
	Options          Options
	Usage            Usage
	FinishReasons    []string
	Engine           Engine
	Emit             Emit
	Events           []Event // such as client_disconnected, where it happened
	// Extra are attributes of the request's span beside those above, and the
	// first to be dropped.
	Extra []Attribute
}

// Interval is a stretch of time; an End of 0 is the end of what holds it.
type Interval struct{ Begin, End int64 }

// HTTP is the request as it came and the status that went out.
type HTTP struct {
	Method, Route, Path, Scheme string // Route is the path's pattern
	Address                     string // of this server
	Port                        int
	Status                      int
	BytesIn, BytesOut           int64
}

// Budget is what the tenant's budget did.
type Budget struct {
	Limiter                       string // local or redis
	Degraded                      bool   // it decided without its backend
	Decision                      string // such as admit, or why not
	Estimated, Reserved, Refunded int64  // tokens
}

// Queue is what the request waited for.
type Queue struct {
	Reason       string // of a closed list
	AheadCount   int
	AheadTokens  int64
	Predicted    int64 // wait until the first token, as it was foretold
	PreemptedFor int   // others that gave way
}

// Options are how the answer was to be made.
type Options struct {
	MaxTokens, Choices, TopK           int
	Temperature, TopP                  float64
	FrequencyPenalty, PresencePenalty  float64
	StopTexts                          int
	ResponseFormat, Operation, Adapter string // Operation is chat or text_completion
}

// Usage counts tokens.
type Usage struct {
	Prompt, Cached, Completion int
	CacheWritten               int // of the prompt, newly kept for reuse
}

// Engine is the engine's side of the request.
type Engine struct {
	// Run tells the runs of all engines apart, so that step numbers do not meet.
	Run     uint64
	Address string // path of the socket
	Kernels string // kernel set or device

	Received   int64
	Scheduled  int64 // first token entered a step
	FirstToken int64 // end of the step that sampled the first token
	Finished   int64

	QueueReason string // slots, kv_blocks, …
	Prefill     Prefill
	Decode      Decode
	Preempted   []Preemption
	// Steps are those to be shown one by one: at most 64 are.
	Steps []Step
}

// Prefill is how the prompt was computed.
type Prefill struct {
	Chunks, Steps    int
	Computed, Cached int // tokens
	Stall            []Part
}

// Decode is how the answer was.
type Decode struct {
	Steps, Tokens               int
	IntervalMedian, IntervalP99 int64 // between two tokens
	IntervalMax                 int64
	Stall                       []Part
	Slow                        []SlowStep // at most 8 are shown
}

// Part is some of a phase's time, for a reason of a closed list such as
// own_compute or others_prefill. The parts of a phase sum to it.
type Part struct {
	Name     string
	Duration int64
}

// SlowStep is one that took long.
type SlowStep struct {
	At, Duration  int64
	Step          uint64
	Rows          int
	OthersPrefill int    // tokens
	Culprit       string // id of the request that added the most, or ""
}

// Preemption is a time without pages.
type Preemption struct {
	Interval
	Recomputed int // tokens
}

// Step is one step of the engine that the request took part in.
type Step struct {
	Number        uint64
	Begin, End    int64
	Phase         string // of this request: prefill or decode
	Rows          int
	PrefillTokens int
	DecodeTokens  int
	OthersPrefill int // tokens of PrefillTokens that were not this request's
	OwnTokens     int
	KVUsed        int64 // bytes
	HostTime      int64
	// Share is this request's part of the step, by tokens. Parts of all who
	// were in the step sum to 1; the whole step's time must never be summed.
	Share   float64
	Kernels []Kernel
}

// Kernel is the work of one kernel class in one step.
type Kernel struct {
	Class        string // of a closed list of about ten
	Device       string
	Count        int
	Total, Max   int64
	Bytes, FLOPs int64
}

// Emit is the writing to the client.
type Emit struct {
	Interval
	Bytes   int64
	Flushes int
	Blocked int64
}
