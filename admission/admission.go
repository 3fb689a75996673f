package admission

import (
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/cost"
)

// Controller admits requests. Its methods may be called from any goroutine.
type Controller interface {
	// Admit returns a ticket, admitted or waiting, or a *Refusal. It never waits.
	Admit(d Demand) (Ticket, error)
	// Refuse returns a *Refusal for a request whose prompt is not prepared yet, if it
	// would be refused once it is, as far as BodyBytes tells; nil decides nothing. It sets
	// d.Draw, which the request keeps.
	Refuse(d *Demand) error
	// Expected is how many tokens an answer to d is likely not to pass, over all
	// its sequences: the 90 % quantile of those like it.
	Expected(d *Demand) int
	// Report tells what the engine's last step showed. Reports come in order.
	Report(r Report)
	// Load is the state of this instant.
	Load() Load
	// Outlook says when a newcomer would have its first token here.
	Outlook() Outlook
	// View is all that waits and runs, for people to look at.
	View() View
	// SetMode opens, pauses or drains a class. The error says that there is no such
	// class.
	SetMode(class string, m Mode) error
}

// Ticket is a place, running or waiting. Its methods may be called from any
// goroutine; after Done only Done may be called.
type Ticket interface {
	// Promise is what the request was told on arrival.
	Promise() Promise
	// Ready is closed when the request starts or is refused; Err says which.
	Ready() <-chan struct{}
	// Err is nil when admitted and a *Refusal otherwise. Call it only after Ready.
	Err() error
	// Grant is how the request runs. Call it only after Ready with a nil Err.
	Grant() Grant
	// Progress says how many tokens the request has so far, over all its choices.
	// The first call with more than 0 marks the first token.
	Progress(tokens int)
	// Done settles the ticket in any state and frees its place at once. Only the
	// first call counts.
	Done(s Spent)
}

// Demand is what a request asks for, before it runs.
type Demand struct {
	ID     string
	Tenant string
	Class  string
	Route  string
	// Group names the engines that may run it, as in Groups; "" is the only group.
	Group string
	// Form names the kind of schema or grammar that holds the answer, "" for free
	// text. Lengths of answers are learned apart by it.
	Form string
	// Sequences is the number of prompts times that of choices.
	Sequences int
	// PromptTokens are the tokens of all prompts, UncachedTokens those of them that
	// must be computed. DecodeTokens is the most that may be generated, over all
	// sequences.
	PromptTokens   int
	UncachedTokens int
	DecodeTokens   int
	// Age is how long ago the request came. Its goal counts from there.
	Age time.Duration
	// BodyBytes is the size of the client's body, 0 where it tells nothing of the tokens.
	BodyBytes int
	// Draw is the number by which one of several requests that are alike is let in; 0 is
	// drawn on arrival.
	Draw uint64
	// Bytes is the memory that the request holds while it waits.
	Bytes int
	// Blocks are the hashes of the first prompt's full blocks of BlockTokens each.
	// The first one names the system prompt for the length model.
	Blocks      []uint64
	BlockTokens int
	// Within is the client's bound on the time from arrival to the answer's end;
	// 0 is none.
	Within time.Duration
	// User is the tenant's own user, if the request names one. Only shedding looks
	// at it.
	User string
	// Retry says that the client sends the request again after a refusal.
	Retry bool
}

// Report is what the engine said at the end of a step.
type Report struct {
	// Group names the engines that the report is of, as in Groups.
	Group string
	// Up is false while there is no engine to give work to.
	Up bool
	// At is when the engine wrote the report, on the Scheduler's clock.
	At time.Duration
	// Cost is the engine's own model of its steps.
	Cost cost.Cost
	// Room is the rule for the prefill of a step.
	Room cost.Room
	// KVTokens is how many tokens the page pool holds, KVPinned how many of them are
	// pinned: room for a request that needs all, and for no other.
	KVTokens, KVPinned int
	// A sequence takes the room of KVWindowTimes·min(its tokens, KVWindowTokens) tokens more,
	// in layers that keep the newest tokens only.
	KVWindowTimes, KVWindowTokens int
	// ShortPrefill and LongPrefill are the prompt tokens in the engine that are not
	// computed yet, by lane.
	ShortPrefill, LongPrefill int
	// Sequences are those that the engine computes, lets wait or has paused.
	Sequences int
	// Places is how many sequences may be in the engine at once; 0 leaves it to the
	// configuration. A request of more sequences runs alone.
	Places int
	// StepDuration is how long the step took; 0 for an idle turn.
	StepDuration time.Duration
	// StepPredicted is what Cost predicted for it before it ran.
	StepPredicted time.Duration
	// Blocks are the changes of the set of reusable blocks since the last report.
	Blocks hitmap.News
}

// Promise is what a request is told when it is taken in, both counted from its
// arrival.
type Promise struct {
	// Goal is the time within which its first token is to come, the slack for its own
	// prefill included; 0 is none.
	Goal time.Duration
	// Predicted is the predicted wait for its first token; 0 if there is none.
	Predicted time.Duration
}

