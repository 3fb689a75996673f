package admission

import (
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/cost"
)

// Controller admits requests. Its methods may be called from any goroutine.
type Controller interface {
	// Admit returns a ticket, admitted or waiting, or a *Refusal. It never waits.
	Admit(w Demand) (Ticket, error)
	// Expected is how many tokens an answer to w is likely not to pass, over all
	// its sequences: the 90 % quantile of those like it.
	Expected(w *Demand) int
	// Report tells what the engine's last step showed. Reports come in order.
	Report(r Report)
	// Load is the state of this instant.
	Load() Load
	// View is all that waits and runs, for people.
	View() View
	// SetMode opens, pauses or drains a class; the error says that there is no such class.
	SetMode(class string, m Mode) error
}

// Ticket is a place, running or waiting. Its methods may be called from any
// goroutine; after Done all but Done are void.
type Ticket interface {
	// Ready is closed when the waiting is over; Err then says how.
	Ready() <-chan struct{}
	// Err is nil when admitted and a *Refusal otherwise. Call it only after Ready.
	Err() error
	// Grant is how the request runs. Call it only after Ready with a nil Err.
	Grant() Grant
	// Progress says how many tokens the request has been given so far, over
	// all its choices; the first call with more than 0 marks the first token.
	Progress(tokens int)
	// Done settles the ticket in any state and frees its place at once. The
	// first call counts, further ones do nothing.
	Done(s Spent)
}

// Demand is what a request asks for, before it runs.
type Demand struct {
	ID     string
	Tenant string
	Class  string
	Route  string
	// Sequences is prompts times choices.
	Sequences int
	// PromptTokens are all tokens of all prompts, UncachedTokens those that must
	// be computed, DecodeTokens the most that may be generated, over all sequences.
	PromptTokens   int
	UncachedTokens int
	DecodeTokens   int
	// Bytes is what the waiting request holds in memory.
	Bytes int
	// Blocks are the hashes of the first prompt's full blocks, each of
	// BlockTokens; the first one names the system prompt for the length model.
	Blocks      []uint64
	BlockTokens int
	// Within bounds the time from arrival to the answer's end, as the client
	// said; 0 says nothing.
	Within time.Duration
	// User is whom the tenant serves with it, where it said so; only shedding
	// looks at it.
	User string
	// Retry says that the client has tried before.
	Retry bool
}

// Report is what the engine said at the end of a step.
type Report struct {
	// Up is false while there is no engine to give work to.
	Up bool
	// At is when the engine wrote the report, on the clock of Scheduler.
	At time.Duration
	// Cost is the engine's own model of its steps.
	Cost cost.Cost
	// StepTokensMax is the most tokens of one step.
	StepTokensMax int
	// KVTokens is how many tokens the page pool holds, KVUsed how many of them
	// are taken by sequences.
	KVTokens, KVUsed int
	// ShortPrefill and LongPrefill are the prompt tokens that wait in the engine
	// to be computed, by lane.
	ShortPrefill, LongPrefill int
	// Sequences holds what the engine works on, waits with or has paused.
	Sequences int
	// StepDuration is how long the step took; 0 for an idle turn.
	StepDuration time.Duration
	// StepPredicted is what Cost predicted for it before it ran.
	StepPredicted time.Duration
	// Blocks are the changes of the set of reusable blocks since the last report.
	Blocks hitmap.News
}

// Grant says how an admitted request is to run.
type Grant struct {
	// Class is the class it runs in: another than it asked for if it was demoted.
	Class string
	// Level is 0 for what people wait for, and more for what may wait longer.
	Level int
	// Key orders within a level, smaller first.
	Key int64
	// Long is the lane of long prefills.
	Long bool
	// FirstTokenGoal is the goal for its first token, with the slack of its own
	// prefill, and TokenGoal that for the time between tokens; 0 is none.
	FirstTokenGoal, TokenGoal time.Duration
	// OutputTokens is the longest answer of a sequence while there is overload; 0
	// is no other limit than the request's.
	OutputTokens int
	// Waited is the time from arrival, Predicted what was foretold then.
	Waited, Predicted time.Duration
	// Why is why it did not start at once.
	Why Why
}

// Spent is what a request used.
type Spent struct {
	PromptTokens     int
	CompletionTokens int
	// Whole says that the answer ended by itself, at its own end: cut, cancelled
	// and max_tokens answers might have gone on.
	Whole bool
}

