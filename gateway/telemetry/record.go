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

// The outcomes.
const (
	Internal           Outcome = iota // our own fault
	OK                                // answered completely
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
	ClientGone                        // the client left before its answer was complete
	WriteStall                        // the client read too slowly
	Unauthorized                      // refused: no API key, or an unknown one
	RateLimited                       // refused: a budget of the tenant is used up
	Late                              // refused: it, or another request, would miss its goal
	DeadlineExceeded                  // the client's own deadline was over
	Overloaded                        // refused: shed in an overload
	ClassClosed                       // refused: its class is drained
	Revoked                           // refused after it was admitted: it would miss its goal after all
	LimiterUnavailable                // refused: the store of budgets does not answer
	Forbidden                         // refused: its key may not use the route or the model
	IssuerUnavailable                 // refused: the keys of its token's issuer were never fetched
	GrammarFailed                     // its grammar took too much to follow, or left no token
	OutcomeCount
)

// outcomes has the stable name of each outcome, and whether it counts as broken
// service: neither the client, its tenant's budget nor the operator wanted it.
var outcomes = [OutcomeCount]struct {
	name     string
	ourFault bool
}{
	Internal:           {"internal", true},
	OK:                 {"ok", false},
	Invalid:            {"invalid", false},
	NotFound:           {"not_found", false},
	ContextLength:      {"context_length", false},
	TooLarge:           {"too_large", false},
	QueueFull:          {"queue_full", true},
	QueueTimeout:       {"queue_timeout", true},
	EngineUnavailable:  {"engine_unavailable", true},
	EngineError:        {"engine_error", true},
	NonFinite:          {"non_finite", true},
	Draining:           {"draining", true},
	ClientGone:         {"client_gone", false},
	WriteStall:         {"write_stall", false},
	Unauthorized:       {"unauthorized", false},
	RateLimited:        {"rate_limited", false},
	Late:               {"late", true},
	DeadlineExceeded:   {"deadline_exceeded", false},
	Overloaded:         {"overloaded", true},
	ClassClosed:        {"class_closed", false},
	Revoked:            {"revoked", true},
	LimiterUnavailable: {"limiter_unavailable", true},
	Forbidden:          {"forbidden", false},
	IssuerUnavailable:  {"issuer_unavailable", true},
	GrammarFailed:      {"grammar_failed", false},
}

// OutcomeNames are the stable names of all outcomes.
func OutcomeNames() (names []string) {
	for o := range OutcomeCount {
		names = append(names, o.String())
	}
	return names
}

// GoalNames are the stable names of the goals.
func GoalNames() []string { return goalNames[:] }

// Mistake tells that the request itself was wrong: its client is told, and no operator
// needs to act.
func (o Outcome) Mistake() bool {
	switch o {
	case Invalid, NotFound, ContextLength, TooLarge, Unauthorized, Forbidden, GrammarFailed:
		return true
	}
	return false
}

// Failed tells that a request got no complete answer that it could have had.
func (o Outcome) Failed() bool { return o != OK && !o.Mistake() }

// String returns the outcome's stable name.
func (o Outcome) String() string {
	if o < OutcomeCount {
		return outcomes[o].name
	}
	return fmt.Sprintf("outcome%d", uint8(o))
}

// Record has everything that is known of one request. Instants are nanoseconds of
// CLOCK_MONOTONIC; 0 means that the request did not reach the stage.
type Record struct {
	ID       string // our own, unique
	ClientID string // the client's x-request-id, or ""
	Trace    wire.TraceContext
	// ParentSpan is the caller's span, zero for none; Trace.SpanID is our own.
	ParentSpan [8]byte

	Tenant string // "" without a key
	Key    string // the key's name, at most 64 plain characters; "" for keys without a name
	User   string // a hash of the end user whom the request names, or ""
	Class  string // in which it ran or would have run
	// DemotedFrom is the class before a demotion, or "".
	DemotedFrom string
	// WaitReason says why it did not start at once, "none" if it did. Refused says
	// why it was refused; WaitReason then says the same, or that a pause of its class
	// made it wait. Both are from closed lists.
	WaitReason string
	Refused    string
	// WaitPredicted is the time from Arrived to the first token as admission
	// predicted it when the request came, in nanoseconds; 0 for none.
	WaitPredicted int64
	Route         string
	Group         string // of the engines that it is for; "" where there is one group
	// ServedBy is the replica that computed the answer, "" without siblings; Away says
	// that it is another one, to whose clock Engine is not set. Placement says why, from
	// a closed list, and FirstTokenHere and FirstTokenThere what it rests on; 0 is none.
	ServedBy                        string
	Away                            bool
	Placement                       string
	FirstTokenHere, FirstTokenThere time.Duration
	Model                           string // the engine's model id, never the client's text
	Stream                          bool
	// Serial names the generation of its first prompt in step records; those of
	// the other prompts count up from it. 0 is none.
	Serial uint64

	Arrived    int64
	Decoded    int64
	Identified int64
	Prepared   int64
	Reserved   int64 // the tenant's budgets had room
	Accepted   int64 // admission did not refuse it on arrival, but let it wait or start
	Admitted   int64 // its turn to start had come
	Dispatched int64 // just before the engine gets its first generation
	FirstToken int64 // first content taken from the engine
	LastToken  int64 // last content taken from the engine
	FirstWrite int64 // first content handed to the connection
	Taken      int64 // last event taken from the engine
	Finished   int64
	// Engine has the times of the prompt that ended last.
	Engine wire.Timings
	// Compile, Render and Tokenize are the times of the answer's grammar, the chat
	// template and the tokenizer, for all prompts together; Blocked is the time in
	// writes to the client.
	Compile, Render, Tokenize, Blocked time.Duration
	// Unread is how many bytes of the answer had not reached the client at the end, and
	// Stalled the time for which its full receive window held them up. Socket buffers
	// hide both from Blocked.
	Unread  int
	Stalled time.Duration

	// Promised is the goal for the first token that it was admitted with, 0 for none.
	// It does not change, whatever happens later.
	Promised time.Duration
	// FirstTokenGoal and TokenGoal are the goals of its class, 0 for none, and from
	// Accepted on those of the request; Broken says which goals were missed, from
	// Finish on.
	FirstTokenGoal, TokenGoal time.Duration
	Broken                    Goals
	// Forced says that the client asked for the request to be kept; Kept, from
	// Finish on, that it was.
	Forced, Kept bool

	// Ignored are names of fields of its body that this server does not know, separated
	// by commas.
	Ignored string
	Options Options
	// Finishes says why the first choices ended.
	Finishes [FinishesKept]wire.Finish

	Prompts          int
	Choices          int
	PromptTokens     int
	CachedTokens     int // of the prompts, found in the cache
	ComputedTokens   int // of the prompts, computed; what is in neither was not needed, or is not known
	CompletionTokens int // generated
	UntakenTokens    int // of these, those that came too late for a client that left
	ReasoningTokens  int // those of CompletionTokens that are reasoning
	ToolCalls        int // whole ones, of all choices
	BytesIn          int64
	BytesOut         int64

	// Refunded says that it costs its tenant nothing: it never ran, or the engine failed
	// before its first token.
	Refunded bool
	// Cost is what it costs by the prices of its model, in their currency.
	Cost float64
	// Unanswered says that the engine did not tell in time what it had computed when
	// the request ended early.
	Unanswered bool

	Status    int
	Outcome   Outcome
	ErrorKind string // the error's code, from a closed list, or ""
	Param     string // the request field at fault, or ""
	Kernel    string // the kernel in which the GPU failed, or ""
	// ErrorText says more than ErrorKind, for the log alone: at most a few hundred
	// bytes of UTF-8.
	ErrorText string
}

