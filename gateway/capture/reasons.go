package capture

import (
	"math/bits"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
)

// Reasons are why a request is kept: a set, of a closed list.
type Reasons uint16

const (
	SlowFirstToken Reasons = 1 << iota // over its class's goal for the first token
	SlowToken                          // over its class's goal for the time between tokens
	SlowQueue                          // waited alone longer than the goal for the first token
	Hung                               // still running, far over a goal
	Failed                             // by our fault
	Refused                            // for want of room, budget or time
	ClientLeft                         // before its answer was whole
	Preempted                          // its pages were taken
	Sampled                            // its caller's trace is sampled
	Forced                             // its client asked for it
	Unusual                            // slower than all but one in a thousand of its class
	Baseline                           // one in so many, to compare with
)

var reasonNames = [...]string{"slow_first_token", "slow_token", "slow_queue", "hung", "failed", "refused", "client_gone",
	"preempted", "sampled", "forced", "unusual", "baseline"}

// ReasonCount is how many reasons there are.
const ReasonCount = len(reasonNames)

// Names are the stable names of the reasons in the set.
func (r Reasons) Names() []string {
	names := make([]string, 0, bits.OnesCount16(uint16(r)))
	for i, name := range reasonNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// first is the index of the weightiest reason of a set that has one.
func (r Reasons) first() int { return bits.TrailingZeros16(uint16(r)) }

// slow are the reasons of a request that missed a goal. Those that ran are kept
// whatever the budgets say: beyond these without their steps.
const slow = SlowFirstToken | SlowToken | SlowQueue | Hung

// quiet are the reasons that say nothing of the request itself.
const quiet = Sampled | Forced | Baseline

// Usual is what only one in a thousand requests of a class was slower than,
// lately; 0 while too few are known.
type Usual struct{ Wall, FirstToken time.Duration }

// Decide says why r, which has ended, is to be kept, if it is. number counts
// the requests that ran, and every is the baseline.
func Decide(r *telemetry.Record, usual Usual, number uint64, every int) (why Reasons) {
	for goal, reason := range goalReasons {
		if r.Broken&goal != 0 {
			why |= reason
		}
	}
	if r.Decoded != 0 || r.Outcome != telemetry.ClientGone { // else it never came whole
		why |= ofOutcome(r.Outcome)
	}
	if r.Sampled() {
		why |= Sampled
	}
	if r.Forced {
		why |= Forced
	}
	if r.Dispatched == 0 {
		return why
	}
	if r.Engine.Preempted > 0 {
		why |= Preempted
	}
	if over(r.Finished-r.Arrived, usual.Wall) || over(r.FirstTokenDelay(), usual.FirstToken) {
		why |= Unusual
	}
	if number%uint64(every) == 0 {
		why |= Baseline
	}
	return why
}

func over(ns int64, limit time.Duration) bool { return limit > 0 && ns > int64(limit) }

var goalReasons = map[telemetry.Goals]Reasons{telemetry.FirstTokenGoal: SlowFirstToken, telemetry.TokenGoal: SlowToken, telemetry.QueueGoal: SlowQueue}

// ofOutcome leaves out what is wrong with a request itself: its client is told,
// and nobody is woken.
func ofOutcome(o telemetry.Outcome) Reasons {
	switch o {
	case telemetry.Internal, telemetry.EngineUnavailable, telemetry.EngineError, telemetry.NonFinite, telemetry.Draining, telemetry.DeadlineExceeded, telemetry.WriteStall:
		return Failed
	case telemetry.QueueFull, telemetry.QueueTimeout, telemetry.RateLimited, telemetry.Late, telemetry.Overloaded, telemetry.ClassClosed, telemetry.LimiterUnavailable:
		return Refused
	case telemetry.ClientGone:
		return ClientLeft
	}
	return 0
}
