package telemetry

import (
	"fmt"
	"sync"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// Outcome is how a request ended: its metric label and its log field. The
// list is closed.
type Outcome uint8

const (
	Internal           Outcome = iota // our own fault
	OK                                // answered whole
	Invalid                           // refused: the request is wrong
	NotFound                          // refused: no such model or path
	ContextLength                     // refused: longer than the model's context
	TooLarge                          // refused: body over the limit, or work that can never fit
	QueueFull                         // refused: no place to wait
	QueueTimeout                      // waited as long as allowed
	EngineUnavailable                 // the engine is starting, gone, or gave up
	EngineError                       // the engine failed this request
	NonFinite                         // the model gave NaN or infinity
	Draining                          // refused or cut because the gateway stops
	ClientGone                        // the client left before its answer was whole
	WriteStall                        // the client read too slowly
	Unauthorized                      // refused: no API key, or one of nobody
	RateLimited                       // refused: a budget of the tenant is used up
	Late                              // refused: it, or another, would miss its goal
	DeadlineExceeded                  // the client's own deadline was over
	Overloaded                        // refused: shed while there was too much
	ClassClosed                       // refused: its class is drained
	LimiterUnavailable                // refused: the store of budgets does not answer
	OutcomeCount
)

var outcomeNames = [OutcomeCount]string{
	"internal", "ok", "invalid", "not_found", "context_length", "too_large", "queue_full", "queue_timeout",
	"engine_unavailable", "engine_error", "non_finite", "draining", "client_gone", "write_stall",
	"unauthorized", "rate_limited", "late", "deadline_exceeded", "overloaded", "class_closed", "limiter_unavailable",
}

// String returns the outcome's stable name.
func (o Outcome) String() string {
	if o < OutcomeCount {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome%d", uint8(o))
}

// Record is everything kept of one request. Instants are nanoseconds of
// CLOCK_MONOTONIC; zero means that the stage was not reached.
type Record struct {
	ID       string // our own, unique
	ClientID string // the client's x-request-id, or ""
	Trace    wire.TraceContext
	// ParentSpan is the caller's span; Trace.SpanID is our own.
	ParentSpan [8]byte

	Tenant string // "" where no key named one
	Class  string // the one it ran in, or would have
	// DemotedFrom is the class that it was in before, or "".
	DemotedFrom string
	// WaitReason is why it did not start at once, "none" where it did; of a
	// refused request it is Refused. Both are from closed lists.
	WaitReason string
	Refused    string
	// WaitPredicted is the time from Prepared to the first token, in
	// nanoseconds, as it was foretold; 0 for none.
	WaitPredicted int64
	Route         string
	Model         string // the engine's model id, never the client's text
	Stream        bool
	// Serial is the name of its first prompt's generation in step records;
	// those of the other prompts follow it. 0 is none.
	Serial uint64

	Arrived    int64
	Decoded    int64
	Identified int64
	Prepared   int64
	Reserved   int64 // the tenant's budgets had room
	Admitted   int64
	Dispatched int64 // its first generation is about to be handed to the engine
	FirstToken int64 // first content taken from the engine
	LastToken  int64 // last content taken from the engine
	FirstWrite int64 // first content handed to the connection
	Taken      int64 // last event taken from the engine
	Finished   int64
	// Engine is of the prompt that ended last.
	Engine wire.Timings
	// Render and Tokenize are what the chat template and the tokenizer took, of
	// all prompts; Blocked is the time in writes to the client.
	Render, Tokenize, Blocked time.Duration

	// FirstTokenGoal and TokenGoal are what its class promised, 0 for nothing;
	// Broken says which goals were missed, from Finish on.
	FirstTokenGoal, TokenGoal time.Duration
	Broken                    Goals
	// Forced says that the client asked for the request to be kept; Kept, from
	// Finish on, that it was.
	Forced, Kept bool

	Options Options
	// Finishes are why the first choices ended.
	Finishes [FinishesKept]wire.Finish

	Prompts          int
	Choices          int
	PromptTokens     int
	CachedTokens     int
	CompletionTokens int
	BytesIn          int64
	BytesOut         int64

	Status    int
	Outcome   Outcome
	ErrorKind string // the error's code, from a closed list, or ""
	Param     string // the request field at fault, or ""
	// ErrorText is what is known beyond ErrorKind, for the log alone: at most
	// a few hundred bytes of UTF-8.
	ErrorText string
}

// FinishesKept is how many choices of a request have their finish in its record.
const FinishesKept = 16

// Options are what the client asked for in the body, before its class or budget
// cut anything.
type Options struct {
	MaxTokens         int // of each choice; 0 is no limit of its own
	TopK              int // 0 is all
	Temperature, TopP float32
	// HasTemperature and HasTopP say that the body has the field. Without it the
	// default holds, which is no wish of the client.
	HasTemperature, HasTopP           bool
	FrequencyPenalty, PresencePenalty float32 // 0 is none
	StopTexts                         int
}

// FirstTokenDelay is the time to first token in nanoseconds: from arrival to
// the first content that was written, for a plain answer to the first content
// that the engine gave. It is 0 where no content reached the client.
func (r *Record) FirstTokenDelay() int64 {
	switch {
	case r.FirstWrite == 0:
		return 0
	case r.Stream:
		return r.FirstWrite - r.Arrived
	}
	return r.FirstToken - r.Arrived
}

// TokenTime is the mean time between the tokens of one choice, in nanoseconds,
// counted where the engine's tokens arrive: a slow reader does not stretch it.
// Choices run side by side, so each is taken to have an equal share of the
// tokens. It is 0 where no choice got a second token.
func (r *Record) TokenTime() float64 {
	later := r.CompletionTokens - max(1, r.Choices)
	if later < 1 || r.LastToken <= r.FirstToken {
		return 0
	}
	return float64(r.LastToken-r.FirstToken) * float64(max(1, r.Choices)) / float64(later)
}

// Goals is a set of goals that a class has.
type Goals uint8

const (
	FirstTokenGoal Goals = 1 << iota // time to first token
	TokenGoal                        // time between tokens
	QueueGoal                        // the wait alone was longer than the goal for the first token allows
)

var goalNames = [...]string{"first_token", "token", "queue"}

// Names are the stable names of the goals in the set.
func (g Goals) Names() (names []string) {
	for i, name := range goalNames {
		if g&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Missed are the goals that r has missed by the instant now. Refused as wrong
// before it was prepared, it has missed none.
func (r *Record) Missed(now int64) (missed Goals) {
	if goal := int64(r.FirstTokenGoal); goal > 0 && r.Prepared != 0 {
		delay := r.FirstTokenDelay()
		if delay == 0 {
			delay = now - r.Arrived
		}
		if delay > goal {
			missed |= FirstTokenGoal
		}
		waited := r.Admitted - r.Prepared
		if r.Admitted == 0 {
			waited = now - r.Prepared
		}
		if waited > goal || r.Outcome == QueueTimeout || r.Outcome == Late {
			missed |= QueueGoal
		}
	}
	if r.TokenGoal > 0 && r.TokenTime() > float64(r.TokenGoal) {
		missed |= TokenGoal
	}
	return missed
}

// Sampled tells that the caller's trace is sampled.
func (r *Record) Sampled() bool { return r.Trace.Flags&1 != 0 && r.ParentSpan != [8]byte{} }

// Ring keeps copies of the last records. It never grows.
type Ring struct {
	mu      sync.Mutex
	records []Record
	next    int
	full    bool
}

// NewRing makes a ring of size records.
func NewRing(size int) *Ring { return &Ring{records: make([]Record, size)} }

// Put copies r over the oldest record.
func (g *Ring) Put(r *Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.records[g.next] = *r
	g.next++
	if g.next == len(g.records) {
		g.next, g.full = 0, true
	}
}

// Last returns up to n of the newest records, newest first.
func (g *Ring) Last(n int) []Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	have := g.next
	if g.full {
		have = len(g.records)
	}
	out := make([]Record, 0, min(n, have))
	for i := range cap(out) {
		out = append(out, g.records[(g.next-1-i+len(g.records))%len(g.records)])
	}
	return out
}