// RouteSibling is the Route of a request that another replica sent. Its client's
// gateway counts what its client sees.
const RouteSibling = "sibling"

// FinishesKept is how many choices of a request have their finish in its record.
const FinishesKept = 16

// Options are what the client asked for in the body, before its class or budget
// cut anything.
type Options struct {
	MaxTokens         int // of each choice; 0 is no limit
	TopK              int // 0 is all
	Temperature, TopP float32
	// HasTemperature and HasTopP say that the body has the field; otherwise the
	// value is a default.
	HasTemperature, HasTopP           bool
	FrequencyPenalty, PresencePenalty float32 // 0 is none
	StopTexts                         int
	Grammar                           string // the kind of what holds the answer to a form, "" for free text
}

// FirstTokenDelay is the time to first token in nanoseconds. For a stream it ends
// when the first content is written; for a plain answer, when the engine gives the
// first content. It is 0 if no content reached the client.
func (r *Record) FirstTokenDelay() int64 {
	switch {
	case r.FirstWrite == 0:
		return 0
	case r.Stream:
		return r.FirstWrite - r.Arrived
	}
	return r.FirstToken - r.Arrived
}

// firstTokenBy is the time to first token that goals are judged by, and whether the
// token has come. Until then it is the time up to now. A client that left during its
// plain answer got no content, and yet its first token came in time or not.
func (r *Record) firstTokenBy(now int64) (delay int64, came bool) {
	switch delay := r.FirstTokenDelay(); {
	case delay > 0:
		return delay, true
	case r.FirstToken != 0:
		return r.FirstToken - r.Arrived, true
	}
	return now - r.Arrived, false
}

// PredictionRatio is the actual time to the first token over the predicted one; 0
// where one of them is not known.
func (r *Record) PredictionRatio() float64 {
	if r.WaitPredicted <= 0 || r.FirstToken == 0 || r.demotedLater() {
		return 0 // of another class
	}
	return float64(r.FirstToken-r.Arrived) / float64(r.WaitPredicted)
}

// TokenTime is the mean time between the tokens of one choice, in nanoseconds. It
// is measured where tokens come from the engine, so a slow reader does not stretch
// it. Choices run side by side; each is assumed to have an equal share of the
// tokens. It is 0 if no choice got a second token.
func (r *Record) TokenTime() float64 {
	later := r.CompletionTokens - r.UntakenTokens - max(1, r.Choices)
	if later < 1 || r.LastToken <= r.FirstToken {
		return 0
	}
	return float64(r.LastToken-r.FirstToken) * float64(max(1, r.Choices)) / float64(later)
}

// Goals is a set of goals of a class.
type Goals uint8

// The goals.
const (
	FirstTokenGoal Goals = 1 << iota // time to first token
	TokenGoal                        // time between tokens
	QueueGoal                        // the goal for the first token, missed by the wait alone
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

// Missed returns the goals that r has missed by the instant now. A request that
// was not prepared has missed none.
func (r *Record) Missed(now int64) (missed Goals) {
	if goal := int64(r.FirstTokenGoal); goal > 0 && r.Prepared != 0 {
		if delay, _ := r.firstTokenBy(now); delay > goal {
			missed |= FirstTokenGoal
		}
		waited := r.Admitted - r.Prepared
		if r.Admitted == 0 {
			waited = now - r.Prepared
		}
		if waited > goal || r.Outcome == QueueTimeout || r.Outcome == Late || r.Outcome == Revoked {
			missed |= QueueGoal
		}
	}
	if r.TokenGoal > 0 && r.TokenTime() > float64(r.TokenGoal) {
		missed |= TokenGoal
	}
	return missed
}

// Sampled tells whether the caller's trace is sampled.
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
