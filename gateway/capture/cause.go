package capture

import (
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// cause is what most of a request's time went to, or what ended it.
type cause uint8

const (
	causeNothing       cause = iota // nothing unusual
	causeBody                       // its body came slowly
	causePrepare                    // its prompt was rendered and tokenized
	causeReserve                    // the store of budgets was asked
	causeQueue                      // it waited for admission
	causeOwnPrefill                 // its own prompt
	causeOthersPrefill              // other requests' prompts
	causeOwnDecode                  // its own answer
	causeOthersDecode               // other requests' answers, in the same steps
	causeGap                        // the time between steps
	causeGivenUp                    // steps given up for a more urgent request
	causePages                      // no free memory for its keys and values
	causePlaces                     // no free place among the running sequences
	causePrefix                     // another request computed their common prefix
	causeHeldBack                   // the steps went to others
	causePreempted                  // its pages were taken
	causeReader                     // its client read slowly
	causeHandover                   // the way from the gateway to the engine
	causeUnexplained
	causeRefused
	causeEngineLost
	causeEngineFailed
	causeClientLeft
	causeDeadline
	causeDraining
	causeInternal
	causeInvalid
	causeCount
)

var causeNames = [causeCount]string{"nothing", "body", "prepare", "reserve", "queue", "own_prefill", "others_prefill", "own_decode",
	"others_decode", "gap", "given_up", "pages", "places", "prefix", "held_back", "preempted", "slow_reader", "handover", "unexplained",
	"refused", "engine_lost", "engine_failed", "client_left", "deadline", "draining", "internal", "invalid"}

// String returns the cause's stable name.
func (c cause) String() string { return causeNames[c] }

// causes is the time that each cause took.
type causes [causeCount]time.Duration

// scope is the part of a life that matters. Of a request that missed a goal, this
// is the time that the goal is about.
type scope uint8

const (
	scopeAll    scope = iota
	scopeBefore       // up to the first token
	scopeAfter        // after the first token
)

// scopeOf is the scope of a request that missed these goals.
func scopeOf(broken telemetry.Goals) scope {
	switch early := broken & (telemetry.FirstTokenGoal | telemetry.QueueGoal); {
	case broken == 0:
		return scopeAll
	case early == broken:
		return scopeBefore
	case early == 0:
		return scopeAfter
	}
	return scopeAll
}

// causes sums up phases and parts by cause, within the scope.
func (l *life) causes(blocked time.Duration, within scope) (c causes) {
	if within != scopeAfter {
		for p := range phaseEngineQueue {
			c[causeOfPhase[p]] += l.phase(p)
		}
		for p := range wire.PartCount {
			c[causeOfPart[p]] += l.before[p]
		}
		c[causeOwnPrefill] += l.before[wire.PartOwn]
		c[causeHandover] += l.handover
		c[causeUnexplained] += l.beforeUnknown
	}
	if within != scopeBefore {
		for p := range wire.PartCount {
			c[causeOfPart[p]] += l.after[p]
		}
		c[causeOwnDecode] += l.after[wire.PartOwn]
		c[causeUnexplained] += l.afterUnknown
		// Blocked writes count only after the engine's end: before it, they did not
		// hold up the engine.
		emit := l.phase(phaseEmit)
		c[causeReader] += min(emit, blocked)
		c[causeHandover] += max(0, emit-blocked)
	}
	c[causeNothing] = 0 // holds the own parts, which are counted by phase
	return c
}

// within is the duration of the scope.
func (l *life) within(s scope) time.Duration {
	before := time.Duration(l.ends[phasePrefill] - l.begin)
	switch s {
	case scopeBefore:
		return before
	case scopeAfter:
		return l.wall() - before
	}
	return l.wall()
}

var causeOfPhase = [phaseCount]cause{
	phaseRead: causeBody, phaseIdentify: causePrepare, phasePrepare: causePrepare, phaseRender: causePrepare, phaseTokenize: causePrepare,
	phaseReserve: causeReserve, phaseQueue: causeQueue, phaseDispatch: causeHandover,
}

var causeOfPart = [wire.PartCount]cause{
	wire.PartOthersPrefill: causeOthersPrefill, wire.PartOthersDecode: causeOthersDecode, wire.PartGap: causeGap, wire.PartGivenUp: causeGivenUp,
	wire.PartPages: causePages, wire.PartPlaces: causePlaces, wire.PartPrefix: causePrefix, wire.PartHeldBack: causeHeldBack,
	wire.PartPreempted: causePreempted, wire.PartPaused: causeReader, wire.PartParked: causeReader,
}

// largest is the cause that took the most time.
func (c *causes) largest() cause {
	most := causeBody
	for i := range c {
		if c[i] > c[most] {
			most = cause(i)
		}
	}
	return most
}

// causeOf is the cause of r by its record alone, without its steps.
func causeOf(r *telemetry.Record) cause {
	if c := endings[r.Outcome].cause; c != causeNothing {
		return c
	}
	l := divide(r, r.Finished)
	c := l.causes(r.Blocked, scopeOf(r.Broken))
	return c.largest()
}