// Load counts requests and their sequences.
type Load struct {
	Running, RunningSequences int
	Waiting, WaitingSequences int
}

// Why is the reason for which a request waits.
type Why uint8

// The reasons, from what is nearest to start to what is furthest.
const (
	WhyNot       Why = iota // it does not wait
	WhyWindow               // held a moment so that others can share its step
	WhyPrefill              // the engine has a step's worth of unstarted prefill
	WhyOrder                // others come first
	WhyShare                // its tenant has used more than its share
	WhyClassCap             // its class holds as much as it may
	WhySequences            // every running place is taken
	WhyMemory               // not enough free memory for its keys and values
	WhyPaused               // its class is paused
	WhyEngine               // there is no engine to run it
)

var whyNames = [...]string{"none", "window", "prefill", "order", "share", "class_cap", "sequences", "memory", "paused", "engine"}

// String returns the reason's stable name.
func (w Why) String() string { return whyNames[w] }

// Reason is why a request was refused. The list is closed.
type Reason uint8

const (
	TooLarge     Reason = iota // can never fit: sequences, memory, or the class's token limits
	QueueFull                  // no place to wait
	TimedOut                   // waited as long as allowed
	Late                       // it, or another that counts more, would miss its goal
	PastDeadline               // the client's own deadline is over, or cannot be met
	Overloaded                 // shed by the backstop
	RetryBudget                // too many retries of this tenant
	ClassClosed                // its class takes nothing: drained by the operator
)

var reasonNames = [...]string{"too_large", "queue_full", "timed_out", "late", "past_deadline", "overloaded", "retry_budget", "class_closed"}

// String returns the reason's stable name.
func (r Reason) String() string { return reasonNames[r] }

// Refusal is the error of a request that may not run.
type Refusal struct {
	Reason  Reason
	Message string
	// RetryAfter predicts when there is room; 0 when there never will be.
	RetryAfter time.Duration
	// Predicted is the wait that was foretold, 0 where none was.
	Predicted time.Duration
}

func (r *Refusal) Error() string { return r.Reason.String() + ": " + r.Message }

// Mode is what a class does with new and waiting requests.
type Mode uint8

const (
	Open    Mode = iota // take and start
	Paused              // take, start nothing
	Drained             // refuse new ones, start what waits
)

var modeNames = [...]string{"open", "paused", "drained"}

// String returns the mode's stable name.
func (m Mode) String() string { return modeNames[m] }

// View is a picture of the queue.
type View struct {
	Classes []ClassView
	Tenants []TenantView
	Waiting []WaitingView // in the order in which they will start
	Running []RunningView
	Cost    cost.Cost
	// Margin is how far predictions are stretched, since q90 of actual/predicted
	// was so.
	Margin float64
	// Brownout is the step of the overload ladder, 0 for none.
	Brownout int
	// Lengths says how well answers' lengths are foretold.
	Lengths LengthView
}

// LengthView is how good the length model was, lately.
type LengthView struct {
	// PairAccuracy is how often of two answers the one expected to be longer was.
	PairAccuracy float64
	// Covered is the share of answers within their predicted 90 % quantile.
	Covered float64
	// ReserveRatio is that quantile over the actual length, summed over answers.
	ReserveRatio float64
}

// ClassView is one class.
type ClassView struct {
	Name             string
	Mode             Mode
	Waiting, Running int
	WaitingBytes     int
	// Share is its part of the engine time of the last minute.
	Share float64
	// Backlog is the engine time that waits.
	Backlog time.Duration
	// Refused and Demoted count since the start.
	Refused, Demoted uint64
}

// TenantView is one tenant with work.
type TenantView struct {
	Name             string
	Class            string
	Waiting, Running int
	Deficit          time.Duration // engine time it may still take before others go first
	Served           time.Duration // engine time of the last minute
}

// WaitingView is one waiting request.
type WaitingView struct {
	ID, Tenant, Class string
	Demoted           bool
	Long              bool
	Waited            time.Duration
	Starts            time.Duration // predicted, from now
	Prefill           time.Duration // engine time before its first token
	Cost              time.Duration // engine time in all, as it is ordered by
	Uncached          int
	Why               Why
}

// RunningView is one running request.
type RunningView struct {
	ID, Tenant, Class string
	Long              bool
	Ran               time.Duration
	Tokens            int
	FirstToken        bool
}
