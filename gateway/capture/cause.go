package capture

import (
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// Cause is what most of a request's time went to, or what ended it.
type Cause uint8

const (
	CauseNothing       Cause = iota // nothing unusual
	CauseBody                       // its body came slowly
	CausePrepare                    // rendering and tokenizing its prompt
	CauseReserve                    // the store of budgets
	CauseQueue                      // it waited for admission
	CauseOwnPrefill                 // its own prompt
	CauseOthersPrefill              // others' prompts
	CauseOwnDecode                  // its own answer
	CauseOthersDecode               // others' answers, in the same steps
	CauseGap                        // between steps
	CauseGivenUp                    // steps given up for somebody more urgent
	CausePages                      // memory for its keys and values
	CausePlaces                     // places among the running
	CausePrefix                     // another computed the prefix that they share
	CauseHeldBack                   // steps went to others
	CausePreempted                  // its pages were taken
	CauseReader                     // its client read slowly
	CauseHandover                   // from the gateway to the engine
	CauseUnexplained
	CauseRefused
	CauseEngineLost
	CauseEngineFailed
	CauseClientLeft
	CauseDeadline
	CauseDraining
	CauseInternal
	CauseInvalid
	causeCount
)

var causeNames = [causeCount]string{"nothing", "body", "prepare", "reserve", "queue", "own_prefill", "others_prefill", "own_decode",
	"others_decode", "gap", "given_up", "pages", "places", "prefix", "held_back", "preempted", "slow_reader", "handover", "unexplained",
	"refused", "engine_lost", "engine_failed", "client_left", "deadline", "draining", "internal", "invalid"}

// String returns the cause's stable name.
func (c Cause) String() string { return causeNames[c] }

// causes are what the life of a request went to, or a part of it.
type causes [causeCount]time.Duration

// scope is the part of a life that matters: where a goal was missed, the time
// that the goal is about.
type scope uint8

const (
	scopeAll    scope = iota
	scopeBefore       // up to the first token
	scopeAfter        // from there on
)

// scopeOf is what matters of a request that missed goals.
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

// causes adds up the two tables by cause, as far as they are within the scope.
func (l *life) causes(blocked time.Duration, within scope) (c causes) {
	if within != scopeAfter {
		for p := range phaseEngineQueue {
			c[causeOfPhase[p]] += l.phase(p)
		}
		for p := range wire.PartCount {
			c[causeOfPart[p]] += l.before[p]
		}
		c[CauseOwnPrefill] += l.before[wire.PartOwn]
		c[CauseHandover] += l.handover
		c[CauseUnexplained] += l.beforeUnknown
	}
	if within != scopeBefore {
		for p := range wire.PartCount {
			c[causeOfPart[p]] += l.after[p]
		}
		c[CauseOwnDecode] += l.after[wire.PartOwn]
		c[CauseUnexplained] += l.afterUnknown
		// Writes that waited while the engine went on are no part of its time; after
		// its end they are the reader's.
		emit := l.phase(phaseEmit)
		c[CauseReader] += min(emit, blocked)
		c[CauseHandover] += max(0, emit-blocked)
	}
	c[CauseNothing] = 0 // its own parts, which are added by phase
	return c
}

// within is how long the scope is.
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

var causeOfPhase = [phaseCount]Cause{
	phaseRead: CauseBody, phaseIdentify: CausePrepare, phasePrepare: CausePrepare, phaseRender: CausePrepare, phaseTokenize: CausePrepare,
	phaseReserve: CauseReserve, phaseQueue: CauseQueue, phaseDispatch: CauseHandover,
}

var causeOfPart = [wire.PartCount]Cause{
	wire.PartOthersPrefill: CauseOthersPrefill, wire.PartOthersDecode: CauseOthersDecode, wire.PartGap: CauseGap, wire.PartGivenUp: CauseGivenUp,
	wire.PartPages: CausePages, wire.PartPlaces: CausePlaces, wire.PartPrefix: CausePrefix, wire.PartHeldBack: CauseHeldBack,
	wire.PartPreempted: CausePreempted, wire.PartPaused: CauseReader, wire.PartParked: CauseReader,
}

// largest is the cause with the most time.
func (c *causes) largest() Cause {
	most := CauseBody
	for i := range c {
		if c[i] > c[most] {
			most = Cause(i)
		}
	}
	return most
}

// ended is the cause of an end that was no answer, CauseNothing for an answer.
func ended(o telemetry.Outcome) Cause {
	switch o {
	case telemetry.OK:
		return CauseNothing
	case telemetry.QueueFull, telemetry.QueueTimeout, telemetry.RateLimited, telemetry.Late, telemetry.Overloaded, telemetry.ClassClosed, telemetry.LimiterUnavailable:
		return CauseRefused
	case telemetry.EngineUnavailable:
		return CauseEngineLost
	case telemetry.EngineError, telemetry.NonFinite:
		return CauseEngineFailed
	case telemetry.ClientGone:
		return CauseClientLeft
	case telemetry.WriteStall:
		return CauseReader
	case telemetry.DeadlineExceeded:
		return CauseDeadline
	case telemetry.Draining:
		return CauseDraining
	case telemetry.Internal:
		return CauseInternal
	}
	return CauseInvalid
}

// causeOf is the cause of r by its record alone, without its steps.
func causeOf(r *telemetry.Record) Cause {
	if c := ended(r.Outcome); c != CauseNothing {
		return c
	}
	t := timesOf(r)
	l := divide(r, &t, r.Finished)
	c := l.causes(r.Blocked, scopeOf(r.Broken))
	return c.largest()
}
