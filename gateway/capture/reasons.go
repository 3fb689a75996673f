package capture

import (
	"math/bits"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
)

// reasons is the set of reasons why a request is kept.
type reasons uint16

const (
	reasonSlowFirstToken reasons = 1 << iota // over its class's goal for the first token
	reasonSlowToken                          // over its class's goal for the time between tokens
	reasonSlowQueue                          // the wait alone was longer than the goal for the first token
	reasonHung                               // still running, far over a goal
	reasonFailed                             // by our fault
	reasonRefused                            // for lack of room, budget or time
	reasonClientLeft                         // before its answer was complete
	reasonPreempted                          // its pages were taken
	reasonSampled                            // its caller's trace is sampled
	reasonForced                             // its client asked for it
	reasonUnusual                            // slower than 999 of 1000 in its class
	reasonBaseline                           // one in many, to compare with
)

var reasonNames = [...]string{"slow_first_token", "slow_token", "slow_queue", "hung", "failed", "refused", "client_gone",
	"preempted", "sampled", "forced", "unusual", "baseline"}

// reasonCount is the number of reasons.
const reasonCount = len(reasonNames)

// names are the stable names of the reasons in the set.
func (r reasons) names() []string {
	names := make([]string, 0, bits.OnesCount16(uint16(r)))
	for i, name := range reasonNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// first is the index of the most important reason in a set that is not empty.
func (r reasons) first() int { return bits.TrailingZeros16(uint16(r)) }

// slow are the reasons of requests that missed a goal. An admitted request with one
// of them is always kept: beyond the quota without its steps.
const slow = reasonSlowFirstToken | reasonSlowToken | reasonSlowQueue | reasonHung

// quiet are the reasons that say nothing about the request itself.
const quiet = reasonSampled | reasonForced | reasonBaseline

// tails are durations that one in a thousand recent requests of a class exceeded;
// 0 while too few requests are known.
type tails struct{ wall, firstToken time.Duration }

// decide returns the reasons to keep r, which has ended. number counts dispatched
// requests; one in every so many of them is kept as a baseline.
func decide(r *telemetry.Record, usual tails, number uint64, every int) (why reasons) {
	for goal, reason := range goalReasons {
		if r.Broken&goal != 0 {
			why |= reason
		}
	}
	if r.Decoded != 0 || r.Outcome != telemetry.ClientGone { // a client that leaves while it sends is no news
		why |= endings[r.Outcome].reason
	}
	if r.Sampled() {
		why |= reasonSampled
	}
	if r.Forced {
		why |= reasonForced
	}
	if r.Dispatched == 0 {
		return why
	}
	if r.Engine.Preempted > 0 {
		why |= reasonPreempted
	}
	if over(r.Finished-r.Arrived, usual.wall) || over(r.FirstTokenDelay(), usual.firstToken) {
		why |= reasonUnusual
	}
	if number%uint64(every) == 0 {
		why |= reasonBaseline
	}
	return why
}

func over(ns int64, limit time.Duration) bool { return limit > 0 && ns > int64(limit) }

var goalReasons = map[telemetry.Goals]reasons{telemetry.FirstTokenGoal: reasonSlowFirstToken, telemetry.TokenGoal: reasonSlowToken, telemetry.QueueGoal: reasonSlowQueue}

// ending is what follows from an outcome: a reason to keep the request, 0 for
// none, and the cause that its sentence is about, causeNothing for an answer.
type ending struct {
	reason reasons
	cause  cause
}

// endOf is the cause that the sentence of r is about, causeNothing for an answer.
func endOf(r *telemetry.Record) cause {
	if r.ErrorKind == errorLoading {
		return causeLoading
	}
	return endings[r.Outcome].cause
}

// errorLoading is the error of requests that came while the model was downloaded.
const errorLoading = "model_loading"

// endings has every outcome. There is no reason to keep a request that was itself
// wrong: its client is told, and no operator needs to act.
var endings = [telemetry.OutcomeCount]ending{
	telemetry.OK:                 {0, causeNothing},
	telemetry.Invalid:            {0, causeInvalid},
	telemetry.NotFound:           {0, causeInvalid},
	telemetry.ContextLength:      {0, causeInvalid},
	telemetry.TooLarge:           {0, causeInvalid},
	telemetry.GrammarFailed:      {0, causeInvalid},
	telemetry.Unauthorized:       {0, causeInvalid},
	telemetry.Forbidden:          {0, causeInvalid},
	telemetry.IssuerUnavailable:  {reasonRefused, causeRefused},
	telemetry.QueueFull:          {reasonRefused, causeRefused},
	telemetry.QueueTimeout:       {reasonRefused, causeRefused},
	telemetry.RateLimited:        {reasonRefused, causeRefused},
	telemetry.Late:               {reasonRefused, causeRefused},
	telemetry.Revoked:            {reasonRefused, causeRefused},
	telemetry.Overloaded:         {reasonRefused, causeRefused},
	telemetry.ClassClosed:        {reasonRefused, causeRefused},
	telemetry.LimiterUnavailable: {reasonRefused, causeRefused},
	telemetry.Internal:           {reasonFailed, causeInternal},
	telemetry.EngineUnavailable:  {reasonFailed, causeEngineLost},
	telemetry.EngineError:        {reasonFailed, causeEngineFailed},
	telemetry.NonFinite:          {reasonFailed, causeEngineFailed},
	telemetry.Draining:           {reasonFailed, causeDraining},
	telemetry.DeadlineExceeded:   {reasonFailed, causeDeadline},
	telemetry.WriteStall:         {reasonFailed, causeReader},
	telemetry.ClientGone:         {reasonClientLeft, causeClientLeft},
}
