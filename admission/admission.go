package admission

import (
	"time"
)

// Controller admits requests. Its methods may be called from any goroutine.
type Controller interface {
	// Admit returns a ticket, admitted or waiting, or a *Refusal. It never waits.
	Admit(w Work) (Ticket, error)
	// Load is the state of this instant.
	Load() Load
}

// Ticket is a place, running or waiting.
type Ticket interface {
	// Ready is closed when the waiting is over; Err then says how.
	Ready() <-chan struct{}
	// Err is nil when admitted and a *Refusal otherwise. Call it only after Ready.
	Err() error
	// Done settles the ticket in any state and frees its place at once. The
	// first call counts, further ones do nothing.
	Done(s Spent)
}

// Work is what a request asks for, before it runs.
type Work struct {
	Tenant string
	Class  string
	// Sequences is prompts times choices.
	Sequences int
	// UncachedTokens is the prefill, DecodeTokens the most that may be
	// generated, over all sequences.
	UncachedTokens int
	DecodeTokens   int
	// Bytes is what the waiting request holds in memory.
	Bytes int
}

// Spent is what a request used.
type Spent struct {
	PromptTokens     int
	CompletionTokens int
}

// Load counts requests and their sequences.
type Load struct {
	Running, RunningSequences int
	Waiting, WaitingSequences int
}

// Reason is why a request was refused. The list is closed.
type Reason uint8

const (
	TooLarge  Reason = iota // can never fit: more sequences than may run at all
	QueueFull               // no place to wait
	TimedOut                // waited as long as allowed
)

var reasonNames = [...]string{"too_large", "queue_full", "timed_out"}

// String returns the reason's stable name.
func (r Reason) String() string { return reasonNames[r] }

// Refusal is the error of a request that may not run.
type Refusal struct {
	Reason  Reason
	Message string
	// RetryAfter predicts when there is room; 0 when there never will be.
	RetryAfter time.Duration
}

func (r *Refusal) Error() string { return r.Reason.String() + ": " + r.Message }

// Config bounds what runs and what waits.
type Config struct {
	RunningSequencesMax int           `yaml:"running_sequences_max" default:"64" range:"1.." help:"Sequences that run at once; a request takes one for each prompt and choice."`
	WaitingRequestsMax  int           `yaml:"waiting_requests_max" default:"1024" range:"1.." help:"Requests that may wait."`
	WaitingTokensMax    int           `yaml:"waiting_tokens_max" default:"4000000" range:"1.." help:"Uncached prompt tokens that may wait, over all requests."`
	WaitingBytesMax     int           `yaml:"waiting_bytes_max" default:"268435456" range:"1.." help:"Memory that waiting requests may hold, in bytes."`
	WaitLimit           time.Duration `yaml:"wait_limit" default:"60s" help:"Longest wait for admission."`
}