// Grant says how an admitted request is to run.
type Grant struct {
	// Class is the class it runs in: not the one it asked for if it was demoted.
	Class string
	// Level is 0 for requests that people wait for; a higher level may wait longer.
	Level int
	// Key orders within a level, smaller first.
	Key int64
	// Long says that it goes by the lane of long prefills.
	Long bool
	// FirstTokenGoal is the goal for its first token, the slack for its own prefill
	// included. TokenGoal is the goal for the time between tokens. 0 is none.
	FirstTokenGoal, TokenGoal time.Duration
	// OutputTokens is the longest answer of a sequence during overload; 0 leaves it
	// to the request.
	OutputTokens int
	// Waited is the time from arrival to start. Predicted is the wait for the first
	// token as predicted on arrival.
	Waited, Predicted time.Duration
	// Why is the last reason for which it waited.
	Why Why
}

// Spent is what a request used.
type Spent struct {
	// ComputedTokens of its prompts were computed, behind CachedTokens that were found
	// in the cache. Less than the prompts where the request ended early.
	ComputedTokens, CachedTokens int
	CompletionTokens             int
	// Unheard says that the engine did not tell how much of the prompts it computed.
	Unheard bool
	// Whole says that the model ended the answer. One that was cancelled, or cut at
	// max_tokens, might have gone on.
	Whole bool
}

// Load counts requests and their sequences.
type Load struct {
	Running, RunningSequences int
	Waiting, WaitingSequences int
}

// Why is the reason for which a request waits.
type Why uint8

// The reasons, from the one nearest to a start to the furthest.
const (
	WhyNot       Why = iota // it does not wait
	WhyWindow               // it waits a moment for others to share its step
	WhyPrefill              // the engine has a step's worth of prefill that it has not begun
	WhyOrder                // others come first
	WhyShare                // its tenant has used more than its share
	WhyClassCap             // its class holds as many places or as much memory as it may
	WhySequences            // every running place is taken
	WhyMemory               // too little memory is free for its keys and values
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
	Late                       // on arrival: it would miss its goal, or make another miss its own
	Revoked                    // while it waited: it would miss its goal after all, since the engine became slower
	PastDeadline               // the client's own deadline has passed, or cannot be met
	Overloaded                 // shed on the last rung of the overload ladder
	RetryBudget                // too many retries of this tenant
	ClassClosed                // its class takes no requests: its operator drains it
)

var reasonNames = [...]string{"too_large", "queue_full", "timed_out", "late", "revoked", "past_deadline", "overloaded", "retry_budget", "class_closed"}

// String returns the reason's stable name.
func (r Reason) String() string { return reasonNames[r] }

// Refusal is the error of a request that may not run.
type Refusal struct {
	Reason  Reason
	Message string
	// RetryAfter predicts when the request could be served; 0 is never.
	RetryAfter time.Duration
	// Predicted is the predicted wait for the first token; 0 where there was none.
	Predicted time.Duration
	// Why is WhyPaused if a pause of its class made it wait, else WhyNot.
	Why Why
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
	Waiting []WaitingView // in the order in which they will start, of one group after another
	Running []RunningView
	Cost    cost.Cost
	// Margin is the largest of the classes' margins.
	Margin float64
	// Brownout is the rung of the overload ladder; 0 is no overload.
	Brownout int
	// Lengths says how good the predictions of answer lengths are.
	Lengths LengthView
}

// LengthView is how good the length model was recently.
type LengthView struct {
	// PairAccuracy is how often, of two answers, the one expected to be longer was
	// longer.
	PairAccuracy float64
	// Covered is the share of answers within their predicted 90 % quantile.
	Covered float64
	// ReserveRatio is the sum of those quantiles over the sum of actual lengths.
	ReserveRatio float64
}

// ClassView is one class.
type ClassView struct {
	Group            string // of Groups, else "", as in the others
	Name             string
	Mode             Mode
	Waiting, Running int
	WaitingBytes     int
	// Share is its part of the engine's time, of about the last half minute.
	Share float64
	// Backlog is the engine time that its waiting requests need.
	Backlog time.Duration
	// Margin is the factor on predicted waits, see margin.go.
	Margin float64
	// Refused and Demoted count requests since the process started; Revoked are
	// those refused or demoted after they had been promised their goal.
	Refused, Demoted, Revoked uint64
}

// TenantView is one tenant with work.
type TenantView struct {
	Group            string
	Name             string
	Class            string
	Waiting, Running int
	Deficit          time.Duration // engine time it may still take before others go first
	Served           time.Duration // engine time of about the last half minute
}

// StartsUnknown is the Starts of a request that nothing starts as things are.
const StartsUnknown = time.Duration(-1)

// WaitingView is one waiting request.
type WaitingView struct {
	Group             string
	ID, Tenant, Class string
	Demoted           bool
	Long              bool
	Waited            time.Duration
	Starts            time.Duration // predicted, from now; StartsUnknown while its class is paused or no engine runs
	Prefill           time.Duration // engine time before its first token
	Cost              time.Duration // engine time by which it is ordered
	Uncached          int
	Why               Why
}

// RunningView is one running request.
type RunningView struct {
	Group             string
	ID, Tenant, Class string
	Long              bool
	Ran               time.Duration
	Tokens            int
	FirstToken        bool
}
